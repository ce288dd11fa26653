"""Operators as Triton code: printing, compiling, storing and launching kernels."""
