"""Expressions: traced formulas, the primitives they are made of, their derivatives."""
