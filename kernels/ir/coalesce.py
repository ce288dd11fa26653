"""The layout of the arrays of one elementwise kernel: the full shape, its axes merged as far as they can be, and which
operand is broadcast along which axis. Shared by all printers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ..op import Shape


@dataclass(frozen=True)
class BroadcastLayout:
    """The merged view of a set of operands.

    dims:     sizes of the merged axes; () never: a single element is (1,).
    present:  per operand, per merged axis: True if the operand has that axis, False if it is broadcast (size 1).
    """

    dims: Shape
    present: tuple[tuple[bool, ...], ...]

    @property
    def size(self) -> int:
        return prod(self.dims)

    @property
    def is_flat(self) -> bool:
        """Return whether every operand is dense over one merged axis."""
        return len(self.dims) == 1 and all(p == (True,) for p in self.present)

    def shape(self, operand: int) -> Shape:
        """Return the operand's shape over the merged axes."""
        return tuple(d if here else 1 for d, here in zip(self.dims, self.present[operand]))

    def folded(self, operand: int) -> tuple[int, ...]:
        """Return the merged axes that the operand does not have."""
        return tuple(i for i, here in enumerate(self.present[operand]) if not here)


def full_shape(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that the shapes broadcast to, by NumPy's rule."""
    rank = max((len(s) for s in shapes), default=0)
    out = []
    for axis in range(-rank, 0):
        sizes = [s[axis] for s in shapes if len(s) >= -axis]
        larger = [n for n in sizes if n != 1]
        assert len(set(larger)) <= 1, f"shapes do not broadcast: {shapes}"
        out.append(larger[0] if larger else 1)
    return tuple(out)


def merge(shapes: Sequence[Shape]) -> BroadcastLayout:
    """Return the fewest axes over which every operand is either dense or broadcast.

    Neighbouring axes merge when every operand has both or neither; axes of size 1 vanish.
    """
    full = full_shape(shapes)
    rank = len(full)
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    dims: list[int] = []
    flags: list[tuple[bool, ...]] = []
    for axis, n in enumerate(full):
        if n == 1:
            continue
        here = tuple(s[axis] == n for s in padded)
        if flags and flags[-1] == here:
            dims[-1] *= n
        else:
            dims.append(n)
            flags.append(here)
    if not dims:
        return BroadcastLayout((1,), tuple((True,) for _ in shapes))
    return BroadcastLayout(tuple(dims), tuple(zip(*flags)) if shapes else ())


def merge_rows(shapes: Sequence[Shape], axis: int) -> BroadcastLayout:
    """Return the axes before `axis` merged, then that axis, along which rows go, and what follows it. axis: -1 or -2."""
    rank = max(-axis, *(len(s) for s in shapes))  # one element is a row of one
    views = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    behind = tuple(max(v[a] for v in views) for a in range(axis, 0))
    lead = merge([v[:axis] for v in views])
    return BroadcastLayout((*lead.dims, *behind),
                           tuple((*p, *(m == n for m, n in zip(v[axis:], behind))) for p, v in zip(lead.present, views)))
