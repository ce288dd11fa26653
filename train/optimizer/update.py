"""Updates in one go: what an optimizer wants done to each parameter, and one engine push that does it to all of them.

An optimizer says `ParamUpdate("sgd_mom_update", weight, grad, (mom,), lr=..., wd=...)`: a declared operator, the arrays it
reads and changes, its settings. `apply` groups steps by context and queues one engine function for each group. On a GPU that
function launches one kernel for all steps of one rule and dtype. What a group needs is found once and kept as a plan; on the
CPU, one that comes again has its kernels tied to its arrays, in C where that pays. C gives NumPy's bits: an update's result
does not depend on what it was grouped with, nor on whether there is a compiler.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import is_
from typing import Any

import numpy as np

from ... import engine
from ...engine.memory import storage
from ...kernels import op as ops
from ...kernels.cpu.c_kernel import bind_in_c, pay
from ...kernels.cpu.c_printer import CFunction, c_function
from ...kernels.kernel import BoundKernel
from ...kernels.op import Op, Req, compiled_static
from ...kernels.ops.optimizer.mixed_precision import mixed
from ...kernels.params import REQUIRED, Params
from ...ndarray import NDArray
from ...ndarray.core.chunk import Chunk
from .multi_tensor import made_together, rule_of

_INLINE = 1 << 17  # bytes: CPU updates that touch fewer take less time than waking another thread and its turns at Python's lock


class ParamUpdate:
    """One parameter's update: `op` on (weight, grad, *states), which writes weight and the states.

    settings:  the operator's parameters. Those that are run-time scalars may change from step to step at no cost.
    master:    a float32 copy of weight: the update is made to it, and weight gets it rounded.
    flat:      hand the arrays over as [1, n], for rules that take the norm of the whole array.
    """

    __slots__ = ("arrays", "flat", "grad", "master", "op", "settings", "weight")

    def __init__(self, op: str, weight: NDArray, grad: NDArray, states: Sequence[NDArray] = (), *, flat: bool = False,
                 inputs: Sequence[NDArray] = (), **settings: Any):
        self.op, self.weight, self.grad, self.arrays, self.flat = op, weight, (grad, *inputs), tuple(states), flat
        self.settings, self.master = settings, None

    def with_master_weight(self, weight: NDArray) -> ParamUpdate:
        """This step on a float32 copy, which `self.weight` is, with the result also rounded into weight."""
        self.master, self.weight = self.weight, weight
        return self


class _Rule:
    """An operator of settings, compiled for arrays of given layouts.

    in_c:  the same as a C function, if that gives the same bits. many: the same for many arrays of a GPU.
    """

    __slots__ = ("_in_c", "kernel", "many", "nbytes")

    def __init__(self, step: ParamUpdate):
        op: Op = ops.builtin(step.op)
        if step.master is not None:
            op = mixed(op)
        p: Params = op.parse(step.settings)
        arrays = _inputs(step)
        specs = [a._spec for a in arrays]
        if step.flat:
            specs = [ops.Spec((1, s.size), s.dtype) for s in specs]
        if step.master is None:
            out, req = specs[0], Req.INPLACE
        else:
            out, req = ops.Spec(specs[0].shape, np.dtype(step.weight.dtype)), Req.WRITE
        target = "gpu" if step.weight.context.is_gpu else "cpu"
        self.kernel = compiled_static(op, p, tuple(specs), (out,), (req,), target)
        self.nbytes = sum(a.nbytes for a in arrays)
        self.many = rule_of(op, p, specs, out, step.master is None) if target == "gpu" and not step.flat else None
        self._in_c: Any = (op.expression(p, [s.dtype for s in specs]), specs, (out,), (req,))

    @property
    def in_c(self) -> CFunction | None:
        """The C function that gives the same bits; printed when it is first asked for."""
        if isinstance(self._in_c, tuple):
            made = c_function(*self._in_c) if self._in_c[0] is not None else ""
            self._in_c = made if isinstance(made, CFunction) and made.exact else None
        return self._in_c


_rules: dict[tuple, _Rule] = {}
_split: dict[str, tuple[tuple[str, ...], tuple[tuple[str, Any], ...], tuple[Any, ...]]] = {}


def _names(name: str) -> tuple:
    """(names of the run-time scalars, (name, default) of the other settings, defaults of the scalars) of an operator."""
    found = _split.get(name)
    if found is None:
        declared = ops.builtin(name).params
        scalars = [d for d in declared if d.kind == "scalar"]
        rest = tuple((d.name, d.default) for d in declared if d.kind != "scalar")
        found = _split[name] = (tuple(d.name for d in scalars), rest, tuple(d.default for d in scalars))
    return found


def _inputs(step: ParamUpdate) -> tuple[NDArray, ...]:
    if step.master is None:
        return (step.weight, *step.grad, *step.arrays)
    return (*step.grad, *step.arrays, step.master)


def _touched(step: ParamUpdate) -> tuple[NDArray, ...]:
    """Every array of a step."""
    return _inputs(step) if step.master is None else (*_inputs(step), step.weight)


def _fixed(step: ParamUpdate) -> tuple[Any, ...]:
    """What a step does, but for its arrays and run-time scalars."""
    return (step.op, step.flat, step.master is None, *[step.settings.get(n, d) for n, d in _names(step.op)[1]])


def _scalars(step: ParamUpdate) -> tuple[float, ...]:
    names, _, defaults = _names(step.op)
    settings = step.settings
    return tuple([float(settings.get(n, d)) for n, d in zip(names, defaults)])


def _rule(step: ParamUpdate) -> _Rule:
    key = (*_fixed(step), *[a.layout for a in _touched(step)])
    rule = _rules.get(key)
    if rule is None:
        names, _, defaults = _names(step.op)
        assert all(s in step.settings or d is not REQUIRED for s, d in zip(names, defaults)), (step.op, step.settings)
        rule = _rules[key] = _Rule(step)
    return rule


class _Plan:
    """What one push of certain steps needs, found once. It keeps no array alive that is not in use.

    const, mutable:  the vars. apart: whether no step reads or writes what another writes.
    calls:           the kernels bound to their arrays; None before the plan came a second time, and on a GPU.
    """

    __slots__ = ("_arrays", "_fixed", "_last", "apart", "calls", "const", "mutable", "name", "prop", "rules")

    def __init__(self, ctx: Any, steps: Sequence[ParamUpdate]):
        mutable: dict[Any, None] = {}
        const: dict[Any, None] = {}
        n_changed = 0
        for step in steps:
            changed = (step.weight, *step.arrays) if step.master is None else (step.weight, *step.arrays, step.master)
            mutable.update(dict.fromkeys(a.chunk.var for a in changed))
            const.update(dict.fromkeys(a.chunk.var for a in step.grad))
            n_changed += len(changed)
        self.apart = len(mutable) == n_changed and not any(v in mutable for v in const)
        self.const, self.mutable = [v for v in const if v not in mutable], list(mutable)
        self.rules = [_rule(s) for s in steps]
        self._fixed = [_fixed(s) for s in steps]
        self._arrays = [weakref.ref(a) for s in steps for a in _touched(s)]
        self._last = [s.settings for s in steps], [_scalars(s) for s in steps]
        self.name = f"{steps[0].op} x {len(steps)}" if len(steps) > 1 else steps[0].op
        self.prop = "inline" if sum(r.nbytes for r in self.rules) <= _INLINE and not ctx.is_gpu else None
        self.calls: list[BoundKernel] | None = None

    def numbers(self, steps: Sequence[ParamUpdate]) -> list[tuple[float, ...]] | None:
        """The run-time scalars of steps; None if they do anything else, or to other arrays, than what this is the plan for."""
        arrays = [a for s in steps for a in _touched(s)]
        if len(arrays) != len(self._arrays) or not all(map(is_, arrays, [a() for a in self._arrays])):
            return None
        settings, (before, numbers) = [s.settings for s in steps], self._last
        if [s.op for s in steps] == [f[0] for f in self._fixed] and settings == before:
            return numbers
        if [_fixed(s) for s in steps] != self._fixed:
            return None
        numbers = [_scalars(s) for s in steps]
        self._last = settings, numbers
        return numbers

    def bind(self, steps: Sequence[ParamUpdate]) -> None:
        """Bind the kernels to their arrays, in C if together that saves enough."""
        functions = [r.in_c for r in self.rules]
        in_c, calls = pay([f for f in functions if f is not None]), []
        for step, rule, function in zip(steps, self.rules, functions):
            ins, outs = _shaped(_inputs(step), step.weight, step.flat)
            call = bind_in_c(function, ins, outs) if in_c and function is not None else None
            calls.append(call or rule.kernel.bind(ins, outs))
        self.calls = calls


#: By the memory of the first gradient: they go with it. Executors that share weights have gradients of their own.
_plans: weakref.WeakKeyDictionary[Chunk, _Plan] = weakref.WeakKeyDictionary()


def apply(steps: Sequence[ParamUpdate], priority: int = 0) -> None:
    """Queue the steps, in order: one engine function for all that are on one context."""
    groups: dict[Any, list[ParamUpdate]] = {}
    for step in steps:
        groups.setdefault(step.weight.layout.ctx, []).append(step)
    for ctx, group in groups.items():
        _push(ctx, group, priority)


def _push(ctx: Any, steps: Sequence[ParamUpdate], priority: int) -> None:
    first = steps[0].grad[0].chunk
    plan = _plans.get(first)
    numbers = plan.numbers(steps) if plan is not None else None
    if plan is None or numbers is None:
        plan = _plans[first] = _Plan(ctx, steps)
        numbers = plan._last[1]
    elif plan.calls is None and not ctx.is_gpu and storage.access_checker is None:
        plan.bind(steps)
    calls = plan.calls

    def run(rc: Any, steps: Sequence[ParamUpdate] = steps) -> None:  # they keep the arrays alive
        if calls is not None:
            for call, scalars in zip(calls, numbers):
                call(rc, scalars)
            return
        made = [(rule, _inputs(s), s.weight, scalars, s.flat) for rule, s, scalars in zip(plan.rules, steps, numbers)]
        for rule, arrays, weight, scalars, flat in made_together(rc, made) if plan.apart and ctx.is_gpu else made:
            rule.kernel(rc, *_shaped(arrays, weight, flat), scalars=scalars)

    engine.current().push_sync(run, ctx, plan.const, plan.mutable, prop=plan.prop, priority=priority, name=plan.name)


def _shaped(arrays: Sequence[NDArray], weight: NDArray, flat: bool) -> tuple[list[Any], list[Any]]:
    """The device arrays of a kernel's inputs, and of its output."""
    ins, out = [a.device_array() for a in arrays], weight.device_array()
    return ([a.reshape(1, -1) for a in ins], [out.reshape(1, -1)]) if flat else (ins, [out])
