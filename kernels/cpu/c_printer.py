"""Prints an expression graph as a C function: what the NumPy program computes, in one pass over blocks of elements.

Each run of nodes is one short loop over a block, and an exponential or the like is a call for the whole block. Loops have a
fixed length, so that a compiler computes many elements at once: a last, shorter block is copied to the stack and back. Dense
arrays are read and written where they lie; what is broadcast is spread over a block of the stack (`c_broadcast.py`). An output
may lie exactly where an input lies: it is written when all inputs of the block have been read.

Sizes are arguments of the function: one library serves all shapes, and another one those that exceed the caches. Sums and
maxima, and functions without a C spelling, have no C function.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ...dtype import float32, float64, is_float, is_half
from ..ir.coalesce import BroadcastLayout, merge
from ..ir.expr import BOOL, CAST, CONST, LOAD, PARAM, Expr, resolve_weak_dtype, topological, typed
from ..ir.primitives import PRIMITIVES
from ..op import Expression, Req, Reqs, Specs
from .c_broadcast import loop_of_runs, numbers_of_runs, spread_prologue, spread_text
from .c_math import BLOCKWISE, FUNCTIONS, PREAMBLE, STORED, definitions

#: Bytes of all arrays from which on outputs are written past the caches, by non-temporal stores: a third-level cache, often of
#: 32 MB, would keep none of them.
#: The sum of two arrays of 4 million numbers takes 0.8 ms instead of 1.2 (two threads, Zen 4). In a ring of arrays of 8 million,
#: each computed from the one before, one takes 1.7 ms instead of 2.3; with 4 million a ring gains nothing, with 2 million it
#: takes half again as long. (Zeros are no measure: memory takes them twice as fast.)
PAST_CACHES = 3 << 24
STACK = 24 * 1024  # bytes of one block of all arrays: what fits a first-level cache
SIZES = {kind: np.dtype(name).itemsize for name, kind in STORED.items()}  # bytes of each C type
RUN = 40  # cost of one loop, in additions: short enough that a processor works on several rounds at once


@dataclass(frozen=True, slots=True)
class CFunction:
    """One kernel as C.

    name:     of the C function: void name(void *const *arrays, int64_t begin, int64_t end) computes the elements from begin
              to end; arrays are the inputs, then the outputs that are wanted, then the run-time scalars as doubles, if any,
              then the sizes of the layout, if any input is broadcast.
    text:     its definition, without `uses`.
    uses:     the functions of `c_math.py` it calls.
    layout:   of the arrays. targets: numbers of the outputs that are wanted; states: {output without an array: its input}.
    scalars:  how many run-time scalars it takes.
    nodes, cost: how many primitives it computes, in calls of NumPy, and their cost per element in additions.
    broadcasts: whether an input is broadcast. halves: the number of arrays in half precision.
    """

    name: str
    text: str
    uses: frozenset[str]
    layout: BroadcastLayout
    targets: tuple[int, ...]
    states: dict[int, int]
    scalars: int
    nodes: int
    cost: int
    broadcasts: bool = False
    halves: int = 0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the sizes that the function is given; () if it needs none."""
        return self.layout.dims if self.broadcasts else ()

    @property
    def exact(self) -> bool:
        """Return whether the results are NumPy's to the bit: it calls no exponential or the like."""
        return not any(name.partition("_")[0] in BLOCKWISE for name in self.uses)


#: What computes these of two values that both change from element to element, with the same bits.
CHANGING = {"maximum": "larger", "minimum": "smaller"}


class NoSpelling(Exception):
    """The reason why an expression cannot be written in C."""


class CText(Protocol):
    """A part of a C file: a definition, without the functions of `c_math.py` that it uses."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def uses(self) -> frozenset[str]: ...


def program(functions: Sequence[CText]) -> str:
    """Return the text of a C file that defines the functions."""
    uses = set[str]().union(*(f.uses for f in functions))
    return "\n".join([PREAMBLE, definitions(uses), *(f.text for f in functions)])


def c_function(e: Expression, ins: Specs, outs: Specs, reqs: Reqs) -> CFunction | str:
    """Return the kernel as a C function, or the reason why it cannot be one."""
    if e.kind == "row":
        return "it sums rows"
    if e.draws:
        return "it draws random numbers"
    states = dict(e.states)
    wanted = dict(enumerate(reqs)) | dict.fromkeys(states, Req.WRITE)
    targets = tuple(t for t in range(len(e.outputs)) if wanted[t] != Req.NULL)
    stored = [ins[states[t]] if t in states else outs[t] for t in targets]
    specs = [*ins, *stored]
    for s in specs:
        if s.dtype.name not in STORED:
            return f"{s.dtype} is not computed in C"
    layout = merge([s.shape for s in specs])
    if any(layout.shape(len(ins) + k) != layout.dims for k in range(len(targets))) or not targets or not layout.size:
        return "an output is summed, or nothing is computed"
    roots = [resolve_weak_dtype(e.outputs[t], s.dtype) if e.outputs[t].dtype is None else e.outputs[t]
             for t, s in zip(targets, stored)]
    adds = [wanted[t] == Req.ADD for t in targets]
    large = sum(s.nbytes for s in specs) >= PAST_CACHES
    past = [large and wanted[t] == Req.WRITE and t not in states for t in targets]
    try:
        return _FunctionPrinter(roots, specs, len(ins), layout, adds, e.scalars, past).function(targets, states)
    except NoSpelling as reason:
        return str(reason)


@dataclass
class _Loop:
    """One loop over a block, or one call for it.

    lines:   its statements; for a call a single one, without its end. stores: those that write outputs, after all others, which
             may read where these write.
    before:  statements before a call.
    """

    lines: list[str] = field(default_factory=list)
    stores: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    is_call: bool = False


class _FunctionPrinter:
    """Turns typed roots into the text of one function.

    Values are called v0 (input 0), k3 (a node that another loop reads) and w1 (what output 1 gets), blocks on the stack, and
    t7 (node 7, inside one loop). At the end blocks whose lives do not meet share an array. What depends on run-time scalars
    alone, s2, is computed once, in double precision, as Python does.
    """

    def __init__(self, roots: Sequence[Expr], specs: Specs, n_in: int, layout: BroadcastLayout, adds: Sequence[bool],
                 scalars: Sequence[str], past: Sequence[bool]):
        """past: which outputs are written past the caches."""
        self.roots, self.adds, self.layout, self.n_in, self.scalars, self.past = roots, adds, layout, n_in, scalars, past
        self.stored = [s.dtype for s in specs[n_in:]]
        order = topological(roots)
        self.read = {i: specs[i].dtype for i in sorted({x.value for x in order if x.op == LOAD})}
        self.uses: set[str] = set()
        self.once: dict[int, str] = {}  # id(node) -> the name of what is computed once
        self.prologue: list[str] = []
        self.nodes: list[Expr] = []
        varies: set[int] = set()
        for x in order:
            if x.op == LOAD or any(id(a) in varies for a in x.args):
                varies.add(id(x))
            elif x.op != CONST:
                self.once[id(x)] = f"s{len(self.once)}"
                self.prologue.append(f"const double {self.once[id(x)]} = {self._once(x)};")
            if x.op not in (LOAD, CONST) and id(x) not in self.once:
                self.nodes.append(x)
        self.number = {id(x): i for i, x in enumerate(self.nodes)}
        self.loop_of: dict[int, int] = {}  # id(node) -> the loop that computes it, or the call
        cost = at = 0
        for x in self.nodes:
            if _is_call(x):
                at += 1
                self.loop_of[id(x)] = at
                cost, at = 0, at + 1  # what is stored of it, if anything, is a loop of its own
                continue
            if cost and cost + _cost(x) > RUN:
                cost, at = 0, at + 1
            self.loop_of[id(x)] = at
            cost += _cost(x)
        self.loops = [_Loop() for _ in range(at + 1)]
        self.lives: dict[str, tuple[str, int, int]] = {}  # block -> its C type, the first and the last loop that uses it
        for i, dtype in self.read.items():
            self._use(f"v{i}", dtype, -1)
        # a node that another loop reads is kept: where it is stored, or in a block of its own
        plain = {id(r): k for k, (r, d, add) in enumerate(zip(roots, self.stored, adds)) if r.dtype == d and not add}
        self.homes: dict[int, str] = {}
        far = (a for user in self.nodes for a in user.args if self.loop_of.get(id(a), -1) not in (-1, self.loop_of[id(user)]))
        for x in (*far, *filter(_is_call, self.nodes)):
            self.homes.setdefault(id(x), f"w{plain[id(x)]}" if id(x) in plain else f"k{self.number[id(x)]}")
        self._fill()

    def _use(self, block: str, dtype: np.dtype, loop: int) -> str:
        """block, which loop uses."""
        kind, first, last = self.lives.get(block, (_c(dtype), loop, loop))
        self.lives[block] = kind, min(first, loop), max(last, loop)
        return block

    def _value(self, a: Expr, loop: int) -> str:
        """Return the C text by which a loop reads an argument or a root."""
        if a.op == CONST:
            if is_half(typed(a)):
                raise NoSpelling(f"a number is {typed(a)}")
            return constant(a.value, typed(a))
        if id(a) in self.once:
            return self._converted(self.once[id(a)], float64, typed(a))
        if self.loop_of.get(id(a)) == loop and not _is_call(a):
            return f"t{self.number[id(a)]}"
        block = f"v{a.value}" if a.op == LOAD else self.homes[id(a)]
        return self._use(block, self.read[a.value] if a.op == LOAD else typed(a), loop) + "[j]"

    def _once(self, x: Expr) -> str:
        """Return the C text of a value that depends on run-time scalars alone."""
        if not is_float(typed(x)):
            raise NoSpelling(f"{x.op} of run-time scalars is not a float")
        if x.op == PARAM:
            return f"numbers[{self.scalars.index(x.value)}]"
        args = [constant(a.value, float64) if a.op == CONST else self.once[id(a)] for a in x.args]
        return self._spelled(x, args, float64)

    def _fill(self) -> None:
        """Write the statements of every loop."""
        for x in self.nodes:
            at = self.loop_of[id(x)]
            loop, home = self.loops[at], self.homes.get(id(x), "")
            args = [self._value(a, at) for a in x.args]
            if _is_call(x):
                name = self._spelled(x, args, typed(x)).partition("(")[0]
                loop.is_call = True
                given = ", ".join(self._block(loop, at, x, k, text) for k, text in enumerate(args))
                loop.lines.append(f"all_{name}({given}, {self._use(home, typed(x), at)}")
            else:
                loop.lines.append(f"const {_local(typed(x))} t{self.number[id(x)]} = {self._spelled(x, args, typed(x))};")
                if home.startswith("k"):
                    loop.lines.append(f"{self._use(home, typed(x), at)}[j] = t{self.number[id(x)]};")
        for k, root in enumerate(self.roots):
            at = self.loop_of.get(id(root), len(self.loops) - 1)
            if _is_call(root):
                if self.homes[id(root)] == f"w{k}":
                    continue
                at += 1
            block = self._use(f"w{k}", self.stored[k], at)
            self.loops[at].lines.append(f"const {_c(self.stored[k])} r{k} = {self._end(k, self._value(root, at))};")
            self.loops[at].stores.append(f"{block}[j] = r{k};")

    def _block(self, loop: _Loop, at: int, x: Expr, k: int, text: str) -> str:
        """Return the block of argument k of a call; a number fills one."""
        if text.endswith("[j]"):
            return text.removesuffix("[j]")
        dtype = typed(x.args[k])
        block = self._use(f"k{len(self.nodes) * (k + 1) + self.number[id(x)]}", dtype, at)
        loop.before.append(f"for (int j = 0; j < BLOCK; j++) {block}[j] = {text};")
        return block

    def function(self, targets: tuple[int, ...], states: dict[int, int]) -> CFunction:
        dense = [i for i in self.read if all(self.layout.present[i])]
        spread = [i for i in self.read if i not in dense]
        end = len(self.loops)
        read_until = max((self.lives[f"v{i}"][2] for i in dense), default=-1)
        direct = [k for k in range(len(self.stored)) if self.lives[f"w{k}"][1] >= read_until and not self.past[k]]
        for k, dtype in enumerate(self.stored):
            self._use(f"w{k}", dtype, end)
            if self.adds[k]:
                self._use(f"w{k}", dtype, -1)
        places, arrays = self._places({f"v{i}" for i in spread})
        block = min(512, max(64, 1 << (STACK // sum(SIZES[kind] for kind in arrays)).bit_length() - 1))
        inner = [f"{kind} a{i}[{block}];" for i, kind in enumerate(arrays)]
        for i in dense:
            at = f"a{places[f'v{i}']}"
            inner += [f"const {_c(self.read[i])} *v{i} = x{i} + i;",
                      f"if (n < {block}) {{ COPY({at}, v{i}, n); CLEAR({at}, n, {block}); v{i} = {at}; }}"]
        kinds = {i: _c(self.read[i]) for i in spread}
        loops = [loop for loop in self.loops if loop.is_call or loop.lines]
        numbers = numbers_of_runs(spread, self.layout) if len(loops) == 1 and not loops[0].is_call else []
        spread_alone = [i for i in spread if i not in numbers]
        if spread_alone:
            inner += spread_text(spread_alone, kinds, self.layout, block)
        for k, dtype in enumerate(self.stored):
            at = f"a{places[f'w{k}']}"
            inner.append(f"{_c(dtype)} *const w{k} = {f'n < {block} ? {at} : o{k} + i' if k in direct else at};")
            if self.adds[k]:
                inner.append(f"if (w{k} != o{k} + i) {{ COPY(w{k}, o{k} + i, n); CLEAR(w{k}, n, {block}); }}")
        for loop in self.loops:
            if loop.is_call:
                inner += [*loop.before, f"{loop.lines[0]}, {block});"]
            elif loop.lines and numbers:
                inner += loop_of_runs(numbers, kinds, self.layout, [*loop.lines, *loop.stores])
            elif loop.lines:
                inner += ["LANEWISE", f"for (int j = 0; j < {block}; j++) {{",
                          *(f"    {t}" for t in (*loop.lines, *loop.stores)), "}"]
        inner += [f"stream(o{k} + i, w{k}, n * sizeof *w{k});" if past else
                  f"{f'if (n < {block}) ' if k in direct else ''}COPY(o{k} + i, w{k}, n);" for k, past in enumerate(self.past)]
        inner = [re.sub(r"\bk\d+\b", lambda m: f"a{places[m[0]]}", t) for t in inner]
        inner = [t.replace("BLOCK", str(block)) for t in inner]
        lines = [f"const {_c(d)} *const x{i} = arrays[{i}];" for i, d in self.read.items()]
        lines += [f"{_c(d)} *const o{k} = arrays[{self.n_in + k}];" for k, d in enumerate(self.stored)]
        after = self.n_in + len(self.stored)
        if self.scalars:
            lines.append(f"const double *const numbers = arrays[{after}];")
        lines += self.prologue
        if spread:
            lines += spread_prologue(spread, kinds, self.layout, block, f"arrays[{after + bool(self.scalars)}]", numbers)
        lines += [f"for (int64_t i = begin; i < end; i += {block}) {{",
                  f"    const int64_t n = end - i < {block} ? end - i : {block};", *(f"    {t}" for t in inner), "}"]
        if any(self.past):
            self.uses.add("stream")
            lines.append("STREAMED;")
        body = "\n".join(["(void *const *arrays, int64_t begin, int64_t end)", "{", *(f"    {t}" for t in lines), "}", ""])
        name = f"kernel_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
        return CFunction(name, f"void {name}{body}", frozenset(self.uses), self.layout, targets, states, len(self.scalars),
                         sum(map(_calls, self.nodes)) + sum(" = numbers[" not in t for t in self.prologue),
                         sum(map(_cost, self.nodes)),
                         bool(spread), sum(map(is_half, (*self.read.values(), *self.stored))))

    def _places(self, without: set[str]) -> tuple[dict[str, int], list[str]]:
        """Return the array of each block but some, and the arrays' C types."""
        places: dict[str, int] = {}
        arrays: list[str] = []
        busy: list[int] = []  # the last loop that uses what an array holds
        for block, (kind, first, last) in sorted(self.lives.items(), key=lambda item: item[1][1]):
            if block in without:
                continue
            free = (i for i, until in enumerate(busy) if until < first and arrays[i] == kind)
            at = next(free, len(arrays))
            if at == len(arrays):
                arrays.append(kind)
                busy.append(last)
            places[block], busy[at] = at, last
        return places, arrays

    def _end(self, k: int, value: str) -> str:
        """Return the C text of the value stored in output k."""
        have, want = typed(self.roots[k]), self.stored[k]
        if not self.adds[k]:
            return self._converted(value, have, want)
        if self.roots[k].op == CONST or BOOL in (have, want):
            raise NoSpelling(f"{have} is added to {want}")
        wide = np.promote_types(have, float32 if is_half(want) else want)
        old = self._converted(f"w{k}[j]", want, float32) if is_half(want) else f"w{k}[j]"
        value = self._converted(value, have, float32) if is_half(have) else value
        return self._converted(f"({_c(wide)}){old} + ({_c(wide)}){value}", wide, want)

    def _spelled(self, x: Expr, args: list[str], dtype: np.dtype) -> str:
        if x.op == CAST:
            return self._converted(args[0], typed(x.args[0]), dtype)
        if is_half(dtype) or any(a.dtype is not None and is_half(a.dtype) for a in x.args):
            raise NoSpelling(f"{x.op} of half precision")
        changing = f"{CHANGING.get(x.op)}_{dtype}"
        if changing in FUNCTIONS and not any(a.op == CONST or id(a) in self.once for a in x.args):
            self.uses.add(changing)
            return f"{changing}({', '.join(args)})"
        return spelled(x.op, args, dtype, self.uses)

    def _converted(self, value: str, have: np.dtype, want: np.dtype) -> str:
        return exchanged(value, have, want, self.uses)


def spelled(op: str, args: Sequence[str], dtype: np.dtype, uses: set[str]) -> str:
    """Return the C text of a primitive; add the functions that it calls to uses. Raises NoSpelling."""
    row = PRIMITIVES.get(op)
    if row is None or not row.c or (row.rule == "float" and not is_float(dtype)) or (row.rule == "same" and dtype == BOOL):
        raise NoSpelling(f"{op} has no C spelling for {dtype}")

    def call(match: re.Match[str]) -> str:
        name = f"{match[1]}_{dtype}"
        if name not in FUNCTIONS:
            raise NoSpelling(f"{op} has no C spelling for {dtype}")
        uses.add(name)
        return f"{name}("

    return re.sub(r"\b_(\w+)\(", call, row.c).format(*args)


def _c(dtype: np.dtype) -> str:
    return STORED[dtype.name]


def _local(dtype: np.dtype) -> str:
    """Return the C type of a value inside a loop. Compilers compute no vectors of bytes that choose between floats."""
    return "int" if dtype == BOOL else _c(dtype)


def _is_call(x: Expr) -> bool:
    """Return whether x is computed by a call for a whole block."""
    return x.op in BLOCKWISE and typed(x) == float32


def _cost(x: Expr) -> int:
    return PRIMITIVES[x.op].cost if x.op in PRIMITIVES else 1


def _calls(x: Expr) -> int:
    """Return how many calls of NumPy compute x: about as many as its cost, if NumPy lacks it."""
    return 1 if x.op not in PRIMITIVES or isinstance(PRIMITIVES[x.op].numpy, np.ufunc) else _cost(x)


def converted(value: str, have: np.dtype, want: np.dtype) -> str:
    """Return value in another dtype, by the rules of `dtype.cast_into`."""
    if have == want:
        return value
    if want == BOOL:
        return f"({value}) != 0"
    if is_float(have) and not is_float(want):
        if want.name == "uint64":
            return f"cutu64({value})"
        narrow = want.itemsize < 4 or want.name == "int32"
        return f"({_c(want)})cut{('32f' if have.itemsize == 4 else '32') if narrow else '64'}({value})"
    return f"({_c(want)})({value})"


def exchanged(value: str, have: np.dtype, want: np.dtype, uses: set[str]) -> str:
    """Return value in another dtype; half precision is that of an array. Add the functions that it calls to uses."""
    if have != want and is_half(have):
        uses.add(f"from_{have}")
        value, have = f"from_{have}({value})", float32
    if have == want or not is_half(want):
        return converted(value, have, want)
    if have.itemsize > 2 and have != float32:
        raise NoSpelling(f"{have} becomes {want}, which rounds once")
    uses.add(f"to_{want}")
    return f"to_{want}({converted(value, have, float32)})"


def constant(value: float, dtype: np.dtype) -> str:
    """A number as C text, exactly as dtype has it."""
    if is_float(dtype):
        with np.errstate(all="ignore"):
            x = float(dtype.type(value))
        sign = "-" if math.copysign(1, x) < 0 else ""
        if math.isnan(x):
            return "NAN"
        text = "INFINITY" if math.isinf(x) else abs(x).hex() + ("f" if dtype.itemsize == 4 else "")
        return f"({sign}{text})" if sign else text
    if dtype == BOOL:
        return str(int(value))
    known = np.iinfo(dtype)
    if not known.min <= value <= known.max:
        raise NoSpelling(f"{value} is no {dtype}")
    if dtype.name == "uint64":
        return f"UINT64_C({value})"
    return f"(-INT64_C({-value - 1}) - 1)" if value == np.iinfo("int64").min else f"(({_c(dtype)}){value}LL)"
