"""Updates in one go: what an optimizer wants done to each parameter, and one engine push that does it to all of them.

An optimizer says `Step("sgd_mom_update", weight, grad, (mom,), lr=..., wd=...)`: a declared operator, the arrays it
reads and changes, its settings. `apply` groups steps by context and queues one engine function for each group. On a GPU that
function launches one kernel for all steps of one rule and dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import engine
from ..kernels import op as ops
from ..kernels.op import Op, Req, compiled_static
from ..kernels.ops.mixed import mixed
from ..kernels.params import REQUIRED, Params
from ..ndarray import NDArray
from .update_many import made_together, rule_of

_INLINE = 1 << 17  # bytes: CPU updates that touch fewer take less time than waking another thread and its turns at Python's lock


class Step:
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

    def through(self, weight: NDArray) -> Step:
        """This step on a float32 copy, which `self.weight` is, with the result also rounded into weight."""
        self.master, self.weight = self.weight, weight
        return self


class _Rule:
    """An operator of settings, compiled for arrays of given layouts."""

    __slots__ = ("kernel", "many", "nbytes", "scalars")

    def __init__(self, step: Step):
        op: Op = ops.get(step.op)
        if step.master is not None:
            op = mixed(op)
        p: Params = op.parse(step.settings)
        self.scalars = _names(step.op)[0]
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


_rules: dict[tuple, _Rule] = {}
_split: dict[str, tuple[tuple[str, ...], tuple[tuple[str, Any], ...], tuple[Any, ...]]] = {}


def _names(name: str) -> tuple:
    """(names of the run-time scalars, (name, default) of the other settings, defaults of the scalars) of an operator."""
    found = _split.get(name)
    if found is None:
        declared = ops.get(name).params
        scalars = [d for d in declared if d.kind == "scalar"]
        rest = tuple((d.name, d.default) for d in declared if d.kind != "scalar")
        found = _split[name] = (tuple(d.name for d in scalars), rest, tuple(d.default for d in scalars))
    return found


def _inputs(step: Step) -> tuple[NDArray, ...]:
    if step.master is None:
        return (step.weight, *step.grad, *step.arrays)
    return (*step.grad, *step.arrays, step.master)


def _ready(step: Step) -> tuple[_Rule, tuple[Any, ...]]:
    scalars, rest, defaults = _names(step.op)
    settings = step.settings
    arrays = _inputs(step)
    key = (step.op, step.flat, step.weight._layout if step.master is not None else None,
           *[a._layout for a in arrays], *[settings.get(n, d) for n, d in rest])
    rule = _rules.get(key)
    if rule is None:
        assert all(s in settings or d is not REQUIRED for s, d in zip(scalars, defaults)), (step.op, settings)
        rule = _rules[key] = _Rule(step)
    return rule, tuple([float(settings.get(n, d)) for n, d in zip(scalars, defaults)])


def apply(steps: Sequence[Step], priority: int = 0) -> None:
    """Queue the steps, in order: one engine function for all that are on one context."""
    groups: dict[Any, list[Step]] = {}
    for step in steps:
        groups.setdefault(step.weight.context, []).append(step)
    for ctx, group in groups.items():
        _push(ctx, group, priority)


def _push(ctx: Any, steps: Sequence[Step], priority: int) -> None:
    calls = []
    mutable: dict[Any, None] = {}
    const: dict[Any, None] = {}
    nbytes = n_changed = 0
    for step in steps:
        rule, scalars = _ready(step)
        arrays = _inputs(step)
        calls.append((rule, arrays, step.weight, scalars, step.flat))
        nbytes += rule.nbytes
        changed = (step.weight, *step.arrays) if step.master is None else (step.weight, *step.arrays, step.master)
        mutable.update(dict.fromkeys(a._chunk.var for a in changed))
        const.update(dict.fromkeys(a._chunk.var for a in step.grad))
        n_changed += len(changed)
    apart = len(mutable) == n_changed and not any(v in mutable for v in const)  # no step reads or writes what another writes

    def run(rc: Any) -> None:
        for rule, arrays, weight, scalars, flat in made_together(rc, calls) if apart and ctx.is_gpu else calls:
            ins, out = [a._device() for a in arrays], weight._device()
            if flat:
                ins, out = [a.reshape(1, -1) for a in ins], out.reshape(1, -1)
            rule.kernel(rc, ins, [out], scalars=scalars)

    name = f"{steps[0].op} x {len(steps)}" if len(steps) > 1 else steps[0].op
    small = nbytes <= _INLINE and not ctx.is_gpu
    engine.current().push_sync(run, ctx, [v for v in const if v not in mutable], list(mutable),
                               prop="inline" if small else None, priority=priority, name=name)
