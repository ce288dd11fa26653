"""The derivative of an index formula: for each element that it reads, what is added to the derivative there.

The derivative is a sum over the index space of the output and, for what is read in a loop, over the loop's counter, which
becomes one more axis of that space.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtype import is_float
from ...errors import OperatorError
from ..op import Shape
from .differentiate import derive
from .expr import CONST, Expr, cast, node, prim, substitute, topological, typed
from .indexed import (
    ACC,
    FOLD,
    GATHER,
    INDEX,
    SIZE,
    TRUE,
    IndexedProgram,
    Ranges,
    accumulated_in,
    at_step,
    first_of,
    free_levels,
    index,
    put,
)
from .schedule import outside_loops


def derived_puts(name: str, root: Expr, dy: Expr, shape: Shape, inputs: Sequence[tuple[int, Shape]],
                 scalars: tuple[str, ...]) -> dict[int, list[IndexedProgram]]:
    """Return, for each input, the programs that put its derivative.

    root:    an output's element; dy: its derivative; shape: the output's.
    inputs:  (number, shape) of those whose derivative is wanted.
    Raises:  OperatorError for a loop whose derivative is not known.
    """
    found: dict[int, list[IndexedProgram]] = {number: [] for number, _ in inputs}
    shapes = dict(inputs)
    waiting: list[tuple[Expr, Expr, Shape, Expr]] = [(root, dy, shape, TRUE)]
    while waiting:
        x, d, space, inside = waiting.pop()
        if x.dtype is None:
            continue  # a number
        leaves = [y for y in outside_loops([x]) if y.op in (GATHER, FOLD) and is_float(typed(y))]
        for leaf, slope in zip(leaves, derive([x], [cast(d, typed(x))], leaves)):
            if slope is None:
                continue
            if leaf.op == FOLD:
                waiting.append(_loop(name, leaf, slope, space, inside))
            elif leaf.value[0] in shapes:
                number, size = leaf.value[0], shapes[leaf.value[0]]
                element = cast(slope, accumulated_in(typed(leaf)))
                mask = _both(leaf.args[0], inside)
                found[number].append(IndexedProgram((put(size, mask, element, leaf.args[1:]),), space, scalars))
    return found


def is_distinct(p: IndexedProgram) -> bool:
    """Return whether no two elements are put at the same place: every axis of the space is an index of it."""
    root = p.roots[0]
    axes = {a.value for a in root.args[2:] if a.op == INDEX}
    return all(a in axes or d == 1 for a, d in enumerate(p.shape))


def _loop(name: str, fold: Expr, slope: Expr, space: Shape, inside: Expr) -> tuple[Expr, Expr, Shape, Expr]:
    """Return the value that a loop adds up or chooses from, with its derivative, for each step."""
    level, n, j = fold.value
    extent, new = fold.args[0], fold.args[1 + n + j]
    parts = [a for a in new.args if not (a.op == ACC and a.value == (level, j))]
    if new.op not in ("add", "maximum", "minimum") or len(parts) != 1 or _reads_accumulator(parts[0], level):
        raise OperatorError(f"{name}: the derivative of this loop is not derived: only those of lang.sum, max and min are. "
                            f"Declare it with @op.gradient, or differentiable=False.")
    (value,) = parts
    if new.op != "add":
        best = first_of(extent, level, value, "gt" if new.op == "maximum" else "lt")
        return at_step(value, level, best), slope, space, _both(inside, prim("gt", extent, 0))
    known = Ranges([fold], space).of(extent)
    if known is None:
        raise OperatorError(f"{name}: the derivative of a loop is derived only if its longest extent follows from the sizes. "
                            f"Declare it with @op.gradient, or differentiable=False.")
    k = index(len(space))
    if extent.op in (CONST, SIZE):
        return at_step(value, level, k), slope, (*space, max(0, known[1])), inside
    there = prim("lt", k, extent)
    moved = at_step(value, level, k)
    masked = {id(y): _limited(y, there) for y in topological([moved]) if y.op == GATHER}
    return substitute([moved], masked)[0], slope, (*space, max(0, known[1])), _both(inside, there)


def _limited(x: Expr, there: Expr) -> Expr:
    return node(GATHER, (_both(x.args[0], there), *x.args[1:]), x.value, x.dtype)


def _reads_accumulator(x: Expr, level: int) -> bool:
    """Return whether x, inside a loop of this level, reads its accumulators. Another loop of the same level has its own."""
    free, waiting, seen = free_levels([x]), [x], set[int]()
    while waiting:
        y = waiting.pop()
        if id(y) in seen or level not in free[id(y)]:
            continue
        if y.op == ACC and y.value[0] == level:
            return True
        seen.add(id(y))
        waiting += y.args
    return False


def _both(a: Expr, b: Expr) -> Expr:
    return b if a is TRUE else a if b is TRUE else prim("and", a, b)
