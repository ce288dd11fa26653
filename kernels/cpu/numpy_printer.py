"""Prints an expression graph as a NumPy tile program: the CPU kernel that is always there, and the reference.

Arrays are walked in tiles that stay in the cache; each node is one ufunc with `out=` a scratch register, so a chain of
twenty operators touches memory once. Tiles are spread over the engine's threads; folds combine the tiles' partial
results in the order of the tiles, so the bits do not depend on how many threads there were.

Tiles are large: a thread needs the GIL between two ufuncs, and one that finds it taken sleeps and is woken, which costs as
much as a ufunc on 32K elements. On two threads sums were slower than on one with such tiles, and are faster with these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ...dtype import cast_into, is_float, is_half, to_integer
from ..configs import active as active_configs
from ..configs.key import Key, key
from ..ir.coalesce import BroadcastLayout, full_shape, merge, merge_rows
from ..ir.combine import fold
from ..ir.draws import PlacedDraw, as_inputs
from ..ir.expr import (
    BOOL,
    CAST,
    CONST,
    LOAD,
    PARAM,
    REDUCE,
    ROW_INDEX,
    Expr,
    cost,
    identity,
    resolve_weak_dtype,
    topological,
    typed,
)
from ..ir.primitives import PRIMITIVES
from ..ir.rows import whole_rows
from ..ir.special import mask_dtype
from ..kernel import BoundKernel, Kernel
from ..op import Expression, Req, Reqs, Specs
from .errstate import no_fp_warnings
from .few_elements import AT_INDEX, FILL_ROWS, at_index, few_elements, fill_rows
from .sum_tree import combined, total

TILE = 256 * 1024  # elements of one register: 1 MiB in float32; what is smaller than two is not cut
DRAWN = 1 << 16  # elements of a tile that draws random numbers: each takes some forty operations
KEPT = 1 << 11  # elements up to which a bound kernel keeps its registers
SMALL = 1 << 13  # elements up to which there is nothing to choose

_SCOPE: dict[str, Any] = {"np": np, "inf": math.inf, "nan": math.nan, "to_integer": to_integer, "cast_into": cast_into,
                          "total": total, "at_index": at_index, "fill_rows": fill_rows,
                          **{f"p_{n}": p.numpy for n, p in PRIMITIVES.items() if not isinstance(p.numpy, np.ufunc)}}
_COMBINE: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum}
_REDUCE = {"sum": np.add, "max": np.maximum}
_OVER = (AT_INDEX, FILL_ROWS)  # nodes that may write where their first argument lies
BESIDE = 1024  # elements that a tile takes at least of the axis behind the rows: with fewer, NumPy's inner loops are short


def numpy_source(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> str:
    """The text of the function that computes one tile. Draws of random numbers are inputs of it."""
    e, ins, _ = as_inputs(e, ins, full_shape([s.shape for s in (*ins, *outs)]))
    return _TilePrinter(e, ins, outs, reqs, name).source


def numpy_kernel(e: Expression, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> Kernel:
    """The compiled kernel: kernel(run, inputs, outputs, scalars=()), with random=(seed, offset) where e draws.

    Outputs smaller than the full shape are folded with e.combine.
    """
    e, ins, draws = as_inputs(e, ins, full_shape([s.shape for s in (*ins, *outs)]))
    printed = _TilePrinter(e, ins, outs, reqs, name)
    tile = printed.compile()
    layout, n_in, n_targets = printed.layout, len(ins), len(printed.targets)
    if layout.size == 0:
        return _empty_kernel(printed)
    shapes = [layout.shape(i) for i in range(n_in + n_targets)]
    chosen: dict[str, int] = {}
    if layout.size > SMALL:
        default = TILE if layout.size >= 2 * TILE else 2 * TILE
        work = layout.size * max(1, cost(e.outputs))
        chosen = active_configs.choice(tile_key(printed, n_in, work), {"tile": default, "threads": 0})
    size, threads = chosen.get("tile", TILE), chosen.get("threads", 0)
    if draws:
        size = min(size, DRAWN)
    sliced = None if layout.size <= size else _tiles(layout, size, printed.row)
    folds = [t for t in range(n_targets) if printed.folded[t]]
    targets, states = printed.targets, printed.states

    def results(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [inputs[states[t]] if t in states else outputs[t] for t in targets]

    if sliced is None:
        same = layout.is_flat and all(s.shape == ins[0].shape for s in (*ins, *outs)) if ins else False
        registers = [(d, ins[0].shape if same else shape) for d, shape in printed.register_shapes(layout.dims)]
        seen = [ins[0].shape] * len(shapes) if same else shapes
        stores = [(printed.fold_store(t), n_in + t) for t in folds]

        def compute(arrays: Sequence[np.ndarray], run: Any, scalars: Sequence[float] = ()) -> None:
            folded = no_fp_warnings(tile, *arrays, *scratch_arrays(run, registers), *scalars)
            for (store, at), part in zip(stores, folded or ()):
                no_fp_warnings(store, arrays[at], part)

        def drawing(run: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], scalars: tuple = (), *,
                    random: tuple[int, int]) -> None:
            drawn = [_numbers(d, random, 0, d.shape) for d in draws.values()]
            kernel(run, [*inputs, *drawn], outputs, scalars)

        def bind(inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> BoundKernel:
            arrays = [a if a.shape == s else a.reshape(s) for a, s in zip([*inputs, *results(inputs, outputs)], seen)]
            if not stores and layout.size <= KEPT:
                arrays += scratch_arrays(None, registers)
                return lambda run, scalars=(): no_fp_warnings(tile, *arrays, *scalars)
            if not stores and not registers:
                return lambda run, scalars=(): no_fp_warnings(tile, *arrays, *scalars)
            return partial(compute, arrays)

        def kernel(run: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], scalars: tuple = ()) -> None:
            arrays = [*inputs, *results(inputs, outputs)]
            compute(arrays if same else [a if a.shape == s else a.reshape(s) for a, s in zip(arrays, seen)], run, scalars)

        def plain(run: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], scalars: tuple = ()) -> None:
            no_fp_warnings(tile, *inputs, *outputs, *scalars)

        if draws:
            return Kernel(drawing)
        direct = same and not registers and not folds and not states and targets == list(range(len(outs)))
        return Kernel(plain if direct else kernel, bind)

    tiles = sliced
    places = {t: _places(tiles, n_in + t) for t in folds}

    def tiled(run: Any, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], scalars: tuple = (), *,
              random: tuple[int, int] | None = None) -> None:
        stored = [a.reshape(s) for a, s in zip(results(inputs, outputs), shapes[n_in:])]
        arrays = [a.reshape(s) for a, s in zip(inputs, shapes)]
        parts: list[Any] = [None] * len(tiles)

        def one(i: int) -> None:
            t = tiles[i]
            views = [a[index] for a, index in zip(arrays, t.index)]
            if random is not None:
                views += [t.numbers(layout, i, d, random) for i, d in draws.items()]
            views += [a[index] for a, index in zip(stored, t.index[n_in:])]
            scratch = scratch_arrays(run, printed.register_shapes(t.shape))
            with np.errstate(all="ignore"):
                parts[i] = tile(*views, *scratch, *scalars)

        if run is not None:
            active_configs.limited(run.parallel, threads)(one, len(tiles))
        else:
            for i in range(len(tiles)):
                one(i)
        for k, t in enumerate(folds):
            result = np.empty(shapes[n_in + t], printed.root_dtypes[t])
            with np.errstate(all="ignore"):
                for place, numbers in places[t]:  # which are fixed, and so are the bits
                    np.copyto(result[place], combined(printed.combining(t), [parts[i][k] for i in numbers]), casting="unsafe")
                printed.fold_store(t)(stored[t], result)

    return Kernel(tiled)


def _places(tiles: Sequence[_Tile], operand: int) -> list[tuple[tuple[slice, ...], list[int]]]:
    """The parts of a folded operand, and the numbers of the tiles that are folded into each."""
    found: dict[str, tuple[tuple[slice, ...], list[int]]] = {}
    for i, tile in enumerate(tiles):
        found.setdefault(repr(tile.index[operand]), (tile.index[operand], []))[1].append(i)
    return list(found.values())


def scratch_arrays(run: Any, wanted: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> list[np.ndarray]:
    """Return uninitialised scratch arrays."""
    return [np.empty(s, d) if run is None else run.workspace(s, d) for d, s in wanted]


def _empty_kernel(printed: _TilePrinter) -> Kernel:
    def kernel(run: Any, inputs: Any, outputs: Any, scalars: tuple = (), **more: Any) -> None:
        for t in printed.targets:
            if t not in printed.states and printed.reqs[t] != Req.ADD and outputs[t].size:
                outputs[t].fill(identity(printed.combine, outputs[t].dtype))

    return Kernel(kernel)


class _Tile:
    """One tile: its shape over the merged axes, and per operand the index that cuts it out."""

    __slots__ = ("index", "shape")

    def __init__(self, layout: BroadcastLayout, slices: Sequence[slice]):
        self.shape = tuple(s.stop - s.start for s in slices)
        whole = slice(0, 1)
        self.index = [tuple(s if here else whole for s, here in zip(slices, p)) for p in layout.present]

    def numbers(self, layout: BroadcastLayout, operand: int, d: PlacedDraw, random: tuple[int, int]) -> np.ndarray:
        """Return the random numbers of an operand in this tile."""
        index, shape = self.index[operand], layout.shape(operand)
        sizes = tuple(s.stop - s.start for s in index)

        def part(axis: int, before: int) -> np.ndarray:
            first = before * shape[axis] + index[axis].start
            if sizes[axis + 1:] == shape[axis + 1:]:  # consecutive ones
                return _numbers(d, random, first * math.prod(shape[axis + 1:]), sizes[axis:])
            return np.stack([part(axis + 1, first + i) for i in range(sizes[axis])])

        return part(0, 0)


def _numbers(d: PlacedDraw, random: tuple[int, int], first: int, shape: tuple[int, ...]) -> np.ndarray:
    seed, offset = random
    return d.draw.numbers(seed, offset + d.base, first, math.prod(shape)).reshape(shape)


def tile_key(printed: _TilePrinter, n_in: int, work: int) -> Key:
    """Return the tuning key of a tile size: the layout and number of the operands, and the cost of an element."""
    layout = printed.layout
    lies = "row" if printed.row is not None else "fold" if any(printed.folded) else "flat" if layout.is_flat else "broadcast"
    sizes = {"elements": layout.size, "arrays": n_in + len(printed.targets), "cost": work // layout.size}
    return key("cpu tile", printed.root_dtypes[0].name if printed.root_dtypes else "", lies, **sizes,
               **({} if lies == "flat" else {"last": layout.dims[-1 if printed.row is None else printed.row]}))


def _tiles(layout: BroadcastLayout, size: int = TILE, row: int | None = None) -> list[_Tile]:
    """Tiles of about size elements, in row-major order. row: the axis that is never cut."""
    dims = layout.dims
    order = [a for a in range(len(dims)) if a != row]  # the axes that may be cut
    inner = 1 if row is None else dims[row]
    at = len(order) - 1
    while at > 0 and inner * dims[order[at]] <= size:
        inner *= dims[order[at]]
        at -= 1
    cut, step = order[at], max(1, size // inner)
    if row is not None and cut > row:
        step = max(step, BESIDE)
    whole = [slice(0, d) for d in dims]
    tiles = []
    for outer in product(*(range(dims[a]) for a in order[:at])):
        for first in range(0, dims[cut], step):
            slices = whole.copy()
            for a, i in zip(order, outer):
                slices[a] = slice(i, i + 1)
            slices[cut] = slice(first, min(first + step, dims[cut]))
            tiles.append(_Tile(layout, slices))
    return tiles


class _TilePrinter:
    """Turns an Expression into the source of a function over one tile.

    targets:  numbers of the outputs (and states) that are stored; states: {output number: input number}.
    """

    def __init__(self, e: Expression, ins: Specs, outs: Specs, reqs: Reqs, name: str):
        self.name = "".join(c if c.isalnum() else "_" for c in name)
        self.combine = e.combine
        self.states = dict(e.states)
        self.reqs = dict(enumerate(reqs)) | dict.fromkeys(self.states, Req.WRITE)
        self.targets = [i for i in range(len(e.outputs)) if self.reqs[i] != Req.NULL]
        self.specs = [ins[self.states[t]] if t in self.states else outs[t] for t in self.targets]
        shapes = [s.shape for s in (*ins, *self.specs)]
        self.layout = merge_rows(shapes, e.axis) if e.kind == "row" else merge(shapes)
        self.row = len(self.layout.dims) + e.axis if e.kind == "row" else None  # the axis that rows go along
        n = len(ins)
        self.folded = [bool(self.layout.folded(n + i)) and math.prod(self.layout.dims) != 1 for i in range(len(self.specs))]
        self.roots = [e.outputs[t] if e.outputs[t].dtype is not None else resolve_weak_dtype(e.outputs[t], s.dtype)
                      for t, s in zip(self.targets, self.specs)]
        if self.row is not None:
            along, last = [p[self.row] for p in self.layout.present], self.layout.dims[self.row]
            self.roots = few_elements(whole_rows(self.roots, along, last), along)
        self.root_dtypes = [typed(r) for r in self.roots]
        self.registers: list[tuple[np.dtype, bool]] = []  # (dtype, one per row?)
        self.scalar_names = e.scalars
        self.constants: dict[tuple[str, np.dtype], str] = {}  # (number in hexadecimal, dtype) -> the array that holds it
        self.text = self._print(n)

    def register_shapes(self, shape: tuple[int, ...]) -> list[tuple[np.dtype, tuple[int, ...]]]:
        by_row = tuple(1 if i == self.row else n for i, n in enumerate(shape))
        return [(d, by_row if row else shape) for d, row in self.registers]

    def compile(self) -> Callable[..., Any]:
        scope: dict[str, Any] = _SCOPE | {f"d_{d.name}": d for d in self.root_dtypes if d.kind in "iub"}
        if not isinstance(self.combine, str) and any(self.folded):
            functions = {d: self.combine.on_arrays(d) for d in self.root_dtypes}
            scope["fold"] = lambda values, axes: fold(functions[values.dtype], values, axes)
        with np.errstate(all="ignore"):  # a constant may round to infinity
            scope |= {name: np.array(float.fromhex(value), d) for (value, d), name in self.constants.items()}
            if "row_index" in self.text:
                scope["row_index"] = np.arange(self.layout.dims[self._row], dtype=np.int32).reshape(self._along_row())
            exec(compile(self.text, f"<tritium {self.name}>", "exec"), scope)  # our own text, printed from the graph
        return scope[self.name]

    @property
    def source(self) -> str:
        """Return the text of the function, preceded by the constant arrays that it reads."""
        lines = [f"{name} = np.array({float.fromhex(value)!r}, '{d.name}')\n" for (value, d), name in self.constants.items()]
        if "row_index" in self.text:
            lines.append(f"row_index = np.arange({self.layout.dims[self._row]}, dtype='int32').reshape({self._along_row()})\n")
        return "".join(lines) + self.text

    @property
    def _row(self) -> int:
        assert self.row is not None, "a row's index outside of a row kernel"
        return self.row

    def _along_row(self) -> tuple[int, ...]:
        """The shape of one number for each element of a row."""
        return tuple(n if i == self.row else 1 for i, n in enumerate(self.layout.dims))

    def combining(self, t: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return the function that combines two parts of target t."""
        return _COMBINE[self.combine] if isinstance(self.combine, str) else self.combine.on_arrays(self.root_dtypes[t])

    def fold_store(self, t: int) -> Callable[[np.ndarray, np.ndarray], None]:
        """Stores the folded value of target t by its request."""
        if self.reqs[self.targets[t]] == Req.ADD:
            return lambda out, value: cast_into(out, np.add(out, value))
        return cast_into

    # ---- printing ----
    def _print(self, n_in: int) -> str:
        order = topological(self.roots)
        place = {id(x): i for i, x in enumerate(order)}
        uses = [[place[id(a)] for a in x.args] for x in order]
        present = self.layout.present
        varies, by_row, last_use = [False] * len(order), [False] * len(order), [-1] * len(order)
        for i, x in enumerate(order):
            big = False
            alike = True  # whether every argument that varies is one value for each row
            for a in uses[i]:
                last_use[a] = i
                if varies[a]:
                    big = True
                    alike = alike and by_row[a]
            varies[i] = big or x.op in (LOAD, ROW_INDEX)
            by_row[i] = (x.op == REDUCE or (big and alike)
                         or (x.op == LOAD and self.row is not None and not present[x.value][self.row]))
        for r in self.roots:
            last_use[place[id(r)]] = len(order)
        # a root that is an input itself is read when it is stored, after everything; beside a shared target it is read first
        early = any(map(self._shares, range(len(self.roots)))) and len(self.roots) > 1
        direct = self._direct(order, place, [v and not r for v, r in zip(varies, by_row)], uses, last_use)
        lines: list[str] = []
        names: list[str] = []
        free: dict[tuple[np.dtype, bool], list[int]] = {}
        held: dict[int, int] = {}
        kept: dict[int, str] = {}
        for x in {id(r): r for r in self.roots if r.op == LOAD and early}.values():
            kept[id(x)] = f"r{len(self.registers)}"
            self.registers.append((typed(x), False))
            lines.append(f"np.copyto({kept[id(x)]}, {self._leaf(x)})")
        for i, x in enumerate(order):
            if x.op in (LOAD, PARAM, CONST, ROW_INDEX):
                names.append(self._leaf(x))
                continue
            if not varies[i]:
                names.append(f"t{i}")
                lines.append(f"t{i} = {self._scalar(x, [names[a] for a in uses[i]])}")
                continue
            ufunc = isinstance(self._function(x), np.ufunc)
            args = [self._constant(order[a]) if ufunc and order[a].op == CONST else names[a] for a in uses[i]]
            dying = [a for a in dict.fromkeys(uses[i]) if last_use[a] == i and a in held]
            if ufunc or x.op in _OVER:  # such may read and write one register, but `where` writes before it has read everything
                for a in dying:
                    if by_row[a] == by_row[i]:
                        self._release(a, held, free)
            key = typed(x), by_row[i]
            if i in direct:
                out = f"o{direct[i]}"
            else:
                held[i] = self._register(key, free)
                out = f"r{held[i]}"
            names.append(out)
            if x.op == "where":
                key = mask_dtype(key[0]), by_row[i]
                scratch = self._register(key, free)
                free[key].append(scratch)  # free again afterwards
                lines.append(f"p_where({', '.join(args)}, {out}, r{scratch})")
            else:
                lines.append(self._call(x, args, out))
            for a in dying:
                self._release(a, held, free)
        folded = []
        arrays = [f"x{i}" for i in range(n_in)] + [f"o{t}" for t in range(len(self.roots))]
        whole = ", ".join(f"{a}.shape" for a in arrays)  # the shape of the tile
        for t, root in enumerate(self.roots):
            at = place[id(root)]
            value = kept.get(id(root), names[at])
            if self.folded[t]:
                axes = self.layout.folded(n_in + t)
                if axes == (self.row,) and (by_row[at] or not varies[at]):
                    folded.append(f"np.reshape({value}, np.shape({value}) or {(1,) * len(self.layout.dims)})")
                    continue  # one value for each row is what this output has
                lacks = not all(present[root.value]) if root.op == LOAD else not varies[at]
                if lacks or (by_row[at] and self.row in axes) or root.op == ROW_INDEX:
                    value = f"np.broadcast_to({value}, np.broadcast_shapes({whole}))"  # else too few elements would be folded
                arguments = f"{value}, axis={axes}, keepdims=True{self._wide(root)}"
                if not isinstance(self.combine, str):
                    folded.append(f"fold(np.asarray({value}), {axes})")
                    continue
                folded.append(f"total({value}, {axes})" if self.combine == "add" and root.dtype != BOOL else
                              f"np.{_COMBINE[self.combine].__name__}.reduce({arguments})")
            elif self.reqs[self.targets[t]] == Req.ADD:
                plain = root.dtype == self.specs[t].dtype and not is_half(self.specs[t].dtype)
                lines.append(f"np.add(o{t}, {value}, out=o{t})" if plain
                             else _converted(f"np.add(o{t}, {value})", None, self.specs[t].dtype, f"o{t}"))
            elif value != f"o{t}":
                lines.append(_converted(value, root.dtype, self.specs[t].dtype, f"o{t}"))
        if folded:
            lines.append(f"return [{', '.join(folded)}]")
        parameters = [*arrays, *(f"r{i}" for i in range(len(self.registers))), *(f"s_{n}" for n in self.scalar_names)]
        body = "\n".join("    " + line for line in lines) or "    pass"
        return f"def {self.name}({', '.join(parameters)}):\n{body}\n"

    def _direct(self, order: list[Expr], place: dict[int, int], spans: list[bool], uses: list[list[int]],
                last_use: list[int]) -> dict[int, int]:
        """Nodes that may write straight into an output: {place in order: target}. These are roots, and what a ufunc reads
        last and may overwrite, so that a chain of ufuncs needs no register. spans: which nodes fill a tile.

        A target that shares memory with an input is written only where nothing reads it any more: a state's own input is
        known, else it may be any.
        """
        direct: dict[int, int] = {}
        last_read = {a.value: i for i, x in enumerate(order) for a in x.args if a.op == LOAD}
        for t, root in enumerate(self.roots):
            at = place[id(root)]
            plain = (root.dtype == self.specs[t].dtype and self.reqs[self.targets[t]] in (Req.WRITE, Req.INPLACE)
                     and not self.folded[t] and root.op not in (LOAD, PARAM, CONST, ROW_INDEX) and at not in direct)
            state = self.states.get(self.targets[t])
            read_until = max(last_read.values(), default=-1) if state is None else last_read.get(state, -1)
            if not self._shares(t):
                read_until = -1
            kept_as = typed(root)

            def may_write(i: int, until: int = read_until, dtype: np.dtype = kept_as) -> bool:
                x = order[i]
                early = not isinstance(self._function(x), np.ufunc) and x.op not in _OVER and any(a.op == LOAD for a in x.args)
                return (x.dtype == dtype and bool(x.args) and spans[i] and i not in direct
                        and (until < 0 or (until <= i and not early)))

            if not plain or not may_write(at):
                continue
            direct[at] = t
            while isinstance(self._function(order[at]), np.ufunc) or order[at].op in _OVER:
                over = uses[at][:1] if order[at].op in _OVER else uses[at]
                before = [a for a in over if last_use[a] == at and may_write(a)]
                if not before:
                    break
                at = before[0]
                direct[at] = t
        return direct

    def _shares(self, t: int) -> bool:
        """Return whether target t lies where an input lies."""
        return self.reqs[self.targets[t]] == Req.INPLACE or self.targets[t] in self.states

    def _register(self, key: tuple[np.dtype, bool], free: dict[tuple[np.dtype, bool], list[int]]) -> int:
        """Return a free register of this kind."""
        slots = free.setdefault(key, [])
        if slots:
            return slots.pop()
        self.registers.append(key)
        return len(self.registers) - 1

    def _release(self, a: int, held: dict[int, int], free: dict[tuple[np.dtype, bool], list[int]]) -> None:
        if a in held:
            r = held.pop(a)
            free.setdefault(self.registers[r], []).append(r)

    def _function(self, x: Expr) -> Any:
        return PRIMITIVES[x.op].numpy if x.op in PRIMITIVES else None

    def _leaf(self, x: Expr) -> str:
        if x.op == LOAD:
            return f"x{x.value}"
        if x.op == ROW_INDEX:
            return "row_index"
        if x.op == PARAM:
            if x.dtype is not None and x.dtype.kind in "iu":
                return f"to_integer(s_{x.value}, np.dtype('{x.dtype.name}'))"
            return f"s_{x.value}"
        return repr(x.value)

    def _constant(self, x: Expr) -> str:
        """A number as an array without axes: a ufunc takes it in half the time it takes a Python number."""
        if x.dtype is None or not is_float(x.dtype):
            return repr(x.value)
        key = float(x.value).hex(), x.dtype
        return self.constants.setdefault(key, f"c{len(self.constants)}")

    def _scalar(self, x: Expr, args: list[str]) -> str:
        integer = x.dtype is not None and x.dtype.kind in "iu"
        made = f"to_integer({{}}, np.dtype('{typed(x).name}'))" if integer else "bool({})" if x.dtype == BOOL else "float({})"
        if x.op == CAST:
            return made.format(args[0])
        if x.op == "where":
            return f"{args[1]} if {args[0]} else {args[2]}"
        if isinstance(PRIMITIVES[x.op].numpy, np.ufunc):
            args = [f"np.{typed(a).name}({v})" if typed(a).kind in "iu" else v for a, v in zip(x.args, args)]
            return made.format(f"np.{PRIMITIVES[x.op].numpy.__name__}({', '.join(args)})")
        d = f"np.dtype('{typed(x).name if integer else 'float64'}')"
        given = ", ".join(f"np.asarray({a}, {d})" for a in args)
        return f"(lambda o: (p_{x.op}({given}, o), {made.format('o.item()')})[1])(np.empty((), {d}))"

    def _call(self, x: Expr, args: list[str], out: str) -> str:
        if x.op == CAST:
            return _converted(args[0], x.args[0].dtype, typed(x), out)
        if x.op == REDUCE:
            folded = f"np.{_REDUCE[x.value].__name__}.reduce({args[0]}, axis={self._row}, keepdims=True"
            if x.value == "sum" and self._row < len(self.layout.dims) - 1 and self.layout.dims[self._row] > 64:
                return f"np.copyto({out}, total({args[0]}, ({self._row},)), casting='unsafe')"  # neighbours are no terms of a sum
            (a,) = x.args  # where it has fewer elements than the tile, NumPy does not fill all of out
            lacks = a.op == ROW_INDEX or (a.op == LOAD and not all(self.layout.present[a.value]))
            return f"np.copyto({out}, {folded}), casting='unsafe')" if lacks else f"{folded}, out={out})"
        if x.op == AT_INDEX:
            name, number = x.value
            return f"at_index(np.{PRIMITIVES[name].numpy.__name__}, {', '.join(args)}, {number!r}, {out}, {self._row}, row_index)"
        if x.op == FILL_ROWS:
            return f"fill_rows({', '.join(args)}, {x.value!r}, {out})"
        function = PRIMITIVES[x.op].numpy
        if isinstance(function, np.ufunc):
            return f"np.{function.__name__}({', '.join(args)}, out={out})"
        return f"p_{x.op}({', '.join(args)}, {out})"

    def _wide(self, root: Expr) -> str:
        return f", dtype=d_{root.dtype.name}" if root.dtype is not None and root.dtype.kind in "iub" and root.op == LOAD else ""


def _converted(value: str, have: np.dtype | None, want: np.dtype, out: str) -> str:
    """The line out = value, converted. have: None where it is not known."""
    if want.kind in "iu" and (have is None or is_float(have)):
        return f"cast_into({out}, {value})"
    return f"np.copyto({out}, {value}, casting='unsafe')"
