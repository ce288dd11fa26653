"""Matrix products, factorizations and inverses."""
