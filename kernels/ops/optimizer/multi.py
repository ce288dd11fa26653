"""Operators on several arrays at once: multi_sgd_update and its variants, multi_sum_sq, all_finite, multi_all_finite.

Inputs are interleaved as in MXNet: weight, gradient, states of the first array, then those of the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....dtype import float32
from ....errors import ParameterError
from ... import op as registry
from ...declare.operator_property import Dtypes, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...ir.expr import load
from ...ir.lang import minimum, where
from ...kernel import KernelFunction
from ...op import Expression, Op, Req, Reqs, Spec, Specs, merge_shapes, register
from ...params import Param, Params


class MultiUpdate(Op):
    """One optimizer update of several weights. lrs and wds hold a number per weight; new values need no new kernel.

    one:    name of the update of a single weight.
    roles:  names of its inputs, in order.
    """

    def __init__(self, name: str, one: str, roles: tuple[str, ...], momentum: bool):
        self.name, self.one, self.roles = name, one, roles
        self.doc = (f"{one} of num_weights weights at once: inputs are {', '.join(roles)} of each in turn.\n\n"
                    f"lrs, wds: a number for each weight. Returns: the new weights.")
        self.params = (Param("lrs", "floats"), Param("wds", "floats"),
                       *((Param("momentum", "float", 0.0),) if momentum else ()), Param("rescale_grad", "float", 1.0),
                       Param("clip_gradient", "float", -1.0), Param("num_weights", "int", 1),
                       Param("num_args", "int", None, doc="how many arrays are given"))

    def parse(self, given: Mapping[str, Any]) -> Params:
        p = super().parse(given)
        n, each = p.num_weights, len(self.roles)
        if n < 1 or len(p.lrs) != n or len(p.wds) != n:
            raise ParameterError(f"{self.name}: num_weights={n}, but lrs has {len(p.lrs)} numbers and wds {len(p.wds)}.")
        if p.num_args not in (None, n * each):
            raise ParameterError(f"{self.name}: num_weights={n} takes {n * each} arrays ({', '.join(self.roles)} of each), "
                                 f"{p.num_args} were given.")
        p.scalars = (*p.lrs, *p.wds)
        p.static = tuple((k, v) for k, v in p.static if k not in ("lrs", "wds"))
        return p

    def weights(self, p: Params) -> int:
        """Return the number of weights."""
        return p.num_weights

    def _names(self, p: Params) -> tuple[str, ...]:
        return tuple(f"{role}_{i}" for i in range(self.weights(p)) for role in self.roles)

    def arguments(self, p: Params) -> tuple[str, ...]:
        return self._names(p)[:2] if len(self.roles) > 2 else self._names(p)

    def auxiliaries(self, p: Params) -> tuple[str, ...]:  # from the first state on: the states of later weights follow
        return self._names(p)[2:] if len(self.roles) > 2 else ()

    def outputs(self, p: Params) -> tuple[str, ...]:
        return tuple(f"output{i}" for i in range(self.weights(p)))

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        each, ins, outs = len(self.roles), [], []
        for i in range(self.weights(p)):
            shape = None
            for s in inputs[i * each:(i + 1) * each]:
                shape = merge_shapes(self.name, f"the arrays of weight {i}", shape, s)
            ins += [shape] * each
            outs.append(shape)
        return ins, outs

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        each = len(self.roles)
        return list(inputs), [inputs[i * each] for i in range(self.weights(p))]

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        one, each, n = registry.builtin(self.one), len(self.roles), p.num_weights
        common = {d.name: p[d.name] for d in self.params if d.name not in ("lrs", "wds", "num_weights", "num_args")}
        q = one.parse({**common, "lr": 0.0, "wd": 0.0})
        names = [d.name for d in one.params if d.kind == "scalar"]
        at, kernels = (names.index("lr"), names.index("wd")), []
        for i in range(n):
            mine = slice(i * each, (i + 1) * each)
            kernels.append((one.kernel(q, ins[mine], outs[i:i + 1], reqs[i:i + 1], target, train), mine))

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple = ()) -> None:
            values = list(q.scalars)
            for i, (update, mine) in enumerate(kernels):
                values[at[0]], values[at[1]] = scalars[i], scalars[n + i]
                update(run, inputs[mine], outputs[i:i + 1], scalars=tuple(values))

        return kernel


for _name, _one, _roles in (
        ("multi_sgd_update", "sgd_update", ("weight", "grad")),
        ("multi_sgd_mom_update", "sgd_mom_update", ("weight", "grad", "mom")),
        ("multi_mp_sgd_update", "mp_sgd_update", ("weight", "grad", "weight32")),
        ("multi_mp_sgd_mom_update", "mp_sgd_mom_update", ("weight", "grad", "mom", "weight32"))):
    register(MultiUpdate(_name, _one, _roles, "mom" in _roles))


# ---- reductions of whole arrays --------------------------------------------------------------------------------------
def _folded(spec: Spec, target: str, body: Any, combine: str, name: str) -> KernelFunction:
    """Return the kernel that reduces body of a whole array to one float32 number."""
    if target == "gpu":
        from ...gpu.printer import triton_kernel as make  # optional dependency
    else:
        from ...cpu.numpy_printer import numpy_kernel as make
    e = Expression((body(load(0, spec.dtype)),), combine=combine)
    return make(e, [Spec((spec.size,), spec.dtype)], [Spec((1,), float32)], [Req.WRITE], name=name)


class OfArrays(OperatorProperty):
    """Base class: arrays of any shapes to a few float32 numbers; not differentiable."""

    gradient_arguments = ()

    def validate(self) -> None:
        n, given = getattr(self, "num_arrays", 1), getattr(self, "num_args", None)
        if n < 1 or given not in (None, n):
            raise ParameterError(f"{self.name}: num_arrays={n}, but {given} arrays were given.")

    def list_arguments(self) -> list[str]:
        return [f"array_{i}" for i in range(self.num_arrays)]  # type: ignore[attr-defined]

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        return list(in_shape), [(1,)], []

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        return list(in_type), [float32], []


@register_operator("multi_sum_sq")
class MultiSumSq(OfArrays):
    """Σ x² of each of num_arrays arrays. Returns: float32 [num_arrays]."""

    num_arrays: int
    num_args: int | None = None

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        return list(in_shape), [(self.num_arrays,)], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        folds = [_folded(s, target, lambda x: x * x, "add", self.name) for s in ins]
        n = len(ins)
        store = row_kernel(lambda total: total, [(n,)], [(n,)], (n,), outs, outs, reqs, target, f"{self.name}_store")

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            totals = run.workspace((n,), float32)
            for i, fold in enumerate(folds):
                fold(run, [inputs[i].reshape(-1)], [totals[i:i + 1]])
            store(run, [totals], outputs)

        return kernel


class Finite(OfArrays):
    """Base class: 1 if every element of every array is finite, else 0."""

    init_output: bool = True

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        finite = [_folded(s, target, lambda x: where(abs(x) < float("inf"), 1.0, 0.0), "minimum", self.name) for s in ins]
        n, one, spec = len(ins), Spec((1,), float32), Spec((len(ins),), float32)
        whole = _folded(spec, target, lambda x: minimum(x, 1.0), "minimum", self.name)  # an empty array gives infinity
        store = row_kernel(lambda a, b: a if self.init_output else minimum(a, b), [(1,)] * 2, [(1,)], (1,), [one, one], outs,
                           [Req.INPLACE if r == Req.WRITE else r for r in reqs], target, f"{self.name}_store")

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            parts, found = run.workspace((n,), float32), run.workspace((1,), float32)
            for i, fold in enumerate(finite):
                fold(run, [inputs[i].reshape(-1)], [parts[i:i + 1]])
            whole(run, [parts], [found])
            store(run, [found, outputs[0]], outputs)

        return kernel


@register_operator("all_finite")
class AllFinite(Finite):
    """1 if data holds no infinity and no NaN, else 0. Returns: float32 [1].

    init_output: False: the result is also 0 if out held 0 before.
    """

    def list_arguments(self) -> list[str]:
        return ["data"]


@register_operator("multi_all_finite")
class MultiAllFinite(Finite):
    """1 if none of num_arrays arrays holds an infinity or NaN, else 0. Returns: float32 [1].

    init_output: False: the result is also 0 if out held 0 before.
    """

    num_arrays: int = 1
    num_args: int | None = None
