"""Fusion: runs of elementwise steps of one shape become one step, whose body is their bodies put into each other.

Sums over rows, softmax and LayerNorm take part; other sums may end a run, and the last step of a BatchNorm may begin one.
Nothing is computed twice, and values read only inside a run vanish. A run ends where a step outside it needs one of its
values, so the order of execution has no cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...kernels.fusion.fused import Body, FusedOp, body_of, fused_op, normalise, stored
from ...kernels.ir import expr as ex
from ...kernels.ir.expr import Expr
from ...kernels.ir.rows import by_row, lies_along, padded, row_total
from ...kernels.op import Expression, Op, Req, Shape
from ...kernels.params import Params
from ..program import INNER, Program, Step

#: By target: how many arrays a fused kernel reads, and how many steps become one.
MAX_INPUTS = {"cpu": 48, "gpu": 16}
MAX_STEPS = {"cpu": 256, "gpu": 64}

_made: dict[tuple, FusedOp] = {}  # equal runs share one operator, and with it one compiled kernel
_NONE = Params({})


@dataclass(slots=True)
class _Group:
    """Steps that will be one, by number in the program."""

    shape: Shape
    steps: list[int] = field(default_factory=list)
    is_open: bool = True
    inputs: set[int] = field(default_factory=set)
    writes: dict[int, int] = field(default_factory=dict)  # value -> how many steps of the run write it
    folded: set[int] = field(default_factory=set)  # values that are folds: nothing in the run can read them
    combine: str = ""
    rows: bool = False  # whether something in it sums over the last axis
    views: dict[int, Shape] = field(default_factory=dict)  # value it writes -> the shape it has against the full shape


def fuse(program: Program, enabled: bool = True) -> Program:
    """The program with runs of elementwise steps merged. The given program is not changed."""
    if not enabled:
        return program
    whole: dict[int, Step] = {}  # number of a BatchNorm's last step -> the BatchNorm in one
    program = _split_batch_norms(program, whole)
    bodies = bodies_of(program)
    runs = _find_runs(program, bodies)
    last_of = {run.steps[-1]: run for run in runs}
    inside = {i for run in runs for i in run.steps}
    alone = {i for i in whole if i not in inside}
    reads = Counter(v for s in program.steps for v in s.inputs)
    new = program.without_steps()
    for i, step in enumerate(program.steps):
        if i == program.n_forward:
            new.n_forward = len(new.steps)
        if i in last_of:
            new.steps.append(_merge(program, last_of[i], bodies, reads))
        elif i + 1 in alone:
            new.steps.append(whole[i + 1])
        elif i not in inside and i not in alone:
            new.steps.append(step)
    if program.n_forward == len(program.steps):
        new.n_forward = len(new.steps)
    return new


def fused_operators(program: Program) -> int:
    """How many operators of the graph run inside fused kernels."""
    return sum(s.merged for s in program.steps if s.merged > 1)


def bodies_of(program: Program) -> list[Body | str]:
    """The body of every step, or why it has none."""
    known: dict[tuple, Body | str] = {}
    found: list[Body | str] = []
    values = program.values
    for step in program.steps:
        if step.auxiliaries or not step.inputs or not step.outputs:
            found.append(f"{step.op.name} {'changes a state' if step.auxiliaries else 'has no inputs'}")
            continue
        ins = tuple([values[v].spec for v in step.inputs])
        outs = tuple([values[v].spec if v >= 0 else step.unused_outputs[k] for k, v in enumerate(step.outputs)])
        key = (step.op, step.params, ins, outs)
        body = known.get(key)
        if body is None:
            body = known[key] = body_of(step.op, step.params, ins, outs)
        found.append(body)
    return found


def _split_batch_norms(program: Program, whole: dict[int, Step]) -> Program:
    """BatchNorm as statistics and a last step that can be fused, where a reader in the same pass may take it in."""
    if not any(s.op.role == "BatchNorm" for s in program.steps):
        return program
    readers = Counter(v for s in program.steps[:program.n_forward] for v in s.inputs if s.op.expression is not None)
    new = program.without_steps()
    for i, step in enumerate(program.steps):
        if i == program.n_forward:
            new.n_forward = len(new.steps)
        y = step.outputs[0] if step.outputs else -1
        fits = (step.op.role == "BatchNorm" and i < program.n_forward and y >= 0 and readers[y]
                and step.reqs[0] == Req.WRITE and min(step.outputs[1:]) >= 0)
        if not fits:
            new.steps.append(step)
            continue
        x, gamma, beta = step.inputs[:3]
        new.steps.append(replace(step, outputs=(-1, *step.outputs[1:]), reqs=(Req.NULL, *step.reqs[1:]),
                                 unused_outputs={**step.unused_outputs, 0: program.values[y].spec}))
        whole[len(new.steps)] = step
        new.steps.append(Step(normalise(), step.params, step.name, (x, gamma, beta, *step.outputs[1:3]), (y,), (Req.WRITE,),
                              ctx=step.ctx))
    if program.n_forward == len(program.steps):
        new.n_forward = len(new.steps)
    return new


def _find_runs(program: Program, bodies: Sequence[Body | str]) -> list[_Group]:
    run_of: dict[int, _Group] = {}  # value -> the run that writes it
    writers = Counter(v for s in program.steps for v in s.outputs if v >= 0)
    runs: list[_Group] = []
    alive: list[_Group] = []
    for i, step in enumerate(program.steps):
        if i == program.n_forward:
            for run in alive:
                run.is_open = False
            alive = []
        touched = [r for v in (*step.inputs, *step.outputs) if v >= 0 and (r := run_of.get(v)) is not None]
        body = bodies[i]
        joined = [] if isinstance(body, str) else _joinable(program, step, body, touched, writers)
        for run in touched:
            if not any(run is j for j in joined):
                run.is_open = False
        if step.auxiliaries:  # a state changes here: runs that read it end
            for run in alive:
                if run.is_open and not run.inputs.isdisjoint(step.inputs[-step.auxiliaries:]):
                    run.is_open = False
        if isinstance(body, str):
            continue
        if joined:
            home = joined[0]
            for other in joined[1:]:
                home.steps = sorted((*home.steps, *other.steps))
                home.inputs |= other.inputs
                home.folded |= other.folded
                home.combine = home.combine or other.combine
                home.rows |= other.rows
                home.views |= other.views
                for v, n in other.writes.items():
                    home.writes[v] = home.writes.get(v, 0) + n
                    run_of[v] = home
                other.steps = []
                other.is_open = False
        else:
            home = _Group(body.shape)
            runs.append(home)
            alive.append(home)
        home.steps.append(i)
        home.rows |= body.rows
        home.inputs.update(v for v in step.inputs if run_of.get(v) is not home)
        for k, v in enumerate(step.outputs):
            if v >= 0:
                home.writes[v] = home.writes.get(v, 0) + 1
                run_of[v] = home
                home.views[v] = body.outs[k]
                if body.folds(k):
                    home.folded.add(v)
                    home.combine = body.combine
        if len(alive) > 256:
            alive = [r for r in alive if r.is_open]
    return [r for r in runs if len(r.steps) > 1]


def _joinable(program: Program, step: Step, body: Body, touched: list[_Group], writers: Counter) -> list[_Group]:
    """The open runs, among those whose values the step touches, that it may become part of."""
    chosen: list[_Group] = []
    target = program.targets[step.ctx]
    combine, rows = body.combine, body.rows
    last = by_row(body.shape) if body.shape else ()
    folds_rows = any(body.folds(k) and o == last for k, o in enumerate(body.outs))
    for run in touched:
        if any(run is c for c in chosen) or not run.is_open or run.shape != body.shape:
            continue
        if combine and run.combine and combine != run.combine:
            continue
        if not run.folded.isdisjoint(step.inputs) or not run.folded.isdisjoint(step.outputs):
            continue
        if (rows or run.rows) and (folds_rows or any(run.views[v] == last for v in run.folded)):
            continue
        if any(v in run.views and padded(view, len(body.shape)) != run.views[v] for v, view in zip(step.inputs, body.ins)):
            continue
        reads_partial = any(v in run.writes and run.writes[v] != writers[v] for v in step.inputs)
        adds_outside = any(
            v in run.writes and (body.folds(k) or not _starts_inside(program, run, v))
            for k, v in enumerate(step.outputs) if v >= 0
        )
        if reads_partial or adds_outside:
            continue
        inputs = set(step.inputs).union(run.inputs, *(c.inputs for c in chosen))
        steps = 1 + len(run.steps) + sum(len(c.steps) for c in chosen)
        if len(inputs) <= MAX_INPUTS[target] and steps <= MAX_STEPS[target]:
            chosen.append(run)
            combine = combine or run.combine
            rows |= run.rows
            folds_rows |= any(run.views[v] == last for v in run.folded)
    return chosen


def _starts_inside(program: Program, run: _Group, v: int) -> bool:
    """Whether the step that first writes v, and does not add to it, is in the run."""
    for i in run.steps:
        for o, r in zip(program.steps[i].outputs, program.steps[i].reqs):
            if o == v:
                return r != Req.ADD
    return False


def _merge(program: Program, run: _Group, bodies: Sequence[Body | str], reads: Counter) -> Step:
    """One step for the run."""
    inner: dict[int, Expr] = {}  # value -> what the run has written to it so far, as it would be read back
    requests: dict[int, Req] = {}
    views: dict[int, Shape] = {}
    inputs: dict[tuple[int, Shape], int] = {}
    read_inside: Counter = Counter()
    orders: dict[int, list[Expr]] = {}
    finishes: dict[int, Expr] = {}
    for i in run.steps:
        step, body = program.steps[i], bodies[i]
        assert isinstance(body, Body)
        sources: list[Expr] = []
        for v, view in zip(step.inputs, body.ins):
            if v in inner:
                sources.append(inner[v])
            else:
                at = inputs.setdefault((v, view), len(inputs))
                sources.append(ex.node(ex.LOAD, (), at, program.values[v].spec.dtype))
            read_inside[v] += 1
        if body.rows:
            along = lies_along([view for _, view in inputs], run.shape)
            roots = _connected(body, sources, orders, along, run.shape[-1])
        else:
            roots = _connected(body, sources, orders)
        for k, (v, root, req) in enumerate(zip(step.outputs, roots, step.reqs)):
            if req == Req.NULL or v < 0:
                continue
            dtype = program.values[v].spec.dtype
            if req == Req.ADD and v in inner:
                inner[v] = stored(_accumulated(inner[v], root), dtype)
            else:
                inner[v] = root if body.folds(k) else stored(root, dtype)  # folds are rounded once, at the end
                if body.folds(k) and body.finish is not None:
                    finishes[v] = body.finish
                requests[v] = req
            views[v] = body.outs[k]
    kept = [v for v in inner if program.values[v].kind != INNER or reads[v] > read_inside[v] or requests[v] == Req.ADD]
    kept = kept or list(inner)[-1:]
    steps = [program.steps[i] for i in run.steps]
    roots = tuple(inner[v] for v in kept)
    name = "+".join(dict.fromkeys(s.op.name for s in steps))
    seen = [(v, view) for v, view in (*inputs, *((v, views[v]) for v in kept))]
    plain = all(view == run.shape == program.values[v].spec.shape for v, view in seen)
    op = _operator(roots, len(inputs), None if plain else tuple(view for _, view in seen), run.combine or "add",
                   f"fused({name[:60]})", tuple(finishes.get(v) for v in kept))
    return Step(op, _NONE, f"{steps[0].name}...{steps[-1].name}", tuple(v for v, _ in inputs), tuple(kept),
                tuple(requests[v] for v in kept), 0, sum(s.merged for s in steps),
                members=tuple(part for s in steps for part in s.members or (f"{s.name} ({s.op.name})",)), ctx=steps[0].ctx)


def _connected(body: Body, inputs: Sequence[Expr], orders: dict[int, list[Expr]], along: Sequence[bool] = (),
               last: int = 1) -> list[Expr]:
    """The roots of body with load i replaced by inputs[i]. orders: bodies already walked, by id.

    along, last: for bodies that sum rows, which arrays of the kernel have the last axis, and its length: the sum of what
    is the same along a row is so many times that.
    """
    order = orders.get(id(body))
    if order is None:
        order = orders[id(body)] = ex.topological(body.roots)
    new: dict[int, Expr] = {}
    for x in order:
        if x.op == ex.LOAD:
            new[id(x)] = inputs[x.value]
        elif x.op == ex.REDUCE:
            new[id(x)] = row_total(new[id(x.args[0])], along, last, x.value)
        elif x.args:
            new[id(x)] = ex.node(x.op, tuple([new[id(a)] for a in x.args]), x.value, x.dtype)
        else:
            new[id(x)] = x
    return [new[id(r)] for r in body.roots]


def _accumulated(so_far: Expr, more: Expr) -> Expr:
    """so_far + more, in float32 where the buffer is half precision."""
    raw = ex.cast(so_far, ex.float32) if so_far.dtype is not None and ex.is_half(so_far.dtype) else so_far
    return raw + more


def _operator(roots: tuple[Expr, ...], n_inputs: int, views: tuple[Shape, ...] | None, combine: str, name: str,
              finishes: tuple[Expr | None, ...]) -> Op:
    """views: of the inputs, then of the outputs; None where every array has the full shape. finishes: of the outputs."""
    key = (*map(id, roots), combine, n_inputs, views, *map(id, finishes))
    found = _made.get(key)
    if found is None:
        found = _made[key] = fused_op(Expression(roots, combine=combine), n_inputs, name=name,
                                      ins=views and views[:n_inputs], outs=views and views[n_inputs:], finishes=finishes)
    return found
