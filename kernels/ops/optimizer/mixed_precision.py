"""Update rules for 16-bit weights that have a float32 master copy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....errors import OperatorError
from ...declare.simple_op import SimpleOp
from ...ir.expr import Expr, as_expr
from ...op import Op
from ...params import Params


class MixedOp(SimpleOp):
    """The rule of another operator (weight, grad, *states) as (grad, *states, weight32) → the rounded weight.

    The states and weight32 keep their own dtypes; all arithmetic is in float32. The output has the gradient's dtype.
    """

    def __init__(self, rule: SimpleOp):
        super().__init__(rule.body, name=f"_mixed_{rule.name.lstrip('_')}", differentiable=False, params=rule.params)
        given = rule.input_names[1:]
        kept = rule._states
        self.rule = rule
        self.input_names = (*given, "weight32")
        self._states = (*kept, "weight32")
        self.free = frozenset(self._states)

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        *given, weight = inputs
        made = self.rule.trace(p, [weight, *given])
        new = as_expr(made[0])
        return (new, *made[1:], new)

    def result_dtype(self, p: Params, dtypes: Sequence[np.dtype]) -> np.dtype:
        return dtypes[0]


_made: dict[Op, MixedOp] = {}


def mixed(op: Op) -> MixedOp:
    """Return the variant of `op` that updates a float32 copy. Raises OperatorError unless op is a @simple_op."""
    found = _made.get(op)
    if found is None:
        if not isinstance(op, SimpleOp):
            raise OperatorError(f"mixed: {op.name} is not declared by a body. Only a @simple_op can have a float32 copy.")
        found = _made[op] = MixedOp(op)
    return found
