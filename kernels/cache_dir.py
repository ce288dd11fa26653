"""The folder where generated kernels are kept between processes."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return the folder of generated kernel files: $TRITIUM_CACHE_DIR, else ~/.cache/tritium/kernels."""
    given = os.environ.get("TRITIUM_CACHE_DIR")
    return Path(given) if given else Path.home() / ".cache" / "tritium" / "kernels"
