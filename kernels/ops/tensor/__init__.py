"""Operators on arrays: elementwise, reductions, shapes, indexing and sorting."""
