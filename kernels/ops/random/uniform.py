"""_random_uniform, _random_normal, _random_randint: random arrays, equal on every device."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ....dtype import as_dtype, bfloat16, is_float
from ....errors import DTypeError, ParameterError
from ....integers import cdiv
from ...declare.operator_property import RANDOM, Dtypes, OperatorProperty, Shapes, assign, gpu_module
from ...declare.property_op import register_operator
from ...kernel import DeviceArray, KernelFunction, Run
from ...op import Req, Reqs, Specs
from ...philox import integers, normal, uniform

_CHUNK = 1 << 16  # numbers per piece; even, because normal numbers are drawn in pairs


class Drawn(OperatorProperty):
    """Base class: no inputs, one output of the given shape."""

    default_dtype: ClassVar[str] = "float32"

    shape: tuple = ()
    ctx: str = ""
    dtype: np.dtype | None = None
    argument_names = ()
    gradient_arguments = ()
    resources = (RANDOM,)

    def num_random(self, outs: Specs) -> int:
        return outs[0].size + outs[0].size % 2

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        if not self.shape and out_shape[0] is not None:
            return [], [out_shape[0]], []
        return [], [self.shape or (1,)], []

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        return [], [self.dtype or as_dtype(self.default_dtype)], []

    def distribution(self) -> tuple[str, float, float]:
        """Return "uniform", "normal" or "integers", with the two numbers a and b of `draw`."""
        raise NotImplementedError(self.name)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        (n, dtype), req = (outs[0].size, outs[0].dtype), reqs[0]
        if req == Req.NULL or n == 0:
            return lambda run, inputs, outputs, random: None
        kind, a, b = self.distribution()
        return lambda run, inputs, outputs, random: draw(run, target, outputs[0], random, kind, a, b, dtype, add=req == Req.ADD)


def draw(run: Run, target: str, out: DeviceArray, random: tuple[int, int], kind: str, a: float, b: float, dtype: np.dtype, *,
         add: bool = False) -> None:
    """Fill out with a + b · uniform or normal numbers, or with a + integers below b: element i is number offset + i of the seed.

    random: the seed and the offset. dtype: of out.
    """
    seed, offset = random
    if target == "gpu":
        gpu_module("random.triton_random").draw(run, out, seed, offset, kind, a, b, dtype, add=add)
        return
    flat, req = out.reshape((-1,)), Req.ADD if add else Req.WRITE
    wide = np.dtype(np.float64 if dtype == np.float64 else np.float32)

    def numbers(first: int, count: int) -> np.ndarray:
        if kind == "integers":
            return integers(seed, first, count, int(a), int(a + b), dtype)
        found = uniform(seed, first, count, dtype) if kind == "uniform" else normal(seed, first, count, wide)
        if (kind, a, b) == ("uniform", 0, 1):
            return found
        return (found.astype(wide, copy=False) * wide.type(b) + wide.type(a)).astype(dtype, copy=False)

    def piece(i: int) -> None:
        part = flat[i * _CHUNK:(i + 1) * _CHUNK]
        assign(part, req, numbers(offset + i * _CHUNK, part.size))

    run.parallel(piece, cdiv(flat.shape[0], _CHUNK))


def fill_uniform(run: Run, target: str, out: DeviceArray, random: tuple[int, int], low: float = 0.0, span: float = 1.0) -> None:
    """Fill out with low + span · uniform numbers in [0, 1)."""
    name = str(out.dtype).removeprefix("torch.")
    draw(run, target, out, random, "uniform", low, span, bfloat16 if name == "bfloat16" else np.dtype(name))


def _floating(p: Drawn) -> None:
    if p.dtype is not None and not is_float(p.dtype):
        raise DTypeError(f"{p.name}: dtype {p.dtype} is not a floating dtype. Use float32, float64, float16 or "
                         f"bfloat16.")


@register_operator("_random_uniform", aliases=("random_uniform", "uniform"))
class RandomUniform(Drawn):
    """Uniform in [low, high)."""

    low: float = 0.0
    high: float = 1.0

    def validate(self) -> None:
        _floating(self)
        if not self.low <= self.high:
            raise ParameterError(f"{self.name}: low={self.low} is above high={self.high}.")

    def distribution(self) -> tuple[str, float, float]:
        return "uniform", self.low, self.high - self.low


@register_operator("_random_normal", aliases=("random_normal", "normal"))
class RandomNormal(Drawn):
    """Normal with mean loc and standard deviation scale."""

    loc: float = 0.0
    scale: float = 1.0

    def validate(self) -> None:
        _floating(self)
        if self.scale < 0:
            raise ParameterError(f"{self.name}: scale={self.scale} is negative.")

    def distribution(self) -> tuple[str, float, float]:
        return "normal", self.loc, self.scale


@register_operator("_random_randint", aliases=("random_randint",))
class RandomRandint(Drawn):
    """Integers in [low, high), each equally likely."""

    default_dtype: ClassVar[str] = "int32"

    low: int
    high: int

    def validate(self) -> None:
        if not 0 < self.high - self.low <= 2**32:
            raise ParameterError(f"{self.name}: low={self.low}, high={self.high}: the range must hold 1 to 2**32 "
                                 f"integers.")
        dtype = self.dtype or np.dtype(np.int32)
        if dtype.kind not in "iu":
            raise DTypeError(f"{self.name}: dtype {dtype} is not an integer dtype. Use int32 or int64.")
        if self.low < np.iinfo(dtype).min or self.high - 1 > np.iinfo(dtype).max:
            raise ParameterError(f"{self.name}: low={self.low}, high={self.high} do not fit {dtype}.")

    def distribution(self) -> tuple[str, float, float]:
        return "integers", self.low, self.high - self.low
