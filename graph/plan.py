"""The memory plan: every inner value gets a byte range in one arena.

Two values share bytes only if the last reader of one runs before the first writer of the other, or where an operator
allows its output to take the place of an input that nobody reads later.
"""

from __future__ import annotations

import bisect
import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ..kernels.op import Req
from .picture import draw_plan
from .program import INNER, OUTPUT, ZERO, Program, Step, naive_bytes

ALIGNMENT = 256  # bytes
_TRY_ALL = 300_000  # pairs of values alive together up to which several packing orders are tried
_SHAKES = 60  # at most
_IDLE = 20_000  # pieces of memory up to which idle outputs are looked at
_TRY_ONE = 3_000_000  # up to which one is


@dataclass(slots=True)
class Plan:
    """Where every inner value lies.

    offsets:            [values] bytes into the arena of the value's context; -1 for values that are not in it.
    arenas:             the length of each context's arena; arena_bytes: of all.
    output_bytes:       what the executor's outputs and constant zeros take, apart from the arena.
    planned_bytes:      arena and outputs.
    lower_bound_bytes:  the largest sum of live bytes at any step, and the outputs: with the values that lie in outputs lying
                        there, no plan can be smaller.
    naive_bytes:        with memory of its own for every value.
    live:               [values] (first writer, last reader) as step numbers; None where the value is not in the arena.
    inplace:            {output value: input value whose bytes it takes}.
    hosted:             {value: executor's output in whose memory it lies, because that will take its place}.
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
    hosted: dict[int, int] = field(default_factory=dict)

    @property
    def planned_bytes(self) -> int:
        return self.arena_bytes + self.output_bytes

    def table(self) -> list[dict[str, int | str]]:
        """One row per value in the arena, by offset: name, offset, nbytes, first and last step."""
        rows = [(self.offsets[v], v) for v, span in enumerate(self.live) if span is not None]
        return [
            {"name": self.names[v], "offset": at, "nbytes": self.sizes[v], "first": span[0], "last": span[1]}
            for at, v in sorted(rows) if (span := self.live[v]) is not None
        ]

    def _repr_svg_(self) -> str:
        """A picture: bytes against time, one rectangle per value."""
        return draw_plan(self)

    def save(self, fname: str) -> None:
        """Write the picture to an SVG file."""
        with open(fname, "w", encoding="utf-8") as f:
            f.write(draw_plan(self))

    def __str__(self) -> str:
        head = (f"planned {self.planned_bytes:,} bytes (arena {self.arena_bytes:,}, outputs {self.output_bytes:,}), "
                f"lower bound {self.lower_bound_bytes:,}, naive {self.naive_bytes:,}")
        rows = [f"{r['offset']:>14,} {r['nbytes']:>14,}  {r['first']:>6}-{r['last']:<6} {r['name']}" for r in self.table()]
        return "\n".join([head, f"{'offset':>14} {'bytes':>14}  {'steps':<13} value", *rows])


def plan_memory(program: Program, *, share: bool = True, alignment: int = ALIGNMENT, naive: int | None = None) -> Plan:
    """Give every inner value of program its place. Steps whose output takes an input's place get the request INPLACE.

    share:  False gives every value bytes of its own.
    naive:  what `naive_bytes` reports, if another program than this (before fusion) is meant.
    """
    values = program.values
    live = lifetimes(program)
    sizes = [v.spec.nbytes for v in values]
    inplace = _take_places(program, live, sizes) if share else {}
    best = _place_all(program, live, sizes, inplace, share, alignment)
    if share and sum(best.arenas) > best.bound and len(best.at) <= _IDLE:
        apart = _set_apart(program, live, sizes, inplace, alignment)
        if len(apart) < len(inplace):
            other = _place_all(program, live, sizes, apart, share, alignment)
            best = min(best, other, key=lambda p: sum(p.arenas))
    hosted = {v: best.hosts[best.group[v]] for v, span in enumerate(live) if span is not None and best.group[v] in best.hosts}
    live = [None if v in hosted else span for v, span in enumerate(live)]
    offsets = [best.at[best.group[v]] if span is not None else -1 for v, span in enumerate(live)]
    outputs = sum(sizes[v] for v, value in enumerate(values) if value.kind in (OUTPUT, ZERO))
    return Plan(offsets, sum(best.arenas), outputs, best.bound + outputs, naive_bytes(program) if naive is None else naive,
                live, best.inplace, [v.name for v in values], sizes, best.arenas, hosted)


@dataclass(slots=True)
class _Places:
    """Where the pieces of memory lie. group: [values] the piece of each; hosts: {piece: output}; at: {piece: offset}."""

    inplace: dict[int, int]
    group: list[int]
    hosts: dict[int, int]
    at: dict[int, int]
    arenas: list[int]
    bound: int


def _place_all(program: Program, live: Sequence[tuple[int, int] | None], sizes: Sequence[int], taken: dict[int, int],
               share: bool, alignment: int) -> _Places:
    inplace, steps = dict(taken), len(program.steps)
    group, spans = _groups(live, inplace), _spans_of(live, inplace)
    hosts = _take_in(program, live, sizes, group, inplace) if share else {}
    if share:
        _use_idle_outputs(program, spans, sizes, hosts)
    items = [(_aligned(sizes[g], alignment), first, last, g) for g, (first, last) in spans.items() if g not in hosts]
    at: dict[int, int] = {}
    arenas, bound = [], 0
    for ctx in range(len(program.targets)):
        own = [t for t in items if program.values[t[3]].ctx == ctx]
        peak = _peak(own, steps)
        placed, length = _pack_best(own, peak) if share else _one_after_the_other(own)
        at |= placed
        arenas.append(length)
        bound += peak
    return _Places(inplace, group, hosts, at, arenas, bound)


def _set_apart(program: Program, live: Sequence[tuple[int, int] | None], sizes: Sequence[int], inplace: dict[int, int],
               alignment: int) -> dict[int, int]:
    """inplace without the pairs that both fit under the peak: shorter lives are easier to pack than fewer ones."""
    spans = _spans_of(live, inplace)
    now = [0] * (len(program.steps) + 1)
    for g, (first, last) in spans.items():
        now[first] += _aligned(sizes[g], alignment)
        now[last + 1] -= _aligned(sizes[g], alignment)
    now = list(accumulate(now))
    peak, kept = max(now), dict(inplace)
    for out in inplace:
        first, size = (live[out] or (0, 0))[0], _aligned(sizes[out], alignment)
        if now[first] + size <= peak:  # only there are both alive
            now[first] += size
            del kept[out]
    return kept


def _take_in(program: Program, live: Sequence[tuple[int, int] | None], sizes: Sequence[int], group: Sequence[int],
             inplace: dict[int, int]) -> dict[int, int]:
    """{piece of memory: output}: pieces that end where an output of the executor may take their place, and so lie in it from
    the start. Adds to inplace."""
    members: dict[int, list[int]] = {}
    for v, span in enumerate(live):
        if span is not None:
            members.setdefault(group[v], []).append(v)
    hosts: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        if not any(o >= 0 and program.values[o].kind == OUTPUT for o in step.outputs) or _hands_through(program, step):
            continue
        for at_in, at_out in step.op.inplace(step.params):
            if at_in >= len(step.inputs) or at_out >= len(step.outputs):
                continue
            v, o = step.inputs[at_in], step.outputs[at_out]
            if o < 0 or program.values[o].kind != OUTPUT or live[v] is None or o in inplace or step.reqs[at_out] != Req.WRITE:
                continue
            g = group[v]
            ends = all((live[m] or (0, 0))[1] <= i for m in members[g])
            same = all(sizes[m] == sizes[o] and program.values[m].ctx == program.values[o].ctx for m in members[g])
            free = g not in hosts and not any(w == v for w in inplace.values())
            if ends and same and free and step.inputs.count(v) == 1:
                hosts[g], inplace[o] = o, v
    return hosts


def _use_idle_outputs(program: Program, spans: dict[int, tuple[int, int]], sizes: Sequence[int], hosts: dict[int, int]) -> None:
    """Add to hosts what lowers the peak and lives only while an executor's output is not yet written: it may lie in there."""
    first: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        for o in step.outputs:
            if o >= 0 and program.values[o].kind == OUTPUT:
                first.setdefault(o, i)
    if not first or len(spans) > _IDLE:
        return
    taken: dict[int, list[tuple[int, int]]] = {}
    for g, o in hosts.items():
        taken.setdefault(o, []).append(spans[g])
    for _ in range(_SHAKES):
        rest = [(sizes[g], a, z, g) for g, (a, z) in spans.items() if g not in hosts]
        at = _peak_at(rest, len(program.steps))
        for size, a, z, g in sorted((t for t in rest if t[1] <= at <= t[2]), reverse=True):
            fits = [o for o, i in first.items() if z < i and size <= sizes[o] and program.values[o].ctx == program.values[g].ctx
                    and all(z < b or e < a for b, e in taken.get(o, ()))]
            if fits:
                hosts[g] = o = min(fits, key=lambda o: sizes[o])
                taken.setdefault(o, []).append((a, z))
                break
        else:
            return


def _peak_at(items: Sequence[tuple[int, int, int, int]], steps: int) -> int:
    change = [0] * (steps + 2)
    for size, first, last, _ in items:
        change[first] += size
        change[last + 1] -= size
    best = now = at = 0
    for i, c in enumerate(change):
        now += c
        if now > best:
            best, at = now, i
    return at


def _one_after_the_other(items: Sequence[tuple[int, int, int, int]]) -> tuple[dict[int, int], int]:
    at, total = {}, 0
    for size, _, _, g in items:
        at[g] = total
        total += size
    return at, total


def peak_bytes(program: Program, *, alignment: int = ALIGNMENT) -> int:
    """The lower bound of plan_memory, without placing anything: what the program's plan will take, or nearly."""
    live = lifetimes(program)
    sizes = [v.spec.nbytes for v in program.values]
    inplace = _take_places(program, live, sizes)
    group, spans = _groups(live, inplace), _spans_of(live, inplace)
    hosts = _take_in(program, live, sizes, group, inplace)
    _use_idle_outputs(program, spans, sizes, hosts)
    items = [(_aligned(sizes[g], alignment), first, last, g) for g, (first, last) in spans.items() if g not in hosts]
    return _peak(items, len(program.steps)) + sum(sizes[v] for v, value in enumerate(program.values)
                                                  if value.kind in (OUTPUT, ZERO))


def _spans_of(live: Sequence[tuple[int, int] | None], inplace: dict[int, int]) -> dict[int, tuple[int, int]]:
    """Lifetimes of the pieces of memory: values that take each other's place are one, called by its first."""
    group = _groups(live, inplace)
    spans: dict[int, tuple[int, int]] = {}
    for v, span in enumerate(live):
        if span is not None:
            old = spans.get(group[v], span)
            spans[group[v]] = (min(old[0], span[0]), max(old[1], span[1]))
    return spans


def _groups(live: Sequence[tuple[int, int] | None], inplace: dict[int, int]) -> list[int]:
    group = list(range(len(live)))
    for out in sorted(inplace, key=lambda v: live[v] or (0, 0)):
        group[out] = group[inplace[out]]
    return group


def apply_inplace(program: Program, plan: Plan) -> None:
    """Mark the outputs that take an input's place with the request INPLACE."""
    for step in program.steps:
        if any(o in plan.inplace for o in step.outputs):
            step.reqs = tuple(
                Req.INPLACE if r == Req.WRITE and plan.inplace.get(o, -1) in step.inputs else r
                for o, r in zip(step.outputs, step.reqs)
            )


def lifetimes(program: Program) -> list[tuple[int, int] | None]:
    """(first step that writes, last step that writes or reads) of every inner value; None for others and unused ones."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        for v in (*step.outputs, *step.inputs):
            if v >= 0 and program.values[v].kind == INNER:
                first.setdefault(v, i)
                last[v] = i
    return [(first[v], last[v]) if v in first else None for v in range(len(program.values))]


def _take_places(program: Program, live: Sequence[tuple[int, int] | None], sizes: Sequence[int]) -> dict[int, int]:
    """{output: input}: outputs that may take the bytes of an input which ends with the step."""
    taken: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        used: set[int] = set()
        if _hands_through(program, step):
            continue
        for at_in, at_out in step.op.inplace(step.params):
            if at_in >= len(step.inputs) or at_out >= len(step.outputs):
                continue
            source, target = step.inputs[at_in], step.outputs[at_out]
            span, source_span = (live[target] if target >= 0 else None), live[source]
            if span is None or source_span is None or target in taken or source in used:
                continue
            if (source_span[1] == i and span[0] == i and sizes[source] == sizes[target] and step.inputs.count(source) == 1
                    and step.reqs[at_out] == Req.WRITE):  # fmt: skip
                taken[target] = source
                used.add(source)
    return taken


def _hands_through(program: Program, step: Step) -> bool:
    """Whether one of several outputs is an input as it is: it is copied last, so no other output may overwrite it."""
    if len(step.outputs) < 2 or not step.inputs:
        return False
    body = step.op.expression(step.params, [program.values[v].spec.dtype for v in step.inputs])
    return body is not None and any(root.op == "load" for root in body.outputs)


def _aligned(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment


def _peak(items: Sequence[tuple[int, int, int, int]], steps: int) -> int:
    change = [0] * (steps + 2)
    for size, first, last, _ in items:
        change[first] += size
        change[last + 1] -= size
    peak = now = 0
    for c in change:
        now += c
        peak = max(peak, now)
    return peak


def _pack_best(items: Sequence[tuple[int, int, int, int]], bound: int) -> tuple[dict[int, int], int]:
    """Pack in several ways, keep the smallest result. Ways that compare all pairs are for graphs with few of them.

    bound: bytes; what reaches it is the best there is. What stays above is tried again with the sizes shaken a little.
    """
    best = _sweep(items)
    pairs = _overlaps(items)
    orders = [lambda t: (-t[0], t[1], t[3])]
    if pairs <= _TRY_ALL:
        orders += [lambda t: (-(t[2] - t[1] + 1) * t[0], t[1], t[3]), lambda t: (-(t[2] - t[1]), -t[0], t[3])]
    for key in orders if pairs <= _TRY_ONE else ():
        if best[1] > bound and (found := _pack(sorted(items, key=key)))[1] < best[1]:
            best = found
    shake = random.Random(0)
    for _ in range(min(_SHAKES, _TRY_ALL // (pairs + 1))):
        if best[1] <= bound:
            break
        order = sorted(((t[0] * shake.uniform(0.4, 1.0), n) for n, t in enumerate(items)), reverse=True)
        found = _pack([items[n] for _, n in order])
        if found[1] < best[1]:
            best = found
    return best


def _overlaps(items: Sequence[tuple[int, int, int, int]]) -> int:
    """How many pairs of items are alive together."""
    starts, ends = sorted(t[1] for t in items), sorted(t[2] for t in items)
    ended, pairs = 0, 0
    for started, first in enumerate(starts):
        while ends[ended] < first:
            ended += 1
        pairs += started - ended
    return pairs


def _sweep(items: Sequence[tuple[int, int, int, int]]) -> tuple[dict[int, int], int]:
    """Walk through time: allocate at the first step, in the tightest free block; free after the last."""
    at: dict[int, int] = {}
    free: list[tuple[int, int]] = []  # (size, offset), sorted
    size_of_start: dict[int, int] = {}
    start_of_end: dict[int, int] = {}
    running: list[tuple[int, int, int]] = []  # (last step, offset, size)
    total = 0

    def put(offset: int, size: int) -> None:
        bisect.insort(free, (size, offset))
        size_of_start[offset], start_of_end[offset + size] = size, offset

    def take(offset: int) -> int:
        size = size_of_start.pop(offset)
        del start_of_end[offset + size]
        free.pop(bisect.bisect_left(free, (size, offset)))
        return size

    for size, first, last, g in sorted(items, key=lambda t: (t[1], -t[0], t[3])):
        while running and running[0][0] < first:
            _, offset, length = heapq.heappop(running)
            if offset + length in size_of_start:
                length += take(offset + length)
            if offset in start_of_end:
                before = start_of_end[offset]
                length += take(before)
                offset = before
            put(offset, length)
        if size == 0:
            at[g] = 0
            continue
        found = bisect.bisect_left(free, (size, 0))
        if found < len(free):
            offset = free[found][1]
            rest = take(offset) - size
            if rest:
                put(offset + size, rest)
        else:
            offset = total
            if total in start_of_end:  # grow the free block at the end
                offset = start_of_end[total]
                take(offset)
            total = offset + size
        at[g] = offset
        heapq.heappush(running, (last, offset, size))
    return at, total


class _Spans:
    """Placed intervals of steps, found by overlap: kept by length class, then by start."""

    def __init__(self):
        self.classes: dict[int, dict[int, list[tuple[int, int, int, int]]]] = {}

    def add(self, first: int, last: int, low: int, high: int) -> None:
        k = (last - first + 1).bit_length()
        self.classes.setdefault(k, {}).setdefault(first >> k, []).append((first, last, low, high))

    def overlapping(self, first: int, last: int) -> list[tuple[int, int]]:
        """Byte ranges of the intervals that share a step with first..last."""
        found: list[tuple[int, int]] = []
        for k, cells in self.classes.items():
            low, high = (first - (1 << k)) >> k, last >> k
            keys = range(low, high + 1) if high - low < len(cells) else [c for c in cells if low <= c <= high]
            for c in keys:
                for f, l, a, b in cells.get(c, ()):
                    if f <= last and l >= first:
                        found.append((a, b))
        return found


def _pack(items: Sequence[tuple[int, int, int, int]]) -> tuple[dict[int, int], int]:
    """Put each item (size, first, last, id), in the given order, into the tightest gap that is free all its life."""
    spans, at, total = _Spans(), {}, 0
    for size, first, last, g in items:
        if size == 0:
            at[g] = 0
            continue
        place, tightest, end = -1, -1, 0
        for low, high in sorted(spans.overlapping(first, last)):
            gap = low - end
            if gap >= size and (tightest < 0 or gap < tightest):
                place, tightest = end, gap
            end = max(end, high)
        if place < 0:
            place = end
        at[g] = place
        spans.add(first, last, place, place + size)
        total = max(total, place + size)
    return at, total

