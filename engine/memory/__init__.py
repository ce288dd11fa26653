"""Storage and random numbers of a context."""
