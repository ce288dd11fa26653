"""softmax, log_softmax, softmin and SoftmaxActivation: exponentials along one axis that add up to one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from ....dtype import as_dtype, is_float
from ....errors import DTypeError, ParameterError, ShapeError
from ....integers import cdiv
from ...declare.composite import ops
from ...declare.operator_property import Dtypes, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...ir.expr import cast, load
from ...ir.lang import exp, row_index, row_max, row_sum, where
from ...ir.lang import log as logarithm
from ...kernel import KernelFunction, Run
from ...op import Formula, Reqs, Shape, Shaped, Spec, Specs
from ..tensor.reshape import check_axis

Rows = tuple[int, int, int]  # an array seen as [outer, n, inner]; a row is along n
_FLOAT16, _FLOAT32 = np.dtype(np.float16), np.dtype(np.float32)


def need_float(name: str, data: Spec) -> None:
    """Raise DTypeError unless data holds floats."""
    if not is_float(data.dtype):
        raise DTypeError(f"{name}: data is {data.dtype.name}, not floating. Convert it with astype('float32').")


def rows_along(shape: Shape, axis: int) -> Rows:
    """Return a shape as [outer, n, inner], where n is the size of axis."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1:])


def goes_last(rows: Rows, shape: Shape) -> bool:
    """Return True if the row is the last axis of the shape."""
    return rows[2] == 1 and rows[1] == shape[-1]


def by_row(rows: Rows) -> Rows:
    """Return the shape of one value for each row."""
    return rows[0], 1, rows[2]


def softmax_of(x: Any, length: Any = None, *, scale: float = 1.0, log: bool = False, halves: bool = False) -> Any:
    """Softmax of scale · x along the row, or its logarithm: a body.

    length:  the number of elements of the row that count; the others give 0 (-inf).
    halves:  round to float16 after every step, as MXNet does for float16 data and an output of another dtype.
    """

    def rounded(v: Any) -> Any:
        return cast(cast(v, _FLOAT16), _FLOAT32) if halves else v

    def kept(v: Any, other: float) -> Any:
        return v if length is None else where(row_index() < length, v, other)

    z = kept(x * scale if scale != 1.0 else x, -math.inf)
    z = rounded(z - row_max(z))
    e = kept(exp(z), 0)
    whole = rounded(row_sum(e))
    return kept(rounded(z - logarithm(whole)), -math.inf) if log else kept(rounded(rounded(e) / whole), 0)


def pieces(run: Run, n: int, step: int, work: Callable[[int, int], None]) -> None:
    """Call work(first, last) over n in pieces of step, in parallel."""
    run.parallel(lambda i: work(i * step, min(i * step + step, n)), cdiv(n, step))


class SoftmaxLike(OperatorProperty):
    """Base class: softmax along one axis."""

    log: ClassVar[bool] = False
    sign: ClassVar[float] = 1.0
    gradient_arguments = (0,)
    backward_reads = ("dy0", "y0")

    def options(self) -> tuple[float, bool, np.dtype | None]:
        """Return the scale of the data, True if lengths are given, and the dtype of the output."""
        return self.sign, False, None

    def axis_of(self, shape: Shape) -> Rows:
        """Return the data as [outer, n, inner]."""
        raise NotImplementedError(self.name)

    def backward_axis_of(self, shape: Shape) -> Rows:
        """Return the data as [outer, n, inner] for the derivative."""
        return self.axis_of(shape)

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        given = self.options()[2]
        x = in_type[0] or (out_type[0] if given is None else None)
        return [x, *in_type[1:]], [given or x], []

    @property
    def forward_inplace(self) -> tuple[tuple[int, int], ...]:
        return ((0, 0),) if self.options()[2] is None else ()

    @property
    def backward_inplace(self) -> tuple[tuple[str, int], ...]:
        return (("dy0", 0),) if self.options()[2] is None else ()

    def formula(self, ins: Specs, outs: Specs) -> Formula | None:
        scale, lengths, _ = self.options()
        plain = not lengths and outs[0].dtype == ins[0].dtype and is_float(ins[0].dtype)
        if not plain or not goes_last(self.axis_of(ins[0].shape), ins[0].shape):
            return None
        root = softmax_of(load(0, ins[0].dtype), scale=scale, log=self.log)
        return Formula((root,), (ins[0].shape,), (outs[0].shape,))

    def derivative(self, dy: Any, y: Any) -> Any:
        """The derivative by the data: a body."""
        scale = self.options()[0]
        dx = dy - exp(y) * row_sum(dy) if self.log else y * (dy - row_sum(dy * y))
        return dx * scale if scale != 1.0 else dx

    def backward_formula(self, ins: Specs, outs: Specs) -> Formula | None:
        lengths = self.options()[1]
        plain = not lengths and outs[0].dtype == ins[0].dtype and is_float(ins[0].dtype)
        if not plain or not goes_last(self.backward_axis_of(outs[0].shape), outs[0].shape):
            return None
        root = self.derivative(load(0, ins[0].dtype), load(1, ins[1].dtype))
        return Formula((root,), (outs[0].shape,) * 2, (outs[0].shape,))

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        need_float(self.name, ins[0])
        rows, scale = self.axis_of(ins[0].shape), self.options()[0]
        halves = ins[0].dtype == _FLOAT16 != outs[0].dtype
        return row_kernel(partial(softmax_of, scale=scale, log=self.log, halves=halves), [rows, by_row(rows)][:len(ins)], [rows],
                          by_row(rows), ins, outs, reqs, target, self.name)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows = self.backward_axis_of(outs[0].shape)
        return row_kernel(self.derivative, [rows, rows], [rows], by_row(rows), ins, outs, reqs, target, f"{self.name}_backward")


class SoftmaxAlong(SoftmaxLike):
    """Softmax with MXNet's parameters."""

    axis: int = -1
    temperature: float | None = None
    dtype: str | None = None
    use_length: bool = False
    optional_names = ("length",)

    def validate(self) -> None:
        if self.temperature == 0:
            raise ParameterError(f"{self.name}: temperature=0 would divide by zero. Use a small positive number.")
        if self.dtype is not None:
            as_dtype(self.dtype)

    @property
    def argument_names(self) -> tuple[str, ...]:
        return ("data", "length") if self.use_length else ("data",)

    def differentiable_gradient(self, read: Mapping[tuple[str, int], Any], train: bool) -> list[Shaped] | None:
        if self.use_length:
            return None
        dy, y = read["dy", 0], read["y", 0]
        total = ops.sum(dy if self.log else dy * y, axis=self.axis, keepdims=True)
        dx = dy - ops.broadcast_mul(ops.exp(y), total) if self.log else y * ops.broadcast_sub(dy, total)
        scale = self.sign / (self.temperature or 1.0)
        return [dx if scale == 1.0 else dx * scale]

    def options(self) -> tuple[float, bool, np.dtype | None]:
        return (self.sign / (self.temperature or 1.0), self.use_length,
                None if self.dtype is None else as_dtype(self.dtype))

    def axis_of(self, shape: Shape) -> Rows:
        return rows_along(shape, check_axis(self.name, self.axis, len(shape)))

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        (x,), (y,), _ = super().infer_shape(in_shape[:1], out_shape)
        if x is None:
            return [x, *in_shape[1:]], [y], []
        axis = check_axis(self.name, self.axis, len(x))
        return [x, *([(*x[:axis], *x[axis + 1:]) or (1,)] if self.use_length else [])], [y], []


@register_operator("softmax")
class Softmax(SoftmaxAlong):
    """exp(x / temperature) / Σ exp(x / temperature) along axis.

    length: with use_length, the number of valid elements of each row; the others give 0.
    dtype:  of the output; None: that of the data.
    """


@register_operator("log_softmax")
class LogSoftmax(SoftmaxAlong):
    """log(softmax(x / temperature)) along axis, without overflow of the exponentials."""

    log: ClassVar[bool] = True


@register_operator("softmin")
class Softmin(SoftmaxAlong):
    """softmax(-x / temperature) along axis."""

    sign: ClassVar[float] = -1.0


@register_operator("SoftmaxActivation")
class SoftmaxActivation(SoftmaxLike):
    """Softmax over the last axis (mode "instance"), or over axis 1 ("channel").

    The derivative is always taken along axis 1, as in MXNet. In mode "instance" with more than two axes that is wrong; use
    softmax(axis=-1) instead.
    """

    mode: Literal["instance", "channel"] = "instance"

    def axis_of(self, shape: Shape) -> Rows:
        if len(shape) < 3 and self.mode == "channel":
            raise ShapeError(f"{self.name}: data {shape} has no axis behind the channels. Use mode='instance'.")
        return rows_along(shape, 1 if self.mode == "channel" else len(shape) - 1)

    def backward_axis_of(self, shape: Shape) -> Rows:
        return rows_along(shape, min(1, len(shape) - 1))
