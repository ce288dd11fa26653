"""add_n and khatri_rao: any number of arrays combined into one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from ....errors import ParameterError, ShapeError
from ...declare.operator_property import Shapes
from ...declare.property_op import register_operator
from ...declare.traced import GradientOp, TracedOp, printed
from ...ir.expr import Expr, load
from ...kernel import KernelFunction
from ...op import Expression, Gradient, Reqs, Shape, Spec, Specs, is_known, register
from ...params import Param, Params
from .split_concat import Variadic


class AddN(TracedOp):
    """The sum of num_args arrays of one shape and dtype, added from the first to the last."""

    name, aliases = "add_n", ("ElementWiseSum",)
    doc = "The sum of num_args arrays of one shape and dtype, added from the first to the last."
    params = (Param("num_args", "int", doc="how many arrays"),)
    linear = True

    def parse(self, given):
        p = super().parse(given)
        if p.num_args < 1:
            raise ParameterError(f"{self.name}: num_args={p.num_args} must be at least 1.")
        return p

    def arguments(self, p: Params) -> tuple[str, ...]:
        return tuple(f"arg{i}" for i in range(p.num_args))

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        return (reduce(lambda a, b: a + b, inputs),)

    def make_gradient(self, p: Params) -> Gradient | None:
        """Return dy for each input: one kernel stores it num_args times."""
        needs, gives = (("dy", 0),), tuple(range(p.num_args))
        return Gradient(GradientOp(self, needs, gives, lambda q, ins: (ins[0],) * q.num_args), needs, gives)


register(AddN())


@register_operator("khatri_rao")
class KhatriRao(Variadic):
    """Column-wise Kronecker product of num_args matrices: column j of the result is the Kronecker product of their columns j.

    Inputs [rows_i, columns]. Returns: [the product of all rows_i, columns]. No derivative, as in MXNet.
    """

    gradient_arguments = ()

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        known = [s for s in in_shape if s is not None and is_known(s)]
        if any(len(s) != 2 or s[1] != known[0][1] for s in known):
            raise ShapeError(f"{self.name}: inputs {in_shape} must be matrices with the same number of columns.")
        if len(known) < len(in_shape):
            return list(in_shape), list(out_shape), []
        return list(in_shape), [(reduce(lambda a, b: a * b, (s[0] for s in known)), known[0][1])], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows, columns = [s.shape[0] for s in ins], ins[0].shape[1]
        views: list[Shape] = [tuple(r if i == j else 1 for j in range(len(ins))) + (columns,) for i, r in enumerate(rows)]
        body = Expression((reduce(lambda a, b: a * b, (load(i, s.dtype) for i, s in enumerate(ins))),))
        specs, whole = [Spec(v, s.dtype) for v, s in zip(views, ins)], Spec((*rows, columns), outs[0].dtype)
        inner = printed(body, specs, [whole], reqs, target, self.name)
        return lambda run, inputs, outputs: inner(run, [a.reshape(v) for a, v in zip(inputs, views)],
                                                  [outputs[0].reshape(whole.shape)])
