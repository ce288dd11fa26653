"""More layers."""
