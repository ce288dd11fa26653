"""Operators on arrays: elementwise, reductions, shapes, indexing, sorting."""
