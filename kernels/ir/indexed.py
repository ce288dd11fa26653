"""Index formulas: an element of the output as an expression of its index and of elements of the inputs at computed indices.

Nodes besides those of `expr.py`; every index and size is an int64:

  index   value: a, an axis                     the index of the output's element along axis a
  loop    value: level                          the counter of the loop of that level (0 is the outermost)
  acc     value: (level, j)                     what accumulator j of that loop holds before the step
  size    value: (input, axis, size)            a size of an input; input -1 is the output
  gather  value: (input, shape)                 args: (mask, *indices). The element there; zero where the mask is false
  put     value: (0, shape)                     args: (mask, element, *indices). A root alone: the element is added to the output,
                                                which has this shape, at these indices; nothing where the mask is false
  fold    value: (level, n, j)                  args: (extent, n first values, n new values). Accumulator j after the loop,
                                                which runs the new values for counter 0, 1, … extent - 1, all n at once
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...dtype import float32, is_float, is_half
from ...errors import TraceError
from ..op import Shape
from .expr import BOOL, CAST, CONST, INT32, PARAM, Expr, as_expr, caller, cast, const, node, prim, topological, typed

INT64 = np.dtype("int64")
INDEX, LOOP, ACC, SIZE, GATHER, PUT, FOLD = "index", "loop", "acc", "size", "gather", "put", "fold"
#: Where the indices of a node begin among its arguments.
PLACES = {GATHER: 1, PUT: 2}
TRUE = const(True, BOOL)
Range = tuple[int, int]  # the least and the largest value


# ---- making nodes -----------------------------------------------------------------------------------------------------
def index(axis: int) -> Expr:
    return node(INDEX, (), axis, INT64)


def size(source: int, axis: int, value: int) -> Expr:
    return node(SIZE, (), (source, axis, value), INT64)


def as_index(x: Any, what: str) -> Expr:
    """Return x as int64. Raises TraceError for a number with a fraction or a float."""
    e = as_expr(x)
    if e.dtype is not None and is_float(e.dtype):
        raise TraceError(f"{what}: an index must be an integer, not {e.dtype} ({caller()}). Convert it with "
                         f"floor(x).astype('int64').")
    if e.op == CONST and isinstance(e.value, float):
        raise TraceError(f"{what}: index {e.value} is not an integer ({caller()}).")
    return cast(e, INT64)


def gather(number: int, shape: Shape, dtype: np.dtype, mask: Expr, indices: Sequence[Expr]) -> Expr:
    """Return the element of input `number`; half precision enters as float32."""
    found = node(GATHER, (cast(mask, BOOL), *indices), (number, shape), dtype)
    return cast(found, float32) if is_half(dtype) else found


def put(shape: Shape, mask: Expr, element: Expr, indices: Sequence[Expr]) -> Expr:
    """Return the root that adds element to an output of this shape. element has a dtype."""
    return node(PUT, (cast(mask, BOOL), element, *indices), (0, shape), element.dtype)


class _Nesting(threading.local):
    """The number of loops that are being traced in this thread."""

    level = 0


_nesting = _Nesting()


def loop(extent: Any, starts: Sequence[Any], step: Callable[..., Any]) -> tuple[Expr, ...]:
    """Return the accumulators after extent steps: step(k, *accumulators) returns their new values."""
    level, n = _nesting.level, as_index(extent, "loop")
    first = [as_expr(s) for s in starts]
    kinds = [_first_guess(f) for f in first]
    for _ in range(4):  # until the dtypes hold what is stored
        accs = [node(ACC, (), (level, j), d) for j, d in enumerate(kinds)]
        _nesting.level += 1
        try:
            made = step(node(LOOP, (), level, INT64), *accs)
        finally:
            _nesting.level -= 1
        new = [as_expr(v) for v in (made if isinstance(made, tuple) else (made,))]
        if len(new) != len(accs):
            raise TraceError(f"fold: the step returned {len(new)} values for {len(accs)} accumulators ({caller()}).")
        wanted = [_joined(d, v) for d, v in zip(kinds, new)]
        if wanted == kinds:
            break
        kinds = wanted
    else:
        raise TraceError(f"fold: the accumulators change their dtype with each step ({caller()}). Give them a first value of "
                         f"the right dtype.")
    args = (n, *(cast(f, d) for f, d in zip(first, kinds)), *(cast(v, d) for v, d in zip(new, kinds)))
    return tuple(node(FOLD, args, (level, len(kinds), j), d) for j, d in enumerate(kinds))


def _first_guess(first: Expr) -> np.dtype:
    if first.dtype is None:
        return float32 if first.op != CONST or isinstance(first.value, float) else INT32
    return INT32 if first.dtype == BOOL else first.dtype


def _joined(d: np.dtype, v: Expr) -> np.dtype:
    """Return the dtype that holds both an accumulator of dtype d and its new value."""
    if v.dtype is None or v.dtype == BOOL or v.dtype == d:
        return d
    if is_float(d) != is_float(v.dtype):
        return d if is_float(d) else v.dtype
    return np.promote_types(d, v.dtype)


def body_dtype(extent: Any, body: Callable[[Expr], Any]) -> np.dtype:
    """Return the dtype of body(k): float32 for a plain number, int32 for a truth value."""
    _nesting.level += 1
    try:
        e = as_expr(body(node(LOOP, (), _nesting.level - 1, INT64)))
    finally:
        _nesting.level -= 1
    return float32 if e.dtype is None else INT32 if e.dtype == BOOL else e.dtype


def first_extreme(extent: Any, body: Callable[[Expr], Any], better: str) -> Expr:
    """Return the first counter whose value no other is better than ("gt": larger, "lt": smaller); NaN is better than all."""
    dtype = body_dtype(extent, body)

    def step(k: Expr, best: Expr, at: Expr) -> tuple[Expr, Expr]:
        v = cast(as_expr(body(k)), dtype)
        wins = prim(better, v, best) | (k == 0)
        if is_float(dtype):
            wins = wins | ((v != v) & (best == best))
        return prim("where", wins, v, best), prim("where", wins, k, at)

    return loop(extent, (const(0, dtype), const(0, INT64)), step)[1]


def first_of(extent: Expr, level: int, value: Expr, better: str) -> Expr:
    """Return the first counter of a loop of this level whose value is not a number, or else has none that is better."""
    dtype = typed(value)
    k, best, at = node(LOOP, (), level, INT64), node(ACC, (), (level, 0), dtype), node(ACC, (), (level, 1), INT64)
    wins = prim(better, value, best) | (k == 0) | ((value != value) & (best == best))
    new = prim("where", wins, value, best), prim("where", wins, k, at)
    return node(FOLD, (extent, const(0, dtype), const(0, INT64), *new), (level, 2, 1), INT64)


def at_step(value: Expr, level: int, k: Expr) -> Expr:
    """Return value with k for the counter of the loop of this level around it."""
    free, new = free_levels([value]), dict[int, Expr]()
    for x in topological([value]):
        if level not in free[id(x)]:
            new[id(x)] = x  # also a loop of the same level that does not know this one
        elif x.op == LOOP:
            new[id(x)] = k
        else:
            new[id(x)] = node(x.op, tuple(new[id(a)] for a in x.args), x.value, x.dtype)
    return new[id(value)]


def free_levels(roots: Sequence[Expr]) -> dict[int, frozenset[int]]:
    """Return, by id of each node, the levels of the loops around it whose counters or accumulators it reads."""
    free: dict[int, frozenset[int]] = {}
    for x in topological(roots):
        if x.op == LOOP:
            free[id(x)] = frozenset((x.value,))
        elif x.op == ACC:
            free[id(x)] = frozenset((x.value[0],))
        else:
            found = frozenset().union(*(free[id(a)] for a in x.args))
            if x.op == FOLD:  # its own level is bound in what it repeats
                level, n, _ = x.value
                outside = frozenset().union(*(free[id(a)] for a in x.args[:1 + n]))
                found = outside | frozenset().union(*(free[id(a)] for a in x.args[1 + n:])) - {level}
            free[id(x)] = found
    return free


def axes_of(order: Sequence[Expr], own: Callable[[Expr], frozenset[int]] = lambda x: frozenset()) -> dict[int, frozenset[int]]:
    """Return, by id of each node, the axes of the output along which its value may differ.

    order: nodes, arguments before their users; own: the axes of a node besides those of its arguments.
    """
    axes: dict[int, frozenset[int]] = {}
    accs: dict[tuple[int, int], frozenset[int]] = {}
    while True:
        before = dict(accs)
        for x in order:
            found = own(x).union(*(axes[id(a)] for a in x.args))
            if x.op == INDEX:
                found = frozenset((x.value,))
            elif x.op == ACC:
                found = accs.get(x.value, frozenset())
            elif x.op == FOLD:
                level, n, j = x.value
                for i in range(n):
                    new = axes[id(x.args[0])] | axes[id(x.args[1 + i])] | axes[id(x.args[1 + n + i])]
                    accs[level, i] = accs.get((level, i), frozenset()) | new
                found = accs[level, j]
            axes[id(x)] = found
        if accs == before:
            return axes


# ---- programs ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class IndexedProgram:
    """Expressions of one index space.

    roots:    one per output; every output has `shape`.
    inputs:   the shape under which each input is read.
    scalars:  names of the run-time scalars, in the order in which their values reach the kernel.
    """

    roots: tuple[Expr, ...]
    shape: Shape
    scalars: tuple[str, ...] = ()


def accumulated_in(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which elements put into an array of this dtype add up."""
    return float32 if is_half(dtype) else dtype if is_float(dtype) or dtype == INT64 else INT32


def check_closed(name: str, roots: Sequence[Expr]) -> None:
    """Raise TraceError if a root reads the counter of a loop outside of it."""
    free = free_levels(roots)
    if any(free[id(r)] for r in roots):
        raise TraceError(f"{name}: the body uses the counter or an accumulator of a loop outside of that loop. Return what is "
                         f"needed from the loop: lang.fold(n, start, step).")


class Ranges:
    """The range of every integer node of a program, as far as it follows from the sizes."""

    def __init__(self, roots: Sequence[Expr], shape: Shape):
        self.shape, self._known = shape, dict[int, Range | None]()
        self._keep: list[Expr] = []  # ids stay valid while their nodes live
        self._extents: dict[int, list[Expr]] = {}
        self._loops: dict[int, Range | None] = {}
        for x in topological(roots):
            if x.op == FOLD:
                self._extents.setdefault(x.value[0], []).append(x.args[0])

    def of(self, x: Expr) -> Range | None:
        if id(x) not in self._known:
            for y in topological([x]):
                if id(y) not in self._known:
                    self._keep.append(y)
                    self._known[id(y)] = self._find(y)
        return self._known[id(x)]

    def _loop(self, level: int) -> Range | None:
        if level not in self._loops:
            self._loops[level] = None  # while it is looked for
            ends = [self.of(e) for e in self._extents.get(level, ())]
            if ends and all(ends):
                self._loops[level] = 0, max(1, *(e[1] for e in ends if e)) - 1
        return self._loops[level]

    def _find(self, x: Expr) -> Range | None:
        if x.dtype is None or is_float(x.dtype):
            return None
        found = self._rule(x)
        if x.dtype == BOOL:
            return found or (0, 1)
        ends = np.iinfo(x.dtype)
        if found is not None and found[0] >= ends.min and found[1] <= ends.max:
            return found
        return None if x.dtype.itemsize == 8 else (int(ends.min), int(ends.max))

    def _rule(self, x: Expr) -> Range | None:
        if x.op == CONST:
            return int(x.value), int(x.value)
        if x.op == INDEX:
            return 0, max(1, self.shape[x.value]) - 1
        if x.op == SIZE:
            return x.value[2], x.value[2]
        if x.op == LOOP:
            return self._loop(x.value)
        if x.op in (PARAM, ACC, FOLD, GATHER) or not x.args:
            return None
        args = [self.of(a) for a in x.args]
        if x.op == CAST:
            return None if is_float(typed(x.args[0])) else args[0]
        if x.op == "where":
            return None if not (args[1] and args[2]) else (min(args[1][0], args[2][0]), max(args[1][1], args[2][1]))
        if x.op in ("minimum", "maximum") and len(args) == 2:
            return self._clip(x, args)
        if any(a is None for a in args):
            return None
        (a, b), *more = args[0] or (0, 0), *args[1:]
        c, d = more[0] if more and more[0] else (0, 0)
        if x.op == "add":
            return a + c, b + d
        if x.op == "sub":
            return a - d, b - c
        if x.op == "neg":
            return -b, -a
        if x.op == "mul":
            ends = [a * c, a * d, b * c, b * d]
            return min(ends), max(ends)
        if x.op == "square":
            return 0 if a <= 0 <= b else min(a * a, b * b), max(a * a, b * b)
        if x.op == "abs":
            return 0 if a <= 0 <= b else min(abs(a), abs(b)), max(abs(a), abs(b))
        if x.op == "mod" and c > 0:
            return (a, b) if a >= 0 and b < c else (0, d - 1)
        if x.op == "quotient" and c > 0 and a >= 0:
            return a // d, b // c
        return _compared(x.op, (a, b), (c, d))

    def _clip(self, x: Expr, args: Sequence[Range | None]) -> Range | None:
        one, two = args
        ends = np.iinfo(typed(x))
        one, two = one or (int(ends.min), int(ends.max)), two or (int(ends.min), int(ends.max))
        choose = min if x.op == "minimum" else max
        return choose(one[0], two[0]), choose(one[1], two[1])


def _compared(op: str, a: Range, b: Range) -> Range | None:
    """Return (1, 1) or (0, 0) for a comparison that holds for all or for no values in the ranges."""
    less, greater = a[1] < b[0], a[0] > b[1]
    at_most, at_least = a[1] <= b[0], a[0] >= b[1]
    equal = a[0] == a[1] == b[0] == b[1]
    always = {"lt": less, "le": at_most, "gt": greater, "ge": at_least, "eq": equal, "ne": less or greater}
    never = {"lt": at_least, "le": greater, "gt": at_most, "ge": less, "eq": less or greater, "ne": equal}
    if op not in always:
        return None
    return (1, 1) if always[op] else (0, 0) if never[op] else None


def simplify(p: IndexedProgram, *, fixed_sizes: bool) -> IndexedProgram:
    """Return an equal program with fewer axes and shorter index arithmetic.

    Axes that are only read in step with each other become one; divisions of numbers that are never negative become
    "plain" (value of the node): what `//` and `%` give in every language. A "mod" by a number above zero is "positive".
    fixed_sizes: put the sizes in as numbers, and drop what they decide, such as a limit that is never reached.
    """
    p = _merge_axes(_drop_ones(p))
    ranges = Ranges(p.roots, p.shape)
    new: dict[int, Expr] = {}
    for x in topological(p.roots):
        new[id(x)] = _simpler(x, tuple(new[id(a)] for a in x.args), ranges, fixed_sizes)
    return IndexedProgram(tuple(new[id(r)] for r in p.roots), p.shape, p.scalars)


def _simpler(x: Expr, args: tuple[Expr, ...], ranges: Ranges, fixed: bool) -> Expr:
    if x.op == SIZE:
        return const(x.value[2], INT64) if fixed else x
    if x.op == GATHER and 0 in x.value[1]:
        return const(0, typed(x))
    same = all(a is b for a, b in zip(args, x.args))
    made = x if same else node(x.op, args, x.value, x.dtype)
    if x.dtype == INT64 or x.dtype == BOOL:
        known = ranges.of(made)
        decided = fixed or all(a.op == CONST for a in args)
        if known is not None and known[0] == known[1] and decided and x.op not in (CONST, LOOP, INDEX, PARAM, ACC):
            return const(known[0], typed(x))
    if x.op == CAST and args[0].op == CONST:
        return cast(args[0], typed(x))
    if x.op in ("and", "or"):
        for a, b in (args, args[::-1]):
            if a.op == CONST:
                return b if a.value == (x.op == "and") else a
    if x.op == "where" and args[0].op == CONST:
        return args[1] if args[0].value else args[2]
    if x.dtype != INT64:
        return made
    if x.op in ("add", "sub") and _is(args[1], 0):
        return args[0]
    if x.op == "add" and _is(args[0], 0):
        return args[1]
    if x.op == "mul" and any(_is(a, 0) for a in args):
        return const(0, INT64)
    if x.op in ("minimum", "maximum") and fixed:
        a, b = map(ranges.of, args)
        keep_first = a and b and (a[1] <= b[0] if x.op == "minimum" else a[0] >= b[1])
        keep_second = a and b and (b[1] <= a[0] if x.op == "minimum" else b[0] >= a[1])
        return args[0] if keep_first else args[1] if keep_second else made
    if x.op in ("quotient", "mod"):
        a, b = args
        if x.op == "quotient" and a.op == "sub" and a.args[1].op == "mod" and a.args[1].args == (a.args[0], b):
            low = ranges.of(a.args[0])
            if low is not None and low[0] >= 0:
                a = a.args[0]  # floor division, where it is the quotient
        low, unit = ranges.of(a), ranges.of(b)
        if unit is not None and unit[0] > 0 and low is not None and low[0] >= 0:
            if x.op == "quotient" and _is(b, 1):
                return a
            if low[1] < unit[0] and fixed:
                return a if x.op == "mod" else const(0, INT64)
            return node(x.op, (a, b), "plain", INT64)
        if x.op == "mod" and unit is not None and unit[0] > 0:
            return node(x.op, (a, b), "positive", INT64)
    return made


def _is(x: Expr, value: int) -> bool:
    return x.op == CONST and x.value == value


def _drop_ones(p: IndexedProgram) -> IndexedProgram:
    """Return p without axes of size 1, of the output and of inputs."""
    kept = [a for a, d in enumerate(p.shape) if d != 1]
    number = {a: i for i, a in enumerate(kept)}

    def change(x: Expr, args: tuple[Expr, ...]) -> Expr:
        if x.op == INDEX:
            return index(number[x.value]) if x.value in number else const(0, INT64)
        if x.op in PLACES and 1 in x.value[1]:
            (source, shape), first = x.value, PLACES[x.op]
            stay = [i for i, d in enumerate(shape) if d != 1]
            places = (args[first + i] for i in stay)
            return node(x.op, (*args[:first], *places), (source, tuple(shape[i] for i in stay)), x.dtype)
        return node(x.op, args, x.value, x.dtype)

    return IndexedProgram(_changed(p.roots, change), tuple(p.shape[a] for a in kept), p.scalars)


def split_axes(p: IndexedProgram) -> IndexedProgram:
    """Return a simplified program with two axes for each one whose index is asked for nothing but its quotient and its remainder
    by one number, which divides the axis: indices that were not linear become so."""
    users: dict[int, list[Expr | None]] = {}
    for x in topological(p.roots):
        for a in x.args:
            if a.op == INDEX:
                users.setdefault(a.value, []).append(x)
    for r in p.roots:
        if r.op == INDEX:
            users.setdefault(r.value, []).append(None)
    for axis, nodes in users.items():
        m = next((int(x.args[1].value) for x in nodes if x is not None and x.value == "plain" and x.args[1].op == CONST), 0)
        if 1 < m < p.shape[axis] and p.shape[axis] % m == 0 and all(
                x is not None and x.value == "plain" and x.args[0].op == INDEX and _is(x.args[1], m) for x in nodes):
            break
    else:
        return p

    def change(x: Expr, args: tuple[Expr, ...]) -> Expr:
        if x.op == INDEX:
            return index(x.value + (x.value > axis))
        if x.value == "plain" and x.args[0].op == INDEX and x.args[0].value == axis:
            return index(axis + (x.op == "mod"))
        return node(x.op, args, x.value, x.dtype)

    shape = (*p.shape[:axis], p.shape[axis] // m, m, *p.shape[axis + 1:])
    return split_axes(simplify(IndexedProgram(_changed(p.roots, change), shape, p.scalars), fixed_sizes=True))


def unroll_last(p: IndexedProgram) -> IndexedProgram:
    """Return a simplified program without the last axis: for each root those of its elements along that axis, in order.

    What these have in common is computed once.
    """
    last, n = len(p.shape) - 1, p.shape[-1]
    roots = [_changed(p.roots, lambda x, args, k=k: const(k, INT64) if x.op == INDEX and x.value == last
                      else node(x.op, args, x.value, x.dtype)) for k in range(n)]
    return simplify(IndexedProgram(tuple(root for each in zip(*roots) for root in each), p.shape[:-1], p.scalars),
                    fixed_sizes=False)


def _in_step(p: IndexedProgram, x: Expr, j: int, axis: int) -> bool:
    """Return whether x reads or writes its axis j at the index along an output's axis of the same size."""
    if x.op not in PLACES or not (0 <= j < len(x.value[1]) and 0 <= axis < len(p.shape)):
        return False
    shape, place = x.value[1], x.args[PLACES[x.op] + j]
    return place.op == INDEX and place.value == axis and shape[j] == p.shape[axis]


def _merge_axes(p: IndexedProgram) -> IndexedProgram:
    """Return p with neighbouring axes merged that every gather reads as neighbouring axes of the same sizes."""
    rank = len(p.shape)
    joins = [True] * max(0, rank - 1)  # axis a with a + 1

    def apart(a: int, *, left: bool = True, right: bool = True) -> None:
        if left and a > 0:
            joins[a - 1] = False
        if right and a < rank - 1:
            joins[a] = False

    for r in p.roots:
        if r.op == INDEX:
            apart(r.value)
    for x in topological(p.roots):
        for i, a in enumerate(x.args):
            if a.op != INDEX:
                continue
            j = i - PLACES.get(x.op, len(x.args))
            here = _in_step(p, x, j, a.value)
            apart(a.value, left=not (here and _in_step(p, x, j - 1, a.value - 1)),
                  right=not (here and _in_step(p, x, j + 1, a.value + 1)))
    if not any(joins):
        return p
    first: list[int] = []  # of each axis: the new axis; and the first old axis of each new one
    number: dict[int, int] = {}
    for a in range(rank):
        if a == 0 or not joins[a - 1]:
            first.append(a)
        number[a] = len(first) - 1
    merged = tuple(prod(p.shape[a:b]) for a, b in zip(first, [*first[1:], rank]))
    inner = set(range(rank)) - set(first)

    def change(x: Expr, args: tuple[Expr, ...]) -> Expr:
        if x.op == INDEX:
            return index(number[x.value]) if x.value not in inner else x
        if x.op not in PLACES:
            return node(x.op, args, x.value, x.dtype)
        (source, shape), sizes, places, first = x.value, [], [], PLACES[x.op]
        for d, old, new in zip(shape, x.args[first:], args[first:]):
            if old.op == INDEX and old.value in inner:
                sizes[-1] *= d
            else:
                sizes.append(d)
                places.append(new)
        return node(x.op, (*args[:first], *places), (source, tuple(sizes)), x.dtype)

    return IndexedProgram(_changed(p.roots, change), merged, p.scalars)


def _changed(roots: Sequence[Expr], change: Callable[[Expr, tuple[Expr, ...]], Expr]) -> tuple[Expr, ...]:
    new: dict[int, Expr] = {}
    for x in topological(roots):
        new[id(x)] = change(x, tuple(new[id(a)] for a in x.args))
    return tuple(new[id(r)] for r in roots)
