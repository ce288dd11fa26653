"""Pairs: a step whose result only the next convolution reads joins it, where both are computed in one pass on a CPU."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...kernels.fusion.epilogue import EpilogueOp
from ...kernels.fusion.pair import PairOp, both
from ...kernels.op import Req
from ..program import INNER, Program, Step

_made: dict[tuple, PairOp] = {}


def add_pairs(program: Program) -> Program:
    """Merge pairs of steps in a program without backward."""
    reads = Counter(v for s in program.steps for v in s.inputs)
    made_by = {v: i for i, s in enumerate(program.steps) for v in s.outputs if v >= 0}
    joined: dict[int, Step] = {}
    gone: set[int] = set()
    for i, step in enumerate(program.steps):
        if not isinstance(step.op, EpilogueOp) or step.op.target != "cpu":
            continue
        v = step.inputs[step.op.wiring.head[0]]
        h = made_by.get(v, -1)
        before = program.steps[h]
        if h in gone or h in joined or h < 0 or reads[v] != 1 or program.values[v].kind != INNER:
            continue
        pair = _pair(program, before, step)
        changed = {o for s in program.steps[h + 1:i] for o in (*s.outputs, *s.states)}
        if pair is not None and changed.isdisjoint(before.inputs):
            joined[i] = pair
            gone.add(h)
    return program.rewrite(lambda i, step: [] if i in gone else [joined.get(i, step)]) if joined else program


def _pair(program: Program, first: Step, second: Step) -> Step | None:
    """Return both as one step; None if they are not computed in one pass."""
    a, b = first.op, second.op
    if not isinstance(a, EpilogueOp) or not isinstance(b, EpilogueOp) or first.ctx != second.ctx:
        return None
    if any(len(s.outputs) != 2 or s.reqs != (Req.NULL, Req.WRITE) or s.auxiliaries or s.input_views for s in (first, second)):
        return None
    (*_, between), (*_, out) = program.output_specs(first), program.output_specs(second)
    hidden = first.unused_outputs[0], second.unused_outputs[0]
    if both(a, b, program.input_specs(first), program.input_specs(second), between, out, hidden) is None:
        return None
    key = a, b, len(first.inputs), between, hidden
    op = _made.get(key)
    if op is None:
        op = _made[key] = PairOp(*key)
    others = [v for k, v in enumerate(second.inputs) if k != b.wiring.head[0]]
    return replace(second, op=op, name=f"{first.name}...{second.name}", inputs=(*first.inputs, *others),
                   outputs=second.outputs[1:], reqs=second.reqs[1:], unused_outputs={},
                   members=(*first.operators, *second.operators), refusals=first.refusals | second.refusals)
