"""Prints reductions, and formulas with sums and maxima of rows inside, as C.

A kernel goes over lines: along the last axis, for each index of the axes before it. The axes that a folded output has come first,
so that what is folded into one element comes one after the other. Where rows go along the axis before the last, a line is a block
of columns, and its rows are read one after the other. A sum inside the formula takes a pass over the line; what is dear and is
needed again is kept beside it.

Sums of float32 are kept in a few numbers, the lanes, for about DEEP additions each, and then added up in float64. Sizes are
arguments of the function, so a machine compiles one text for all shapes of a kind. Sizes alone cut the work into pieces. Where
there are fewer folded elements than pieces, each piece writes its part of them, and a second function adds the parts in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from ...dtype import float32, float64, is_float, is_half
from ...integers import cdiv
from ..ir.coalesce import BroadcastLayout, merge, merge_rows
from ..ir.expr import (
    BOOL,
    CAST,
    CONST,
    LOAD,
    PARAM,
    REDUCE,
    ROW_INDEX,
    Expr,
    identity,
    reduce,
    resolve_weak_dtype,
    topological,
    typed,
)
from ..ir.rows import by_reciprocals, varying, whole_rows
from ..op import Expression, Req, Reqs, Specs
from .c_blocks import BLOCK, FEW_LANES, LANES, SHORT_LINE, Sink, Values, accumulated, node_cost, wide
from .c_math import STORED, TYPES
from .c_printer import NoSpelling, constant, converted, exchanged, spelled
from .c_row_function import Join, RowFunction, RowText, decomposed, row_text

DEEP = 64  # additions of one lane before it is added to a float64
CHUNK = 4096  # elements of a line where it may be cut
LONGEST = 1 << 14  # elements of a line that may not be cut, and of what is kept of it
ASIDE = 1 << 15  # elements that are kept of a block of columns
DEAR = 4  # cost from which a value is kept for the next pass
WORK = 5_000  # nanoseconds of a piece
ADDITION = 0.03  # nanoseconds of one element's addition, or half of its copy
MOST = 64  # pieces of a kernel, about
FEW = 8  # parts of a fold along whose elements a line goes
_COMBINES = {"sum": "add", "max": "maximum"}


def row_function(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, finishes: Sequence[Expr | None] = ()) -> RowFunction | str:
    """Return the kernel as a C function, or the reason why it cannot be one.

    finishes: for each output, an expression of load 0 that makes the result from the fold; None without one.
    """
    if e.draws:
        return "it draws random numbers"
    if not isinstance(e.combine, str):
        return "it folds by a function of its own"
    states = dict(e.states)
    wanted = dict(enumerate(reqs)) | dict.fromkeys(states, Req.WRITE)
    targets = tuple(t for t in range(len(e.outputs)) if wanted[t] != Req.NULL)
    stored = [ins[states[t]] if t in states else outs[t] for t in targets]
    for s in (*ins, *stored):
        if s.dtype.name not in STORED:
            return f"{s.dtype} is not computed in C"
    shapes = [s.shape for s in (*ins, *stored)]
    layout = merge_rows(shapes, e.axis) if e.kind == "row" else merge(shapes)
    if not targets or not layout.size:
        return "nothing is computed"
    ends = [finishes[t] if t < len(finishes) else None for t in targets]
    roots = []
    for t, s, end in zip(targets, stored, ends):
        leaf = None if end is None else next((x for x in topological([end]) if x.op == LOAD), None)
        root = e.outputs[t]
        roots.append(resolve_weak_dtype(root, s.dtype if leaf is None else typed(leaf)) if root.dtype is None else root)
    adds = [wanted[t] == Req.ADD for t in targets]
    try:
        return _Printer(e, roots, ins, stored, adds, ends, layout).function(targets, states)
    except NoSpelling as reason:
        return str(reason)


class _Printer:
    """Turns typed roots into the text of a function.

    Operands are x0 (input 0) and o1 (stored output 1); l0 and y1 are their lines, v0 and z1 a block of them. Values are t7 (node
    7 in a loop), b7 (a block of it), r7 (one for each row), q7 (a block of what is kept of the line). e7 and a1 hold a sum that
    is under way, of node 7 or output 1, and d_e7 what was added to it before.

    down:  whether rows go along the axis before the last, so that blocks go across them.
    cut:   whether lines are cut into chunks; folds_last: whether these are folded.
    """

    def __init__(self, e: Expression, roots: Sequence[Expr], ins: Specs, stored: Specs, adds: Sequence[bool],
                 ends: Sequence[Expr | None], layout: BroadcastLayout):
        assert isinstance(e.combine, str)
        self.combine = e.combine
        self.e, self.n_in, self.adds, self.ends, self.layout = e, len(ins), adds, ends, layout
        self.dims, self.present, self.last = layout.dims, layout.present, len(layout.dims) - 1
        self.dtypes = [s.dtype for s in (*ins, *stored)]
        self.down = e.kind == "row" and e.axis == -2
        self.row = self.last - self.down
        along = [p[self.row] for p in self.present]
        self.roots = whole_rows(roots, along, self.dims[self.row]) if e.kind == "row" else list(roots)
        self.folded = self._folded(along)
        self.roots = by_reciprocals(self.roots, along)
        self.order = topological(self.roots)
        self.differs = varying(self.roots, along)
        self.reads = sorted({x.value for x in self.order if x.op == LOAD})
        reduces = any(x.op == REDUCE for x in self.order)
        outer = range(self.row)
        self.drops = sorted({a for k in self.folded for a in self._lacks(k) if a in outer})
        self.keeps = [a for a in outer if a not in self.drops]
        if any({a for a in self._lacks(k) if a in outer} != set(self.drops) for k in self.folded):
            raise NoSpelling("outputs are summed over different axes")
        ends_last = {self.present[self.n_in + k][self.last] for k in self.folded}
        self.cut = self.down or (not reduces and len(ends_last) < 2)
        self.folds_last = ends_last == {False}
        if not self.cut and self.dims[self.last] > LONGEST:
            raise NoSpelling(f"its rows are longer than {LONGEST}")
        self.lanes = FEW_LANES if self.dims[self.last] <= SHORT_LINE else LANES
        self.values = Values(self.lanes)
        self.helpers: dict[str, str] = {}
        self.level: dict[int, int] = {}  # of a node: the pass in which it can be computed first
        for x in self.order:
            self.level[id(x)] = max((self.level[id(a)] for a in x.args), default=0) + (x.op == REDUCE)
        self.passes = 1 + max(self.level[id(r)] for r in self.roots)
        self.chunk = self._chunk()
        self.kept = self._kept()

    # ---- analysis ----
    def _lacks(self, k: int) -> tuple[int, ...]:
        """Return the axes that stored output k does not have."""
        return self.layout.folded(self.n_in + k)

    def _folded(self, along: Sequence[bool]) -> list[int]:
        """Return the outputs that are folded. Those folded over their own row alone become sums inside the formula."""
        lacking = [k for k in range(len(self.roots)) if self._lacks(k)]
        if self.layout.size == 1 or not lacking:
            return []
        if self.e.kind == "row":
            differs = varying(self.roots, along)
            for k in [k for k in lacking if self._lacks(k) == (self.row,)]:
                lacking.remove(k)
                if differs[id(self.roots[k])]:
                    if self.combine not in ("add", "maximum") or typed(self.roots[k]) == BOOL or is_half(typed(self.roots[k])):
                        raise NoSpelling(f"rows of {typed(self.roots[k])} are folded by {self.combine}")
                    self.roots[k] = reduce("sum" if self.combine == "add" else "max", self.roots[k])
            if self.down and lacking:
                raise NoSpelling("an output is summed over other axes than the rows")
        if any(typed(self.roots[k]) == BOOL or is_half(typed(self.roots[k])) for k in lacking):
            raise NoSpelling("truth is folded, or half precision in itself")
        return lacking

    def _chunk(self) -> int:
        """Return how many elements of a line are computed at once."""
        n = cdiv(self.dims[self.last], LANES) * LANES
        if not self.cut:
            return self.dims[self.last]
        if self.down:
            return min(n, BLOCK, max(LANES, ASIDE // max(1, self.dims[self.row]) // LANES * LANES))
        return min(n, CHUNK)

    def _varies(self, x: Expr) -> bool:
        """Return whether x differs along the row, so that a pass over the row computes it."""
        return self.differs[id(x)]

    def _kept(self) -> dict[int, int]:
        """Return the nodes that are kept for later passes, by id: the pass that computes them."""
        room = LONGEST if not self.down else ASIDE
        if self.passes < 2 or (self.dims[self.row] if not self.down else self.dims[self.row] * self.chunk) > room:
            return {}
        price: dict[int, int] = {}
        for x in self.order:
            price[id(x)] = 0 if not x.args or not self._varies(x) else min(
                1000, (node_cost(x) if x.op != CAST else 1) + sum(price[id(a)] for a in x.args))
        first: dict[int, int] = {}
        kept: dict[int, int] = {}
        for p in range(self.passes):
            seen: set[int] = set()
            stack = self._wanted(p)
            while stack:
                x = stack.pop()
                if id(x) in seen or not x.args or not self._varies(x):
                    continue
                seen.add(id(x))
                if id(x) in first and price[id(x)] >= DEAR:
                    kept[id(x)] = first[id(x)]
                    continue
                stack += x.args
            for i in seen:
                first.setdefault(i, p)
        return kept

    def _wanted(self, p: int) -> list[Expr]:
        """Return what pass p must compute."""
        found = [x.args[0] for x in self.order if x.op == REDUCE and self.level[id(x.args[0])] == p]
        return found + [r for k, r in enumerate(self.roots) if p == self.passes - 1 and self._spans(k)]

    def _spans(self, k: int) -> bool:
        """Return whether stored output k takes a value of each element: it has the row, or is folded."""
        return k in self.folded or self.present[self.n_in + k][self.row]

    # ---- the frame ----
    def function(self, targets: tuple[int, ...], states: dict[int, int]) -> RowFunction:
        v = self.values
        prologue = self._once()
        body = self._pieces()
        consts, numbers = v.arguments(len(self.e.scalars))
        lines = [f"const {self._c(i)} *const x{i} = arrays[{i}];" for i in self.reads]
        lines += [f"{self._c(self.n_in + k)} *const o{k} = arrays[{self.n_in + k}];" for k in range(len(self.roots))]
        n = len(self.dtypes)
        lines += [f"{self._wide(k)} *const p{k} = arrays[{n + i}];" for i, k in enumerate(self.folded)]
        n += len(self.folded)
        names = [*(f"d{a}" for a in range(len(self.dims))), "chunk", "ksize", "fsize"]
        lines += [f"const int64_t *const sizes = arrays[{n}];", f"const double *const numbers = arrays[{n + 1}];",
                  *(f"const int64_t {name} = sizes[{i}];" for i, name in enumerate(names)), *prologue, *consts,
                  *(f"{kind} {name}[{BLOCK}];" for name, kind in v.scratch.items()), *body]
        return self._use(row_text("rows", lines, v.uses, self.helpers.values()), targets, states, numbers)

    def _once(self) -> list[str]:
        """Name what depends on run-time scalars alone: computed once, in double precision, as Python does."""
        lines: list[str] = []
        changes: set[int] = set()
        texts: dict[int, str] = {}
        for x in self.order:
            if x.op in (LOAD, ROW_INDEX) or any(id(a) in changes for a in x.args):
                changes.add(id(x))
            elif x.op != CONST:
                if not is_float(typed(x)) or x.op in (REDUCE, CAST):
                    raise NoSpelling(f"{x.op} of run-time scalars is not a float")
                if x.op == PARAM:
                    text = f"numbers[{self.e.scalars.index(x.value)}]"
                else:
                    args = [constant(a.value, float64) if a.op == CONST else texts[id(a)] for a in x.args]
                    text = spelled(x.op, args, float64, self.values.uses)
                texts[id(x)] = f"s{len(texts)}"
                lines.append(f"const double {texts[id(x)]} = {text};")
                self.values.names[id(x)] = converted(texts[id(x)], float64, typed(x))
        return lines

    def _c(self, operand: int) -> str:
        return STORED[self.dtypes[operand].name]

    def _wide(self, k: int) -> str:
        return TYPES[wide(self.combine, typed(self.roots[k])).name]

    def _pieces(self) -> list[str]:
        """The loops over pieces, over the indices that are kept, and over those that are folded."""
        ends_kept, ends_folded = self.cut and not self.folds_last, self.cut and self.folds_last
        kept = [*(f"d{a}" for a in self.keeps), *(["chunks"] if ends_kept else [])]
        folded = [*(f"d{a}" for a in self.drops), *(["chunks"] if ends_folded else [])]
        line = [*decomposed("f", self.drops, ends_folded), *(self._range() if not ends_kept else []), *self._line()]
        inner = [*decomposed("k", self.keeps, ends_kept), *(self._range() if ends_kept else []),
                 *(t for k in self.folded for t in self._begin(k)),
                 "for (int64_t f = f0; f < f1; f++) {", *line, "}",
                 *(t for k in self.folded for t in self._finish(k))]
        head = [f"const int64_t chunks = (d{self.last} + chunk - 1) / chunk;",
                f"const int64_t kept = {' * '.join(kept) or '1'}, folded = {' * '.join(folded) or '1'};",
                "const int64_t parts = (folded + fsize - 1) / fsize;",
                f"const int64_t room = (chunk + {LANES - 1}) & ~{LANES - 1};"]
        head += self._arrays_of_lines()
        return [*head, "for (int64_t piece = begin; piece < end; piece++) {",
                "const int64_t part = piece % parts, k0 = piece / parts * ksize, k1 = kept - k0 < ksize ? kept : k0 + ksize;",
                "const int64_t f0 = part * fsize, f1 = folded - f0 < fsize ? folded : f0 + fsize;",
                "for (int64_t k = k0; k < k1; k++) {", *inner, "}", "}"]

    def _arrays_of_lines(self) -> list[str]:
        """Arrays of the length of a line: of folds, and of what is kept."""
        lines = []
        for k in self.folded:
            if self.present[self.n_in + k][self.last]:
                lines.append(f"{TYPES[typed(self.roots[k]).name]} a{k}[room];")
                lines += [f"double d_a{k}[room];"] if _is_deep(self.combine, typed(self.roots[k])) else []
        for x in self.order:
            if id(x) in self.kept:
                size = f"d{self.row} * room" if self.down else "room"
                lines.append(f"{STORED[typed(x).name]} kept{self.values.index(x)}[{size}];")
        return lines

    def _range(self) -> list[str]:
        """Name the range of the line: its begin and its length."""
        if not self.cut:
            return ["const int64_t from = 0;", f"const int64_t len = d{self.last};"]
        return ["const int64_t from = at_chunk * chunk;",
                f"const int64_t len = d{self.last} - from < chunk ? d{self.last} - from : chunk;"]

    def _offset(self, operand: int, axes: Iterable[int]) -> str:
        """Return the text of where the operand's elements at the current index on these axes begin."""
        here, terms = self.present[operand], []
        for a in axes:
            if here[a]:
                terms.append(" * ".join([f"i{a}", *(f"d{b}" for b in range(a + 1, len(self.dims)) if here[b])]))
        return " + ".join(terms) or "0"

    # ---- sums that are under way ----
    def _start(self, a: str, combine: str, dtype: np.dtype, count: str) -> list[str]:
        """Declare what holds a fold, and fill it. count: of its numbers; "" for a line's, which are declared already."""
        if is_half(dtype):
            raise NoSpelling(f"{combine} of half precision")
        first = _identity(combine, dtype)
        lines = [f"{TYPES[dtype.name]} {a}[{count}];"] if count else []
        lines.append(f"for (int64_t j = 0; j < {count or 'room'}; j++) {a}[j] = {first};")
        if _is_deep(combine, dtype):
            if count == str(self.lanes):
                lines.append(f"double d_{a} = -0.0;")
            else:
                lines += [f"double d_{a}[{count}];"] if count else []
                lines.append(f"for (int64_t j = 0; j < {count or 'room'}; j++) d_{a}[j] = -0.0;")
            lines.append(f"int64_t c_{a} = 0;")
        return lines

    def _deepened(self, a: str, combine: str, dtype: np.dtype, added: str, count: str) -> list[str]:
        """Add what is under way to the float64 beside it, now and then. added: additions since the last call."""
        if not _is_deep(combine, dtype):
            return []
        inner = [f"d_{a} += {self._total(a, combine, dtype)};"] if count == str(self.lanes) else [
            f"for (int64_t j = 0; j < {count}; j++) d_{a}[j] += {a}[j];"]
        return [f"if ((c_{a} += {added}) >= {DEEP}) {{", *inner, f"for (int64_t j = 0; j < {count}; j++) {a}[j] = -0.0f;",
                f"c_{a} = 0;", "}"]

    def _total(self, a: str, combine: str, dtype: np.dtype) -> str:
        """Return a call that combines the lanes, in a tree."""
        kind, name = TYPES[dtype.name], f"{combine}_of_{self.lanes}_{dtype.name}"
        levels, n = [], self.lanes
        while n > 1:  # an array for each level: so a compiler keeps them in registers
            n //= 2
            both = accumulated(combine, f"x{2 * n}[j]", f"x{2 * n}[j + {n}]", dtype, self.values.uses)
            levels.append(f"    {kind} x{n}[{n}]; for (int j = 0; j < {n}; j++) x{n}[j] = {both};")
        self.helpers[name] = "\n".join([
            f"#ifndef {name}_known", f"#define {name}_known",
            f"static __attribute__((noinline)) {kind} {name}(const {kind} *x{self.lanes})", "{", *levels,
            "    return x1[0];", "}", "#endif"])
        return f"{name}({a})"

    # ---- folded outputs ----
    def _begin(self, k: int) -> list[str]:
        along = self.present[self.n_in + k][self.last]
        return self._start(f"a{k}", self.combine, typed(self.roots[k]), "" if along else str(self.lanes))

    def _finish(self, k: int) -> list[str]:
        """Store folded output k, or the part of it."""
        dtype, combine, operand = typed(self.roots[k]), self.combine, self.n_in + k
        deep, at = _is_deep(combine, dtype), self._offset(operand, self.keeps)
        size = self._size(operand)
        if self.present[operand][self.last]:
            begin, length = ("from", "len") if self.cut and not self.folds_last else ("0", f"d{self.last}")
            value = f"d_a{k}[j] + a{k}[j]" if deep else f"a{k}[j]"
            part = f"p{k}[part * ({size}) + {at} + {begin} + j]"
            return [f"if (parts > 1) for (int64_t j = 0; j < {length}; j++) {part} = {value};",
                    f"else for (int64_t j = 0; j < {length}; j++) {{",
                    *self._stored(self.values, k, value, f"o{k}[{at} + {begin} + j]"), "}"]
        value = f"{f'd_a{k} + ' if deep else ''}{self._total(f'a{k}', combine, dtype)}"
        return ["{", f"const {self._wide(k)} whole = {value};", f"if (parts > 1) p{k}[part * ({size}) + {at}] = whole;", "else {",
                *self._stored(self.values, k, "whole", f"o{k}[{at}]"), "}", "}"]

    def _stored(self, values: Values, k: int, value: str, place: str) -> list[str]:
        """Statements that finish a fold and store it."""
        dtype, want, end = typed(self.roots[k]), self.dtypes[self.n_in + k], self.ends[k]
        lines = [f"const {TYPES[dtype.name]} fold = ({TYPES[dtype.name]})({value});"]
        if end is None:
            return [*lines, f"{place} = {self._ended(k, 'fold', dtype, place, values.uses)};"]
        end = resolve_weak_dtype(end, want) if end.dtype is None else end
        before = dict(values.names)
        for x in topological([end]):
            if x.op == LOAD:
                values.names[id(x)] = f"({converted('fold', dtype, typed(x))})"
        lines += [values.scalar(x) for x in values.missing([end])]
        text = values.leaf(end)
        assert text is not None, end
        values.names = before
        return [*lines, f"{place} = {self._ended(k, text, typed(end), place, values.uses)};"]

    def _ended(self, k: int, value: str, have: np.dtype, place: str, uses: set[str]) -> str:
        """Return the text of what is stored at place."""
        want = self.dtypes[self.n_in + k]
        if not self.adds[k]:
            return exchanged(value, have, want, uses)
        if BOOL in (have, want) or is_half(have):
            raise NoSpelling(f"{have} is added to {want}")
        held = float32 if is_half(want) else want
        both = np.promote_types(have, held)
        old = exchanged(place, want, held, uses)
        return exchanged(f"({TYPES[both.name]}){old} + ({TYPES[both.name]}){value}", both, want, uses)

    # ---- a line ----
    def _line(self) -> list[str]:
        """The passes over a line."""
        lines = [f"const {self._c(i)} *const l{i} = x{i} + {self._begins(i)};" for i in self.reads]
        lines += [f"{self._c(self.n_in + k)} *const y{k} = o{k} + {self._begins(self.n_in + k)};"
                  for k in range(len(self.roots)) if k not in self.folded]
        for x in self.order:
            if x.op == LOAD and (self.present[x.value][self.last] if self.down else self._varies(x)):
                self.values.names[id(x)] = f"v{x.value}[j]"
            elif x.op == LOAD:
                at = f"i{self.row}" if self.down and self.present[x.value][self.row] else "0"
                self.values.names[id(x)] = f"l{x.value}[{at}]"
            elif x.op == ROW_INDEX:
                self.values.names[id(x)] = f"((int32_t)i{self.row})" if self.down else "((int32_t)(from + i + j))"
        if self.down:
            lines.append(f"const int64_t n = len, m = (n + {self.lanes - 1}) & ~{self.lanes - 1};")
            lines += [t for i in self.reads if self.present[i][self.last] and not self.present[i][self.row]
                      for t in self._fetch(i, f"l{i}")]
        for p in range(self.passes):
            lines += self._by_row(p)
            lines += self._pass(p)
        alone = [k for k in range(len(self.roots)) if not self._spans(k)]
        if not self.down:
            for k in alone:
                text = self.values.leaf(self.roots[k])
                assert text is not None, self.roots[k]
                lines.append(f"y{k}[0] = {self._ended(k, text, typed(self.roots[k]), f'y{k}[0]', self.values.uses)};")
            return lines
        return [*lines, *self._block([], alone, lambda k: f"y{k}")]

    def _begins(self, operand: int) -> str:
        """Return the text of where the operand's line begins."""
        return self._offset(operand, [*self.keeps, *self.drops]) + (" + from" if self.present[operand][self.last] else "")

    def _fetch(self, i: int, at: str) -> list[str]:
        """Name the block v of input i: where it lies, with what follows it, or a copy where nothing follows."""
        self.values.scratch[f"u{i}"] = self._c(i)
        return [f"const {self._c(i)} *v{i} = {at};",
                f"if (n % {LANES} && v{i} + (n / {LANES} + 1) * {LANES} > x{i} + ({self._size(i)})) {{",
                f"COPY(u{i}, v{i}, n); CLEAR(u{i}, n, (n / {LANES} + 1) * {LANES});", f"v{i} = u{i};", "}"]

    def _size(self, operand: int) -> str:
        """Return the text of how many elements the operand has."""
        return " * ".join(f"d{a}" for a in range(len(self.dims)) if self.present[operand][a]) or "1"

    def _by_row(self, p: int) -> list[str]:
        """Compute what is the same along a row and can be computed before pass p."""
        values = self.values
        nodes = [x for x in self.order if not self._varies(x) and x.args and x.op != REDUCE and self.level[id(x)] == p
                 and values.leaf(x) is None]
        if not self.down:
            return [values.scalar(x) for x in nodes]
        if not nodes:
            return []
        sinks, names = [], {}
        for x in nodes:
            name = f"r{values.index(x)}"
            values.scratch[name] = STORED[typed(x).name]
            names[id(x)] = f"{name}[j]"
            sinks.append(Sink(x, lambda text, name=name: [f"{name}[j] = {text};"]))
        lines = values.block(sinks, {})
        values.names |= names
        return lines

    def _pass(self, p: int) -> list[str]:
        """A pass over the line, and the sums that it gives."""
        reduces = [x for x in self.order if x.op == REDUCE and self.level[id(x.args[0])] == p]
        ending = p == self.passes - 1
        stores = [k for k in range(len(self.roots)) if ending and k not in self.folded and self._spans(k)]
        folds = self.folded if ending else []
        if not (reduces or stores or folds):
            return []
        sums = [(f"e{self.values.index(x)}", _COMBINES[x.value], x.args[0]) for x in reduces]
        lines = [t for a, combine, x in sums for t in self._start(a, combine, typed(x), str(BLOCK if self.down else self.lanes))]
        sinks = [self._fold_sink(a, combine, x, "j" if self.down else "l") for a, combine, x in sums]
        for k in folds:
            along = self.present[self.n_in + k][self.last]
            sinks.append(self._fold_sink(f"a{k}", self.combine, self.roots[k], "i + j" if along else "l"))
        if self.down:
            i = f"i{self.row}"
            inner = [t for x in self.reads if self.present[x][self.last] and self.present[x][self.row]
                     for t in self._fetch(x, f"l{x} + {i} * d{self.last}")]
            inner += self._block(sinks, stores, lambda k: f"y{k} + {i} * d{self.last}", f"{i} * room", p)
            for a, combine, x in sums:
                inner += self._deepened(a, combine, typed(x), "1", "m")
            lines += [f"for (int64_t {i} = 0; {i} < d{self.row}; {i}++) {{", *inner, "}"]
            for (a, combine, x), node in zip(sums, reduces):
                name, kind = f"r{self.values.index(node)}", TYPES[typed(x).name]
                self.values.scratch[name] = kind
                value = f"({kind})(d_{a}[j] + {a}[j])" if _is_deep(combine, typed(x)) else f"{a}[j]"
                lines.append(f"for (int64_t j = 0; j < m; j++) {name}[j] = {value};")
                self.values.names[id(node)] = f"{name}[j]"
            return lines
        inner = [f"const int64_t n = len - i < {BLOCK} ? len - i : {BLOCK}, m = (n + {self.lanes - 1}) & ~{self.lanes - 1};"]
        inner += [t for x in self._loads(p) for t in self._fetch(x, f"l{x} + i")]
        inner += self._block(sinks, stores, lambda k: f"y{k} + i", "i", p)
        for a, combine, x in sums:
            inner += self._deepened(a, combine, typed(x), f"m / {self.lanes}", str(self.lanes))
        after = []
        for k in folds:
            if self.present[self.n_in + k][self.last]:
                after += self._deepened(f"a{k}", self.combine, typed(self.roots[k]), "1", "room")
            else:
                inner += self._deepened(f"a{k}", self.combine, typed(self.roots[k]), f"m / {self.lanes}", str(self.lanes))
        lines += [f"for (int64_t i = 0; i < len; i += {BLOCK}) {{", *inner, "}", *after]
        for (a, combine, x), node in zip(sums, reduces):
            name, kind = f"r{self.values.index(node)}", TYPES[typed(x).name]
            deep = f"d_{a} + " if _is_deep(combine, typed(x)) else ""
            lines.append(f"const {kind} {name} = ({kind})({deep}{self._total(a, combine, typed(x))});")
            self.values.names[id(node)] = name
        return lines

    def _loads(self, p: int) -> list[int]:
        """Return the inputs of which pass p reads blocks."""
        found, seen, stack = set(), set(), self._wanted(p)
        while stack:
            x = stack.pop()
            if id(x) in seen or not self._varies(x) or self.kept.get(id(x), p) < p:
                continue
            seen.add(id(x))
            if x.op == LOAD:
                found.add(x.value)
            stack += x.args
        return sorted(found)

    def _fold_sink(self, a: str, combine: str, x: Expr, at: str) -> Sink:
        def lines(text: str) -> list[str]:
            return [f"{a}[{at}] = {accumulated(combine, f'{a}[{at}]', text, typed(x), self.values.uses)};"]

        def masked(text: str) -> list[str]:
            return lines(f"(j < n ? {text} : {_identity(combine, typed(x))})")

        return Sink(x, lines, masked if at == "l" else None)

    def _block(self, sinks: list[Sink], stores: Sequence[int], place: object, kept_at: str = "", p: int = 0) -> list[str]:
        """The statements of a block: what is kept, what is computed, what is stored. place: of a stored output, by its number."""
        values, before, after, homes = self.values, [], [], {}
        for x in self.order:
            if id(x) in self.kept and self.kept[id(x)] <= p and kept_at:
                name = f"q{values.index(x)}"
                before.append(f"{STORED[typed(x).name]} *const {name} = kept{values.index(x)} + {kept_at};")
                if self.kept[id(x)] == p:
                    homes[id(x)] = name
                else:
                    values.names[id(x)] = f"{name}[j]"
        sinks = list(sinks)
        for k in stores:
            at = place(k)  # type: ignore[operator]
            values.scratch[f"w{k}"] = self._c(self.n_in + k)
            before.append(f"{self._c(self.n_in + k)} *const z{k} = n == m ? {at} : w{k};")
            if self.adds[k]:
                before.append(f"if (n != m) {{ COPY(w{k}, {at}, n); CLEAR(w{k}, n, m); }}")
            after.append(f"if (n != m) COPY({at}, w{k}, n);")
            sinks.append(Sink(self.roots[k], lambda text, k=k: [
                f"z{k}[j] = {self._ended(k, text, typed(self.roots[k]), f'z{k}[j]', values.uses)};"], last=True))
        return ["{", *before, *values.block(sinks, homes), *after, "}"] if sinks else []

    # ---- one use ----
    def _use(self, function: RowText, targets: tuple[int, ...], states: dict[int, int], numbers: tuple[float, ...]
             ) -> RowFunction:
        size = math.prod(self.dims)
        nodes = [x for x in self.order if x.args]
        chunks = cdiv(self.dims[self.last], self.chunk) if self.cut else 1
        kept = math.prod(self.dims[a] for a in self.keeps) * (1 if self.folds_last else chunks)
        folded = math.prod(self.dims[a] for a in self.drops) * (chunks if self.folds_last else 1)
        cost = sum(node_cost(x) for x in nodes if self._varies(x)) if self.e.kind == "row" else sum(map(node_cost, nodes))
        work = ADDITION * (cost + 2 * self.passes * len(self.reads) + 2 * len(self.roots)) * size
        pieces = min(MOST, max(1, int(work / WORK)))
        ksize, fsize = max(1, kept // pieces), folded
        if kept < pieces and folded > 1:
            parts = cdiv(pieces, kept)
            along = any(self.present[self.n_in + k][self.last] for k in self.folded)
            fsize = cdiv(folded, min(parts, FEW if along else MOST, folded))
        parts = cdiv(folded, fsize)
        sizes = tuple(math.prod(self.layout.shape(self.n_in + k)) for k in self.folded)
        joins = tuple(self._join(i, k, sizes[i]) for i, k in enumerate(self.folded)) if parts > 1 else ()
        return RowFunction(function, targets, states, (*self.dims, self.chunk, ksize, fsize), numbers, len(self.e.scalars),
                           cdiv(kept, ksize) * parts, parts, sizes, joins, len(nodes), size, work)

    def _join(self, i: int, k: int, size: int) -> Join:
        values = Values()
        kind = self._wide(k)
        wider = wide(self.combine, typed(self.roots[k]))
        both = accumulated(self.combine, "sum", "parts[q * size + j]", wider, values.uses)
        inner = [f"{kind} sum = parts[j];", f"for (int64_t q = 1; q < count; q++) sum = {both};",
                 *self._stored(values, k, "sum", "out[j]")]
        consts, numbers = values.arguments(0)
        lines = [f"const {kind} *const parts = arrays[0];", f"{self._c(self.n_in + k)} *const out = arrays[1];",
                 "const int64_t *const sizes = arrays[2];", "const double *const numbers = arrays[3];",
                 "const int64_t count = sizes[0], size = sizes[1];", *consts,
                 "for (int64_t j = begin; j < end; j++) {", *inner, "}"]
        return Join(row_text("join", lines, values.uses, ()), i, k, size, numbers)


def _is_deep(combine: str, dtype: np.dtype) -> bool:
    """Return whether what is under way is added to a float64 now and then."""
    return combine == "add" and dtype == float32


def _identity(combine: str, dtype: np.dtype) -> str:
    """Return the text of the identity of a fold. That of a sum is -0, which changes no zero either."""
    if combine == "add" and is_float(dtype):
        return constant(-0.0, dtype)
    return constant(identity(combine, dtype), dtype)
