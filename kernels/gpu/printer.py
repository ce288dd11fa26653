"""Prints an expression graph as Triton: the GPU kernel of every declared operator.

Which kernel depends on how the operands lie: elementwise over one merged axis or with broadcast operands
(`elementwise.py`), folded over axes (`reduction.py`), or whole rows (`row.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...dtype import float32, float64
from ..ir.coalesce import full_shape
from ..ir.expr import LOAD, REDUCE, Expr, cast, load, topological
from ..ir.rows import lies_along, whole_rows
from ..kernel import Kernel
from ..op import Expression, Req, Shape, Spec
from .body import Plan, Target, kernel_name, typed_root
from .elementwise import elementwise_step
from .launch import Flavour, here
from .reduction import fold_steps
from .row import row_step


def triton_kernel(e: Expression, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], *,
                  name: str = "kernel") -> Kernel:
    """The kernel: kernel(run, inputs, outputs, scalars=()). Nothing is compiled before it first runs."""
    return Kernel(plan_steps(e, ins, outs, reqs, name=name).run)


def triton_source(e: Expression, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], *,
                  name: str = "kernel") -> str:
    """The text of the kernels, for reading."""
    return "\n\n".join(step.source for step in plan_steps(e, ins, outs, reqs, name=name).steps)


def plan_steps(e: Expression, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], *,
               name: str = "kernel", flavour: Flavour | None = None) -> Plan:
    """What triton_kernel runs. flavour: what is printed for; None: as this thread launches now."""
    flavour = flavour or here()
    plan = Plan()
    name = kernel_name(name)
    states = dict(e.states)
    targets = []
    for i, root in enumerate(e.outputs):
        spec, req = (ins[states[i]], Req.WRITE) if i in states else (outs[i], reqs[i])
        place = ("in", states[i]) if i in states else ("out", i)
        if req != Req.NULL and spec.size:
            targets.append(Target(typed_root(root, spec.dtype), spec, req, place))
    full = full_shape([s.shape for s in (*ins, *(t.spec for t in targets))])
    size = math.prod(full)
    if e.kind == "row":
        return _plan_rows(plan, e, ins, targets, full, name, flavour)
    spread = [t for t in targets if t.spec.size == size]
    folded = [t for t in targets if t.spec.size != size]
    late = []  # folds go first, since what is spread may overwrite inputs; a fold that overwrites one waits in scratch
    for k, t in enumerate(folded):
        if t.req == Req.INPLACE and len(targets) > 1:
            held = plan.space(t.spec.shape, t.dtype)
            late.append((held, t))
            t = Target(t.root, plan.spaces[held], Req.WRITE, ("space", held))
        plan.steps += fold_steps(plan, e, ins, t, full, f"{name}_fold{k or ''}", flavour)
    if spread:
        plan.steps.append(elementwise_step(e, ins, spread, full, name, flavour))
    for held, t in late:
        plan.steps.append(_copy_step(plan, held, t, f"{name}_copy", flavour))
    return plan


def _spans_columns(root: Expr, ins: Sequence[Spec]) -> bool:
    """Whether a root has a value for every column of a row, and not one for the row."""
    spans: dict[int, bool] = {}
    for x in topological([root]):
        if x.op == LOAD:
            spans[id(x)] = bool(ins[x.value].shape) and ins[x.value].shape[-1] != 1
        else:
            spans[id(x)] = x.op != REDUCE and any(spans[id(a)] for a in x.args)
    return spans[id(root)]


def _copy_step(plan: Plan, held: int, t: Target, name: str, flavour: Flavour) -> Any:
    spec = plan.spaces[held]
    copy = Expression((load(0, spec.dtype),))
    moved = Target(copy.outputs[0], t.spec, t.req, t.place)
    return elementwise_step(copy, [spec], [moved], spec.shape, name, flavour, source=("space", held))


def _plan_rows(plan: Plan, e: Expression, ins: Sequence[Spec], targets: Sequence[Target], full: Shape, name: str,
               flavour: Flavour) -> Plan:
    """Rows first; an output that has not all the rows is folded from scratch."""
    if math.prod(full) == 0:
        return plan
    roots = whole_rows([t.root for t in targets], lies_along([s.shape for s in ins], full), full[-1])
    targets = [replace(t, root=root) for t, root in zip(targets, roots)]
    direct, folds = [], []
    for t in targets:
        padded = (1,) * (len(full) - len(t.spec.shape)) + tuple(t.spec.shape)
        if padded[:-1] == full[:-1] and (padded[-1] == full[-1] or not _spans_columns(t.root, ins)):
            direct.append(t)
        else:
            wide = float64 if t.dtype == np.float64 else float32 if t.dtype.kind not in "iub" else t.dtype
            held = plan.space(full, wide)
            direct.append(Target(cast(t.root, wide), plan.spaces[held], Req.WRITE, ("space", held)))
            folds.append((held, t))
    plan.steps.append(row_step(e, ins, direct, full, name, flavour))
    for k, (held, t) in enumerate(folds):
        spec = plan.spaces[held]
        whole = Expression((load(0, spec.dtype),), combine=e.combine)
        moved = Target(whole.outputs[0], t.spec, t.req, t.place)
        plan.steps += fold_steps(plan, whole, [spec], moved, full, f"{name}_fold{k or ''}", flavour,
                                 source=("space", held))
    return plan
