"""The memory plan: every inner value gets a byte range in one arena.

Two values share bytes only if the last reader of one runs before the first writer of the other, or if an operator allows its
output to take the bytes of an input that no later step reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ...atomic_file import write_atomic
from ...kernels.op import Req
from ..program import INNER, KEPT, ZERO, Program, naive_bytes
from ..show.svg import draw_plan
from .output_reuse import MANY, OutputReuse, allowed_inplace, larger_capacities, outputs_of
from .packing import Piece, aligned, one_after_the_other, pack_best, peak


@dataclass(slots=True, repr=False)
class MemoryPlan:
    """The addresses of all inner values.

    offsets:            [values] bytes into the arena of the value's context, or into its output; -1 for values in neither.
    arenas:             the length of each context's arena; arena_bytes: their sum.
    output_bytes:       bytes of the executor's outputs and of constant zeros.
    planned_bytes:      arenas and outputs.
    lower_bound_bytes:  the largest sum of live bytes at any step, and the outputs. With the same values in outputs, no plan
                        is smaller.
    naive_bytes:        bytes if every value had memory of its own.
    live:               [values] (first writer, last reader) as step numbers; None for values outside the arenas.
    inplace:            {output value: input value whose bytes it takes}.
    in_output:          {value: the executor's output in whose memory it lies until that is written}.
    capacity:           {executor's output: bytes of its memory}; more than its own bytes if others lie in it first.
    """

    offsets: list[int]
    arena_bytes: int
    output_bytes: int
    lower_bound_bytes: int
    naive_bytes: int
    live: list[tuple[int, int] | None]
    inplace: dict[int, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    arenas: list[int] = field(default_factory=list)
    in_output: dict[int, int] = field(default_factory=dict)
    capacity: dict[int, int] = field(default_factory=dict)

    @property
    def planned_bytes(self) -> int:
        return self.arena_bytes + self.output_bytes

    def table(self) -> list[dict[str, int | str]]:
        """Return one row per value in the arenas, by offset: name, offset, nbytes, first and last step."""
        rows = sorted((self.offsets[v], v, span) for v, span in enumerate(self.live) if span is not None)
        return [{"name": self.names[v], "offset": at, "nbytes": self.sizes[v], "first": span[0], "last": span[1]}
                for at, v, span in rows]

    def _repr_svg_(self) -> str:
        """Return a picture: bytes against time, one rectangle per value."""
        return draw_plan(self)

    def save(self, fname: str) -> None:
        """Write the picture to an SVG file."""
        write_atomic(fname, draw_plan(self))

    def __repr__(self) -> str:
        return (f"planned {self.planned_bytes:,} bytes (arena {self.arena_bytes:,}, outputs {self.output_bytes:,}), "
                f"lower bound {self.lower_bound_bytes:,}, naive {self.naive_bytes:,}")

    def __str__(self) -> str:
        head = repr(self)
        rows = [f"{r['offset']:>14,} {r['nbytes']:>14,}  {r['first']:>6}-{r['last']:<6} {r['name']}" for r in self.table()]
        return "\n".join([head, f"{'offset':>14} {'bytes':>14}  {'steps':<13} value", *rows])


def plan_memory(program: Program, *, share: bool = True, naive: int | None = None,
                capacity: Sequence[int] | None = None) -> MemoryPlan:
    """Plan the memory of all inner values.

    share:     False gives every value bytes of its own.
    naive:     the `naive_bytes` to report, if it is that of another program (before fusion).
    capacity:  bytes of the memory of each head. None: its own bytes; at inference more, if that makes the total smaller.
    """
    values = program.values
    live = lifetimes(program)
    sizes = [v.spec.nbytes for v in values]
    outputs = outputs_of(program, sizes)
    outputs |= {v: n for v, n in zip(program.heads, capacity or ()) if v in outputs}
    allowed = allowed_inplace(program) if share else []
    inplace = _inplace_pairs(allowed, live, sizes)
    candidates = [_PlanCandidate(program, live, sizes, inplace, outputs, allowed, share)]
    if share and len(live) <= MANY:
        apart = _set_apart(program, live, sizes, inplace)
        capacities = [outputs]
        if capacity is None and not program.train and program.n_forward == len(program.steps) and len(live) <= MANY // 4:
            capacities += larger_capacities(program, candidates[0].spans, sizes, outputs)
        candidates += [_PlanCandidate(program, live, sizes, pairs, sized, allowed, share)
                  for sized in capacities for pairs in (inplace, apart) if (pairs, sized) != (inplace, outputs)]
    best = _pack_best(candidates, share)
    inside = {v: best.reuse.at[g] for v, g in enumerate(best.group) if live[v] is not None and g in best.reuse.at}
    in_output = {v: o for v, (o, _) in inside.items()}
    live = [None if v in in_output else span for v, span in enumerate(live)]
    offsets = [best.at[g] if live[v] is not None else inside[v][1] if v in inside else -1 for v, g in enumerate(best.group)]
    kept = best.output_bytes + sum(sizes[v] for v, value in enumerate(values) if value.kind in (ZERO, KEPT))
    return MemoryPlan(offsets, sum(best.arenas), kept, sum(best.bounds) + kept, naive_bytes(program) if naive is None else naive,
                live, best.inplace, [v.name for v in values], sizes, best.arenas, in_output, best.reuse.capacity)


class _PlanCandidate:
    """A possible plan: the values that take the bytes of others, and those that lie in outputs.

    group:       [values] the piece of memory of each. spans: {piece: (first step, last step)}.
    pieces:      the pieces in the arena of each context; bounds: their largest sum of live bytes.
    at, arenas:  set by pack(): {piece: offset}, and lengths by context.
    """

    def __init__(self, program: Program, live: Sequence[tuple[int, int] | None], sizes: Sequence[int], taken: dict[int, int],
                 outputs: dict[int, int], allowed: Sequence[tuple[int, int, int]], share: bool):
        self.inplace, self.reuse = dict(taken), OutputReuse(dict(outputs))
        self.group = _groups(live, self.inplace)
        self.spans = _spans_of(live, self.group)
        if share:
            self.reuse.place_inplace(program, live, sizes, self.group, self.inplace, allowed)
            self.reuse.place_idle(program, self.spans, sizes)
        self.pieces: list[list[Piece]] = [[] for _ in program.targets]
        for g, (first, last) in self.spans.items():
            if g not in self.reuse.at:
                self.pieces[program.values[g].ctx].append((aligned(sizes[g]), first, last, g))
        self.bounds = [peak(own, len(program.steps))[0] for own in self.pieces]
        self.at: dict[int, int] = {}
        self.arenas: list[int] = []

    @property
    def output_bytes(self) -> int:
        """Bytes of all outputs."""
        return sum(self.reuse.capacity.values())

    @property
    def bound(self) -> int:
        """The fewest bytes that this plan can take."""
        return sum(self.bounds) + self.output_bytes

    def pack(self, share: bool) -> int:
        """Give the pieces their offsets; return the bytes of the plan."""
        for own, bound in zip(self.pieces, self.bounds):
            placed, length = pack_best(own, bound) if share else one_after_the_other(own)
            self.at |= placed
            self.arenas.append(length)
        return sum(self.arenas) + self.output_bytes


def _pack_best(candidates: list[_PlanCandidate], share: bool) -> _PlanCandidate:
    """Pack candidates in the order of their bounds, while a bound is 0.1 % below the best result; return the smallest."""
    first, *others = sorted(candidates, key=lambda c: c.bound)
    best, fewest = first, first.pack(share)
    for candidate in others:
        if candidate.bound < fewest - fewest // 1000 and (taken := candidate.pack(share)) < fewest:
            best, fewest = candidate, taken
    return best


def _set_apart(program: Program, live: Sequence[tuple[int, int] | None], sizes: Sequence[int], inplace: dict[int, int]
               ) -> dict[int, int]:
    """Return inplace without the pairs whose values both fit under the peak: short lifetimes are easier to pack."""
    spans = _spans_of(live, _groups(live, inplace))
    now = [0] * (len(program.steps) + 1)
    for g, (first, last) in spans.items():
        now[first] += aligned(sizes[g])
        now[last + 1] -= aligned(sizes[g])
    now = list(accumulate(now))
    peak, kept = max(now), dict(inplace)
    for out in inplace:
        first, size = (live[out] or (0, 0))[0], aligned(sizes[out])
        if now[first] + size <= peak:  # only there are both alive
            now[first] += size
            del kept[out]
    return kept


def peak_bytes(program: Program) -> int:
    """Return the lower bound of plan_memory without packing: about the bytes of the plan."""
    live = lifetimes(program)
    sizes = [v.spec.nbytes for v in program.values]
    allowed, outputs = allowed_inplace(program), outputs_of(program, sizes)
    inplace = _inplace_pairs(allowed, live, sizes)
    candidate = _PlanCandidate(program, live, sizes, inplace, outputs, allowed, True)
    return candidate.bound + sum(sizes[v] for v, value in enumerate(program.values) if value.kind in (ZERO, KEPT))


def _spans_of(live: Sequence[tuple[int, int] | None], group: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the lifetimes of the pieces of memory."""
    spans: dict[int, tuple[int, int]] = {}
    for v, span in enumerate(live):
        if span is not None:
            old = spans.get(group[v], span)
            spans[group[v]] = (min(old[0], span[0]), max(old[1], span[1]))
    return spans


def _groups(live: Sequence[tuple[int, int] | None], inplace: dict[int, int]) -> list[int]:
    """Return the piece of memory of each value. Values that share bytes in place are one piece, named by the first."""
    group = list(range(len(live)))
    for out in sorted(inplace, key=lambda v: live[v] or (0, 0)):
        group[out] = group[inplace[out]]
    return group


def apply_inplace(program: Program, plan: MemoryPlan) -> None:
    """Give the outputs that take an input's bytes the request INPLACE."""
    for step in program.steps:
        if any(o in plan.inplace for o in step.outputs):
            step.reqs = tuple(Req.INPLACE if r == Req.WRITE and plan.inplace.get(o, -1) in step.inputs else r
                              for o, r in zip(step.outputs, step.reqs))


def lifetimes(program: Program) -> list[tuple[int, int] | None]:
    """Return (first step that writes, last step that uses) for every inner value; None for others and unused ones."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        for v in (*step.outputs, *step.inputs):
            if v >= 0 and program.values[v].kind == INNER:
                first.setdefault(v, i)
                last[v] = i
    return [(first[v], last[v]) if v in first else None for v in range(len(program.values))]


def _inplace_pairs(allowed: Sequence[tuple[int, int, int]], live: Sequence[tuple[int, int] | None], sizes: Sequence[int]
                   ) -> dict[int, int]:
    """Return {output: input} for outputs that can take the bytes of an input that no later step reads."""
    taken: dict[int, int] = {}
    used: set[tuple[int, int]] = set()
    for i, source, target in allowed:
        span, source_span = live[target] if target >= 0 else None, live[source]
        if span is None or source_span is None or target in taken or (i, source) in used:
            continue
        if source_span[1] == i == span[0] and sizes[source] == sizes[target]:
            taken[target] = source
            used.add((i, source))
    return taken
