"""Networks for images."""
