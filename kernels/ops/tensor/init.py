"""_zeros, _ones, _full: arrays filled with a number."""

from __future__ import annotations

from collections.abc import Sequence

from ....dtype import float32
from ...declare.traced import TracedOp
from ...ir.expr import Expr, const, param
from ...op import Dtypes, Gradient, Shapes, merge_shapes, register
from ...params import Param, Params


class FillOp(TracedOp):
    """An array filled with a number. shape: unknown sizes are inferred from the operators that use the array."""

    def __init__(self, name: str, value: float | None, doc: str, aliases: Sequence[str] = ()):
        super().__init__()
        self.name, self.value, self.doc, self.aliases = name, value, doc, tuple(aliases)
        self.params = (
            Param("shape", "shape", None, doc="sizes; left out: inferred"),
            Param("ctx", "context", None),
            Param("dtype", "dtype", float32, doc="element type"),
            *((Param("value", "scalar", doc="what to fill with"),) if value is None else ()),
        )

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        return (param("value") if self.value is None else const(self.value),)

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        if outputs is None or p.shape is None:
            return [], [p.shape]
        said = tuple(-1 if n == 0 else n for n in p.shape)  # in a graph 0 means unknown, as in MXNet's first states
        return [], [merge_shapes(self.name, "the output", said, outputs[0])]

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        return [], [p.dtype]

    def make_gradient(self, p: Params) -> Gradient | None:
        return None


register(FillOp("_zeros", 0.0, "Zeros."))
register(FillOp("_ones", 1.0, "Ones."))
register(FillOp("_full", None, "An array filled with value."))
