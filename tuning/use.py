"""use(): give this process's kernels the configurations that `tritium tune` found."""

from __future__ import annotations

from pathlib import Path

from ..errors import FileError
from ..kernels.configs import active as active_configs
from ..kernels.configs.gpu_device import gpu_device
from ..kernels.configs.store import lookup_for, store_path
from ..kernels.op import forget_compiled
from ..ndarray.dispatch.plan import CACHE


def use(path: Path | str | None = None, *, estimates: bool = False) -> None:
    """Give kernels the best configurations of the store at path; default, the store of `tritium tune`.

    All calls from now on have them; a bound executor keeps the kernels that it has.

    estimates: on a GPU, also configurations that were compiled and ranked but never timed.
    Raises FileError if the store does not exist. `TRITIUM_TUNED=1` in the environment does the same without that error.
    """
    path = Path(path) if path is not None else store_path()
    if not path.exists():
        raise FileError(f"use: {path}: no tuning results. Run `tritium tune` first.")
    active_configs.use(lookup_for(path, device=gpu_device(), estimates=estimates))
    forget_compiled()
    CACHE.clear()
