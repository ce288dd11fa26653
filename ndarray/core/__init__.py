"""The array: memory, views, arithmetic, indexing and methods."""
