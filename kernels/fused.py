"""FusedOp: several elementwise operators as one kernel. Fusing is putting one graph's result where another loads it."""

from __future__ import annotations

from collections.abc import Sequence

from ..dtype import is_half
from .expr import LOAD, PARAM, Expr, cast, const, retype, substitute, topological
from .op import Expression
from .params import Params
from .traced import TracedOp


class FusedOp(TracedOp):
    """Several elementwise operators in one kernel; its inputs broadcast. The dtypes are those it was built for."""

    hidden = True
    broadcast = True

    def __init__(self, name: str, expression: Expression, n_inputs: int, output_names: Sequence[str]):
        super().__init__()
        self.name, self.roots = name, expression.outputs
        self.input_names = tuple(f"x{i}" for i in range(n_inputs))
        self._output_names = tuple(output_names)

    def outputs(self, p: Params) -> tuple[str, ...]:
        return self._output_names

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        return self.roots


def fused_op(expression: Expression, n_inputs: int, names: Sequence[str] | None = None, *, name: str = "fused") -> FusedOp:
    """An operator that computes expression in one kernel.

    expression:  its load i reads input i; no run-time scalars (see bind_scalars).
    names:       names of the outputs.
    """
    return FusedOp(name, expression, n_inputs, names or [f"output{i}" for i in range(len(expression.outputs))])


def bind_scalars(expression: Expression, p: Params) -> tuple[Expr, ...]:
    """The roots of expression with every run-time scalar replaced by its value in p."""
    found = {}
    for x in topological(expression.outputs):
        if x.op == PARAM:
            found[id(x)] = const(p[x.value], x.dtype)
    return tuple(substitute(expression.outputs, found))


def connect(roots: Sequence[Expr], inputs: Sequence[Expr]) -> list[Expr]:
    """roots with load i replaced by inputs[i].

    inputs: either loads of the fused operator (raw: `expr.node(LOAD, ...)`), or results of other parts, which are
    rounded to the dtype they would have been stored in (see stored).
    """
    return substitute(roots, {id(x): inputs[x.value] for x in topological(roots) if x.op == LOAD})


def stored(root: Expr, dtype) -> Expr:
    """root as it would be read back from an array of dtype: fused and unfused agree to the bit."""
    value = root if root.dtype is not None else retype(root, dtype)
    if value.dtype == dtype:
        return value
    rounded = cast(value, dtype)
    assert rounded.dtype == dtype or is_half(dtype)
    return rounded
