"""Update rules for 16-bit weights that have a float32 master copy."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from ....dtype import float32
from ....errors import OperatorError
from ...declare.simple_op import SimpleOp
from ...ir.expr import Expr, as_expr, param
from ...op import Dtypes, Op, Shapes, register
from ...params import Params

SINGLES = ("r1", "r2", "rescale_grad")  # inputs of one element


class Rated(SimpleOp):
    """An update of which some inputs (SINGLES) have one element; the states have the shape of the weight."""

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        single = [n in SINGLES for n in self.input_names]
        (*rest,), outs = super().infer_shape(p, [s for s, one in zip(inputs, single) if not one], outputs)
        found = iter(rest)
        return [(1,) if one else next(found) for one in single], outs

    def states(self, p: Params, roots: int) -> tuple[tuple[int, int], ...]:
        at = [self.input_names.index(n) for n in self._states if n not in SINGLES]
        return tuple((1 + i, where_) for i, where_ in enumerate(at))

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        values = {d.name: param(d.name) if d.kind == "scalar" else p[d.name] for d in self.params}
        return tuple(as_expr(r) for r in self.body(*inputs, **values))


class Direction(Rated):
    """An update whose first result is float32 for every dtype of the weight, of which the float32 copy is only read."""

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        return super().infer_dtype(p, inputs, None)[0], [float32]

    def result_dtype(self, p: Params, dtypes: Sequence[np.dtype]) -> np.dtype:
        return float32


def _on_copy(rule: SimpleOp, name: str, inputs: Sequence[str], last: Sequence[str] = (), kind: type[SimpleOp] = SimpleOp
             ) -> SimpleOp:
    """Return the rule (weight, grad, *states, *last) as (*inputs, weight32, *last) → the rounded weight.

    All arithmetic is in float32; the states keep their own dtypes, and the result has the dtype of the first input.
    """

    def body(*arrays: Any, **params: Any) -> tuple[Any, ...]:
        given = dict(zip(names, arrays))
        made = rule.body(given["weight32"], *(given[n] for n in rule.input_names[1:]), **params)
        new, *states = made if isinstance(made, tuple) else (made,)
        return (new, *states, given["weight32"] if kind is Direction else new)

    names = (*inputs, "weight32", *last)
    body.__signature__ = Signature(Parameter(n, Parameter.POSITIONAL_ONLY) for n in names)  # type: ignore[attr-defined]
    states = (*(n for n in rule._states if n not in last), "weight32", *last)
    free = [n for n in names if n not in ("weight", "grad")]
    return kind(body, name=name, differentiable=False, states=states, free=free, params=rule.params,
                doc=f"{rule.name} on a float32 copy of a half-precision weight.{' Returns: float32.' * (kind is Direction)}")


def declare_mixed(rule: SimpleOp, name: str, *last: str, kind: type[SimpleOp] = SimpleOp) -> None:
    """Register `rule` on a float32 copy of a half-precision weight, with the inputs (weight, grad, *states, weight32, *last)."""
    register(_on_copy(rule, name, [n for n in rule.input_names if n not in last], last, kind))


_made: dict[Op, SimpleOp] = {}


def mixed(op: Op) -> SimpleOp:
    """Return the rule of `op` as (grad, *states, weight32) → the rounded weight. Raises OperatorError if op is no @simple_op."""
    found = _made.get(op)
    if found is None:
        if not isinstance(op, SimpleOp):
            raise OperatorError(f"mixed: {op.name} is not declared by a body. Only a @simple_op can have a float32 copy.")
        found = _made[op] = _on_copy(op, f"_mixed_{op.name.lstrip('_')}", op.input_names[1:])
    return found
