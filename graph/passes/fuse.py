"""Fusion: runs of elementwise steps of one shape become one step, whose body is their bodies put into each other.

Sums over rows, softmax and LayerNorm take part; other sums may end a run, and the last step of a BatchNorm may begin one.
Nothing is computed twice, and values read only inside a run vanish. A run ends where a step outside it needs one of its
values, so the order of execution has no cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...kernels.fusion.fused import FusedOp, fused_op, stored
from ...kernels.ir import expr as ex
from ...kernels.ir.body import Body
from ...kernels.ir.expr import Expr
from ...kernels.ir.rows import by_row, lies_along, padded, row_total
from ...kernels.op import Expression, Op, Refusal, Req, Shape
from ...kernels.params import Params
from ..program import INNER, Program, Step

#: By target: the most inputs of a fused kernel, and the most steps in it.
MAX_INPUTS = {"cpu": 48, "gpu": 16}
MAX_STEPS = {"cpu": 256, "gpu": 64}

_operators: dict[tuple, FusedOp] = {}  # equal groups share one operator, and with it one compiled kernel
_NONE = Params({})
_STATISTICS = "the statistics must be complete before they are used"


@dataclass(slots=True)
class _Group:
    """Steps that will be one, by number in the program.

    closed:   why no more steps may join it; empty while they may.
    writes:   {value: the number of steps in the group that write it}.
    reduced:  values that are reductions: no step in the group can read them. combine: their operation.
    rows:     True if a step in it reduces the last axis for the others to read.
    views:    {value it writes: its shape, broadcast to the shape of the group}.
    """

    shape: Shape
    steps: list[int] = field(default_factory=list)
    closed: str = ""
    inputs: set[int] = field(default_factory=set)
    writes: dict[int, int] = field(default_factory=dict)
    reduced: set[int] = field(default_factory=set)
    combine: str = ""
    rows: bool = False
    views: dict[int, Shape] = field(default_factory=dict)

    @property
    def reduces_rows(self) -> bool:
        """Return whether one of its results is a reduction of each row."""
        return any(self.views[v] == by_row(self.shape) for v in self.reduced)

    def take(self, other: _Group) -> None:
        """Move all steps of another group into this one."""
        self.steps = sorted((*self.steps, *other.steps))
        self.inputs |= other.inputs
        self.reduced |= other.reduced
        self.combine = self.combine or other.combine
        self.rows |= other.rows
        self.views |= other.views
        for v, n in other.writes.items():
            self.writes[v] = self.writes.get(v, 0) + n
        other.steps = []


def fuse(program: Program, enabled: bool = True) -> Program:
    """Merge groups of elementwise steps. Steps that stay apart know why (`Step.refusals`)."""
    if not enabled:
        return program
    whole: dict[int, Step] = {}
    program = _split(program, whole)
    known: dict[tuple, Body | Refusal] = {}
    bodies = [body_of(program, step, known) for step in program.steps]
    groups, refusals = _find_groups(program, bodies)
    last_of = {group.steps[-1]: group for group in groups}
    inside = {i for group in groups for i in group.steps}
    reads = Counter(v for s in program.steps for v in s.inputs)

    def emit(i: int, step: Step) -> list[Step]:
        if i in last_of:
            return [_merge(program, last_of[i], bodies, reads, refusals)]
        if i in inside or i in whole:
            return []
        if i + 1 in whole and i + 1 not in inside:
            step = whole[i + 1]
        return [step.with_refusals(refusals[i]) if i in refusals else step]

    return program.rewrite(emit)


def fused_operators(program: Program) -> int:
    """Return the number of operators of the graph that run inside fused kernels."""
    return sum(len(s.members) for s in program.steps if len(s.members) > 1)


def body_of(program: Program, step: Step, known: dict[tuple, Body | Refusal]) -> Body | Refusal:
    """Return the body of step, or why it has none. known: the bodies so far; equal steps share one."""
    if step.auxiliaries or not step.inputs or not step.outputs:
        return Refusal(f"{step.op.name} {'changes a state' if step.auxiliaries else 'has no inputs'}")
    key = (step.op, step.params, program.value_specs(step.inputs), program.output_specs(step))
    body = known.get(key)
    if body is None:
        body = known[key] = step.op.fusible_body(*key[1:])
    return body


def _split(program: Program, whole: dict[int, Step]) -> Program:
    """Split off the final part of a forward step where another step may join it; of BatchNorm, its statistics remain.

    whole: filled with {number of a final part: the step that was split}.
    """
    finals = {i: part for i, s in enumerate(program.forward) if (part := s.final_part()) is not None}
    if not finals:
        return program
    read = {v for s in program.forward for v in s.inputs}

    def emit(i: int, step: Step) -> list[Step]:
        final = finals.get(i)
        if final is None or min(step.outputs) < 0 or step.outputs[0] not in read or step.reqs[0] != Req.WRITE:
            return [step]
        y, *others = step.outputs
        whole[i + len(whole) + 1] = step
        return [replace(step, outputs=(-1, *others), reqs=(Req.NULL, *step.reqs[1:]),
                        unused_outputs={**step.unused_outputs, 0: program.values[y].spec}),
                replace(final, refusals={v: _STATISTICS for v in final.inputs if v in others})]

    return program.rewrite(emit)


def _find_groups(program: Program, bodies: Sequence[Body | Refusal]) -> tuple[list[_Group], dict[int, dict[int, str]]]:
    """Return the groups of two or more steps, and {step: its refusals}."""
    group_of: dict[int, _Group] = {}  # value -> the group that writes it
    writers = Counter(v for s in program.steps for v in s.outputs if v >= 0)
    written: dict[int, int] = {}  # value -> the step that wrote it last
    refusals: dict[int, dict[int, str]] = {}
    groups: list[_Group] = []
    alive: list[_Group] = []
    for i, step in enumerate(program.steps):
        if i == program.n_forward:
            for group in alive:
                group.closed = group.closed or "it runs in backward"
            alive = []
        body = bodies[i]
        joined: list[_Group] = []
        refused: dict[int, str] = {}  # by id of the group
        for v in (*step.inputs, *step.outputs):
            group = group_of.get(v)
            if group is None or id(group) in refused or any(group is g for g in joined):
                continue
            refusal = _refusal(program, step, body, group, joined, writers) if isinstance(body, Body) else str(body)
            if refusal:
                refused[id(group)] = refusal
                group.closed = group.closed or f"{step.name} needs its result in between"
            else:
                joined.append(group)
        reasons = dict(step.refusals)
        for v in step.inputs:
            if v in written and v not in reasons:
                group = group_of.get(v)
                if group is None:
                    reasons[v] = str(bodies[written[v]] if isinstance(body, Body) else body)
                elif id(group) in refused:
                    reasons[v] = refused[id(group)]
        if reasons:
            refusals[i] = reasons
        for v in step.outputs:
            written[v] = i
        if step.auxiliaries:
            for group in alive:
                if not group.closed and not group.inputs.isdisjoint(step.states):
                    group.closed = f"{step.name} changes a state that it reads"
        if not isinstance(body, Body):
            continue
        if joined:
            home = joined[0]
            for other in joined[1:]:
                group_of.update(dict.fromkeys(other.writes, home))
                home.take(other)
        else:
            home = _Group(body.shape)
            groups.append(home)
            alive.append(home)
        home.steps.append(i)
        home.rows |= body.rows
        home.inputs.update(v for v in step.inputs if group_of.get(v) is not home)
        for k, v in enumerate(step.outputs):
            if v >= 0:
                home.writes[v] = home.writes.get(v, 0) + 1
                group_of[v] = home
                home.views[v] = body.outs[k]
                if body.folds(k):
                    home.reduced.add(v)
                    home.combine = body.combine
        if len(alive) > 256:
            alive = [g for g in alive if g.steps and not g.closed]
    return [g for g in groups if len(g.steps) > 1], refusals


def _refusal(program: Program, step: Step, body: Body, group: _Group, joined: Sequence[_Group], writers: Counter) -> str:
    """Return why step cannot be part of group, besides the groups in joined; "" if it can."""
    if group.closed:
        return group.closed
    if group.shape != body.shape:
        return f"shapes {group.shape} and {body.shape} differ"
    members = (*joined, group)
    if group.combine and any(c not in ("", group.combine) for c in (body.combine, *[g.combine for g in joined])):
        return f"one reduces by {group.combine}, the other by {body.combine}"
    if not group.reduced.isdisjoint(step.inputs) or not group.reduced.isdisjoint(step.outputs):
        return "the reduction must end before it can be read"
    if body.rows or any(g.rows for g in members):
        row = by_row(body.shape) if body.shape else ()
        if any(body.folds(k) and view == row for k, view in enumerate(body.outs)) or any(g.reduces_rows for g in members):
            combine = body.combine or next(g.combine for g in members if g.combine)
            return f"a kernel that reads reduced rows cannot end with another reduction of rows, by {combine}"
    if any(v in group.views and padded(view, len(body.shape)) != group.views[v] for v, view in zip(step.inputs, body.ins)):
        return "it reads the result in another shape"
    if any(v in group.writes and group.writes[v] != writers[v] for v in step.inputs):
        return "what it reads is the sum of several results"
    for k, v in enumerate(step.outputs):
        if v in group.writes:
            first = next(r for i in group.steps for o, r in zip(program.steps[i].outputs, program.steps[i].reqs) if o == v)
            if body.folds(k) or first == Req.ADD:
                return "it adds to a result of another kernel"
    target = program.targets[step.ctx]
    n_inputs = len(set(step.inputs).union(*[g.inputs for g in members]))
    n_steps = 1 + sum([len(g.steps) for g in members])
    if n_inputs > MAX_INPUTS[target] or n_steps > MAX_STEPS[target]:
        return f"together they would have {n_inputs} inputs and {n_steps} operators, too many for one kernel"
    return ""


def _merge(program: Program, group: _Group, bodies: Sequence[Body | Refusal], reads: Counter, refusals: dict[int, dict[int, str]]
           ) -> Step:
    """Return one step for the group."""
    inner: dict[int, Expr] = {}  # value -> the result written to it so far, as the next step reads it
    requests: dict[int, Req] = {}
    views: dict[int, Shape] = {}
    inputs: dict[tuple[int, Shape], int] = {}
    read_inside: Counter = Counter()
    orders: dict[int, list[Expr]] = {}
    finishes: dict[int, Expr] = {}
    for i in group.steps:
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
            along = lies_along([view for _, view in inputs], group.shape)
            roots = _connected(body, sources, orders, along, group.shape[-1])
        else:
            roots = _connected(body, sources, orders)
        for k, (v, root, req) in enumerate(zip(step.outputs, roots, step.reqs)):
            if req == Req.NULL or v < 0:
                continue
            dtype = program.values[v].spec.dtype
            if req == Req.ADD and v in inner:
                so_far = inner[v]  # added to in float32 where the buffer is half precision
                if so_far.dtype is not None and ex.is_half(so_far.dtype):
                    so_far = ex.cast(so_far, ex.float32)
                inner[v] = stored(so_far + root, dtype)
            else:
                inner[v] = root if body.folds(k) else stored(root, dtype)  # folds are rounded once, at the end
                if body.folds(k) and body.finish is not None:
                    finishes[v] = body.finish
                requests[v] = req
            views[v] = body.outs[k]
    kept = [v for v in inner if program.values[v].kind != INNER or reads[v] > read_inside[v] or requests[v] == Req.ADD]
    kept = kept or list(inner)[-1:]
    steps = [program.steps[i] for i in group.steps]
    roots = tuple(inner[v] for v in kept)
    name = "+".join(dict.fromkeys(s.op.name for s in steps))
    arrays = [(v, view) for v, view in (*inputs, *((v, views[v]) for v in kept))]
    plain = all(view == group.shape == program.values[v].spec.shape for v, view in arrays)
    op = _operator(roots, len(inputs), None if plain else tuple(view for _, view in arrays), group.combine or "add",
                   f"fused({name[:60]})", tuple(finishes.get(v) for v in kept))
    why_apart = {v: why for i in group.steps for v, why in refusals.get(i, {}).items()}
    return Step(op, _NONE, f"{steps[0].name}...{steps[-1].name}", tuple(v for v, _ in inputs), tuple(kept),
                tuple(requests[v] for v in kept), members=tuple(name for s in steps for name in s.operators), ctx=steps[0].ctx,
                refusals=why_apart)


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


def _operator(roots: tuple[Expr, ...], n_inputs: int, views: tuple[Shape, ...] | None, combine: str, name: str,
              finishes: tuple[Expr | None, ...]) -> Op:
    """views: of the inputs, then of the outputs; None where every array has the full shape. finishes: of the outputs."""
    key = (*map(id, roots), combine, n_inputs, views, *map(id, finishes))
    found = _operators.get(key)
    if found is None:
        found = _operators[key] = fused_op(Expression(roots, combine=combine), n_inputs, name=name,
                                      ins=views and views[:n_inputs], outs=views and views[n_inputs:], finishes=finishes)
    return found
