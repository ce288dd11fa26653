"""Rematerialisation: forward values that backward needs are computed again there, instead of being kept.

A step of the backward pass that reads such a value reads a second value, which a copy of the forward step makes just
before. What the copy reads is kept, or computed again itself. Elementwise values and BatchNorm's results (from kept
statistics) are nearly free; others are recomputed only where the user asks for it.

Source of the trade: Chen et al. 2016, arXiv:1604.06174.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ...kernels.fusion.fused import normalise
from ...kernels.op import Req
from ..memory.plan import lifetimes
from ..program import ARG, INNER, OUTPUT, Program, Step

MORE_BYTES = 0.03  # what a step may move more, of all it moves, for memory nobody asked to save
_SMALL = 1 << 14  # bytes below which a value is not worth a step


def moved_bytes(program: Program) -> int:
    """Bytes that all steps read and write."""
    sizes = [v.spec.nbytes for v in program.values]
    return sum(sizes[v] for s in program.steps for v in (*s.inputs, *s.outputs) if v >= 0)


def rematerialize(program: Program, chosen: Iterable[int]) -> Program:
    """The program in which backward steps compute the values of the chosen forward steps again. The given program is not
    changed. Steps that cannot be repeated (see `repeatable`) are passed over.

    chosen: step numbers.
    """
    again = {i for i in chosen if repeatable(program, i)}
    if not again:
        return program
    maker = {v: i for i in again for k, v in enumerate(program.steps[i].outputs) if v >= 0 and _repeated(program.steps[i], k)}
    new = program.without_steps()
    new.values = list(program.values)
    new.steps, new.n_forward = list(program.steps[:program.n_forward]), program.n_forward
    second: dict[int, int] = {}  # value -> the value of its copy

    def repeat(first: int) -> None:
        """Emit the copies that value needs, inputs first."""
        stack = [first]
        while stack:
            v = stack[-1]
            if v in second:
                stack.pop()
                continue
            step = _clone_step(program.steps[maker[v]])
            missing = [u for u in step.inputs if u in maker and u not in second]
            if missing:
                stack += missing
                continue
            stack.pop()
            for u in step.outputs:
                value = program.values[u]
                second[u] = new.add_value(value.spec, INNER, f"{value.name}_again", value.ctx)
            new.steps.append(replace(step, name=f"{step.name}_again", inputs=tuple(second.get(u, u) for u in step.inputs),
                                     outputs=tuple(second[u] for u in step.outputs)))

    for step in program.steps[program.n_forward:]:
        for v in step.inputs:
            if v in maker and v not in second:
                repeat(v)
        if any(v in second for v in step.inputs):
            step = replace(step, inputs=tuple(second.get(v, v) for v in step.inputs))
        new.steps.append(step)
    return new


def repeatable(program: Program, i: int) -> bool:
    """Whether forward step i gives the same again when it is run again: no states, no random numbers."""
    step = program.steps[i]
    if step.op.role == "BatchNorm":
        return step.outputs[0] >= 0 and min(step.outputs[1:]) >= 0
    if step.auxiliaries or not step.inputs or any(r != Req.WRITE or o < 0 for r, o in zip(step.reqs, step.outputs)):
        return False
    if step.op.draws(step.params, [program.values[o].spec for o in step.outputs]):
        return False
    return all(program.values[o].kind in (INNER, OUTPUT) for o in step.outputs)


def _repeated(step: Step, output: int) -> bool:
    """Whether a copy of step makes this output again: of BatchNorm only the normalised values."""
    return output == 0 or step.op.role != "BatchNorm"


def _clone_step(step: Step) -> Step:
    """What is run in backward in place of step: of BatchNorm only its last step, from the statistics it left."""
    if step.op.role != "BatchNorm":
        return step
    y, mean, inverse = step.outputs[:3]
    return Step(normalise(), step.params, step.name, (*step.inputs[:3], mean, inverse), (y,), (Req.WRITE,),
                ctx=step.ctx)


def is_cheap(program: Program, i: int) -> bool:
    """Whether forward step i is elementwise, or BatchNorm with its statistics kept."""
    step = program.steps[i]
    if not repeatable(program, i):
        return False
    if step.op.role == "BatchNorm":
        return True
    outs = [program.values[o].spec for o in step.outputs]
    e = step.op.expression(step.params, [program.values[v].spec.dtype for v in step.inputs])
    return (e is not None and e.kind == "elementwise" and len({o.shape for o in outs}) == 1
            and all(program.values[v].spec.size <= outs[0].size for v in step.inputs))


@dataclass(slots=True)
class _Candidate:
    """A value that could be computed again. steps: what has to be run; leaves: what has to be kept for that."""

    value: int
    steps: set[int]
    leaves: set[int]
    saved: int  # bytes
    extra: int  # bytes moved
    span: int = 0  # how long it need not be kept, in steps
    covers: set[int] = field(default_factory=set)


def candidates(program: Program) -> list[_Candidate]:
    """Values kept for backward that follow by cheap steps from what is kept anyway; the best trade first."""
    n, values = program.n_forward, program.values
    needed: dict[int, int] = {}  # value -> first backward step that reads it
    for i in range(n, len(program.steps)):
        for v in program.steps[i].inputs:
            needed.setdefault(v, i)
    maker = {v: i for i, s in enumerate(program.steps[:n]) for v in s.outputs if v >= 0}
    last = {v: i for i, s in enumerate(program.steps[:n]) for v in (*s.outputs, *s.inputs)}
    cheap = [is_cheap(program, i) for i in range(n)]
    found = []
    for v, first in needed.items():
        if values[v].kind != INNER or v not in maker or not cheap[maker[v]] or values[v].spec.nbytes < _SMALL:
            continue
        if program.steps[maker[v]].op.role == "BatchNorm" and v != program.steps[maker[v]].outputs[0]:
            continue
        steps, leaves, stack = {maker[v]}, set(), [maker[v]]
        while stack and len(steps) < 16:
            for u in _clone_step(program.steps[stack.pop()]).inputs:
                if values[u].kind in (ARG, OUTPUT) or u in needed:
                    leaves.add(u)
                elif u in maker and cheap[maker[u]] and _repeated_value(program, maker[u], u):
                    if maker[u] not in steps:
                        steps.add(maker[u])
                        stack.append(maker[u])
                else:
                    leaves.add(-1)
        if -1 in leaves or stack:
            continue
        reads = sum(values[u].spec.nbytes for u in leaves)
        size = values[v].spec.nbytes
        covers = {u for i in steps for u in program.steps[i].outputs if u >= 0}
        found.append(_Candidate(v, steps, leaves, size, reads + size, first - last[v], covers))
    return sorted(found, key=lambda c: (c.extra / c.saved, -c.span, c.value))


def _repeated_value(program: Program, i: int, v: int) -> bool:
    return _repeated(program.steps[i], program.steps[i].outputs.index(v))


def choose(program: Program, allowance: float) -> set[int]:
    """Steps to run again so that the fewest bytes are kept, moving at most allowance (bytes) more."""
    steps: set[int] = set()
    given_up: set[int] = set()
    locked: set[int] = set()
    peak = _peak_step(program)
    live = lifetimes(program)
    for c in candidates(program):
        span = live[c.value]
        if c.extra > allowance or c.value in locked or not given_up.isdisjoint(c.leaves):
            continue
        if span is None or not span[0] <= peak <= span[1] or given_up.intersection(c.covers):
            continue
        allowance -= c.extra
        steps |= c.steps
        given_up.add(c.value)
        locked |= c.leaves
    return steps


def _peak_step(program: Program) -> int:
    """The step at which most bytes are alive."""
    change = [0] * (len(program.steps) + 1)
    for v, span in enumerate(lifetimes(program)):
        if span is not None:
            size = program.values[v].spec.nbytes
            change[span[0]] += size
            change[span[1] + 1] -= size
    best = now = at = 0
    for i, c in enumerate(change):
        now += c
        if now > best:
            best, at = now, i
    return at


def remat_cheap(program: Program, cost_of: Callable[[Program], tuple[int, int]]) -> Program:
    """The program with the values recomputed that lower its peak for at most MORE_BYTES more traffic; or as it was.

    cost_of: (peak bytes, moved bytes) of a program once it is fused and planned.
    """
    if program.n_forward == len(program.steps) or not candidates(program):
        return program
    peak, moved = cost_of(program)
    share = MORE_BYTES
    for _ in range(3):
        steps = choose(program, share * moved)
        if not steps:
            return program
        tried = rematerialize(program, steps)
        new_peak, new_moved = cost_of(tried)
        if new_peak < peak and new_moved <= (1 + MORE_BYTES) * moved:
            return tried
        share /= 2
    return program


def remat_to_budget(program: Program, budget: int, cost_of: Callable[[Program], tuple[int, int]]) -> tuple[Program, int]:
    """(the program that moves the fewest bytes among those that fit the budget, its peak); else the smallest there is.

    budget: bytes.
    """
    best, smallest = program, cost_of(program)[0]
    if smallest <= budget:
        return best, smallest
    everything = float("inf")
    tries: list[Callable[[], set[int]]] = [lambda: choose(program, everything)]
    heavy = [i for i in range(program.n_forward) if repeatable(program, i)]
    for share in _shares(len(heavy)):
        tries.append(lambda share=share: set(heavy) - checkpoints(program, heavy, share))
    found: tuple[int, Program, int] | None = None
    for n, steps in enumerate(tries):
        tried = rematerialize(program, steps())
        peak, moved = cost_of(tried)
        if peak < smallest:
            best, smallest = tried, peak
        if peak <= budget and (found is None or moved < found[0]):
            found = (moved, tried, peak)
            if n == 0:  # cheap values alone will do
                break
    return (found[1], found[2]) if found is not None else (best, smallest)


def _shares(n: int) -> list[int]:
    """Numbers of checkpoints to try: around the square root, where memory is least."""
    root = max(1, round(math.sqrt(n)))
    return sorted({max(1, root * k // 4) for k in (2, 3, 4, 6, 8, 12, 16)} | {1, 2})


def checkpoints(program: Program, heavy: Sequence[int], parts: int) -> set[int]:
    """The steps whose results are kept when the others are run again: where parts equal shares of the bytes end, at the
    step with the fewest bytes alive around there."""
    n = program.n_forward
    sizes = [sum(program.values[o].spec.nbytes for o in program.steps[i].outputs if o >= 0) for i in range(n)]
    last = {v: i for i, s in enumerate(program.steps[:n]) for v in s.inputs}
    crossing = [0] * (n + 1)
    for i in range(n):
        for o in program.steps[i].outputs:
            if o >= 0 and o in last:
                crossing[i] += program.values[o].spec.nbytes
                crossing[last[o]] -= program.values[o].spec.nbytes
    for i in range(1, n + 1):
        crossing[i] += crossing[i - 1]
    total, so_far, cuts, window = sum(sizes), 0, [], max(1, n // (2 * parts + 1))
    for i in range(n):
        so_far += sizes[i]
        if so_far * parts >= total * (len(cuts) + 1) and len(cuts) < parts - 1:
            near = range(max(0, i - window), min(n, i + window + 1))
            cuts.append(min(near, key=lambda j: (crossing[j], abs(j - i))))
    made = {o: i for i in range(n) for o in program.steps[i].outputs if o >= 0}
    kept: set[int] = set()
    for cut in cuts:  # every value made up to the cut and read after it
        kept |= {i for o, i in made.items() if i <= cut and last.get(o, -1) > cut}
    return kept & set(heavy)


def mirror_candidates(program: Program, attrs: dict[str, dict[str, str]], everywhere: bool) -> set[int]:
    """The steps that attributes, or the switch, ask to run again.

    attrs:       attributes by node name: `__force_mirroring__` says True or False.
    everywhere:  MXNET_BACKWARD_DO_MIRROR: every step but the costly ones.
    """
    costly = ("Convolution", "Deconvolution", "FullyConnected", "Concat", "SoftmaxOutput", "RNN", "dot", "batch_dot")
    chosen = set()
    for i, step in enumerate(program.steps[:program.n_forward]):
        said = attrs.get(step.name, {}).get("__force_mirroring__", "").lower()
        if said in ("true", "1") or (everywhere and said not in ("false", "0") and step.op.role not in costly):
            chosen.add(i)
    return chosen
