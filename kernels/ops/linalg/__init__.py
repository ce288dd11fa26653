"""Matrix products and factorizations."""
