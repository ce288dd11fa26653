"""Rematerialization: backward computes forward values again, instead of keeping them.

A clone of the forward step runs just before the backward step that reads its result. The inputs of the clone are kept, or
computed again themselves. Elementwise values, and BatchNorm's results from kept statistics, are cheap; other values are
recomputed only if the user asks for it.

Source of the trade: Chen et al. 2016, arXiv:1604.06174.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from ...kernels.op import Req
from ..memory.packing import peak
from ..memory.plan import lifetimes
from ..program import ARG, INNER, OUTPUT, Program, Step

MORE_BYTES = 0.03  # additional traffic, relative to all traffic, that saving memory may cost unasked
_SMALL = 1 << 14  # bytes below which a value is not worth a step

CostOf = Callable[[Program], tuple[int, int]]  # (peak bytes, moved bytes) of a program once it is fused and planned


def moved_bytes(program: Program) -> int:
    """Return the bytes that all steps read and write."""
    sizes = [v.spec.nbytes for v in program.values]
    return sum(sizes[v] for s in program.steps for v in (*s.inputs, *s.outputs) if v >= 0)


def rematerialize(program: Program, chosen: Iterable[int]) -> Program:
    """Let backward steps compute the values of chosen forward steps again.

    chosen: step numbers; those that cannot be repeated (see `repeatable`) are ignored.
    """
    repeated = {i for i in chosen if repeatable(program, i)}
    if not repeated:
        return program
    maker = {v: i for i in repeated for v in clone_step(program.steps[i]).outputs}
    new = replace(program, values=list(program.values))
    again: dict[int, int] = {}  # value -> the value of its copy

    def copies_for(first: int) -> list[Step]:
        """Return the steps that compute a value again, inputs first."""
        stack, copies = [first], []
        while stack:
            v = stack[-1]
            if v in again:
                stack.pop()
                continue
            step = clone_step(program.steps[maker[v]])
            missing = [u for u in step.inputs if u in maker and u not in again]
            if missing:
                stack += missing
                continue
            stack.pop()
            for u in step.outputs:
                value = program.values[u]
                again[u] = new.add_value(value.spec, INNER, f"{value.name}_again", value.ctx)
            copies.append(replace(step, name=f"{step.name}_again", inputs=tuple(again.get(u, u) for u in step.inputs),
                                  outputs=tuple(again[u] for u in step.outputs)))
        return copies

    def emit(i: int, step: Step) -> list[Step]:
        if i < program.n_forward or maker.keys().isdisjoint(step.inputs):
            return [step]
        copies = [copy for v in step.inputs if v in maker for copy in copies_for(v)]
        return [*copies, replace(step, inputs=tuple(again.get(v, v) for v in step.inputs))]

    return new.rewrite(emit)


def repeatable(program: Program, i: int) -> bool:
    """Return whether a clone of forward step i gives the same again: it changes no state and draws no random numbers."""
    step = program.steps[i]
    if step.final_part() is not None:
        return min(step.outputs) >= 0
    if step.auxiliaries or not step.inputs or any(r != Req.WRITE or o < 0 for r, o in zip(step.reqs, step.outputs)):
        return False
    if step.op.num_random(step.params, program.value_specs(step.outputs)):
        return False
    return all(program.values[o].kind in (INNER, OUTPUT) for o in step.outputs)


def clone_step(step: Step) -> Step:
    """Return the step that backward runs to repeat step: of BatchNorm only its final part, which reads the kept statistics."""
    return step.final_part() or step


def is_cheap(program: Program, i: int) -> bool:
    """Return whether a clone of forward step i is elementwise."""
    step = program.steps[i]
    if not repeatable(program, i):
        return False
    if clone_step(step) is not step:
        return True
    ins, outs = program.value_specs(step.inputs), program.value_specs(step.outputs)
    e = step.op.expression(step.params, [s.dtype for s in ins])
    return (e is not None and e.kind == "elementwise" and len({o.shape for o in outs}) == 1
            and all(s.size <= outs[0].size for s in ins))


@dataclass(slots=True)
class _RematCandidate:
    """A value that could be computed again.

    steps:   the steps to run for it; covers: the values they write.
    leaves:  the values to keep for it.
    saved:   bytes; extra: bytes moved.
    span:    the number of steps for which it is not kept.
    """

    value: int
    steps: set[int]
    leaves: set[int]
    saved: int
    extra: int
    span: int = 0
    covers: set[int] = field(default_factory=set)


def candidates(program: Program) -> list[_RematCandidate]:
    """Return the values that backward can compute by cheap steps from values that are kept anyway; the best trade first."""
    n, values = program.n_forward, program.values
    needed: dict[int, int] = {}  # value -> first backward step that reads it
    for i, step in enumerate(program.backward, n):
        for v in step.inputs:
            needed.setdefault(v, i)
    maker = {v: i for i, s in enumerate(program.forward) if is_cheap(program, i) for v in clone_step(s).outputs}
    last = {v: i for i, s in enumerate(program.forward) for v in (*s.outputs, *s.inputs)}
    found = []
    for v, first in needed.items():
        if values[v].kind != INNER or v not in maker or values[v].spec.nbytes < _SMALL:
            continue
        steps, leaves, stack = {maker[v]}, set(), [maker[v]]
        while stack and len(steps) < 16:
            for u in clone_step(program.steps[stack.pop()]).inputs:
                if values[u].kind in (ARG, OUTPUT) or u in needed:
                    leaves.add(u)
                elif u not in maker:
                    leaves.add(-1)
                elif maker[u] not in steps:
                    steps.add(maker[u])
                    stack.append(maker[u])
        if -1 in leaves or stack:
            continue
        size, read = values[v].spec.nbytes, sum(values[u].spec.nbytes for u in leaves)
        covers = {u for i in steps for u in program.steps[i].outputs if u >= 0}
        found.append(_RematCandidate(v, steps, leaves, size, read + size, first - last[v], covers))
    return sorted(found, key=lambda c: (c.extra / c.saved, -c.span, c.value))


def choose(program: Program, allowance: float) -> set[int]:
    """Return the steps to repeat so that the fewest bytes are kept, moving at most allowance (bytes) more."""
    steps: set[int] = set()
    dropped: set[int] = set()
    locked: set[int] = set()
    live = lifetimes(program)
    at_peak = peak([(program.values[v].spec.nbytes, *span, v) for v, span in enumerate(live) if span], len(program.steps))[1]
    for c in candidates(program):
        span = live[c.value]
        if c.extra > allowance or c.value in locked or not dropped.isdisjoint(c.leaves):
            continue
        if span is None or not span[0] <= at_peak <= span[1] or not dropped.isdisjoint(c.covers):
            continue
        allowance -= c.extra
        steps |= c.steps
        dropped.add(c.value)
        locked |= c.leaves
    return steps


def remat_cheap(program: Program, cost_of: CostOf) -> Program:
    """Recompute the values that lower the peak for at most MORE_BYTES more traffic; return program itself if none do."""
    if program.n_forward == len(program.steps) or not candidates(program):
        return program
    old_peak, old_moved = cost_of(program)
    share = MORE_BYTES
    for _ in range(3):
        steps = choose(program, share * old_moved)
        if not steps:
            return program
        candidate = rematerialize(program, steps)
        new_peak, new_moved = cost_of(candidate)
        if new_peak < old_peak and new_moved <= (1 + MORE_BYTES) * old_moved:
            return candidate
        share /= 2
    return program


def remat_to_budget(program: Program, budget: int, cost_of: CostOf) -> Program:
    """Return the program that moves the fewest bytes among those whose peak fits budget (bytes).

    If none fits, it is the program with the lowest peak.
    """
    smallest, lowest_peak = program, cost_of(program)[0]
    if lowest_peak <= budget:
        return program
    heavy = [i for i in range(program.n_forward) if repeatable(program, i)]
    fitting: tuple[int, Program] | None = None
    root = max(1, round(math.sqrt(len(heavy))))  # so many checkpoints take the least memory
    shares = sorted({max(1, root * k // 4) for k in (2, 3, 4, 6, 8, 12, 16)} | {1, 2})
    for share in (None, *shares):  # first the cheap values alone
        steps = choose(program, math.inf) if share is None else set(heavy) - checkpoints(program, heavy, share)
        candidate = rematerialize(program, steps)
        new_peak, moved = cost_of(candidate)
        if new_peak < lowest_peak:
            smallest, lowest_peak = candidate, new_peak
        if new_peak <= budget and (fitting is None or moved < fitting[0]):
            fitting = (moved, candidate)
            if share is None:
                break
    return smallest if fitting is None else fitting[1]


def checkpoints(program: Program, heavy: Sequence[int], parts: int) -> set[int]:
    """Return the steps whose results are kept while the other heavy steps are repeated.

    They end parts of equal bytes, each at the nearby step with the fewest bytes alive.
    """
    n = program.n_forward
    sizes = [sum(program.values[o].spec.nbytes for o in s.outputs if o >= 0) for s in program.forward]
    last = {v: i for i, s in enumerate(program.forward) for v in s.inputs}
    maker = {o: i for i, s in enumerate(program.forward) for o in s.outputs if o >= 0}
    change = [0] * (n + 1)
    for o, i in maker.items():
        if o in last:
            change[i] += program.values[o].spec.nbytes
            change[last[o]] -= program.values[o].spec.nbytes
    alive = list(accumulate(change))
    total, so_far, cuts, window = sum(sizes), 0, [], max(1, n // (2 * parts + 1))
    for i in range(n):
        so_far += sizes[i]
        if so_far * parts >= total * (len(cuts) + 1) and len(cuts) < parts - 1:
            near = range(max(0, i - window), min(n, i + window + 1))
            cuts.append(min(near, key=lambda j: (alive[j], abs(j - i))))
    kept = {i for cut in cuts for o, i in maker.items() if i <= cut < last.get(o, -1)}  # values that cross a cut
    return kept & set(heavy)


def mirror_candidates(program: Program, attrs: dict[str, dict[str, str]], everywhere: bool) -> set[int]:
    """Return the steps that attributes or MXNET_BACKWARD_DO_MIRROR ask to repeat.

    attrs:       attributes by node name: `__force_mirroring__` is True or False.
    everywhere:  all steps except the costly ones, and those that say False.
    """
    chosen = set()
    for i, step in enumerate(program.forward):
        forced = attrs.get(step.name, {}).get("__force_mirroring__", "").lower()
        if forced in ("true", "1") or (everywhere and forced not in ("false", "0") and not step.op.costly):
            chosen.add(i)
    return chosen
