"""preloaded_multi_sgd_update and its variants, _multi_adamw_update, reset_arrays: many arrays at once, rates given as arrays.

Inputs are interleaved as in MXNet: weight, gradient, states of the first array, then those of the next. Shared arrays come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ....dtype import float32
from ....errors import ParameterError
from ... import op as registry
from ...declare.operator_property import Dtypes, OperatorProperty, Shapes, assign, gpu_module
from ...declare.property_op import register_operator
from ...declare.simple_op import SimpleOp
from ...ir.expr import load
from ...kernel import KernelFunction
from ...op import Expression, Op, Req, Reqs, Spec, Specs, register
from ...params import Param, Params
from .multi import MultiUpdate

ONE = Spec((1,), float32)


class Shared(MultiUpdate):
    """A MultiUpdate with shared arrays after those of the weights.

    shared:  (name, True if it has one element per weight, False if it has one element).
    """

    shared: tuple[tuple[str, bool], ...] = ()

    def _own(self, p: Params) -> tuple[str, ...]:
        return (*self._names(p), *(name for name, _ in self.shared))

    def arguments(self, p: Params) -> tuple[str, ...]:
        return self._own(p)[:2]

    def auxiliaries(self, p: Params) -> tuple[str, ...]:
        return self._own(p)[2:]

    def _count(self, p: Params) -> None:
        n, each = p.num_weights, len(self.roles)
        if n < 1 or p.num_args not in (None, n * each + len(self.shared)):
            last = ", ".join(name for name, _ in self.shared)
            raise ParameterError(f"{self.name}: num_weights={n} takes {n * each + len(self.shared)} arrays ("
                                 f"{', '.join(self.roles)} of each, then {last}), {p.num_args} were given.")

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        n = p.num_weights * len(self.roles)
        ins, outs = super().infer_shape(p, inputs[:n], outputs)
        return [*ins, *((p.num_weights,) if every else (1,) for _, every in self.shared)], outs

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        ins, outs = super().infer_dtype(p, inputs, outputs)
        return [*ins[:-len(self.shared)], *[float32] * len(self.shared)], outs


class Preloaded(Shared):
    """multi_sgd_update and its variants with lrs and wds as the last arrays."""

    shared = (("lrs", True), ("wds", True))

    def __init__(self, name: str, one: str, roles: tuple[str, ...], momentum: bool):
        super().__init__(name, one, roles, momentum)
        self.params = tuple(d for d in self.params if d.name not in ("lrs", "wds"))
        self.doc = (f"{one} of num_weights weights at once: inputs are {', '.join(roles)} of each in turn, then lrs and wds.\n\n"
                    f"lrs, wds: float32 [num_weights]. Returns: the new weights.")

    def parse(self, given: Mapping[str, Any]) -> Params:
        p = Op.parse(self, given)
        self._count(p)
        return p

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        one, each = cast(SimpleOp, registry.builtin(self.one)), len(self.roles)
        common = {d.name: p[d.name] for d in self.params if d.name not in ("num_weights", "num_args")}
        q = one.parse({**common, "lr": 0.0, "wd": 0.0})
        if target == "gpu":
            from ...gpu.printer import triton_kernel as make  # optional dependency
        else:
            from ...cpu.numpy_printer import numpy_kernel as make
        updates = []
        for i in range(p.num_weights):
            mine = slice(i * each, (i + 1) * each)
            specs = [*ins[mine], ONE, ONE]
            *arrays, lr, wd = (load(k, s.dtype) for k, s in enumerate(specs))
            roots = one.body(*arrays, **{**q, "lr": lr, "wd": wd})
            roots = roots if isinstance(roots, tuple) else (roots,)
            e = Expression(roots, states=tuple((1 + k, 2 + k) for k in range(each - 2)))
            updates.append((make(e, specs, outs[i:i + 1], reqs[i:i + 1], name=self.name), mine))

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            lrs, wds = inputs[-2:]
            for i, (update, mine) in enumerate(updates):
                update(run, [*inputs[mine], lrs[i:i + 1], wds[i:i + 1]], outputs[i:i + 1])

        return kernel


for _name, _roles in (("sgd_update", ("weight", "grad")), ("sgd_mom_update", ("weight", "grad", "mom")),
                      ("mp_sgd_update", ("weight", "grad", "weight32")),
                      ("mp_sgd_mom_update", ("weight", "grad", "mom", "weight32"))):
    register(Preloaded(f"preloaded_multi_{_name}", _name, _roles, "mom" in _roles))


class MultiAdamW(Shared):
    """_adamw_update for num_weights weights at once; rescale_grad [1] is the last input."""

    shared = (("rescale_grad", False),)

    def __init__(self, name: str, one: str, roles: tuple[str, ...]):
        super().__init__(name, one, roles, False)
        self.doc = (f"{one} of num_weights weights at once: inputs are {', '.join(roles)} of each in turn, then rescale_grad.\n\n"
                    f"lrs, wds, etas: a number for each weight. rescale_grad: float32 [1]; nothing changes where it is 0, "
                    f"infinite or NaN. Returns: the new weights.")
        self.params = (Param("lrs", "floats"), Param("beta1", "float", 0.9), Param("beta2", "float", 0.999),
                       Param("epsilon", "float", 1e-8), Param("wds", "floats"), Param("etas", "floats"),
                       Param("clip_gradient", "float", -1.0), Param("num_weights", "int", 1),
                       Param("num_args", "int", None, doc="how many arrays are given"))

    def parse(self, given: Mapping[str, Any]) -> Params:
        p = Op.parse(self, given)
        self._count(p)
        if not len(p.lrs) == len(p.wds) == len(p.etas) == p.num_weights:
            raise ParameterError(f"{self.name}: num_weights={p.num_weights}, but lrs={p.lrs}, wds={p.wds}, etas={p.etas}.")
        p.scalars = (*p.lrs, *p.wds, *p.etas)
        p.static = tuple((k, v) for k, v in p.static if k not in ("lrs", "wds", "etas"))
        return p

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        one, each, n = registry.builtin(self.one), len(self.roles), p.num_weights
        common = {k: p[k] for k in ("beta1", "beta2", "epsilon", "clip_gradient")}
        q = one.parse({**common, "lr": 0.0, "wd": 0.0, "eta": 0.0})
        names = [d.name for d in one.params if d.kind == "scalar"]
        at, updates = [names.index(k) for k in ("lr", "wd", "eta")], []
        for i in range(n):
            mine = slice(i * each, (i + 1) * each)
            updates.append((one.kernel(q, [*ins[mine], ins[-1]], outs[i:i + 1], reqs[i:i + 1], target, train), mine))

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple = ()) -> None:
            values = list(q.scalars)
            for i, (update, mine) in enumerate(updates):
                for k, place in enumerate(at):
                    values[place] = scalars[k * n + i]
                update(run, [*inputs[mine], inputs[-1]], outputs[i:i + 1], scalars=tuple(values))

        return kernel


register(MultiAdamW("_multi_adamw_update", "_adamw_update", ("weight", "grad", "mean", "var")))
register(MultiAdamW("_multi_mp_adamw_update", "_mp_adamw_update", ("weight", "grad", "mean", "var", "weight32")))


@register_operator("reset_arrays")
class ResetArrays(OperatorProperty):
    """Fill num_arrays arrays with zeros, in place. Returns: a placeholder, float32 [1]."""

    num_arrays: int
    num_args: int | None = None
    argument_names = ()
    gradient_arguments = ()

    def validate(self) -> None:
        if self.num_arrays < 1 or self.num_args not in (None, self.num_arrays):
            raise ParameterError(f"{self.name}: num_arrays={self.num_arrays}, but {self.num_args} arrays were given.")

    def list_auxiliary_states(self) -> list[str]:
        return [f"array_{i}" for i in range(self.num_arrays)]

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        return [], [(1,)], [None] * self.num_arrays

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        return [], [float32], [None] * self.num_arrays

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        fill = gpu_module("tensor.triton_copy").fill if target == "gpu" else None

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            for a in (*inputs, *(outputs if reqs[0] in (Req.WRITE, Req.INPLACE) else ())):
                if fill is not None:
                    fill(run, a, 0)
                else:
                    assign(a, Req.WRITE, 0)

        return kernel
