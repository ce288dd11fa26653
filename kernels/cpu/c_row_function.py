"""A C function of reductions and rows with its arguments, as `c_rows` prints it and `rows_kernel` runs it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowText:
    """A C function without its arguments. uses: the functions of `c_math.py` that it calls."""

    name: str
    text: str
    uses: frozenset[str]


@dataclass(frozen=True, slots=True)
class Join:
    """The function that adds up the parts of a folded output: join(arrays, begin, end) for its elements from begin to end, where
    arrays are the parts, the output, (number of parts, size) and the numbers.

    fold:  the output's number among the folded ones; target: among the stored ones.
    """

    function: RowText
    fold: int
    target: int
    size: int
    numbers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RowFunction:
    """One kernel as C, and its arguments in one use.

    function:  rows(arrays, begin, end) computes the pieces from begin to end. arrays are the inputs, the stored outputs, the
               parts of those that are folded (null if there is but one), the sizes and the numbers.
    targets:   numbers of the outputs that are stored; states: {output without an array: its input}.
    sizes, numbers:  the sizes, and the constants that follow the run-time scalars, in this use. scalars: how many there are.
    pieces:    of the work; parts: of each folded element; folds: sizes of the folded outputs.
    nodes, size: how many primitives it computes, of how many elements. work: nanoseconds, about.
    """

    function: RowText
    targets: tuple[int, ...]
    states: dict[int, int]
    sizes: tuple[int, ...]
    numbers: tuple[float, ...]
    scalars: int
    pieces: int
    parts: int
    folds: tuple[int, ...]
    joins: tuple[Join, ...]
    nodes: int
    size: int
    work: float

    @property
    def texts(self) -> list[RowText]:
        """Return its C functions."""
        return [self.function, *(j.function for j in self.joins)]


def row_text(kind: str, lines: Sequence[str], uses: Iterable[str], helpers: Iterable[str]) -> RowText:
    """Return a function of these statements. helpers: functions before it, beside those of `c_math.py` that it uses."""
    depth, body = 1, []
    for t in lines:
        depth -= t.startswith("}")
        body.append(f"{'    ' * depth}{t}")
        depth += t.count("{") - t.count("}") + t.startswith("}")
    text = "\n".join(["(void *const *arrays, int64_t begin, int64_t end)", "{", *body, "}", ""])
    before = "".join(f"{h}\n" for h in helpers)
    name = f"{kind}_{hashlib.sha256((before + text).encode()).hexdigest()[:16]}"
    return RowText(name, f"{before}void {name}{text}", frozenset(uses))


def decomposed(index: str, axes: Sequence[int], chunked: bool) -> list[str]:
    """Return statements that name the index on each axis, i0 and so on, and that of the chunk, given the index over all."""
    parts = [*((f"i{a}", f"d{a}") for a in axes), *([("at_chunk", "chunks")] if chunked else [])]
    lines, rest = [], index
    for i in range(len(parts) - 1, -1, -1):
        name, size = parts[i]
        lines.append(f"const int64_t {name} = {rest}{f' % {size}' if i else ''};")
        if i:
            lines.append(f"const int64_t {index}_{i} = {rest} / {size};")
            rest = f"{index}_{i}"
    return lines
