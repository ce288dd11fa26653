"""Prints an index formula as a NumPy program over a tile of the output.

The index along an axis is a range that is broadcast, so that what depends on few axes stays small; what depends on no data
is computed once, with the kernel. An element at indices that are linear in the output's index is a view of the input with
other strides; at any other indices it is taken by its position. Loops are Python loops over whole tiles. The tiles are spread
over the engine's threads, and write disjoint places.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from ...dtype import cast_into, is_float, is_half, is_plain_cast, to_integer
from ..ir.expr import CAST, CONST, PARAM, Expr, const, node, prim, resolve_weak_dtype, topological, typed
from ..ir.indexed import ACC, FOLD, GATHER, INDEX, INT64, LOOP, TRUE, IndexedProgram, axes_of, simplify, split_axes
from ..ir.primitives import PRIMITIVES
from ..ir.schedule import Item, Loop, Schedule
from ..kernel import BoundKernel, Kernel
from ..op import Req, Reqs, Shape, Specs
from .errstate import no_fp_warnings

TILE = 256 * 1024  # elements of the output; what is smaller than two is not cut
LOOP_TILE = 32 * 1024  # the same, where a loop runs over its accumulators again and again
STATIC = 1 << 14  # elements up to which what depends on no data is kept with the kernel

#: Nodes of this printer, which take the place of gathers:
#:   view  value: (input, offset, strides by axis, strides by loop level), in elements; args: the loop counters
#:   take  value: (input, shape of a row: the last axes of the output, rank of the output); args: (mask, number of the row)
VIEW, TAKE = "view", "take"


def indexed_source(p: IndexedProgram, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> str:
    """Return the text of the function that computes one tile."""
    return _Printer(p, ins, outs, reqs, name).source


def indexed_kernel(p: IndexedProgram, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> Kernel:
    """Return the kernel: kernel(run, inputs, outputs, scalars=()). All outputs have the program's shape."""
    printed = _Printer(p, ins, outs, reqs, name)
    tile, dims, targets, tiles = printed.compile(), printed.dims, printed.targets, printed.tiles
    if len(tiles) == 1:

        def bind(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> BoundKernel:
            arrays = [*inputs, *(outputs[t].reshape(dims) for t in targets)]
            return lambda run, scalars=(): no_fp_warnings(tile, *arrays, *scalars)

        def kernel(run: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], scalars: tuple = ()) -> None:
            no_fp_warnings(tile, *inputs, *(outputs[t].reshape(dims) for t in targets), *scalars)

        return Kernel(kernel, bind)

    def tiled(run: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], scalars: tuple = ()) -> None:
        wanted = [outputs[t].reshape(dims) for t in targets]

        def one(i: int) -> None:
            ends = tiles[i]
            parts = [o[tuple(slice(a, b) for a, b in ends)] for o in wanted]
            no_fp_warnings(tile, *inputs, *parts, *(e for pair in ends for e in pair), *scalars)

        if run is None:
            for i in range(len(tiles)):
                one(i)
        else:
            run.parallel(one, len(tiles))

    return Kernel(tiled)


# ---- what generated text calls ----------------------------------------------------------------------------------------
def _view(x: np.ndarray, shape: Shape, offset: int, strides: Shape) -> np.ndarray:
    """Return elements of dense x, of a dtype that NumPy does not know. offset, strides: in elements."""
    size = x.itemsize
    base = x.view(f"u{size}")
    return np.ndarray(shape, base.dtype, base, offset * size, tuple(s * size for s in strides)).view(x.dtype)


def _to(x: Any, dtype: np.dtype) -> np.ndarray:
    """Return x in dtype, by the rules of `cast_into`."""
    x = np.asarray(x)
    if dtype.kind in "iu" and is_float(x.dtype):
        out = np.empty(x.shape, dtype)
        cast_into(out, x)
        return out
    return x.astype(dtype)


def _call(function: Callable[..., Any], dtype: np.dtype, *args: Any) -> np.ndarray:
    arrays = [np.asarray(a) for a in args]
    out = np.empty(np.broadcast_shapes(*(a.shape for a in arrays)), dtype)
    function(*arrays, out)
    return out


def _start(value: Any, shape: Shape, dtype: np.dtype) -> np.ndarray:
    out = np.empty(shape, dtype)
    out[...] = value
    return out


_SCOPE: dict[str, Any] = {"np": np, "to_integer": to_integer, "cast_into": cast_into, "view": _view, "to": _to, "call": _call,
                          "start": _start,
                          **{f"p_{n}": p.numpy for n, p in PRIMITIVES.items() if not isinstance(p.numpy, np.ufunc)}}


# ---- printing ---------------------------------------------------------------------------------------------------------
class _Printer:
    """Turns a program into the source of a function over one tile.

    dims: the shape of the output, with at least one axis; targets: numbers of the outputs that are stored; tiles: the begin and
    the end of each tile along every axis; cut: the axes along which there is more than one tile.
    """

    def __init__(self, p: IndexedProgram, ins: Specs, outs: Specs, reqs: Reqs, name: str):
        self.name = "".join(c if c.isalnum() else "_" for c in name)
        self.targets = [t for t in range(len(p.roots)) if reqs[t] != Req.NULL]
        self.specs, self.reqs = [outs[t] for t in self.targets], [reqs[t] for t in self.targets]
        roots = [p.roots[t] if p.roots[t].dtype is not None else resolve_weak_dtype(p.roots[t], s.dtype)
                 for t, s in zip(self.targets, self.specs)]
        p = split_axes(simplify(IndexedProgram(tuple(roots), p.shape, p.scalars), fixed_sizes=True))
        self.dims, self.scalars, self.ins, self.n_in = p.shape or (1,), p.scalars, ins, len(ins)
        loops = any(x.op == FOLD for x in topological(p.roots))
        self.tiles, self.cut = _tiles(self.dims, LOOP_TILE if loops else TILE)
        self.parts = [part for t, r in enumerate(self._place(p.roots)) for part in self._parts(t, r)]
        self.roots = [r for _, _, r in self.parts]
        order = topological(self.roots)
        self.axes = axes_of(order, _own_axes)
        self.uses = Counter(id(a) for x in order for a in x.args) + Counter(map(id, self.roots))
        self.schedule = Schedule(self.roots)
        self.scope: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        self.owned: set[int] = set()
        self.number = {id(x): i for i, x in enumerate(order)}
        self.head: list[str] = []
        self._leaves(order)
        self._keep_static(order)
        self.text = self._print()

    def compile(self) -> Callable[..., Any]:
        scope = _SCOPE | self.scope
        exec(compile(self.text, f"<tritium {self.name}>", "exec"), scope)  # our own text, printed from the formula
        return scope[self.name]

    @property
    def source(self) -> str:
        """Return the text of the function, preceded by the arrays that it reads."""
        return "".join(f"{name} = np.array({np.asarray(value).tolist()!r}, '{value.dtype.name}')\n"
                       for name, value in self.scope.items() if isinstance(value, np.ndarray) and value.size <= 64) + self.text

    def _parts(self, t: int, root: Expr) -> list[tuple[int, str, Expr]]:
        """Return (output, its text, value) of the parts of output t, which are computed apart.

        A value that is chosen by the index along a short axis alone has a part for each.
        """
        whole = [(t, f"o{t}", root)]
        chosen, found, rest = dict[int, Expr](), None, root
        while rest.op == "where" and (choice := _chosen(rest.args[0])) and (found is None or choice[0] == found):
            found = choice[0]
            chosen.setdefault(choice[1], rest.args[1])
            rest = rest.args[2]
        if found is None or found in self.cut:
            return whole
        others = [i for i in range(self.dims[found]) if i not in chosen]
        if len(others) != 1 or len(chosen) != self.dims[found] - 1:
            return whole
        chosen[others[0]] = rest
        axes = axes_of(topological(list(chosen.values())), _own_axes)
        if any(found in axes[id(v)] for v in chosen.values()):
            return whole
        before = ":, " * found
        return [(t, f"o{t}[{before}{i}:{i + 1}]", v) for i, v in sorted(chosen.items())]

    # ---- gathers ----
    def _place(self, roots: Sequence[Expr]) -> list[Expr]:
        """Return roots with every gather as a view or a take."""
        order = topological(roots)
        steady = {x.value for x in order if x.op == LOOP}
        steady -= {x.value[0] for x in order if x.op == FOLD and x.args[0].op != CONST}
        axes = axes_of(order)
        new: dict[int, Expr] = {}
        for x in order:
            args = tuple(new[id(a)] for a in x.args)
            if x.op != GATHER:
                new[id(x)] = x if all(a is b for a, b in zip(args, x.args)) else node(x.op, args, x.value, x.dtype)
                continue
            linear = [_linear(a) for a in args[1:]]
            if args[0] is TRUE and all(e and all(kind == "axis" or at in steady for kind, at in e[1]) for e in linear):
                new[id(x)] = self._as_view(x, args, linear)
            else:
                new[id(x)] = self._as_take(x, args, axes)
        return [new[id(r)] for r in roots]

    def _as_view(self, x: Expr, args: tuple[Expr, ...], linear: Sequence[Any]) -> Expr:
        offset, by_axis, by_loop = 0, [0] * len(self.dims), dict[int, int]()
        for (start, terms), stride in zip(linear, _strides(x.value[1])):
            offset += start * stride
            for (kind, at), factor in terms.items():
                if kind == "axis":
                    by_axis[at] += factor * stride
                else:
                    by_loop[at] = by_loop.get(at, 0) + factor * stride
        counters = tuple(node(LOOP, (), level, INT64) for level in by_loop)
        return node(VIEW, (TRUE, *counters), (x.value[0], offset, tuple(by_axis), tuple(by_loop.items())), x.dtype)

    def _as_take(self, x: Expr, args: tuple[Expr, ...], axes: dict[int, frozenset[int]]) -> Expr:
        source, shape = x.value
        places, rank, whole = list(args[1:]), len(self.dims), 0
        while whole < len(places) and whole < rank:
            at, axis = len(places) - 1 - whole, rank - 1 - whole
            others = frozenset().union(*(axes[id(a)] for a in x.args[1:1 + at]))
            if not (places[at].op == INDEX and places[at].value == axis and shape[at] == self.dims[axis]
                    and axis not in self.cut and not others & set(range(axis, rank))):
                break
            whole += 1
        lead = len(places) - whole
        terms = [(a if s == 1 else prim("mul", a, const(s, INT64))) for a, s in zip(places[:lead], _strides(shape[:lead]))]
        terms.sort(key=lambda t: any(y.op in (VIEW, TAKE, FOLD, LOOP, ACC) for y in topological([t])))  # without data: first
        row = const(0, INT64)
        for i, t in enumerate(terms):
            row = prim("add", row, t) if i else t
        return node(TAKE, (args[0], row), (source, shape[lead:], rank), x.dtype)

    # ---- leaves, and what depends on no data ----
    def _leaves(self, order: Sequence[Expr]) -> None:
        constants: dict[tuple[Any, np.dtype], str] = {}
        for x in order:
            if x.op == CONST:
                key = (float(x.value).hex() if is_float(typed(x)) else x.value), typed(x)
                name = constants.setdefault(key, f"c{len(constants)}")
                with np.errstate(all="ignore"):  # it may round to infinity
                    self.scope[name] = np.array(x.value, typed(x))
                self.names[id(x)] = name
            elif x.op == PARAM:
                d = typed(x)
                value = f"to_integer(s_{x.value}, np.dtype('{d}'))" if d.kind in "iu" else f"s_{x.value}"
                self.names[id(x)] = f"t{self.number[id(x)]}"
                self.head.append(f"t{self.number[id(x)]} = np.array({value}, '{d}')")
            elif x.op == LOOP:
                self.names[id(x)] = f"k{x.value}"

    def _index(self, axis: int, begin: str, end: str) -> str:
        shape = [-1 if a == axis else 1 for a in range(len(self.dims))]
        return f"np.arange({begin}, {end}).reshape({', '.join(map(str, shape))})"

    def _size_of(self, x: Expr) -> int:
        return math.prod(self.dims[a] for a in self.axes[id(x)])

    def _keep_static(self, order: Sequence[Expr]) -> None:
        """Compute what depends on no data, and is small, now."""
        moving = {VIEW, TAKE, FOLD, LOOP, ACC, PARAM}
        static: set[int] = set()
        for x in order:
            if x.op not in moving and all(id(a) in static for a in x.args) and self._size_of(x) <= STATIC:
                static.add(id(x))
        read = {id(a) for x in order if id(x) not in static for a in x.args if id(a) in static} | {id(r) for r in self.roots}
        self.static = static
        kept = [x for x in order if id(x) in static and id(x) in read and x.op not in (CONST, LOOP)]
        if not kept:
            return
        local = dict(self.names)
        lines = []
        for x in topological(kept):
            if x.op == INDEX:
                local[id(x)] = f"i{x.value}"
                lines.append(f"i{x.value} = {self._index(x.value, '0', str(self.dims[x.value]))}")
            elif x.args:
                local[id(x)] = f"t{self.number[id(x)]}"
                lines.append(f"{local[id(x)]} = {self._value(x, [local[id(a)] for a in x.args])}")
        scope = _SCOPE | self.scope
        with np.errstate(all="ignore"):
            exec("\n".join(lines), scope)  # our own text, printed from the formula
        for x in kept:
            name = f"q{self.number[id(x)]}"
            self.scope[name] = np.asarray(scope[local[id(x)]])
            cut = self.cut & self.axes[id(x)]
            index = ", ".join(f"b{a}:e{a}" if a in cut else ":" for a in range(max(cut, default=-1) + 1))
            self.names[id(x)] = f"t{self.number[id(x)]}" if cut else name
            if cut:
                self.head.append(f"t{self.number[id(x)]} = {name}[{index}]")

    # ---- lines ----
    def _print(self) -> str:
        lines = list(self.head)
        for x in topological(self.roots):
            if x.op == INDEX and id(x) not in self.static:
                begin, end = (f"b{x.value}", f"e{x.value}") if x.value in self.cut else ("0", str(self.dims[x.value]))
                self.names[id(x)] = f"i{x.value}"
                lines.append(f"i{x.value} = {self._index(x.value, begin, end)}")
        direct: dict[int, str] = {}
        for t, place, r in self.parts:
            spec, apart = self.specs[t], "[" in place
            if (r.dtype == spec.dtype and self.reqs[t] != Req.ADD and self.uses[id(r)] == 1 and id(r) not in self.static
                    and len(self.axes[id(r)]) + apart == sum(d != 1 for d in self.dims) and not (apart and r.op == TAKE)):
                direct[id(r)] = place
        self._items(self.schedule.items, lines, direct)
        for t, place, r in self.parts:
            value, spec = self.names[id(r)], self.specs[t]
            if value == place:
                continue
            if self.reqs[t] == Req.ADD:
                plain = r.dtype == spec.dtype and not is_half(spec.dtype)
                lines.append(f"np.add({place}, {value}, out={place})" if plain else
                             _stored(f"np.add({place}, {value})", None, spec.dtype, place))
            else:
                lines.append(_stored(value, r.dtype, spec.dtype, place))
        ends = [f"{e}{a}" for a in range(len(self.dims)) for e in "be"] if len(self.tiles) > 1 else []
        parameters = [*(f"x{i}" for i in range(self.n_in)), *(f"o{t}" for t in range(len(self.targets))), *ends,
                      *(f"s_{n}" for n in self.scalars)]
        body = "\n".join("    " + line for line in lines) or "    pass"
        return f"def {self.name}({', '.join(parameters)}):\n{body}\n"

    def _items(self, items: Sequence[Item], lines: list[str], direct: dict[int, str]) -> None:
        for x in items:
            if isinstance(x, Loop):
                self._loop(x, lines)
                continue
            if id(x) in self.static:
                continue
            args = [self.names[id(a)] for a in x.args]
            out = self._out(x, direct)
            name = f"t{self.number[id(x)]}"
            if x.op == "where" and (at := self._overwritten(x, x.args[2])):
                lines.append(f"np.copyto({at}, {args[1]}, where={args[0]})")
                self.names[id(x)] = at
                self.owned.add(id(x))
                continue
            value = self._value(x, args, out)
            if out and (x.op == TAKE or value.endswith(f"out={out})")):
                lines.append(value)
                self.names[id(x)] = out
            else:
                lines.append(f"{name} = {value}")
                self.names[id(x)] = name
            if x.op == TAKE and x.args[0] is not TRUE:
                at = self.names[id(x)]
                fits = self.axes[id(x.args[0])] <= self._taken_axes(x) and self._taken_axes(x)
                lines.append(f"np.copyto({at}, 0, where=np.logical_not({args[0]}))" if fits else
                             f"{name} = np.where({args[0]}, {at}, {self._zero(x)})")
                self.names[id(x)] = at if fits else name
            if x.op != VIEW:
                self.owned.add(id(x))

    def _zero(self, x: Expr) -> str:
        name = f"z_{typed(x).name}"
        self.scope[name] = np.zeros((), typed(x))
        return name

    def _taken_axes(self, x: Expr) -> frozenset[int]:
        _, row, rank = x.value
        return self.axes[id(x.args[1])] | frozenset(range(rank - len(row), rank))

    def _overwritten(self, x: Expr, a: Expr) -> str:
        """Return the name of argument a if its array may take the result of x: nothing else reads it."""
        fits = (id(a) in self.owned and self.uses[id(a)] == 1 and a.dtype == x.dtype and self.axes[id(a)] == self.axes[id(x)]
                and (self.axes[id(a)] or a.op == ACC) and self._level(a) == self._level(x))
        return self.names[id(a)] if fits else ""

    def _level(self, x: Expr) -> int:
        return max(self.schedule.levels[id(x)], default=-1)

    def _out(self, x: Expr, direct: dict[int, str]) -> str:
        """Return the array that the result of x is written to; "" for a new one."""
        if id(x) in direct:
            if x.op == TAKE and (self._taken_axes(x) != self.axes[id(x)] or len(self.axes[id(x)]) < len(self.dims)):
                return ""
            return direct[id(x)]
        if x.op not in PRIMITIVES or not (x.value in ("plain", "positive") or isinstance(PRIMITIVES[x.op].numpy, np.ufunc)):
            return ""
        return next(filter(None, (self._overwritten(x, a) for a in x.args)), "")

    def _value(self, x: Expr, args: Sequence[str], out: str = "") -> str:
        end = f", out={out})" if out else ")"
        if x.op == CAST:
            (a,) = x.args
            if a.op not in (LOOP, CONST, PARAM) and is_plain_cast(typed(a), typed(x)):
                return f"{args[0]}.astype({self._dtype(typed(x))})"
            return f"to({args[0]}, np.dtype('{typed(x).name}'))"
        if x.op == VIEW:
            return self._view_text(x)
        if x.op == TAKE:
            source, row, rank = x.value
            at, lead = args[1], rank - len(row)
            if row:
                at = f"{at}.reshape({at}.shape[:{lead}])" if self.axes[id(x.args[1])] else f"np.reshape({at}, {(1,) * lead})"
            shape = ", ".join(map(str, (-1, *row)))
            return f"x{source}.reshape({shape}).take({at}, {0 if row else None}, {out or None}, 'clip')"
        if x.op == "where":
            return f"np.where({', '.join(args)})"
        if x.value in ("plain", "positive"):
            return f"np.{'floor_divide' if x.op == 'quotient' else 'remainder'}({', '.join(args)}{end}"
        function = PRIMITIVES[x.op].numpy
        if isinstance(function, np.ufunc):
            return f"np.{function.__name__}({', '.join(args)}{end}"
        return f"call(p_{x.op}, np.dtype('{typed(x).name}'), {', '.join(args)})"

    def _view_text(self, x: Expr) -> str:
        source, offset, by_axis, by_loop = x.value
        shape = ", ".join("1" if not s else f"e{a} - b{a}" if a in self.cut else str(d)
                          for a, (s, d) in enumerate(zip(by_axis, self.dims)))
        plain = typed(x).isbuiltin == 1
        unit = typed(x).itemsize if plain else 1
        terms = [str(offset * unit)] if offset else []
        terms += [f"{s * unit} * b{a}" for a, s in enumerate(by_axis) if s and a in self.cut]
        terms += [f"{s * unit} * k{level}" for level, s in by_loop]
        if not terms and by_axis == tuple(_strides(self.dims)) and not self.cut and math.prod(self.dims) == self.ins[source].size:
            return f"x{source}.reshape({', '.join(map(str, self.dims))})"
        start = " + ".join(terms) or "0"
        if not plain:
            return f"view(x{source}, ({shape},), {start}, {by_axis})"
        return f"np.ndarray(({shape},), {self._dtype(typed(x))}, x{source}, {start}, {tuple(s * unit for s in by_axis)})"

    def _dtype(self, dtype: np.dtype) -> str:
        """Return the name of a dtype in the text."""
        self.scope[f"d_{dtype.name}"] = dtype
        return f"d_{dtype.name}"

    def _loop(self, loop: Loop, lines: list[str]) -> None:
        names = {j: f"a{loop.number}_{j}" for j in loop.accumulators}
        uneven = bool(self.axes[id(loop.extent)])
        for j, (first, new) in loop.accumulators.items():
            acc = node(ACC, (), (loop.level, j), new.dtype)
            shape = ", ".join(("1" if a not in self.axes[id(acc)] else f"e{a} - b{a}" if a in self.cut else str(d))
                              for a, d in enumerate(self.dims))
            lines.append(f"{names[j]} = start({self.names[id(first)]}, ({shape},), np.dtype('{typed(new).name}'))")
            self.names[id(acc)] = names[j]
            self.owned.discard(id(acc))
            if not uneven and (new.op in PRIMITIVES or new.op == CAST) and loop.level in self.schedule.levels[id(new)]:
                self.owned.add(id(acc))  # each step makes a new array, or writes to this one
        extent = self.names[id(loop.extent)]
        most = int(loop.extent.value) if loop.extent.op == CONST else f"np.max({extent}, initial=0)"
        lines.append(f"for k{loop.level} in range({most}):")
        inner: list[str] = []
        self._items(loop.items, inner, {})
        news = {j: self.names[id(new)] for j, (_, new) in loop.accumulators.items()}
        moved = [j for j in news if news[j] != names[j]]
        if uneven:
            inner.append(f"live = np.less(k{loop.level}, {extent})")
            held = [f"{news[j]}.copy()" if news[j] in names.values() else news[j] for j in moved]
            if len(moved) > 1:
                inner.append(f"{', '.join(f'n{j}' for j in moved)} = {', '.join(held)}")
                held = [f"n{j}" for j in moved]
            inner += [f"np.copyto({names[j]}, {h}, where=live)" for j, h in zip(moved, held)]
        elif moved:
            inner.append(f"{', '.join(names[j] for j in moved)} = {', '.join(news[j] for j in moved)}")
        lines += ["    " + line for line in inner or ["pass"]]
        for x in loop.results:
            self.names[id(x)] = names[x.value[2]]


def _chosen(x: Expr) -> tuple[int, int] | None:
    """Return (axis, number) if x asks whether the index along an axis is a number."""
    if x.op != "eq" or {a.op for a in x.args} != {INDEX, CONST}:
        return None
    at, number = x.args if x.args[0].op == INDEX else x.args[::-1]
    return at.value, int(number.value)


def _stored(value: str, have: np.dtype | None, want: np.dtype, place: str) -> str:
    """The line that stores a value. have: None where its dtype is not known."""
    if want.kind in "iu" and (have is None or is_float(have)):
        return f"cast_into({place}, {value})"
    return f"np.copyto({place}, {value}, casting='unsafe')"


def _strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1:]) for i in range(len(shape))]


def _tiles(dims: Shape, size: int) -> tuple[list[tuple[tuple[int, int], ...]], frozenset[int]]:
    """Return the begin and the end of each tile along each axis, and the axes that are cut."""
    n = math.prod(dims)
    if n < 2 * size:
        return [tuple((0, d) for d in dims)], frozenset()
    axis, inner = len(dims) - 1, 1
    while axis > 0 and inner * dims[axis] <= size:
        inner *= dims[axis]
        axis -= 1
    step = max(1, size // inner)
    rest = tuple((0, d) for d in dims[axis + 1:])
    tiles = [(*((i, i + 1) for i in outer), (a, min(a + step, dims[axis])), *rest)
             for outer in product(*map(range, dims[:axis])) for a in range(0, dims[axis], step)]
    return tiles, frozenset(range(axis + 1)) if len(tiles) > 1 else frozenset()


def _own_axes(x: Expr) -> frozenset[int]:
    """Return the axes along which a node of this printer differs of itself."""
    if x.op == VIEW:
        return frozenset(a for a, s in enumerate(x.value[2]) if s)
    _, row, rank = x.value if x.op == TAKE else (0, (), 0)
    return frozenset(range(rank - len(row), rank))


def _linear(x: Expr) -> tuple[int, dict[tuple[str, int], int]] | None:
    """Return (number, {("axis", a) or ("loop", level): factor}) of an index that is linear in them; None for another."""
    if x.op == CONST:
        return int(x.value), {}
    if x.op in (INDEX, LOOP):
        return 0, {("axis" if x.op == INDEX else "loop", x.value): 1}
    if x.op not in ("add", "sub", "mul", "neg"):
        return None
    parts = [_linear(a) for a in x.args]
    if any(p is None for p in parts):
        return None
    (c, terms), *rest = [p for p in parts if p is not None]
    if x.op == "neg":
        return -c, {k: -f for k, f in terms.items()}
    d, others = rest[0]
    if x.op == "mul":
        if terms and others:
            return None
        factor, number, scaled = (c, d, others) if not terms else (d, c, terms)
        return number * factor, {k: f * factor for k, f in scaled.items()}
    sign = 1 if x.op == "add" else -1
    return c + sign * d, {k: terms.get(k, 0) + sign * others.get(k, 0) for k in terms | others}
