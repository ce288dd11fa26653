"""Shared by tests: oracles, generators of random cases, stand-ins."""
