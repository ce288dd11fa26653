"""MXNet's profiler: its functions, its objects, its recordings and its files."""
