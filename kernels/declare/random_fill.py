"""Fill an array with random numbers, for layers that draw into memory: by the kernel printed of one draw."""

from __future__ import annotations

from collections.abc import Callable

from ...cache import Cache
from ...dtype import as_dtype
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


def _kernel(kind: str, shape: Shape, name: str, target: str) -> Kernel:
    dtype = as_dtype(name)
    with recording(dtype) as recorder:
        root = _BODIES[kind](param("a"), param("b"))
    e = Expression((root,), scalars=("a", "b"), draws=tuple(recorder.draws))
    return printed(e, [], [Spec(shape, dtype)], [Req.WRITE], target, f"random_{kind}")
