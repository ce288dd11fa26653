"""softmax, log_softmax, softmin and SoftmaxActivation: exponentials along one axis that add up to one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ....dtype import as_dtype, is_float
from ....errors import DTypeError, ParameterError, ShapeError
from ....integers import cdiv
from ...cpu.sum_tree import total
from ...declare.composite import ops
from ...declare.operator_property import Dtypes, OperatorProperty, Shapes, assign, gpu_module, math_dtype
from ...declare.property_op import register_operator
from ...ir.expr import load
from ...ir.lang import exp, log, row_max, row_sum
from ...kernel import KernelFunction, Run
from ...op import Formula, Req, Reqs, Shape, Shaped, Spec, Specs
from ..tensor.reshape import check_axis

Rows = tuple[int, int, int]  # an array seen as [outer, n, inner]; a row is along n
_CACHE = 1 << 20  # bytes at a time


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


def softmax_rows(x: np.ndarray, scale: float = 1.0, *, log: bool = False, keep: np.ndarray | None = None,
                 halves: bool = False, out: np.ndarray | None = None) -> np.ndarray:
    """Compute softmax, or its logarithm, of scale · x [outer, n, inner] along n. keep: mask; other elements give 0 (-inf).

    halves:  round to float16 after every step, as MXNet does for float16 data and an output of another dtype.
    out:     memory for the result, with the shape of x and the dtype of the arithmetic; it may be x.
    """
    rounded = (lambda v: v.astype(np.float16).astype(v.dtype)) if halves else (lambda v: v)
    dtype = math_dtype(x.dtype)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        x = x.astype(dtype, copy=False)
        if scale != 1.0:
            x = np.multiply(x, dtype.type(scale), out=out)
        if keep is not None:
            x = np.where(keep, x, -np.inf)
        z = rounded(np.subtract(x, x.max(axis=1, keepdims=True, initial=-np.inf), out=out))
        e = np.exp(z, out=None if log else z)
        if keep is not None:
            e[~np.broadcast_to(keep, e.shape)] = 0
        whole = rounded(total(e, (1,)))
        if log:
            z -= np.log(whole)
            return rounded(z)
        e = rounded(e)
        e /= whole
        return rounded(e)


def softmax_into(y: np.ndarray, req: Req, x: np.ndarray, scale: float = 1.0, *, halves: bool = False, **how: Any) -> None:
    """Store softmax_rows in y by req, computed in place unless it is added or rounded."""
    there = req != Req.ADD and y.dtype == math_dtype(x.dtype) and not halves
    found = softmax_rows(x, scale, halves=halves, out=y if there else None, **how)
    if not there:
        assign(y, req, found)


def blocks(run: Run, rows: Rows, itemsize: int, work: Callable[[int, int], None]) -> None:
    """Call work(first, last) over outer in pieces that fit in cache, in parallel."""
    pieces(run, rows[0], max(1, _CACHE // max(1, rows[1] * rows[2] * itemsize)), work)


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
        x = load(0, ins[0].dtype)
        z = x * scale if scale != 1.0 else x
        z = z - row_max(z)
        root = z - log(row_sum(exp(z))) if self.log else exp(z) / row_sum(exp(z))
        return Formula((root,), (ins[0].shape,), (outs[0].shape,))

    def backward_formula(self, ins: Specs, outs: Specs) -> Formula | None:
        scale, lengths, _ = self.options()
        plain = not lengths and outs[0].dtype == ins[0].dtype and is_float(ins[0].dtype)
        if not plain or not goes_last(self.backward_axis_of(outs[0].shape), outs[0].shape):
            return None
        dy, y = load(0, ins[0].dtype), load(1, ins[1].dtype)
        root = dy - exp(y) * row_sum(dy) if self.log else y * (dy - row_sum(dy * y))
        return Formula((root * scale if scale != 1.0 else root,), (outs[0].shape,) * 2, (outs[0].shape,))

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        need_float(self.name, ins[0])
        rows, (scale, lengths, _), log, req = self.axis_of(ins[0].shape), self.options(), self.log, reqs[0]
        halves = ins[0].dtype == np.float16 and outs[0].dtype != np.float16
        if target == "gpu":
            soft = gpu_module("nn.triton_softmax")
            return lambda run, inputs, outputs: soft.forward(run, rows, inputs[0], outputs[0], scale=scale, log=log,
                                                             length=inputs[1] if lengths else None, halves=halves,
                                                             add=req == Req.ADD)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            x, y = inputs[0].reshape(rows), outputs[0].reshape(rows)
            length = inputs[1].reshape(rows[0], 1, rows[2]) if lengths else None

            def piece(a: int, z: int) -> None:
                keep = None if length is None else np.arange(rows[1])[None, :, None] < length[a:z]
                softmax_into(y[a:z], req, x[a:z], scale, log=log, keep=keep, halves=halves)

            blocks(run, rows, x.itemsize, piece)

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows, (scale, _, _), log, req = self.backward_axis_of(outs[0].shape), self.options(), self.log, reqs[0]
        if target == "gpu":
            soft = gpu_module("nn.triton_softmax")
            return lambda run, inputs, outputs: soft.backward(run, rows, *inputs, outputs[0], scale=scale, log=log,
                                                              add=req == Req.ADD)
        dtype = math_dtype(ins[0].dtype)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            dy, y, dx = (a.reshape(rows) for a in (*inputs, *outputs))

            def piece(a: int, z: int) -> None:
                g, v = dy[a:z].astype(dtype, copy=False), y[a:z].astype(dtype, copy=False)
                if log:
                    d = g - np.exp(v) * total(g, (1,))
                else:
                    d = v * (g - total(g * v, (1,)))
                if scale != 1.0:
                    d *= dtype.type(scale)
                assign(dx[a:z], req, d)

            blocks(run, rows, dy.itemsize, piece)

        return kernel


class SoftmaxAlong(SoftmaxLike):
    """Softmax with MXNet's parameters."""

    axis: int = -1
    temperature: float | None = None
    dtype: str | None = None
    use_length: bool = False

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
