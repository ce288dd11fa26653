"""More datasets and samplers."""
