"""Passes: each takes a program and returns a program."""
