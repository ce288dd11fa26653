"""mx.random and mx.nd.random: seed, and arrays of random numbers drawn at push time from a counter-based generator."""

from __future__ import annotations

from typing import Any

from ..context import Context
from ..engine import resource
from ..errors import OperatorError
from ..kernels.op import get as get_op
from .call import as_context, call_op
from .core import ArrayCore
from .namespace import attribute


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Start the random numbers anew: of all contexts, or of one."""
    resource.seed(int(seed_state), "all" if ctx == "all" else as_context(ctx))  # type: ignore[arg-type]


def _draw(name: str, shape: Any, dtype: Any, ctx: Any, out: Any, **params: Any) -> Any:
    for k, v in params.items():
        if isinstance(v, ArrayCore):
            raise OperatorError(f"random.{name.removeprefix('_random_')}: {k} is an NDArray. Give a number, and scale "
                                f"and shift the result.")
    if out is not None:
        shape, ctx, dtype = out.shape, out.ctx, out._layout.dtype if dtype is None else dtype
    given = {"shape": (1,) if shape is None else shape, **params}
    if dtype is not None:
        given["dtype"] = dtype
    op = get_op(name)
    given = {k: v for k, v in given.items() if any(d.name == k for d in op.params)}
    ctx = as_context(ctx)
    if ctx is not None:
        with ctx:
            return call_op(op, (), {**given, "out": out})
    return call_op(op, (), {**given, "out": out})


def uniform(low: float = 0, high: float = 1, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None,
            **kwargs: Any) -> Any:
    """Uniform in [low, high)."""
    return _draw("_random_uniform", shape, dtype, ctx, out, low=low, high=high)


def normal(loc: float = 0, scale: float = 1, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None,
           **kwargs: Any) -> Any:
    """Normal with mean loc and standard deviation scale."""
    return _draw("_random_normal", shape, dtype, ctx, out, loc=loc, scale=scale)


def randn(*shape: int, loc: float = 0, scale: float = 1, dtype: Any = None, ctx: Any = None, out: Any = None) -> Any:
    """Normal, with the shape given as arguments."""
    return normal(loc, scale, shape or None, dtype, ctx, out)


def randint(low: int, high: int, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None,
            **kwargs: Any) -> Any:
    """Whole numbers in [low, high), as int32 unless dtype says otherwise."""
    return _draw("_random_randint", shape, dtype or "int32", ctx, out, low=low, high=high)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return attribute("random", name, ("_random_", "_sample_", "_"))
