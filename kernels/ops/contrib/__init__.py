"""Operators of MXNet's contrib and quantization."""
