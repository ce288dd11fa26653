"""Fill an array with random numbers, for layers that draw into memory: by the kernel printed of one draw. Save a draw's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...cache import Cache
from ...dtype import as_dtype
from ..gpu import copy
from ..ir import lang
from ..ir.draws import recording
from ..ir.expr import Expr, param
from ..kernel import DeviceArray, Kernel, Run
from ..op import Expression, Req, Shape, Spec
from .traced import printed

_kernels: Cache[tuple, Kernel] = Cache()
_BODIES: dict[str, Callable[[Expr, Expr], Expr]] = {
    "uniform": lambda a, b: lang.uniform() * b + a,
    "normal": lambda a, b: lang.normal() * b + a,
    "integers": lambda a, b: lang.integers(a, a + b),
}


def fill(run: Run, target: str, out: DeviceArray, random: tuple[int, int], kind: str = "uniform", a: float = 0.0, b: float = 1.0
         ) -> None:
    """Fill out with a + b · uniform or normal numbers, or with a + integers below b.

    random: the seed and the offset; element i is number i after that of the generator.
    """
    name = str(out.dtype).removeprefix("torch.")
    shape = tuple(out.shape)
    key = kind, shape, name, target
    _kernels.get_or_make(key, lambda: _kernel(kind, shape, name, target)).run(run, [], [out], scalars=(a, b), random=random)


def save_random(run: Run, array: DeviceArray, random: tuple[Any, int]) -> None:
    """Save the place (seed, offset) of random numbers in an int64 array [2], for the derivative to draw them again."""
    if isinstance(array, np.ndarray):
        array[:] = np.array(random, np.uint64).view(np.int64)
    else:
        copy.save_place(run, array, random)


def load_random(array: DeviceArray) -> tuple[Any, int]:
    """Return the place that save_random saved, for kernels that draw: those of a GPU read it where it is."""
    if not isinstance(array, np.ndarray):
        return array, 0
    seed, offset = array.view(np.uint64).tolist()
    return seed, offset


def on_host(run: Run, random: tuple[Any, int]) -> tuple[int, int]:
    """Return the seed and the offset of random numbers as ints. Waits for earlier work of the stream if they are on a device."""
    held, more = random
    if not hasattr(held, "data_ptr"):
        return held, more
    seed, offset = run.to_host(held).view(np.uint64).tolist()
    return seed, offset + more


def _kernel(kind: str, shape: Shape, name: str, target: str) -> Kernel:
    dtype = as_dtype(name)
    with recording(dtype) as recorder:
        root = _BODIES[kind](param("a"), param("b"))
    e = Expression((root,), scalars=("a", "b"), draws=tuple(recorder.draws))
    return printed(e, [], [Spec(shape, dtype)], [Req.WRITE], target, f"random_{kind}")
