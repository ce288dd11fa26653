"""Optimizer updates of several weights at once: multi_sgd_update and its variants, _multi_adamw_update, _multi_lamb_update.

Inputs are interleaved as in MXNet: weight, gradient, states of the first array, then those of the next. Shared arrays come last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ....dtype import float32
from ....errors import ParameterError
from ... import op as registry
from ...cpu.c_kernel import functions_together, order_of
from ...cpu.c_printer import CFunction, c_function
from ...declare.simple_op import SimpleOp
from ...declare.traced import printed
from ...ir.expr import load
from ...kernel import Kernel, KernelFunction
from ...op import Dtypes, Expression, Op, Req, Reqs, Shapes, Spec, Specs, merge_shapes, register
from ...params import Param, Params


class MultiUpdate(Op):
    """One optimizer update of several weights. New values of the rates need no new kernel.

    one:     name of the update of a single weight.
    roles:   names of its inputs, in order.
    rates:   the parameters that hold a number for each weight. each: the parameters of `one` that differ between weights.
    shared:  arrays after those of the weights -> True if they have one element per weight, False if they have one element.
    flat:    `one` reads arrays as [1, n].
    """

    nonblocking = capturable = True
    rates: ClassVar[tuple[str, ...]] = ("lrs", "wds")
    each: ClassVar[tuple[str, ...]] = ("lr", "wd")
    shared: ClassVar[Mapping[str, bool]] = {}
    flat: ClassVar[bool] = False
    count: ClassVar[str] = "num_weights"
    text: ClassVar[str] = "lrs, wds: a number for each weight."

    def __init__(self, name: str, one: str, roles: tuple[str, ...], *params: Param):
        self.name, self.one, self.roles = name, one, roles
        inputs = f"{', '.join(roles)} of each in turn" + (f", then {' and '.join(self.shared)}" if self.shared else "")
        self.doc = f"{one} of {self.count} weights at once: inputs are {inputs}.\n\n{self.text} Returns: the new weights."
        self.params = (*params, Param(self.count, "int", 1), Param("num_args", "int", None, doc="how many arrays are given"))

    def weights(self, p: Params) -> int:
        """Return the number of weights."""
        return p[self.count]

    def numbers(self, p: Params) -> tuple[float, ...]:
        """Return the values of `each` for all weights, one parameter after another."""
        return tuple(v for rate in self.rates for v in p[rate])

    def parse(self, given: Mapping[str, Any]) -> Params:
        p = super().parse(given)
        n = self.weights(p)
        if n < 1 or any(len(p[rate]) != n for rate in self.rates):
            rates = ", ".join(f"{rate}={p[rate]}" for rate in self.rates)
            raise ParameterError(f"{self.name}: {self.count}={n}, but {rates}. Each must hold a number for each weight.")
        total = n * len(self.roles) + len(self.shared)
        if p.num_args not in (None, total):
            last = ", ".join(("", *self.shared))
            raise ParameterError(f"{self.name}: {self.count}={n} takes {total} arrays ({', '.join(self.roles)} of each{last}), "
                                 f"{p.num_args} were given.")
        p.scalars = self.numbers(p)
        p.static = tuple((k, v) for k, v in p.static if k not in self.rates)
        return p

    def _names(self, p: Params) -> tuple[str, ...]:
        return (*(f"{role}_{i}" for i in range(self.weights(p)) for role in self.roles), *self.shared)

    def _changes(self) -> bool:
        return len(self.roles) > 2 or bool(self.shared)

    def arguments(self, p: Params) -> tuple[str, ...]:
        return self._names(p)[:2] if self._changes() else self._names(p)

    def auxiliaries(self, p: Params) -> tuple[str, ...]:  # from the first state on: the states of later weights follow
        return self._names(p)[2:] if self._changes() else ()

    def outputs(self, p: Params) -> tuple[str, ...]:
        return tuple(f"output{i}" for i in range(self.weights(p)))

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        each, n, ins, outs = len(self.roles), self.weights(p), [], []
        for i in range(n):
            shape = None
            for s in inputs[i * each:(i + 1) * each]:
                shape = merge_shapes(self.name, f"the arrays of weight {i}", shape, s)
            ins += [shape] * each
            outs.append(shape)
        return [*ins, *((n,) if per_weight else (1,) for per_weight in self.shared.values())], outs

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        own = inputs[:self.weights(p) * len(self.roles)]
        return [*own, *[float32] * len(self.shared)], list(own[::len(self.roles)])

    def _parts(self, p: Params) -> list[slice]:
        """Return the inputs of each weight."""
        each = len(self.roles)
        return [slice(i * each, (i + 1) * each) for i in range(self.weights(p))]

    def _alike(self, p: Params) -> Params:
        """Return the parameters of `one` that all weights share; 0 for those that differ."""
        one = registry.builtin(self.one)
        return one.parse({**{d.name: p[d.name] for d in one.params if d.name in p}, **dict.fromkeys(self.each, 0.0)})

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        one, q, n, flat = registry.builtin(self.one), self._alike(p), self.weights(p), self.flat
        own = len(ins) - len(self.shared)
        names = [d.name for d in one.params if d.kind == "scalar"]
        places, updates = [names.index(name) for name in self.each], []
        for i, mine in enumerate(self._parts(p)):
            specs = [Spec((1, s.size), s.dtype) if flat else s for s in (*ins[mine], *ins[own:], outs[i])]
            updates.append((one.kernel(q, specs[:-1], specs[-1:], _shared(reqs[i:i + 1]), target, train), mine))

        def scalars_of(scalars: Sequence[float]) -> list[tuple[float, ...]]:
            values, found = list(q.scalars), []
            for i in range(n):
                for k, place in enumerate(places):
                    values[place] = scalars[k * n + i]
                found.append(tuple(values))
            return found

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], scalars: tuple = ()) -> None:
            for i, ((update, mine), values) in enumerate(zip(updates, scalars_of(scalars))):
                arrays = [*inputs[mine], *inputs[own:], outputs[i]]
                if flat:
                    arrays = [a.reshape(1, -1) for a in arrays]
                update(run, arrays[:-1], arrays[-1:], scalars=values)

        together = None if target != "cpu" or flat else self._in_one_call(p, q, ins, outs, reqs, kernel, scalars_of)
        return together or kernel

    def _in_one_call(self, p: Params, q: Params, ins: Specs, outs: Specs, reqs: Reqs, kernel: KernelFunction,
                     scalars_of: Callable[[Sequence[float]], Sequence[Sequence[float]]]) -> Kernel | None:
        """Return the kernel that calls C once for all weights; None where its bits differ from `kernel`'s, or it saves little."""
        one, functions, orders = registry.builtin(self.one), [], []
        everything, own = range(len(ins)), len(ins) - len(self.shared)
        for i, mine in enumerate(self._parts(p)):
            mine = [*everything[mine], *everything[own:]]
            e = one.expression(q, [ins[k].dtype for k in mine])
            f = None if e is None else c_function(e, [ins[k] for k in mine], outs[i:i + 1], _shared(reqs[i:i + 1]))
            if not isinstance(f, CFunction) or not f.exact:
                return None
            functions.append(f)
            orders.append(order_of(f, mine, len(ins) + i))
        return functions_together(functions, orders, ins, outs, kernel, scalars_of)


def _shared(reqs: Reqs) -> list[Req]:
    """Return the requests for outputs that may be the weights themselves: of all but the first, those are among the states."""
    return [Req.INPLACE if r == Req.WRITE else r for r in reqs]


class Preloaded(MultiUpdate):
    """multi_sgd_update and its variants with lrs and wds as the last arrays."""

    rates: ClassVar[tuple[str, ...]] = ()
    shared: ClassVar[Mapping[str, bool]] = {"lrs": True, "wds": True}
    text: ClassVar[str] = "lrs, wds: float32 [num_weights]."

    def kernel(self, p: Params, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool = False) -> KernelFunction:
        one = registry.builtin(self.one)
        assert isinstance(one, SimpleOp)
        q, states, updates = self._alike(p), tuple((1 + k, 2 + k) for k in range(len(self.roles) - 2)), []
        for i, mine in enumerate(self._parts(p)):
            specs = [*ins[mine], *[Spec((1,), float32)] * 2]
            *arrays, lr, wd = (load(k, s.dtype) for k, s in enumerate(specs))
            roots = one.body(*arrays, **{**q, "lr": lr, "wd": wd})
            e = Expression(roots if isinstance(roots, tuple) else (roots,), states=states)
            updates.append((printed(e, specs, outs[i:i + 1], _shared(reqs[i:i + 1]), target, self.name), mine))

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            lrs, wds = inputs[-2:]
            for i, (update, mine) in enumerate(updates):
                update(run, [*inputs[mine], lrs[i:i + 1], wds[i:i + 1]], outputs[i:i + 1])

        return kernel


class MultiAdamW(MultiUpdate):
    """_adamw_update for several weights; rescale_grad [1] is the last input."""

    rates: ClassVar[tuple[str, ...]] = ("lrs", "wds", "etas")
    each: ClassVar[tuple[str, ...]] = ("lr", "wd", "eta")
    shared: ClassVar[Mapping[str, bool]] = {"rescale_grad": False}
    text: ClassVar[str] = ("lrs, wds, etas: a number for each weight. rescale_grad: float32 [1]; nothing changes where it is 0, "
                           "infinite or NaN.")


class MultiLamb(MultiUpdate):
    """LAMB for num_tensors weights, each with its own norms."""

    rates: ClassVar[tuple[str, ...]] = ("learning_rates", "wds", "step_count")
    each: ClassVar[tuple[str, ...]] = ("lr", "wd", "by_mean", "by_var")
    flat: ClassVar[bool] = True
    count: ClassVar[str] = "num_tensors"
    text: ClassVar[str] = (
        "learning_rates, wds: a number for each weight; step_count: which update this is, from 1, of each. The weight's norm is "
        "kept within the bounds that are above 0. Source: You et al. 2020, arXiv:1904.00962.")

    def numbers(self, p: Params) -> tuple[float, ...]:
        if min(p.step_count) < 1:
            raise ParameterError(f"{self.name}: step_count={p.step_count}: steps count from 1.")
        grown = [1 / (1 - beta**t) if p.bias_correction else 1.0 for beta in (p.beta1, p.beta2) for t in p.step_count]
        return (*p.learning_rates, *p.wds, *grown)


_rates = (Param("lrs", "floats"), Param("wds", "floats"))
_momentum = Param("momentum", "float", 0.0)
_common = (Param("rescale_grad", "float", 1.0), Param("clip_gradient", "float", -1.0))
_adam = (Param("beta1", "float", 0.9), Param("beta2", "float", 0.999))
for _one, _roles in (("sgd_update", ("weight", "grad")), ("sgd_mom_update", ("weight", "grad", "mom")),
                     ("mp_sgd_update", ("weight", "grad", "weight32")),
                     ("mp_sgd_mom_update", ("weight", "grad", "mom", "weight32"))):
    _own = (_momentum, *_common) if "mom" in _roles else _common
    register(MultiUpdate(f"multi_{_one}", _one, _roles, *_rates, *_own))
    register(Preloaded(f"preloaded_multi_{_one}", _one, _roles, *_own))
for _mixed, _roles in (("", ("weight", "grad", "mean", "var")), ("mp_", ("weight", "grad", "mean", "var", "weight32"))):
    register(MultiAdamW(f"_multi_{_mixed}adamw_update", f"_{_mixed}adamw_update", _roles, _rates[0], *_adam,
                        Param("epsilon", "float", 1e-8), _rates[1], Param("etas", "floats"), _common[1]))
    register(MultiLamb(f"_multi_{_mixed}lamb_update", f"_{_mixed}lamb_update", _roles, Param("learning_rates", "floats"), *_adam,
                       Param("epsilon", "float", 1e-6), _rates[1], _common[0], Param("lower_bound", "float", -1.0),
                       Param("upper_bound", "float", -1.0), _common[1], Param("bias_correction", "bool", True),
                       Param("step_count", "shape")))
