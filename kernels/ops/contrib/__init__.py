"""Operators of MXNet's `contrib` namespace, quantization included."""
