"""Datasets, samplers and DataLoader."""
