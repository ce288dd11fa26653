"""Expressions: what a formula is once it has been traced, its primitives and its derivative."""
