"""Tritium: `import tritium as mx`."""

from .version import __version__ as __version__
