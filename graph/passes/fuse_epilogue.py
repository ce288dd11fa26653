"""Epilogues: an elementwise step that reads a product or convolution joins it, and works on each block while it is in cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...kernels.fusion.epilogue import HEADS, EpilogueOp, Wiring, gpu_tail
from ...kernels.fusion.fused import Body
from ...kernels.op import Req
from ...kernels.params import Params
from ..program import INNER, Program, Step
from .fuse import bodies_of

NEAR = 8  # steps that may stand between: the head moves down to its tail, and its inputs live until there

_made: dict[tuple, EpilogueOp] = {}
_NONE = Params({})


def add_epilogues(program: Program) -> Program:
    """The program with elementwise steps put behind the products and convolutions they read. The given one is not changed."""
    if not any(s.op.role in HEADS for s in program.steps):
        return program
    bodies = bodies_of(program)
    writers = Counter(v for s in program.steps for v in s.outputs if v >= 0)
    reads = Counter(v for s in program.steps for v in s.inputs)
    made_by = {v: i for i, s in enumerate(program.steps) for v in s.outputs if v >= 0}
    head_of: dict[int, int] = {}  # tail step -> head step
    taken: set[int] = set()
    for t, step in enumerate(program.steps):
        if why_not_tail(program, t, bodies) is not None:
            continue
        for h in sorted({made_by[v] for v in step.inputs if v in made_by}, reverse=True):
            if h not in taken and why_not(program, h, t, bodies, writers) is None:
                head_of[t] = h
                taken.add(h)
                break
    new = program.without_steps()
    for i, step in enumerate(program.steps):
        if i == program.n_forward:
            new.n_forward = len(new.steps)
        if i in head_of:
            body = bodies[i]
            assert isinstance(body, Body)
            new.steps.append(_join(program, program.steps[head_of[i]], step, body, reads))
        elif i not in taken:
            new.steps.append(step)
    if program.n_forward == len(program.steps):
        new.n_forward = len(new.steps)
    return new


def why_not_tail(program: Program, t: int, bodies: Sequence[Body | str]) -> str | None:
    """Why step t cannot follow a product in the same kernel; None if it can."""
    body = bodies[t]
    if isinstance(body, str):
        return body
    if any(body.folds(k) for k in range(len(body.outs))):
        return f"{program.steps[t].op.name} folds over samples"
    if not body.shape or any(len(v) == len(body.shape) and v[0] == body.shape[0] != 1 and v != body.shape for v in body.ins):
        return f"{program.steps[t].op.name} reads one number per sample"
    return None


def why_not(program: Program, h: int, t: int, bodies: Sequence[Body | str], writers: Counter) -> str | None:
    """Why step t is not the tail of step h; None if it may be."""
    head, tail, body = program.steps[h], program.steps[t], bodies[t]
    if head.op.role not in HEADS:
        return f"{head.op.name} takes no tail"
    if (h < program.n_forward) != (t < program.n_forward):
        return "one is forward, the other backward"
    v = head.outputs[0]
    if v < 0 or v not in tail.inputs or head.reqs[0] != Req.WRITE or writers[v] != 1:
        return f"the result of {head.name} is the sum of several"
    assert isinstance(body, Body)
    spec = program.values[v].spec
    if spec.shape != body.shape or any(view != body.shape for u, view in zip(tail.inputs, body.ins) if u == v):
        return "the shapes differ"
    if head.op.name.startswith("_backward") and head.params.get("layout") in ("NWC", "NHWC", "NDHWC"):
        return f"{head.name} has its channels last"
    if program.targets[head.ctx] == "gpu":
        if program.values[v].kind != INNER or sum(v in step.inputs for step in program.steps) > 1:
            return f"the result of {head.name} is read elsewhere too"
        if program.values[tail.outputs[0]].spec.dtype != spec.dtype:
            return "the dtypes differ"
        made = gpu_tail(head.op.name, head.params, body, [-1 if u == v else u for u in tail.inputs])
        if isinstance(made, str):
            return made
    if t - h > NEAR:
        return f"{t - h - 1} steps stand between"
    own, read = {o for o in head.outputs if o >= 0}, set(head.inputs)
    for step in program.steps[h + 1:t]:
        if not own.isdisjoint(step.inputs) or not own.isdisjoint(step.outputs):
            return f"{step.name} reads or adds to what {head.name} makes"
        if not read.isdisjoint(step.outputs) or (step.auxiliaries and not read.isdisjoint(step.inputs[-step.auxiliaries:])):
            return f"{step.name} changes what {head.name} reads"
    if not own.isdisjoint(tail.outputs):
        return f"{tail.name} adds to what {head.name} makes"
    return None


def _join(program: Program, head: Step, tail: Step, body: Body, reads: Counter) -> Step:
    v = head.outputs[0]
    order: dict[int, int] = {}
    for u in (*head.inputs, *(u for u in tail.inputs if u != v)):
        order.setdefault(u, len(order))
    wiring = Wiring(tuple(order[u] for u in head.inputs), tuple(-1 if u == v else order[u] for u in tail.inputs),
                    len(head.outputs))
    keep = program.values[v].kind != INNER or reads[v] > tail.inputs.count(v)
    target = program.targets[head.ctx]
    key = (head.op, head.params, *map(id, body.roots), body.ins, body.outs, wiring, target)
    op = _made.get(key)
    if op is None:
        op = _made[key] = EpilogueOp(head.op, head.params, body, wiring, target)
    absent = dict(head.unused_outputs)
    if not keep:
        absent[0] = program.values[v].spec
    absent |= {len(head.outputs) + k: s for k, s in tail.unused_outputs.items()}
    mine = tuple(part for s in (head, tail) for part in s.members or (f"{s.name} ({s.op.name})",))
    return Step(op, _NONE, f"{head.name}...{tail.name}", tuple(order),
                (v if keep else -1, *head.outputs[1:], *tail.outputs),
                (Req.WRITE if keep else Req.NULL, *head.reqs[1:], *tail.reqs), 0, head.merged + tail.merged, absent, mine,
                head.ctx)
