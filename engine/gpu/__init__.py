"""CUDA devices and streams, through torch."""
