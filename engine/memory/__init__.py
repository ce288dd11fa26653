"""Storage, workspace and random numbers of a context."""
