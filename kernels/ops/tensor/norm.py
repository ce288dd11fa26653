"""norm: the length of an array along axes, by the sum of absolute values or of squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dtype import as_dtype
from ...declare.dispatch_op import DispatchOp
from ...declare.reduction import ReductionOp
from ...declare.simple_op import Array
from ...ir.lang import sign, sqrt
from ...op import Dtypes, Op, register
from ...params import Param, Params


class Length(ReductionOp):
    """A reduction whose output may have another dtype."""

    def axes(self, p: Params, rank: int) -> tuple[int, ...]:
        return super().axes(Params({**p, "exclude": False}), rank)

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        (x,), (y,) = super().infer_dtype(p, inputs, None if p.out_dtype else outputs)
        return [x], [as_dtype(p.out_dtype) if p.out_dtype else y]


def _length(body: Callable[..., Any], gradient: Callable[..., Any], finish: Callable[..., Any] | None = None) -> Op:
    op = Length(body, name="norm", combine="add", finish=finish)
    op.gradient(gradient)
    return op


def _absolute(data: Array) -> Array:
    return abs(data)


def _squares(data: Array) -> Array:
    return data * data


def _absolute_gradient(dy, data):
    return dy * sign(data)


def _squares_gradient(dy, data, y):
    return dy * (data / y)


_BY_ORD = {1: _length(_absolute, _absolute_gradient),
           2: _length(_squares, _squares_gradient, lambda total, count: sqrt(total))}

norm = register(DispatchOp(
    "norm",
    """The length of data along axis: Σ|x| (ord=1) or √Σx² (ord=2).

    axis: axes to fold; None or (): all, which gives shape (1,). keepdims: they stay, with size 1.
    out_dtype: of the result; that of data when None.
    The derivative at a vector of zeros is NaN for ord=2, as in MXNet, and 0 for ord=1.
    """,
    (Param("ord", "int", 2, choices=(1, 2)),  # type: ignore[arg-type]
     Param("axis", "shape", None), Param("out_dtype", "str", None, ("float16", "float32", "float64", "int32", "int64", "int8")),
     Param("keepdims", "bool", False)),
    lambda p: _BY_ORD[p.ord]))
