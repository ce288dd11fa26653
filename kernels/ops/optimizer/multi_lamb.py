"""_multi_lamb_update, _multi_mp_lamb_update: LAMB for many weights at once. _contrib_group_adagrad_update: Adagrad per row.

Inputs are interleaved as in MXNet: weight, gradient, states of the first array, then those of the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ....errors import ParameterError, ShapeError
from ... import op as registry
from ...declare.operator_property import OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...declare.simple_op import Array, Scalar, simple_op
from ...ir.lang import maximum, minimum, sqrt
from ...kernel import KernelFunction
from ...op import Op, Req, Reqs, Spec, Specs, is_known, merge_shapes, register
from ...params import Param, Params
from .internal import _lamb_update
from .multi import MultiUpdate

_lamb = _lamb_update.body
_ALIKE = ("beta1", "beta2", "epsilon", "rescale_grad", "clip_gradient", "lower_bound", "upper_bound")
_EACH = ("lr", "wd", "by_mean", "by_var")  # numbers that differ between weights


@simple_op(differentiable=False, states=("mean", "var", "weight32"), free=("mean", "var", "weight32"))
def _mp_lamb_update(weight: Array, grad: Array, mean: Array, var: Array, weight32: Array, *, lr: Scalar, beta1: Scalar = 0.9,
                    beta2: Scalar = 0.999, epsilon: Scalar = 1e-6, by_mean: Scalar = 1.0, by_var: Scalar = 1.0,
                    wd: Scalar = 0.0, rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0, lower_bound: float = -1.0,
                    upper_bound: float = -1.0):
    """_lamb_update with the float32 copy of a half-precision weight."""
    w, mean, var = _lamb(weight32, grad, mean, var, lr=lr, beta1=beta1, beta2=beta2, epsilon=epsilon, by_mean=by_mean,
                         by_var=by_var, wd=wd, rescale_grad=rescale_grad, clip_gradient=clip_gradient,
                         lower_bound=lower_bound, upper_bound=upper_bound)
    return w, mean, var, w


class MultiLamb(MultiUpdate):
    """LAMB for num_tensors weights, each with its own norms."""

    def __init__(self, name: str, one: str, roles: tuple[str, ...]):
        super().__init__(name, one, roles, False)
        self.doc = (f"LAMB of num_tensors weights at once: inputs are {', '.join(roles)} of each in turn.\n\n"
                    f"learning_rates, wds: a number for each weight; step_count: which update this is, from 1, of each. "
                    f"The weight's norm is kept within the bounds that are above 0. Returns: the new weights. "
                    f"Source: You et al. 2020, arXiv:1904.00962.")
        self.params = (Param("learning_rates", "floats"), Param("beta1", "float", 0.9), Param("beta2", "float", 0.999),
                       Param("epsilon", "float", 1e-6), Param("wds", "floats"), Param("rescale_grad", "float", 1.0),
                       Param("lower_bound", "float", -1.0), Param("upper_bound", "float", -1.0),
                       Param("clip_gradient", "float", -1.0), Param("bias_correction", "bool", True),
                       Param("step_count", "shape"), Param("num_tensors", "int", 1),
                       Param("num_args", "int", None, doc="how many arrays are given"))

    def weights(self, p: Params) -> int:
        return p.num_tensors

    def parse(self, given: Mapping[str, Any]) -> Params:
        p = Op.parse(self, given)
        n, each = p.num_tensors, len(self.roles)
        if n < 1 or not len(p.learning_rates) == len(p.wds) == len(p.step_count) == n or min(p.step_count) < 1:
            raise ParameterError(f"{self.name}: num_tensors={n}, but learning_rates={p.learning_rates}, wds={p.wds}, "
                                 f"step_count={p.step_count}. Each must hold one number per tensor; steps count from 1.")
        if p.num_args not in (None, n * each):
            raise ParameterError(f"{self.name}: num_tensors={n} takes {n * each} arrays ({', '.join(self.roles)} of each), "
                                 f"{p.num_args} were given.")
        grown = [[1 / (1 - beta**t) if p.bias_correction else 1.0 for t in p.step_count] for beta in (p.beta1, p.beta2)]
        p.scalars = (*p.learning_rates, *p.wds, *grown[0], *grown[1])
        p.static = tuple((k, v) for k, v in p.static if k not in ("learning_rates", "wds", "step_count"))
        return p

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        one, each, n = registry.builtin(self.one), len(self.roles), p.num_tensors
        q = one.parse({**{k: p[k] for k in _ALIKE}, "lr": 0.0, "wd": 0.0})
        names = [d.name for d in one.params if d.kind == "scalar"]
        places, updates = [names.index(k) for k in _EACH], []
        for i in range(n):
            mine = slice(i * each, (i + 1) * each)
            flat = [Spec((1, s.size), s.dtype) for s in (*ins[mine], outs[i])]
            updates.append((one.kernel(q, flat[:-1], flat[-1:], reqs[i:i + 1], target, train), mine))

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple = ()) -> None:
            values = list(q.scalars)
            for i, (update, mine) in enumerate(updates):
                for k, place in enumerate(places):
                    values[place] = scalars[k * n + i]
                update(run, [a.reshape(1, -1) for a in inputs[mine]], [outputs[i].reshape(1, -1)], scalars=tuple(values))

        return kernel


register(MultiLamb("_multi_lamb_update", "_lamb_update", ("weight", "grad", "mean", "var")))
register(MultiLamb("_multi_mp_lamb_update", "_mp_lamb_update", ("weight", "grad", "mean", "var", "weight32")))


@register_operator("_contrib_group_adagrad_update", aliases=("group_adagrad_update",))
class GroupAdagrad(OperatorProperty):
    """Adagrad with one history value per row: history ← history + mean of g² over the row; weight - lr g / √(history + ε).

    weight, grad: [n, ...]; history: [n, 1, ...] or [n], one number per row, changed in place. Returns: the new weight.
    """

    lr: float
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0
    epsilon: float = 1e-5
    argument_names = ("weight", "grad")
    state_names = ("history",)
    gradient_arguments = ()

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = merge_shapes(self.name, "weight and grad", in_shape[0], in_shape[1])
        if x is not None and is_known(x) and not x:
            raise ShapeError(f"{self.name}: weight {x} has no rows.")
        return [x, x], [x], [None if x is None else (x[0], *(1,) * (len(x) - 1))]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        w, g, history = ins
        n = w.shape[0]
        view, row = (n, math.prod(w.shape[1:])), (n, 1)

        def slope(g: Any) -> Any:
            g = self.rescale_grad * g
            return maximum(minimum(g, self.clip_gradient), -self.clip_gradient) if self.clip_gradient > 0 else g

        grow = row_kernel(lambda g: slope(g) * slope(g) / max(1, view[1]), [view], [row], row, [g], [history], [Req.ADD], target,
                          f"{self.name}_history")
        step = row_kernel(lambda w, g, h: w - self.lr * slope(g) / sqrt(h + self.epsilon), [view, view, row], [view], view,
                          [w, g, history], outs, reqs, target, self.name)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            grow(run, [inputs[1]], [inputs[2]])
            step(run, inputs, outputs)

        return kernel


