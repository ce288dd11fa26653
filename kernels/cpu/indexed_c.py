"""Prints an index formula as a C function: nested loops over the output's axes, one element after the other.

What does not depend on the last axis is computed once for each row, and what depends on no axis once. Sizes are arguments, so
that one library serves all shapes. A masked element is read only where its mask holds. The arithmetic and its order are those of
the NumPy program.

Elements that are put into an output are put there in the order of the index space, by one function for a part of the axis along
which no two of them meet, or for all of them.

A loop of the formula that is as long for all elements of a row goes over a block of them at each step, so that a compiler
computes many elements at once; one whose length comes from data is a loop of each element.

Along a last axis of a few elements there is no loop: they are computed together, and what they have in common once.

Half precision, and functions without a C spelling, have no C function.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...dtype import is_float
from ..ir.expr import BOOL, CAST, CONST, PARAM, Expr, resolve_weak_dtype, topological, typed
from ..ir.indexed import ACC, FOLD, GATHER, INDEX, LOOP, SIZE, TRUE, IndexedProgram, Ranges, axes_of, simplify, unroll_last
from ..ir.primitives import PRIMITIVES
from ..ir.schedule import Item, Loop, Schedule
from ..op import Req, Reqs, Spec, Specs
from .c_math import TYPES
from .c_printer import NoSpelling, constant, converted, spelled

LOOP_CALLS = 4  # of NumPy functions that a loop takes for each accumulator, and as many to begin
UNKNOWN = 8  # steps that a loop is expected to take if its extent comes from data
FEW = 4096  # steps of a use in which a function need not be fast: it is then compiled quickly, under another name
TOGETHER, MOST_NODES = 4, 200  # elements of a last axis that are computed together, if so few nodes compute one of them
BLOCK = 128  # elements of a row that a loop goes over at each step: a few arrays of them lie in a first-level cache


@dataclass(frozen=True, slots=True)
class IndexedFunction:
    """One kernel as C, and its arguments in one use.

    name:     of the C function: void name(void *const *arrays, int64_t begin, int64_t end) computes the elements from begin
              to end, or puts those of a part of one axis. arrays are the inputs and outputs that it uses, then the sizes, then
              the run-time scalars as doubles.
    text:     its definition. uses: the functions of `c_math.py` that it calls.
    inputs, targets:  numbers of the inputs and outputs that it uses.
    sizes:    the sizes in this use, in the function's order. scalars: how many run-time scalars it takes.
    size:     the number of elements. span: the largest end; whole: whether it must be called for all of it at once.
    calls:    of NumPy functions that the NumPy program makes for a tile, about.
    steps:    primitives that are computed for an element, on average. work: of these, those of data, plain reads apart.
    from_data:  whether the length of a loop comes from data, so that these numbers are guesses.
    rows:     of the last axis, each of which is a loop.
    quick:    whether it takes so few steps that it is compiled quickly, with less optimization.
    """

    name: str
    text: str
    uses: frozenset[str]
    inputs: tuple[int, ...]
    targets: tuple[int, ...]
    sizes: tuple[int, ...]
    scalars: int
    size: int
    span: int
    whole: bool
    calls: float
    steps: float
    work: float
    from_data: bool
    rows: int
    quick: bool


def indexed_function(p: IndexedProgram, ins: Specs, outs: Specs, reqs: Reqs) -> IndexedFunction | str:
    """Return the kernel as a C function, or the reason why it cannot be one."""
    targets = [t for t in range(len(p.roots)) if reqs[t] != Req.NULL]
    if not targets or not math.prod(p.shape):
        return "nothing is computed"
    roots = [p.roots[t] if p.roots[t].dtype is not None else resolve_weak_dtype(p.roots[t], outs[t].dtype) for t in targets]
    small, together = simplify(IndexedProgram(tuple(roots), p.shape, p.scalars), fixed_sizes=False), 1
    order = topological(small.roots)
    if len(small.shape) > 1 and small.shape[-1] <= TOGETHER and len(order) <= MOST_NODES and all(x.op != FOLD for x in order):
        together, small = small.shape[-1], unroll_last(small)
    try:
        return _Printer(small, ins, [outs[t] for t in targets], [reqs[t] for t in targets], together).function(targets)
    except NoSpelling as reason:
        return str(reason)


def scatter_function(p: IndexedProgram, ins: Specs, out: Spec, combine: str) -> IndexedFunction | str:
    """Return the C function that puts the elements of a program into its output, or the reason why there is none.

    combine: "add" or "maximum", in which what the output holds takes part; or "put", which replaces it.
    """
    try:
        return _ScatterPrinter(simplify(p, fixed_sizes=False), ins, out, combine).function([0])
    except NoSpelling as reason:
        return str(reason)


class _Printer:
    """Turns a program into the text of one function."""

    def __init__(self, p: IndexedProgram, ins: Specs, outs: Specs, reqs: Reqs, unrolled: int = 1):
        """unrolled: the roots of each output, for as many elements that follow each other."""
        self.p, self.ins, self.outs, self.reqs, self.unrolled = p, ins, outs, reqs, unrolled
        self.dims, self.last = p.shape or (1,), max(0, len(p.shape) - 1)
        self.results = self._results()
        self.order = topological(self.results)
        self.axes, self.schedule, self.ranges = _axes_by_loop(self.order), Schedule(self.results), Ranges(p.roots, p.shape)
        self.used = sorted({x.value[0] for x in self.order if x.op == GATHER})
        for s in (*(ins[i] for i in self.used), *outs):
            _c(s.dtype)
        self.uses: set[str] = set()
        self.sizes: dict[object, tuple[str, int]] = {}  # what it is the size of -> its name and value
        self.number = {id(x): i for i, x in enumerate(self.order)}
        self.names: dict[int, str] = {}
        self.of_data = {id(x) for x in self.order if x.op in (GATHER, ACC)}
        for x in self.order:
            if any(id(a) in self.of_data for a in x.args):
                self.of_data.add(id(x))
        self.far: set[int] = set()  # nodes that are read outside of the run of statements that computes them
        self.place: dict[int, int] = {}  # the run that computes a node of each element
        self.run = self.runs = 0
        self.calls = self.steps = self.work = 0.0
        self.from_data = False

    def function(self, targets: Sequence[int]) -> IndexedFunction:
        dims = [self._size(("d", a), d) for a, d in enumerate(self.dims)]
        for _ in range(2):  # the second time knows what is read far away
            self.place.clear()
            self.run = self.runs = 0
            self.calls = self.steps = self.work = 0.0
            once: list[str] = []
            row: list[str] = []
            cell: list[str] = []
            for x in self.order:
                self._leaf(x, once)
            for item in self.schedule.items:
                axes = self._axes(item)
                if self.last not in axes:
                    self._item(item, row if axes else once, 1 / (self.dims[self.last] if axes else math.prod(self.dims)), 1.0)
            self._block([i for i in self.schedule.items if self.last in self._axes(i)], cell, 1.0, outermost=True)
        body = [*self._arguments(), *once, *self._walk(dims, row, cell)]
        text = "\n".join(["(void *const *arrays, int64_t begin, int64_t end)", "{", *(f"    {t}" for t in body), "}", ""])
        quick = not self.from_data and self.steps * math.prod(self.dims) <= FEW
        name = f"indexed_{'quick_' if quick else ''}{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        return IndexedFunction(name, f"void {name}{text}", frozenset(self.uses), tuple(self.used), tuple(targets),
                               tuple(value for _, value in self.sizes.values()), len(self.p.scalars), math.prod(self.dims),
                               *self._span(), self.calls / self.unrolled, self.steps, self.work, self.from_data,
                               math.prod(self.dims[:self.last]), quick)

    # ---- what a printer of puts does otherwise ----
    def _results(self) -> Sequence[Expr]:
        """Return the nodes that are stored."""
        return self.p.roots

    def _span(self) -> tuple[int, bool]:
        return math.prod(self.dims), False

    def _ends(self) -> list[str]:
        """The statements that store an element."""
        lines = []
        for i, root in enumerate(self.p.roots):
            t, k = divmod(i, self.unrolled)
            place = f"to{t}[i{self.last}{f' * {self.unrolled} + {k}' if self.unrolled > 1 else ''}]"
            lines.append(f"{place} = {self._end(t, root, place)};")
        return lines

    # ---- the frame ----
    def _arguments(self) -> list[str]:
        n = len(self.used)
        lines = [f"const {_c(self.ins[i].dtype)} *restrict const x{i} = arrays[{k}];" for k, i in enumerate(self.used)]
        lines += [f"{_c(s.dtype)} *restrict const o{t} = arrays[{n + t}];" for t, s in enumerate(self.outs)]
        lines.append(f"const int64_t *const sizes = arrays[{n + len(self.outs)}];")
        lines += [f"const int64_t {name} = sizes[{k}];" for k, (name, _) in enumerate(self.sizes.values())]
        if self.p.scalars:
            lines.append(f"const double *const numbers = arrays[{n + len(self.outs) + 1}];")
        return lines

    def _walk(self, dims: Sequence[str], row: list[str], cell: list[str]) -> list[str]:
        """The loops over the elements from begin to end: rows, and the elements of each."""
        last, lines, each = self.last, ["int64_t rest = begin;"], f" * {self.unrolled}" if self.unrolled > 1 else ""
        for a in range(last, 0, -1):
            lines += [f"int64_t {'first' if a == last else f'i{a}'} = rest % {dims[a]};", f"rest /= {dims[a]};"]
        lines.append(f"int64_t {'i0' if last else 'first'} = rest;")
        inner = [f"const int64_t stop = end - at < {dims[last]} - first ? first + (end - at) : {dims[last]};", *row,
                 *(f"{_c(s.dtype)} *restrict const to{t} = o{t} + (at - first){each};" for t, s in enumerate(self.outs)),
                 *cell, "at += stop - first;", "first = 0;"]
        carry = ""
        for a in range(last):
            carry = f"if (++i{a} == {dims[a]}) {{ i{a} = 0; {carry} }}" if a else "i0++;"
        inner += [carry] if carry else []
        return [*lines, "for (int64_t at = begin; at < end;) {", *(f"    {t}" for t in inner), "}"]

    def _size(self, of: object, value: int) -> str:
        name, _ = self.sizes.setdefault(of, (f"n{len(self.sizes)}", value))
        return name

    # ---- nodes ----
    def _leaf(self, x: Expr, once: list[str]) -> None:
        if x.op == CONST:
            value = x.value if is_float(typed(x)) else int(x.value)
            self.names[id(x)] = constant(value, typed(x))
        elif x.op == INDEX:
            self.names[id(x)] = f"i{x.value}"
        elif x.op == LOOP:
            self.names[id(x)] = f"k{x.value}"
        elif x.op == SIZE:
            source, axis, value = x.value
            self.names[id(x)] = self._size((source, axis), value)
        elif x.op == PARAM:
            self.names[id(x)] = f"s{self.number[id(x)]}"
            number = f"numbers[{self.p.scalars.index(x.value)}]"
            once.append(f"const {_c(typed(x))} {self.names[id(x)]} = {converted(number, np.dtype('float64'), typed(x))};")

    def _axes(self, item: Item) -> frozenset[int]:
        if not isinstance(item, Loop):
            return self.axes[id(item)]
        ends = (x for pair in item.accumulators.values() for x in pair)
        return self.axes[id(item.extent)].union(*(self.axes[id(x)] for x in ends))

    # ---- blocks of a row ----
    def _is_even(self, item: Item) -> bool:
        """Return whether item is a loop of each element that is as long for all elements of a row."""
        return isinstance(item, Loop) and self.last not in self.axes[id(item.extent)]

    def _block(self, items: Sequence[Item], lines: list[str], steps: float, *, outermost: bool = False, step: Loop | None = None
               ) -> None:
        """Write items, of which some differ along the row: runs of statements for every element, with even loops between them.

        outermost: results are stored at the end; step: the loop whose items these are, whose accumulators get their new values.
        """
        run, arrays, last, outer = list[str](), list[str](), self.last, lines
        whole = outermost and not any(map(self._is_even, items))  # one run for the row, without blocks
        self.runs += 1
        self.run = self.runs

        def flush() -> None:
            if run:
                count = f"int64_t i{last} = first; i{last} < stop; i{last}++" if whole else "int64_t j = 0; j < m; j++"
                head = [] if whole else [f"const int64_t i{last} = from + j;"]
                lines.extend([*arrays, f"for ({count}) {{", *(f"    {t}" for t in (*head, *run)), "}"])
            for x in self.order:
                if id(x) in self.far and self.place.get(id(x)) == self.run:
                    self.names[id(x)] = f"u{self.number[id(x)]}[j]"
            run.clear()
            arrays.clear()
            self.runs += 1
            self.run = self.runs

        if outermost and not whole:
            lines = list[str]()
        for item in items:
            if last not in self._axes(item):
                self._item(item, lines, 1 / self.dims[last], steps)
                continue
            if not self._is_even(item):
                self._item(item, run, 1.0, steps)
                for x in item.results if isinstance(item, Loop) else [item]:
                    self.place[id(x)] = self.run
                    if id(x) in self.far:
                        arrays.append(f"{_c(typed(x))} u{self.number[id(x)]}[{BLOCK}];")
                        run.append(f"u{self.number[id(x)]}[j] = {self.names[id(x)]};")
                continue
            assert isinstance(item, Loop)
            self._even_loop(item, run, arrays, flush, lines, steps)
        late: list[str] = []
        if step is not None:
            for j, (_, new) in step.accumulators.items():
                run.append(f"const {_c(typed(new))} b{step.number}_{j} = {self._read(new)};")
                late.append(f"a{step.number}_{j}[j] = b{step.number}_{j};")
        run += [*late, *(self._ends() if outermost else ())]
        flush()
        if outermost and not whole:
            outer += [f"for (int64_t from = first; from < stop; from += {BLOCK}) {{",
                      f"    const int64_t m = stop - from < {BLOCK} ? stop - from : {BLOCK};", *(f"    {t}" for t in lines), "}"]

    def _even_loop(self, loop: Loop, run: list[str], arrays: list[str], flush: Callable[[], None], lines: list[str],
                   steps: float) -> None:
        for j, (first, new) in loop.accumulators.items():
            arrays.append(f"{_c(typed(new))} a{loop.number}_{j}[{BLOCK}];")
            run.append(f"a{loop.number}_{j}[j] = {self._read(first)};")
        flush()
        self._name_accumulators(loop, "[j]")
        inner: list[str] = []
        outside = self.run
        self._block(loop.items, inner, steps * self._trips(loop, steps), step=loop)
        self.run = max(self.runs, outside) + 1
        self.runs = self.run
        k = f"k{loop.level}"
        lines += [f"for (int64_t {k} = 0; {k} < {self._read(loop.extent)}; {k}++) {{", *(f"    {t}" for t in inner), "}"]
        for x in loop.results:
            self.names[id(x)] = f"a{loop.number}_{x.value[2]}[j]"
            self.place.pop(id(x), None)

    def _read(self, x: Expr) -> str:
        """Return the text of a node that has been computed."""
        if self.place.get(id(x), self.run) != self.run:
            self.far.add(id(x))
        return self.names[id(x)]

    def _trips(self, loop: Loop, steps: float) -> float:
        """Return how many steps the loop takes, about, and count the calls that it takes NumPy besides those of its items.

        steps: of the loops around it.
        """
        known = self.ranges.of(loop.extent)
        self.from_data |= id(loop.extent) in self.of_data
        trips = max(1, known[1]) if known is not None and id(loop.extent) not in self.of_data else UNKNOWN
        checks = 1 + len(loop.accumulators) if self.axes[id(loop.extent)] else 0  # which elements take part, at each step
        self.calls += steps * (LOOP_CALLS * (1 + len(loop.accumulators)) + trips * checks)
        return trips

    # ---- statements ----
    def _item(self, item: Item, lines: list[str], share: float, steps: float) -> None:
        """Write one node or loop. share: how often the place is reached for each element; steps: of the loops around it."""
        if isinstance(item, Loop):
            self._loop(item, lines, share, steps)
            return
        args = [self._read(a) for a in item.args]
        if item.op == GATHER:
            text = self._gather(item, args)
        elif item.op == CAST:
            text = converted(args[0], typed(item.args[0]), typed(item))
        elif item.value == "plain":
            text = f"{args[0]} {'/' if item.op == 'quotient' else '%'} {args[1]}"
        else:
            text = spelled(item.op, args, typed(item), self.uses)
        self.names[id(item)] = f"t{self.number[id(item)]}"
        lines.append(f"const {_c(typed(item))} {self.names[id(item)]} = {text};")
        self.steps += share * steps
        plain = item.op == GATHER and item.args[0] is TRUE
        whole = all(a in self.axes[id(item)] for a, d in enumerate(self.dims) if d > 1)  # NumPy computes it for every element too
        self.work += share * steps * ((id(item) in self.of_data or whole) and not plain)
        self.calls += steps * _numpy_calls(item)

    def _gather(self, x: Expr, args: list[str]) -> str:
        text = f"x{x.value[0]}[{self._offset(x, args[1:])}]"
        return text if x.args[0] is TRUE else f"{args[0]} ? {text} : 0"

    def _offset(self, x: Expr, places: Sequence[str]) -> str:
        source, shape = x.value
        offset = ""
        for j, at in enumerate(places):
            offset = f"({offset}) * {self._size((x.op, source, shape, j), shape[j])} + {at}" if offset else at
        return offset or "0"

    def _name_accumulators(self, loop: Loop, element: str = "") -> None:
        for x in self.order:
            if x.op == ACC and x.value[0] == loop.level and x.value[1] in loop.accumulators:
                self.names[id(x)] = f"a{loop.number}_{x.value[1]}{element}"

    def _loop(self, loop: Loop, lines: list[str], share: float, steps: float) -> None:
        for j, (first, new) in loop.accumulators.items():
            lines.append(f"{_c(typed(new))} a{loop.number}_{j} = {self._read(first)};")
        self._name_accumulators(loop)
        inner: list[str] = []
        within = steps * self._trips(loop, steps)
        for item in loop.items:
            self._item(item, inner, share, within)
            for x in item.results if isinstance(item, Loop) else [item]:
                self.place.pop(id(x), None)
        for j, (_, new) in loop.accumulators.items():
            inner.append(f"const {_c(typed(new))} b{j} = {self._read(new)};")
        inner += [f"a{loop.number}_{j} = b{j};" for j in loop.accumulators]
        k = f"k{loop.level}"
        lines += [f"for (int64_t {k} = 0; {k} < {self._read(loop.extent)}; {k}++) {{", *(f"    {t}" for t in inner), "}"]
        for x in loop.results:
            self.names[id(x)] = f"a{loop.number}_{x.value[2]}"

    def _end(self, t: int, root: Expr, place: str) -> str:
        """Return the text of what is stored in output t at a place."""
        have, want, value = typed(root), self.outs[t].dtype, self._read(root)
        if self.reqs[t] != Req.ADD:
            return converted(value, have, want)
        if BOOL in (have, want):
            raise NoSpelling(f"{have} is added to {want}")
        wide = np.promote_types(have, want)
        return converted(f"({_c(wide)}){place} + ({_c(wide)}){value}", wide, want)


class _ScatterPrinter(_Printer):
    """Turns a program whose root puts elements into the text of one function over a part of one axis."""

    def __init__(self, p: IndexedProgram, ins: Specs, out: Spec, combine: str):
        super().__init__(p, ins, [out], [Req.ADD])
        self.combine = combine
        places = self.results[2:]
        apart = [x.value for x in places if x.op == INDEX]  # no two elements meet that differ along one of these axes
        self.axis, self.together = (min(apart), False) if apart else (0, True)

    def _results(self) -> Sequence[Expr]:
        return self.p.roots[0].args

    def _span(self) -> tuple[int, bool]:
        return self.dims[self.axis], self.together

    def _ends(self) -> list[str]:
        mask, element, *places = self.results
        offset = self._offset(self.p.roots[0], [self._read(a) for a in places])
        value = converted(self._read(element), typed(element), self.outs[0].dtype)
        if self.combine == "maximum":
            value = spelled("maximum", [f"o0[{offset}]", value], self.outs[0].dtype, self.uses)
        text = f"o0[{offset}] {'+=' if self.combine == 'add' else '='} {value};"
        return [text if mask is TRUE else f"if ({self._read(mask)}) {text}"]

    def _walk(self, dims: Sequence[str], row: list[str], cell: list[str]) -> list[str]:
        ends = [("begin", "end") if a == self.axis else ("0", d) for a, d in enumerate(dims)]
        lines = [f"const int64_t first = {ends[-1][0]}, stop = {ends[-1][1]};", *row, *cell]
        for a in reversed(range(self.last)):
            low, high = ends[a]
            lines = [f"for (int64_t i{a} = {low}; i{a} < {high}; i{a}++) {{", *(f"    {t}" for t in lines), "}"]
        return lines


def _numpy_calls(x: Expr) -> int:
    """Return how many calls of NumPy functions compute a node, about."""
    if x.op == GATHER:
        return 1 if x.args[0] is TRUE else 4
    return 1 if x.op in (CAST, "where") or x.value == "plain" or isinstance(PRIMITIVES[x.op].numpy, np.ufunc) else 4


def _axes_by_loop(order: Sequence[Expr]) -> dict[int, frozenset[int]]:
    """Return, by id of each node, the axes along which it may differ; all accumulators of a loop differ along the same."""
    axes, levels = axes_of(order), dict[int, frozenset[int]]()
    while True:
        before = dict(levels)
        for x in order:
            found = axes[id(x)].union(*(axes[id(a)] for a in x.args))
            if x.op == FOLD:
                levels[x.value[0]] = levels.get(x.value[0], frozenset()) | found
            axes[id(x)] = found | levels.get(x.value[0], frozenset()) if x.op in (FOLD, ACC) else found
        if levels == before:
            return axes


def _c(dtype: np.dtype) -> str:
    if dtype.name not in TYPES:
        raise NoSpelling(f"{dtype} is not computed in C")
    return TYPES[dtype.name]
