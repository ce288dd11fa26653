"""Tuned configurations of kernels: their keys, the store of results, the active ones."""
