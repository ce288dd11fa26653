"""Tuned configurations of kernels: their keys, the store of results, what is active."""
