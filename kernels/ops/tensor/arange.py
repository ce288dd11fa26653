"""Arrays computed from indices and shapes: _arange, _linspace, _eye, one_hot, shape_array, size_array."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....context import Context
from ....dtype import is_float
from ....errors import ParameterError, ShapeError
from ...declare.index_kernel import At, IndexedArray, Put, index_kernel, put, scatter_kernel
from ...declare.operator_property import Dtypes, KnownShapes, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...ir.expr import Expr
from ...ir.lang import where
from ...kernel import DeviceArray, KernelFunction, Run
from ...op import Req, Reqs, Shape, Spec, Specs, merge_shapes

FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)
LARGEST = 2**40  # largest number of elements of an array without inputs


class Made(OperatorProperty):
    """Base class: one array computed from parameters alone."""

    ctx: Context | None = None
    dtype: np.dtype = FLOAT32
    argument_names = ()
    gradient_arguments = ()
    multiplies = False

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        return [], [self.dtype], []


class Ramp(Made):
    """Base class: start + step · i, each value repeated `repeat` times."""

    def line(self) -> tuple[float, float, int]:
        """Return start, step and repeat."""
        raise NotImplementedError(self.name)

    def number(self) -> str:
        """Return the dtype in which the elements are computed."""
        return "float64"

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        first, slope, repeat = self.line()
        number = self.number()

        def element(at: At, *, start: Expr, step: Expr) -> Expr:
            i = at[0] // repeat
            if isinstance(slope, float):
                start, step, i = start.astype(number), step.astype(number), i.astype(number)
            return start + step * i

        return index_kernel(element, ins, outs, reqs, target, self.name, scalars={"start": first, "step": slope})


def indices(n: int, target: str) -> Callable[[Run], DeviceArray]:
    """Return f(run), which gives 0, 1, … n - 1 as int32: for bodies that compare with the index of an element."""
    if target == "cpu":
        found = np.arange(n, dtype=np.int32)
        return lambda run: found

    count = index_kernel(lambda at: at[0], [], [Spec((n,), np.dtype(np.int32))], [Req.WRITE], target, "indices")

    def made(run: Run) -> DeviceArray:
        y = run.workspace((n,), np.int32)
        count(run, [], [y])
        return y

    return made


@register_operator("_arange")
class Arange(Ramp):
    """start, start + step, ... while below stop (above it for a negative step), each repeated `repeat` times.

    stop None: from 0 to start. infer_range: the length is inferred from the operators that use the array.
    """

    start: float
    stop: float | None = None
    step: float = 1.0
    repeat: int = 1
    infer_range: bool = False

    def ends(self) -> tuple[float, float]:
        """Return the start and the stop of the range."""
        return (0.0, self.start) if self.stop is None else (self.start, self.stop)

    def validate(self) -> None:
        if self.step == 0 or not math.isfinite(self.step) or self.repeat < 1:
            raise ParameterError(f"{self.name}: step={self.step} must not be 0, and repeat="
                                 f"{self.repeat} must be at least 1.")
        if self.infer_range and self.stop is None:
            return
        start, stop = self.ends()
        if not (math.isfinite(start) and math.isfinite(stop)) or (stop - start) / self.step <= 0:
            raise ParameterError(f"{self.name}: the range from {start} to {stop} in steps of {self.step} is empty.")
        if (stop - start) / self.step * self.repeat > LARGEST:
            raise ParameterError(f"{self.name}: from {start} to {stop} in steps of {self.step}, {self.repeat} times each, has "
                                 f"more than {LARGEST} elements.")

    def number(self) -> str:
        """Return float32 for an array of it, as in MXNet: arange(0, 1, 0.3) ends with 0.90000004."""
        return "float32" if self.dtype == FLOAT32 else "float64"

    def line(self) -> tuple[float, float, int]:
        start = self.start if self.infer_range and self.stop is None else self.ends()[0]
        if not is_float(self.dtype):
            return int(start), int(self.step), self.repeat
        return start, self.step, self.repeat

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        if self.infer_range and self.stop is None:
            return [], [out_shape[0]], []
        start, stop = self.ends()
        return [], [(math.ceil((stop - start) / self.step) * self.repeat,)], []


@register_operator("_linspace")
class Linspace(Ramp):
    """num values from start to stop, evenly spaced. endpoint False: stop itself is left out."""

    start: float
    stop: float
    num: int
    endpoint: bool = True
    infer_range: bool = False

    def validate(self) -> None:
        if not 0 <= self.num <= LARGEST:
            raise ParameterError(f"{self.name}: num={self.num} must be from 0 to {LARGEST}.")

    def line(self) -> tuple[float, float, int]:
        parts = self.num - 1 if self.endpoint else self.num
        return self.start, (self.stop - self.start) / parts if parts > 0 else 0.0, 1

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        return [], [(self.num,)], []


@register_operator("_eye")
class Eye(Made):
    """[N, M] with ones on diagonal k and zeros elsewhere. M=0: square. k > 0: above the main diagonal."""

    N: int
    M: int = 0
    k: int = 0

    def validate(self) -> None:
        if self.N < 0 or self.M < 0 or self.N * max(self.M, self.N if not self.M else 0) > LARGEST:
            raise ParameterError(f"{self.name}: N={self.N}, M={self.M} must not be negative, and N · M at most "
                                 f"{LARGEST}.")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        return [], [(self.N, self.M or self.N)], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return index_kernel(lambda at: where(at[1] - at[0] == self.k, 1, 0), ins, outs, reqs, target, self.name)


@register_operator("one_hot")
class OneHot(OperatorProperty):
    """on_value at the index in indices (fractions are truncated), off_value elsewhere; all off for indices out of range.

    Returns: indices.shape + (depth,), in dtype.
    """

    depth: int
    on_value: float = 1.0
    off_value: float = 0.0
    dtype: np.dtype = FLOAT32
    argument_names = ("indices",)
    gradient_arguments = ()

    def validate(self) -> None:
        if self.depth < 0:
            raise ParameterError(f"{self.name}: depth={self.depth} must not be negative.")

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        return [in_type[0]], [self.dtype], []

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, y = in_shape[0], out_shape[0]
        if x is not None:
            y = merge_shapes(self.name, "the output", y, (*x, self.depth))
        elif y:
            x = y[:-1]
        return [x], [y], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        n, depth = ins[0].size, self.depth

        def element(at: At, indices: IndexedArray, *, on: Expr, off: Expr) -> Put:
            i = indices[at].astype("int64")
            return put(on, *at, i, inside=(i >= 0) & (i < depth))

        return scatter_kernel(element, (n,), ins, outs, reqs, target, self.name, views=[(n,)], results=[(n, depth)],
                              scalars={"on": self.on_value, "off": self.off_value}, combine="put", start="off", distinct=True)


class Measured(OperatorProperty):
    """Base class: int64 values computed from the shape of data alone."""

    gradient_arguments = ()
    output_dtypes = (INT64,)

    def numbers(self, x: Shape) -> tuple[int, ...]:
        """Return the values of the output."""
        raise NotImplementedError(self.name)

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        if max(x, default=0) > 2**53:
            raise ShapeError(f"{self.name}: data {x} has an axis above 2**53.")
        return [(len(self.numbers(x)),)]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        numbers = {f"number{i}": n for i, n in enumerate(self.numbers(ins[0].shape))}

        def element(at: At, data: IndexedArray, **numbers: Expr) -> Any:
            found: Any = 0
            for i, n in enumerate(numbers.values()):
                found = where(at[0] == i, n, found)
            return found

        return index_kernel(element, ins, outs, reqs, target, self.name, scalars=numbers)


@register_operator("shape_array")
class ShapeArray(Measured):
    """The shape of data as int64."""

    def numbers(self, x: Shape) -> tuple[int, ...]:
        return tuple(x)


@register_operator("size_array")
class SizeArray(Measured):
    """The number of elements of data as int64 [1]."""

    def numbers(self, x: Shape) -> tuple[int, ...]:
        return (math.prod(x),)
