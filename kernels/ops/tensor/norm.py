"""norm: the length of an array along axes, by the sum of absolute values or of squares."""

from __future__ import annotations

from ....dtype import as_dtype
from ...declare.dispatch_op import DispatchOp
from ...declare.reduction import ReductionOp
from ...ir.lang import sign, sqrt
from ...op import Dtypes, register
from ...params import Param, Params


class Length(ReductionOp):
    """A reduction whose output may have another dtype."""

    def axes(self, p: Params, rank: int) -> tuple[int, ...]:
        return super().axes(Params({**p, "exclude": False}), rank)

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        (x,), (y,) = super().infer_dtype(p, inputs, None if p.out_dtype else outputs)
        return [x], [as_dtype(p.out_dtype) if p.out_dtype else y]


_BY_ORD = {1: Length(lambda data: abs(data), name="norm", combine="add"),
           2: Length(lambda data: data * data, name="norm", combine="add", finish=lambda total, count: sqrt(total))}
_BY_ORD[1].gradient(lambda dy, data: dy * sign(data))
_BY_ORD[2].gradient(lambda dy, data, y: dy * (data / y))

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
