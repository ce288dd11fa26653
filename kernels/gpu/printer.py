"""Print an expression graph as Triton: the GPU kernel of every declared operator.

The kind of kernel depends on the operands' layouts: elementwise over one merged axis or with broadcast operands
(`elementwise.py`), reduced over axes (`reduction.py`), or whole rows (`row.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...dtype import float32, float64
from ..ir.coalesce import full_shape
from ..ir.draws import PlacedDraw, as_inputs
from ..ir.expr import cast, load, reduce
from ..ir.rows import by_reciprocals, lies_along, padded, varies, whole_rows
from ..kernel import Kernel
from ..op import Expression, Req, Reqs, Shape, Spec, Specs
from .body import KernelLaunch, LaunchPlan, StoreTarget, kernel_name, typed_root
from .elementwise import elementwise_launch
from .reduction import reduction_launches
from .row import RowKernel
from .target import CodegenTarget, codegen_target


def triton_kernel(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> Kernel:
    """Return the kernel: kernel(run, inputs, outputs, scalars=()). It is compiled when it first runs."""
    return Kernel(plan_launches(e, ins, outs, reqs, name=name).run)


def triton_source(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> str:
    """Return the text of the kernels, for reading."""
    return "\n\n".join(one.kernel.source for one in plan_launches(e, ins, outs, reqs, name=name).launches)


def plan_launches(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, *,
               name: str = "kernel", codegen: CodegenTarget | None = None) -> LaunchPlan:
    """Return the launches of triton_kernel. codegen: default, the target of this thread's launches."""
    codegen = codegen or codegen_target()
    plan = LaunchPlan()
    name = kernel_name(name)
    e, ins, draws = as_inputs(e, ins, full_shape([s.shape for s in (*ins, *outs)]))
    states = dict(e.states)
    targets = []
    for i, root in enumerate(e.outputs):
        spec, req = (ins[states[i]], Req.WRITE) if i in states else (outs[i], reqs[i])
        array = ("in", states[i]) if i in states else ("out", i)
        if req != Req.NULL and spec.size:
            targets.append(StoreTarget(typed_root(root, spec.dtype), spec, req, array))
    full = full_shape([s.shape for s in (*ins, *(t.spec for t in targets))])
    size = math.prod(full)
    if e.kind == "row":
        return _plan_rows(plan, e, ins, targets, full, name, codegen, draws)
    elementwise = [t for t in targets if t.spec.size == size]
    reduced = [t for t in targets if t.spec.size != size]
    late = []  # reductions run first, since elementwise stores may overwrite inputs; one that overwrites an input is copied last
    for k, t in enumerate(reduced):
        if t.req == Req.INPLACE and len(targets) > 1:
            temporary = plan.temporary(t.root, t.spec.shape, t.dtype)
            late.append((temporary, t))
            t = temporary
        plan.launches += reduction_launches(plan, e, ins, t, full, f"{name}_fold{k or ''}", codegen, draws=draws)
    if elementwise:
        plan.launches.append(elementwise_launch(e, ins, elementwise, full, name, codegen, draws=draws))
    for temporary, t in late:
        plan.launches.append(copy_launch(temporary, t, f"{name}_copy", codegen))
    return plan


def copy_launch(source: StoreTarget, t: StoreTarget, name: str, codegen: CodegenTarget) -> KernelLaunch:
    """Return the launch that stores what was stored to source to t, by its write request."""
    spec = source.spec
    copy = Expression((load(0, spec.dtype),))
    moved = StoreTarget(copy.outputs[0], t.spec, t.req, t.array)
    return elementwise_launch(copy, [spec], [moved], spec.shape, name, codegen, source=source.array)


def _plan_rows(plan: LaunchPlan, e: Expression, ins: Specs, targets: Sequence[StoreTarget], full: Shape, name: str,
               codegen: CodegenTarget, draws: Mapping[int, PlacedDraw]) -> LaunchPlan:
    """Plan the kernel of rows, and a reduction for each output that does not have all the rows."""
    if math.prod(full) == 0:
        return plan
    along = lies_along([s.shape for s in ins], full, e.axis)
    roots = by_reciprocals(whole_rows([t.root for t in targets], along, full[e.axis] if full else 1), along)
    targets = [replace(t, root=root) for t, root in zip(targets, roots)]
    spans = [len(s.shape) >= -e.axis and s.shape[e.axis] != 1 for s in ins]
    one_row = (*[1] * (len(full) - 1), full[-1])
    single = sum(padded(t.spec.shape, len(full)) == one_row != full for t in targets)
    by_rows = RowKernel.sums_rows(e, full, [s.dtype for s in (*ins, *(t.spec for t in targets))], single)
    direct, reductions = [], []
    for t in targets:
        shape = padded(t.spec.shape, len(full))
        others = [i for i in range(len(full)) if i != len(full) + e.axis]
        whole = all(shape[i] == full[i] for i in others)
        if whole and (shape == full or not varies(t.root, spans)):
            direct.append(t)
        else:
            wide = float64 if t.dtype == np.float64 else float32 if t.dtype.kind not in "iub" else t.dtype
            root, held = cast(t.root, wide), full
            if shape == one_row and by_rows:
                held = one_row
            elif shape[e.axis] == 1 and e.combine == "add" and varies(root, spans):  # first along the row, in this kernel
                root, held = reduce("sum", root), tuple(full[i] if i in others else 1 for i in range(len(full)))
            direct.append(plan.temporary(root, held, wide))
            reductions.append((direct[-1], t))
    kernel = RowKernel(e, ins, direct, full, codegen, draws)
    plan.launches.append(kernel.launch(name))
    for k, (source, t) in enumerate(reductions):
        spec = source.spec
        if spec.shape == one_row:  # one for each program
            spec = plan.workspace[source.array[1]] = Spec((kernel.programs, *one_row[1:]), spec.dtype)
        sums = Expression((load(0, spec.dtype),), combine=e.combine)
        moved = StoreTarget(sums.outputs[0], t.spec, t.req, t.array)
        plan.launches += reduction_launches(plan, sums, [spec], moved, full_shape([spec.shape, t.spec.shape]),
                                            f"{name}_fold{k or ''}", codegen, source=source.array)
    return plan
