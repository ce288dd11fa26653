"""use(): have this process's kernels take what `tritium tune` found."""

from __future__ import annotations

from pathlib import Path

from ..errors import FileError
from ..kernels.configs import active as active_configs
from ..kernels.configs.gpu_device import gpu_device
from ..kernels.configs.store import lookup_for, store_path


def use(path: Path | str | None = None, *, estimates: bool = False) -> None:
    """Kernels made from now on take the best configurations of the store at path (default: where `tritium tune` writes).

    estimates: on a GPU, also configurations that were compiled and ranked but never timed.
    Raises FileError where there is no store. `TRITIUM_TUNED=1` in the environment does the same, but says nothing if
    there is none.
    """
    path = Path(path) if path is not None else store_path()
    if not path.exists():
        raise FileError(f"use: {path}: no tuning results. Run `tritium tune` first.")
    active_configs.use(lookup_for(path, device=gpu_device(), estimates=estimates))
