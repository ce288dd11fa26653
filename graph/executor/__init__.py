"""Binding a symbol to arrays, and running it."""
