"""More convolutional layers."""
