"""Fusion: runs of elementwise steps of one shape become one step, whose body is their bodies put into each other.

Nothing is computed twice, and values read only inside a run vanish. A run ends where a step outside it needs one of its
values, so the order of execution has no cycle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from ..kernels import expr as ex
from ..kernels.expr import Expr
from ..kernels.fused import FusedOp, bind_scalars, connect, fused_op, stored
from ..kernels.op import Expression, Op, Req, Shape
from ..kernels.params import Params
from .program import INNER, Program, Step

MAX_INPUTS = 16  # arrays a fused kernel reads
MAX_STEPS = 64

_made: dict[tuple, FusedOp] = {}  # equal runs share one operator, and with it one compiled kernel
_NONE = Params({})


@dataclass(slots=True)
class _Run:
    """Steps that will be one, by number in the program."""

    shape: Shape
    steps: list[int] = field(default_factory=list)
    is_open: bool = True
    inputs: set[int] = field(default_factory=set)
    writes: dict[int, int] = field(default_factory=dict)  # value -> how many steps of the run write it


def fuse(program: Program, enabled: bool = True) -> Program:
    """The program with runs of elementwise steps merged. The given program is not changed."""
    if not enabled:
        return program
    runs = _find_runs(program)
    last_of = {run.steps[-1]: run for run in runs}
    inside = {i for run in runs for i in run.steps}
    reads = Counter(v for s in program.steps for v in s.inputs)
    new = Program(program.values, [], 0, program.heads, program.args, program.auxes, program.grads, program.head_grads,
                  program.zero_grads, program.train)
    for i, step in enumerate(program.steps):
        if i == program.n_forward:
            new.n_forward = len(new.steps)
        if i in last_of:
            new.steps.append(_merge(program, last_of[i], reads))
        elif i not in inside:
            new.steps.append(step)
    if program.n_forward == len(program.steps):
        new.n_forward = len(new.steps)
    return new


def fused_operators(program: Program) -> int:
    """How many operators of the graph run inside fused kernels."""
    return sum(s.merged for s in program.steps if s.merged > 1)


def _body(program: Program, step: Step) -> tuple[Shape, Expression] | None:
    """(shape, body) of a step that can be fused, or None."""
    if not step.inputs or step.auxiliaries or not step.outputs:
        return None
    kept = [program.values[o].spec for o, r in zip(step.outputs, step.reqs) if r != Req.NULL]
    if not kept or any(s.shape != kept[0].shape for s in kept):
        return None
    specs = [program.values[v].spec for v in step.inputs]
    try:
        full = np.broadcast_shapes(*(s.shape for s in specs))
    except ValueError:
        return None
    if full != kept[0].shape:
        return None
    body = step.op.expression(step.params, [s.dtype for s in specs])
    if body is None or body.kind != "elementwise" or body.states or len(body.outputs) != len(step.outputs):
        return None
    if step.op.draws(step.params, kept):
        return None
    return full, body


def _find_runs(program: Program) -> list[_Run]:
    run_of: dict[int, _Run] = {}  # value -> the run that writes it
    writers = Counter(v for s in program.steps for v in s.outputs if v >= 0)
    runs: list[_Run] = []
    alive: list[_Run] = []
    for i, step in enumerate(program.steps):
        if i == program.n_forward or step.auxiliaries:
            for run in alive:
                run.is_open = False
            alive = []
        touched = [r for v in (*step.inputs, *step.outputs) if v >= 0 and (r := run_of.get(v)) is not None]
        body = _body(program, step)
        joined = [] if body is None else _joinable(program, step, body[0], touched, writers)
        for run in touched:
            if not any(run is j for j in joined):
                run.is_open = False
        if body is None:
            continue
        if joined:
            home = joined[0]
            for other in joined[1:]:
                home.steps = sorted((*home.steps, *other.steps))
                home.inputs |= other.inputs
                for v, n in other.writes.items():
                    home.writes[v] = home.writes.get(v, 0) + n
                    run_of[v] = home
                other.steps = []
                other.is_open = False
        else:
            home = _Run(body[0])
            runs.append(home)
            alive.append(home)
        home.steps.append(i)
        home.inputs.update(v for v in step.inputs if run_of.get(v) is not home)
        for v in step.outputs:
            if v >= 0:
                home.writes[v] = home.writes.get(v, 0) + 1
                run_of[v] = home
        if len(alive) > 256:
            alive = [r for r in alive if r.is_open]
    return [r for r in runs if len(r.steps) > 1]


def _joinable(program: Program, step: Step, shape: Shape, touched: list[_Run], writers: Counter) -> list[_Run]:
    """The open runs, among those whose values the step touches, that it may become part of."""
    chosen: list[_Run] = []
    for run in touched:
        if any(run is c for c in chosen) or not run.is_open or run.shape != shape:
            continue
        reads_partial = any(v in run.writes and run.writes[v] != writers[v] for v in step.inputs)
        adds_outside = any(
            v in run.writes and not _starts_inside(program, run, v) for v in step.outputs if v >= 0
        )
        if reads_partial or adds_outside:
            continue
        inputs = set(step.inputs).union(run.inputs, *(c.inputs for c in chosen))
        steps = 1 + len(run.steps) + sum(len(c.steps) for c in chosen)
        if len(inputs) <= MAX_INPUTS and steps <= MAX_STEPS:
            chosen.append(run)
    return chosen


def _starts_inside(program: Program, run: _Run, v: int) -> bool:
    """Whether the step that first writes v, and does not add to it, is in the run."""
    for i in run.steps:
        for o, r in zip(program.steps[i].outputs, program.steps[i].reqs):
            if o == v:
                return r != Req.ADD
    return False


def _merge(program: Program, run: _Run, reads: Counter) -> Step:
    """One step for the run."""
    inner: dict[int, Expr] = {}  # value -> what the run has written to it so far, as it would be read back
    requests: dict[int, Req] = {}
    inputs: list[int] = []
    read_inside: Counter = Counter()
    for i in run.steps:
        step = program.steps[i]
        found = _body(program, step)
        assert found is not None
        sources: list[Expr] = []
        for v in step.inputs:
            if v in inner:
                sources.append(inner[v])
            else:
                if v not in inputs:
                    inputs.append(v)
                sources.append(ex.node(ex.LOAD, (), inputs.index(v), program.values[v].spec.dtype))
            read_inside[v] += 1
        roots = connect(bind_scalars(found[1], step.params), sources)
        for v, root, req in zip(step.outputs, roots, step.reqs):
            if req == Req.NULL or v < 0:
                continue
            dtype = program.values[v].spec.dtype
            if req == Req.ADD and v in inner:
                inner[v] = stored(_accumulated(inner[v], root), dtype)
            else:
                inner[v] = stored(root, dtype)
                requests[v] = req
    kept = [v for v in inner if program.values[v].kind != INNER or reads[v] > read_inside[v] or requests[v] == Req.ADD]
    kept = kept or list(inner)[-1:]
    merged = sum(program.steps[i].merged for i in run.steps)
    roots = tuple(inner[v] for v in kept)
    name = "+".join(dict.fromkeys(program.steps[i].op.name for i in run.steps))
    op = _operator(roots, len(inputs), f"fused({name[:60]})")
    last = program.steps[run.steps[-1]]
    return Step(op, _NONE, f"{program.steps[run.steps[0]].name}...{last.name}", tuple(inputs), tuple(kept),
                tuple(requests[v] for v in kept), 0, merged)


def _accumulated(so_far: Expr, more: Expr) -> Expr:
    """so_far + more, in float32 where the buffer is half precision."""
    raw = ex.cast(so_far, ex.float32) if so_far.dtype is not None and ex.is_half(so_far.dtype) else so_far
    return raw + more


def _operator(roots: tuple[Expr, ...], n_inputs: int, name: str) -> Op:
    key = (*map(id, roots), n_inputs)
    found = _made.get(key)
    if found is None:
        found = _made[key] = fused_op(Expression(roots), n_inputs, name=name)
    return found
