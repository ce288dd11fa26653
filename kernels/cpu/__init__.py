"""Operators as NumPy code and as generated C."""
