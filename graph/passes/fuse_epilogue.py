"""Epilogues: an elementwise step that reads a product or convolution joins it, and works on each block while it is in cache."""

from __future__ import annotations

from collections import Counter

from ...kernels.fusion.epilogue import EpilogueOp, Wiring, gpu_epilogue
from ...kernels.ir.body import Body
from ...kernels.op import Refusal, Req
from ...kernels.params import Params
from ..program import INNER, Program, Step
from .fuse import body_of

NEAR = 8  # steps that may stand between: the head moves down to its epilogue, and its inputs live until there

_made: dict[tuple, EpilogueOp] = {}
_NONE = Params({})


def add_epilogues(program: Program) -> Program:
    """Merge elementwise steps into the products and convolutions they read."""
    heads = {i for i, s in enumerate(program.steps) if s.op.epilogue_block}
    if not heads:
        return program
    known: dict[tuple, Body | Refusal] = {}
    writers = Counter(v for s in program.steps for v in s.outputs if v >= 0)
    reads = Counter(v for s in program.steps for v in s.inputs)
    made_by = {v: i for i, s in enumerate(program.steps) for v in s.outputs if v >= 0}
    head_of: dict[int, int] = {}  # epilogue step -> head step
    taken: set[int] = set()
    refusals: dict[int, dict[int, str]] = {}
    for t, step in enumerate(program.steps):
        for h in sorted({h for v in step.inputs if (h := made_by.get(v)) in heads}, reverse=True):
            if t in head_of:
                refusal = f"{step.name} follows another product"
            elif h in taken:
                refusal = f"another operator already follows {program.steps[h].name}"
            else:
                refusal = _refusal(program, h, t, body_of(program, step, known), writers)
            if refusal:
                refusals.setdefault(t, dict(step.refusals)).update((v, refusal) for v in step.inputs if made_by.get(v) == h)
            else:
                head_of[t] = h
                taken.add(h)

    def emit(i: int, step: Step) -> list[Step]:
        if i in refusals:
            step = step.with_refusals(refusals[i])
        if i in head_of:
            body = body_of(program, step, known)
            assert isinstance(body, Body)
            return [_join(program, program.steps[head_of[i]], step, body, reads)]
        return [] if i in taken else [step]

    return program.rewrite(emit)


def _refusal(program: Program, h: int, t: int, body: Body | Refusal, writers: Counter) -> str:
    """Return why step t, whose body is given, cannot be the epilogue of step h; "" if it can."""
    head, epilogue = program.steps[h], program.steps[t]
    if not isinstance(body, Body):
        return str(body)
    if any(body.folds(k) for k in range(len(body.outs))):
        return f"{epilogue.op.name} reduces over samples"
    if not body.shape or any(len(v) == len(body.shape) and v[0] == body.shape[0] != 1 and v != body.shape for v in body.ins):
        return f"{epilogue.op.name} reads one number per sample"
    if (h < program.n_forward) != (t < program.n_forward):
        return "it runs in backward"
    v = head.outputs[0]
    if v < 0 or v not in epilogue.inputs or head.reqs[0] != Req.WRITE or writers[v] != 1:
        return f"the result of {head.name} is the sum of several results"
    spec = program.values[v].spec
    if spec.shape != body.shape or any(view != body.shape for u, view in zip(epilogue.inputs, body.ins) if u == v):
        return "the shapes differ"
    if head.op.name.startswith("_backward") and len(spec.shape) > 2 and (
            head.op.name.endswith("_convolution_last") or head.params.get("layout") in ("NWC", "NHWC", "NDHWC")):
        return f"{head.name} has its channels last"
    if program.targets[head.ctx] == "gpu":
        if program.values[v].kind != INNER or sum(v in step.inputs for step in program.steps) > 1:
            return f"the result of {head.name} is read elsewhere too"
        if program.values[epilogue.outputs[0]].spec.dtype != spec.dtype:
            return "the dtypes differ"
        made = gpu_epilogue(head.op, head.params, body, [-1 if u == v else u for u in epilogue.inputs])
        if isinstance(made, str):
            return made
    if t - h > NEAR:
        return f"{t - h - 1} steps run between them"
    own, read = {o for o in head.outputs if o >= 0}, set(head.inputs)
    for step in program.steps[h + 1:t]:
        if not own.isdisjoint(step.inputs) or not own.isdisjoint(step.outputs):
            return f"{step.name} reads or adds to a result of {head.name} in between"
        if not read.isdisjoint(step.outputs) or not read.isdisjoint(step.states):
            return f"{step.name} changes an input of {head.name} in between"
    if not own.isdisjoint(epilogue.outputs):
        return f"{epilogue.name} adds to a result of {head.name}"
    return ""


def _join(program: Program, head: Step, epilogue: Step, body: Body, reads: Counter) -> Step:
    v = head.outputs[0]
    order: dict[int, int] = {}
    for u in (*head.inputs, *(u for u in epilogue.inputs if u != v)):
        order.setdefault(u, len(order))
    wiring = Wiring(tuple(order[u] for u in head.inputs), tuple(-1 if u == v else order[u] for u in epilogue.inputs),
                    len(head.outputs))
    keep = program.values[v].kind != INNER or reads[v] > epilogue.inputs.count(v)
    target = program.targets[head.ctx]
    key = (head.op, head.params, *map(id, body.roots), body.ins, body.outs, wiring, target)
    op = _made.get(key)
    if op is None:
        op = _made[key] = EpilogueOp(head.op, head.params, body, wiring, target)
    unused = dict(head.unused_outputs)
    if not keep:
        unused[0] = program.values[v].spec
    unused |= {len(head.outputs) + k: s for k, s in epilogue.unused_outputs.items()}
    return Step(op, _NONE, f"{head.name}...{epilogue.name}", tuple(order),
                (v if keep else -1, *head.outputs[1:], *epilogue.outputs),
                (Req.WRITE if keep else Req.NULL, *head.reqs[1:], *epilogue.reqs), 0, unused,
                (*head.operators, *epilogue.operators), head.ctx, refusals=head.refusals | epilogue.refusals)
