"""Reuse of output memory: until an output of the executor is written, other values may lie in its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...kernels.op import Req
from ..program import OUTPUT, Program, Step
from .packing import Piece, aligned, peak

MANY = 20_000  # values up to which several plans are tried
_WORK = 2_000_000  # limit of the work: pieces and steps, times rounds


@dataclass(slots=True)
class OutputReuse:
    """The pieces of memory that lie in outputs.

    at:        {piece: (output, offset in it)}.
    capacity:  {output: bytes of its memory}.
    """

    capacity: dict[int, int]
    at: dict[int, tuple[int, int]] = field(default_factory=dict)

    def place_inplace(self, program: Program, live: Sequence[tuple[int, int] | None], sizes: Sequence[int], group: Sequence[int],
                      inplace: dict[int, int], allowed: Sequence[tuple[int, int, int]]) -> None:
        """Place the pieces whose bytes an output can take at their end: they lie in it from the start. Adds to inplace.

        allowed: as allowed_inplace returns it.
        """
        members: dict[int, list[int]] = {}
        for v, span in enumerate(live):
            if span is not None:
                members.setdefault(group[v], []).append(v)
        for i, v, o in allowed:
            if o not in self.capacity or live[v] is None or o in inplace:
                continue
            g = group[v]
            ends = all((live[m] or (0, 0))[1] <= i for m in members[g])
            same = all(sizes[m] == sizes[o] and program.values[m].ctx == program.values[o].ctx for m in members[g])
            if ends and same and g not in self.at and v not in inplace.values():
                self.at[g], inplace[o] = (o, 0), v

    def place_idle(self, program: Program, spans: Mapping[int, tuple[int, int]], sizes: Sequence[int]) -> None:
        """Place pieces that lower the peak and end before an output is written."""
        first = first_writes(program, self.capacity)
        if not first or len(spans) > MANY:
            return
        taken: dict[int, list[Piece]] = {}
        for g, (o, offset) in self.at.items():
            taken.setdefault(o, []).append((sizes[g], *spans[g], offset))
        for _ in range(_WORK // (len(spans) + len(program.steps))):
            rest = [(sizes[g], a, z, g) for g, (a, z) in spans.items() if g not in self.at]
            step = peak(rest, len(program.steps))[1]
            for size, a, z, g in sorted((t for t in rest if t[1] <= step <= t[2]), reverse=True):
                fits = []
                for o, written in first.items():
                    if z < written and size <= self.capacity[o] and program.values[o].ctx == program.values[g].ctx:
                        offset = _gap(taken.get(o, ()), size, a, z)
                        if offset + size <= self.capacity[o]:
                            fits.append((self.capacity[o], o, offset))
                if fits:
                    _, o, offset = min(fits)
                    self.at[g] = o, offset
                    taken.setdefault(o, []).append((size, a, z, offset))
                    break
            else:
                return


def first_writes(program: Program, outputs: Mapping[int, int]) -> dict[int, int]:
    """Return {output: the first step that writes it}."""
    first: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        for o in step.outputs:
            if o in outputs:
                first.setdefault(o, i)
    return first


def outputs_of(program: Program, sizes: Sequence[int]) -> dict[int, int]:
    """Return {output of the executor: its bytes}."""
    return {v: sizes[v] for v, value in enumerate(program.values) if value.kind == OUTPUT}


def larger_capacities(program: Program, spans: Mapping[int, tuple[int, int]], sizes: Sequence[int],
                 outputs: Mapping[int, int]) -> list[dict[int, int]]:
    """Return larger capacities to try for the largest output: room for larger pieces, or for all that end before it."""
    o = max(outputs, key=lambda o: outputs[o], default=-1)
    written = first_writes(program, outputs).get(o, 0)
    early = [(sizes[g], a, z, g) for g, (a, z) in spans.items() if z < written and program.values[g].ctx == program.values[o].ctx]
    larger = sorted({size for size, *_ in early if size > outputs[o]}, reverse=True)[:3] if early else []
    everything = peak(early, len(program.steps))[0]
    return [{**outputs, o: n} for n in dict.fromkeys([*larger, everything]) if n > outputs.get(o, n)]


def allowed_inplace(program: Program) -> list[tuple[int, int, int]]:
    """Return (step number, input, output) wherever an operator lets an output take the bytes of an input."""
    found = []
    for i, step in enumerate(program.steps):
        for at_in, at_out in () if _copies_input(program, step) else step.op.inplace(step.params):
            if at_in < len(step.inputs) and at_out < len(step.outputs) and step.reqs[at_out] == Req.WRITE \
                    and step.inputs.count(step.inputs[at_in]) == 1:
                found.append((i, step.inputs[at_in], step.outputs[at_out]))
    return found


def _copies_input(program: Program, step: Step) -> bool:
    """Return whether one of several outputs is a copy of an input, made last, so that no other output may overwrite it."""
    if len(step.outputs) < 2 or not step.inputs:
        return False
    body = step.op.expression(step.params, [program.values[v].spec.dtype for v in step.inputs])
    return body is not None and any(root.op == "load" for root in body.outputs)


def _gap(taken: Sequence[Piece], size: int, first: int, last: int) -> int:
    """Return the lowest offset with size bytes free from first to last. taken: pieces with offsets as their ids."""
    end = 0
    for low, high in sorted((at, at + n) for n, a, z, at in taken if a <= last and first <= z):
        if low - end >= size:
            return end
        end = max(end, aligned(high))
    return end
