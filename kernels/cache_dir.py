"""The folder where generated kernels are kept between processes."""

from __future__ import annotations

from pathlib import Path

from .. import environment
from ..atomic_file import write_atomic
from ..errors import FileError


def cache_dir() -> Path:
    """Return the folder of generated kernel files: $TRITIUM_CACHE_DIR, else ~/.cache/tritium/kernels."""
    given = environment.CACHE_DIR.get()
    return Path(given) if given else Path.home() / ".cache" / "tritium" / "kernels"


def save(path: Path, data: bytes | str) -> bool:
    """Write a file of the cache folder atomically. Return False if the folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data, sync=False)
    except (OSError, FileError):
        return False
    return True
