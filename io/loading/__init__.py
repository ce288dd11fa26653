"""Prefetching with threads and processes."""
