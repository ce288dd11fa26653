"""Tritium's version, and the MXNet release whose files and names it speaks."""
__version__ = "0.1.0"
MXNET_RELEASE = "1.9.1"
MXNET_VERSION = 10901  # written into symbol JSON, as MXNet 1.9.1 does
