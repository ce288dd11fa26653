"""Estimator: a training loop with event handlers."""
