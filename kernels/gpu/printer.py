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
from .body import LaunchPlan, StoreTarget, kernel_name, typed_root
from .elementwise import elementwise_launch
from .reduction import reduction_launches
from .row import row_launch
from .target import CodegenTarget, codegen_target


def triton_kernel(e: Expression, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], *,
                  name: str = "kernel") -> Kernel:
    """The kernel: kernel(run, inputs, outputs, scalars=()). Nothing is compiled before it first runs."""
    return Kernel(plan_launches(e, ins, outs, reqs, name=name).run)


def triton_source(e: Expression, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], *,
                  name: str = "kernel") -> str:
    """The text of the kernels, for reading."""
    return "\n\n".join(step.source for step in plan_launches(e, ins, outs, reqs, name=name).launches)


def plan_launches(e: Expression, ins: Sequence[Spec], outs: Sequence[Spec], reqs: Sequence[Req], *,
               name: str = "kernel", codegen: CodegenTarget | None = None) -> LaunchPlan:
    """What triton_kernel runs. codegen: what is printed for; None: as this thread launches now."""
    codegen = codegen or codegen_target()
    plan = LaunchPlan()
    name = kernel_name(name)
    states = dict(e.states)
    targets = []
    for i, root in enumerate(e.outputs):
        spec, req = (ins[states[i]], Req.WRITE) if i in states else (outs[i], reqs[i])
        place = ("in", states[i]) if i in states else ("out", i)
        if req != Req.NULL and spec.size:
            targets.append(StoreTarget(typed_root(root, spec.dtype), spec, req, place))
    full = full_shape([s.shape for s in (*ins, *(t.spec for t in targets))])
    size = math.prod(full)
    if e.kind == "row":
        return _plan_rows(plan, e, ins, targets, full, name, codegen)
    spread = [t for t in targets if t.spec.size == size]
    folded = [t for t in targets if t.spec.size != size]
    late = []  # folds go first, since what is spread may overwrite inputs; a fold that overwrites one waits in scratch
    for k, t in enumerate(folded):
        if t.req == Req.INPLACE and len(targets) > 1:
            held = plan.space(t.spec.shape, t.dtype)
            late.append((held, t))
            t = StoreTarget(t.root, plan.spaces[held], Req.WRITE, ("space", held))
        plan.launches += reduction_launches(plan, e, ins, t, full, f"{name}_fold{k or ''}", codegen)
    if spread:
        plan.launches.append(elementwise_launch(e, ins, spread, full, name, codegen))
    for held, t in late:
        plan.launches.append(_copy_launch(plan, held, t, f"{name}_copy", codegen))
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


def _copy_launch(plan: LaunchPlan, held: int, t: StoreTarget, name: str, codegen: CodegenTarget) -> Any:
    spec = plan.spaces[held]
    copy = Expression((load(0, spec.dtype),))
    moved = StoreTarget(copy.outputs[0], t.spec, t.req, t.place)
    return elementwise_launch(copy, [spec], [moved], spec.shape, name, codegen, source=("space", held))


def _plan_rows(plan: LaunchPlan, e: Expression, ins: Sequence[Spec], targets: Sequence[StoreTarget], full: Shape, name: str,
               codegen: CodegenTarget) -> LaunchPlan:
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
            direct.append(StoreTarget(cast(t.root, wide), plan.spaces[held], Req.WRITE, ("space", held)))
            folds.append((held, t))
    plan.launches.append(row_launch(e, ins, direct, full, name, codegen))
    for k, (held, t) in enumerate(folds):
        spec = plan.spaces[held]
        whole = Expression((load(0, spec.dtype),), combine=e.combine)
        moved = StoreTarget(whole.outputs[0], t.spec, t.req, t.place)
        plan.launches += reduction_launches(plan, whole, [spec], moved, full, f"{name}_fold{k or ''}", codegen,
                                 source=("space", held))
    return plan
