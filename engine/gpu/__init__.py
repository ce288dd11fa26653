"""CUDA devices and streams, through torch; the only place that imports it."""
