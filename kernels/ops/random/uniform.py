"""_random_uniform, _random_normal, _random_randint: random arrays, equal on every device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....context import Context
from ....dtype import float32, is_float
from ....errors import DistributionError, DTypeError, ParameterError
from ...declare.random_fill import fill
from ...declare.simple_op import Ints, Scalar, SimpleOp, declare
from ...ir import lang
from ...kernel import DeviceArray, Run
from ...op import Shape, Specs
from ...params import Params

Dtype = np.dtype | None
Place = Context | None
_INT32 = np.dtype("int32")


class Drawn(SimpleOp):
    """An operator without arrays that draws its result. check: raises ParameterError or DTypeError for what is not allowed.

    It takes an even count of random numbers.
    """

    def __init__(self, body: Callable[..., Any], *, check: Callable[[Params], None], **options: Any):
        super().__init__(body, **options)
        self._check = check

    def parse(self, given: Mapping[str, object]) -> Params:
        p = super().parse(given)
        self._check(p)
        return p

    def random_count(self, p: Params, ins: Specs, outs: Specs) -> int:
        n = super().random_count(p, ins, outs)
        return n + n % 2


def fill_uniform(run: Run, target: str, out: DeviceArray, random: tuple[int, int], low: float = 0.0, span: float = 1.0) -> None:
    """Fill out with low + span · uniform numbers in [0, 1)."""
    fill(run, target, out, random, "uniform", low, span)


def _shape(*, shape: Shape, outputs: list[Shape | None]) -> Shape:
    return outputs[0] if not shape and outputs[0] is not None else shape or (1,)


def _floating(name: str, dtype: Dtype) -> None:
    if dtype is not None and not is_float(dtype):
        raise DTypeError(f"{name}: dtype {dtype} is not a floating dtype. Use float32, float64, float16 or bfloat16.")


def _check_uniform(p: Params) -> None:
    _floating("_random_uniform", p.dtype)
    if not p.low <= p.high:
        raise DistributionError(f"_random_uniform: low={p.low} is above high={p.high}.")


def _check_normal(p: Params) -> None:
    _floating("_random_normal", p.dtype)
    if p.scale < 0:
        raise DistributionError(f"_random_normal: scale={p.scale} is negative.")


def _check_randint(p: Params) -> None:
    for n in ("low", "high"):
        if p[n] != int(p[n]):
            raise ParameterError(f"_random_randint: {n}={p[n]!r} is not an integer.")
    low, high = int(p.low), int(p.high)
    if not 0 < high - low <= 2**32:
        raise DistributionError(f"_random_randint: low={low}, high={high}: the range must hold 1 to 2**32 integers.")
    dtype = p.dtype or _INT32
    if dtype.kind not in "iu":
        raise DTypeError(f"_random_randint: dtype {dtype} is not an integer dtype. Use int32 or int64.")
    if low < np.iinfo(dtype).min or high - 1 > np.iinfo(dtype).max:
        raise ParameterError(f"_random_randint: low={low}, high={high} do not fit {dtype}.")


def drawn(name: str, check: Callable[[Params], None], *aliases: str, default: np.dtype = float32
          ) -> Callable[[Callable[..., Any]], SimpleOp]:
    """Declare an operator that draws an array of the parameters shape and dtype: a decorator. default: where dtype is None."""
    options = {"name": name, "aliases": (name[1:], *aliases), "shape": _shape, "check": check, "differentiable": False,
               "dtype": lambda *, dtype: dtype or default}
    return lambda body: declare(Drawn, body, options)


@drawn("_random_uniform", _check_uniform, "uniform")
def random_uniform(*, low: Scalar = 0.0, high: Scalar = 1.0, shape: Ints = (), ctx: Place = None, dtype: Dtype = None) -> Any:
    """Uniform in [low, high)."""
    return lang.uniform(low, high)


@drawn("_random_normal", _check_normal, "normal")
def random_normal(*, loc: Scalar = 0.0, scale: Scalar = 1.0, shape: Ints = (), ctx: Place = None, dtype: Dtype = None) -> Any:
    """Normal with mean loc and standard deviation scale."""
    return lang.normal(loc, scale)


@drawn("_random_randint", _check_randint, default=_INT32)
def random_randint(*, low: Scalar, high: Scalar, shape: Ints = (), ctx: Place = None, dtype: Dtype = None) -> Any:
    """Integers in [low, high), each equally likely."""
    return lang.integers(low, high)
