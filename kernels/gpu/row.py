"""Row kernels: expressions that also reduce over one axis (softmax, layer norm, losses), the last one or the one before it.

A program takes some rows. A row that fits one block is read once. A longer one is read in blocks: once for each level of
reductions that depend on each other, and once more for the results; a softmax's sum needs no reading of its own, because it is
scaled anew where the maximum grows. So few programs run at once that the cache holds their rows between the readings. Rows
along the last axis but one lie beside each other: a program takes many of them, whose elements are read together. Where
something is also summed over the rows, as the derivative of LayerNorm by gamma is, a program takes many rows one after another
and leaves their sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...dtype import float32, is_half
from ...integers import cdiv, next_power_of_2
from ..configs import active as active_configs
from ..configs.key import alignment, key
from ..ir.coalesce import BroadcastLayout, merge
from ..ir.draws import PlacedDraw
from ..ir.expr import REDUCE, Expr, identity, loads, topological, typed
from ..ir.rows import largest_of_sum, padded, varying
from ..op import Expression, Shape, Specs
from .body import (
    KernelBody,
    KernelLaunch,
    StoreTarget,
    convert,
    indent,
    index_lines,
    literal,
    offset_text,
    size_parameter,
    store,
    tl_type,
)
from .elementwise import INT32_ELEMENTS
from .target import CodegenTarget

LONGEST_BLOCK = 16384  # elements of a row held at once; above it, registers spill
LOOP_BLOCK = 8192  # elements of a longer row taken at a time
SUMMED = 8192  # elements of a row in a program that also sums over rows: it holds the sums, too
SUMMING_BLOCK = 2048  # elements that a program which also sums over rows takes at a time, 8 a thread
SUMMING_WARPS = 24  # of a multiprocessor, that also sum over rows: their registers fill it
BESIDE = 32  # rows beside each other that one program takes at least: their elements fill whole sectors of memory
BESIDE_ELEMENTS = 8192  # elements of such rows held at once
AHEAD, AHEAD_BYTES = 4, 96 << 10  # the loop iterations that are loading at once at most, and the shared memory they may take
_COMBINE = {"sum": "add", "max": "maximum"}


class RowKernel:
    """Prints the kernel that stores targets: each of the full shape, or with one value for each row, or a single row.

    Of a target that is a single row, each of `programs` programs stores the sum over its own rows: `sums_rows` says whether
    that is possible. No reduction in the kernel is over values that are the same along a row (ir/rows.py: whole_rows).
    """

    def __init__(self, e: Expression, ins: Specs, targets: Sequence[StoreTarget], full: Shape, codegen: CodegenTarget,
                 draws: Mapping[int, PlacedDraw]):
        self.targets, self.codegen = targets, codegen
        self.roots = [t.root for t in targets]
        self.used = loads(self.roots)
        self.body = KernelBody(self.roots, topological(self.roots), [s.dtype for s in ins], e.scalars, draws)
        specs = [*(ins[i] for i in self.used), *(t.spec for t in targets)]
        shapes = [padded(s, max(len(full), -e.axis)) for s in (full, *(s.shape for s in specs))]
        self.last = shapes[0][e.axis]
        self.lead: BroadcastLayout = merge([s[:e.axis] for s in shapes])
        self.inner = shapes[0][-1] if e.axis == -2 else 1  # rows beside each other
        self.rows = self.lead.size * self.inner
        absent = (False,) * len(self.lead.dims)
        self.summed = [k for k, present in enumerate(self.lead.present[1 + len(self.used):])
                       if self.rows > 1 and present == absent and shapes[1 + len(self.used) + k][e.axis] != 1]
        self.along = [s[e.axis] != 1 for s in shapes]  # per operand: it has the axis of the rows
        self.across = [self.inner > 1 and s[-1] != 1 for s in shapes]  # per operand: it has the axis behind that
        self.varies = varying(self.roots, dict(zip(self.used, self.along[1:])))
        self.wide = self.rows * self.last > INT32_ELEMENTS
        self.widest = max((s.dtype for s in specs), key=lambda d: d.itemsize)
        double = self.widest.itemsize > 4
        longest = 2048 if len(specs) > 5 and double else LONGEST_BLOCK  # a longer row does not fit the registers
        self.looped = self.last > longest
        self.crowded = self.looped * ((len(specs) > 3) + double)  # how often its block is halved
        self.block = min(longest, LOOP_BLOCK >> self.crowded) if self.looped else next_power_of_2(self.last)
        budget = 1 << 16 if codegen.interpreted else 2048
        self.block_rows = min(next_power_of_2(self.rows), max(1, budget // self.block))
        if self.inner > 1:
            self._lay_beside(double, len(specs))
        held = self.looped and self.inner == 1 and not self.crowded  # as many programs as the cache holds rows for
        self.warps = 32 if held else 16 if self.crowded or self.block > 8192 else 4 if self.block * self.block_rows <= 2048 else 8
        if self.summed and not codegen.interpreted:
            self.block_rows = min(self.block_rows, max(1, SUMMING_BLOCK // self.block))
            self.warps = min(16, max(4, self.block * self.block_rows // 256))
        at_once = 2 if codegen.interpreted else max(1, SUMMING_WARPS // self.warps) * codegen.multiprocessors
        self.programs = min(cdiv(self.rows, self.block_rows), at_once)
        self.sizes: dict[str, int] = {}
        self._first = "0"  # the column with which a block of a row begins
        self.level: dict[int, int] = {}  # the depth of nested reductions below each node
        for x in self.body.order:
            self.level[id(x)] = max((self.level[id(a)] for a in x.args), default=0) + (x.op == REDUCE)

    def _lay_beside(self, double: bool, operands: int) -> None:
        """Choose the blocks of rows that lie beside each other."""
        if self.codegen.interpreted:
            return
        held = (BESIDE_ELEMENTS >> double) >> (operands > 3)
        whole = next_power_of_2(self.last)
        self.crowded, self.looped = 0, whole * BESIDE > held
        self.block = held // 4 // 128 if self.looped else whole
        self.block_rows = min(next_power_of_2(self.rows), 128 if self.looped else min(128, max(BESIDE, 2048 // whole)))

    def launch(self, name: str) -> KernelLaunch:
        lines = self._row_offsets()
        names: dict[int, str] = {}
        if self.summed:
            lines = self._turns(lines, names)
        elif self.looped:
            lines += self._loops(names)
        else:
            lines += self._column("0")
            lines += self.body.lines(self.roots, names, self._fetch, self._reduce_block)
            lines += self._stores(names, True) + self._stores(names, False)
        blocks = {"BLOCK_ROWS": self.block_rows, "num_warps": self.warps}
        if not self.codegen.interpreted and active_configs.active() and self.inner == 1:
            row_key = key("gpu row", self.widest.name, "", alignment(self.last * self.widest.itemsize), rows=self.rows,
                          last=self.last, arrays=len(self.used) + len(self.targets))
            blocks = active_configs.choice(row_key, blocks)
        at_once = blocks["BLOCK_ROWS"]
        constants = {"BLOCK_ROWS": at_once, "BLOCK": self.block, **({"PROGRAMS": self.programs} if self.summed else {})}
        return self.body.launch(name, lines, self.used, self.targets, self.sizes,
                                (self.programs if self.summed else cdiv(self.rows, at_once),), constants, blocks["num_warps"],
                                self.codegen, wide=self.sizes if self.wide else ())

    @staticmethod
    def sums_rows(e: Expression, full: Shape, dtypes: Sequence[np.dtype], sums: int) -> bool:
        """Return whether a kernel can also sum over rows: its registers hold a row of each array, and of each sum."""
        wide = max((d.itemsize for d in dtypes), default=4) > 4
        return e.axis == -1 and e.combine == "add" and 1 < full[-1] <= SUMMED >> wide >> (sums > 2)

    def _turns(self, row_lines: list[str], names: dict[int, str]) -> list[str]:
        """Return the lines that take one block of rows after another and add what is summed over them."""
        before = ["column = tl.broadcast_to(lane, (BLOCK_ROWS, BLOCK))", "inside = column < last"]  # laid out as loads are
        same = [i for i in self.used if not any(self.lead.present[1 + self.used.index(i)]) and i not in self.body.draws]
        size, lines = [[t for t in row_lines if t.startswith(("last =", "lane =")) == first] for first in (True, False)]
        before += [f"v{i} = {self._fetch(i)}" for i in same]
        fetch = lambda i: f"v{i}" if i in same else self._fetch(i)
        lines += self.body.lines(self.roots, names, fetch, self._reduce_block)
        lines += self._stores(names, True) + self._stores(names, False)
        after = []
        for k in self.summed:
            t = self.targets[k]
            before.append(f"sum{k} = tl.zeros([BLOCK_ROWS, BLOCK], {tl_type(t.dtype)})")
            lines.append(f"sum{k} += tl.where(row_inside & inside, {names[id(t.root)]}, 0)")
            pointer = f"y{k} + tl.program_id(0) * last + lane"
            after.append(store(f"tl.sum(sum{k}, 0, keep_dims=True)", t.dtype, t.spec, t.req, pointer, ", mask=lane < last"))
        loop = f"for turn in tl.range(tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS), PROGRAMS, num_stages={self._stages()}):"
        return [*size, *before, loop, *indent(lines), *after]

    def _stages(self) -> int:
        """Return how many iterations of a loop load at once: those ahead wait in shared memory."""
        loaded = [i for k, i in enumerate(self.used) if self.along[1 + k] and i not in self.body.draws
                  and (not self.summed or any(self.lead.present[1 + k]))]
        width = sum(self.body.inputs[i].itemsize for i in loaded) * self.block * self.block_rows
        return max(1, min(AHEAD, 1 + AHEAD_BYTES // max(1, width)))

    # ---- offsets ----
    def _row_offsets(self) -> list[str]:
        """Return the lines of the row's index and of the row part of every operand's offset."""
        parameter, value, lines = size_parameter("last", self.last)
        self.sizes[parameter] = value
        start = ("turn" if self.summed else "tl.program_id(0)") + (".to(tl.int64)" if self.wide else "")
        first = [f"row = {start} * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]", "row_inside = row < rows"]
        if self.inner > 1:  # the text states what divides the number of rows, so that neighbours are read together
            parameter, value, more = size_parameter("inner", self.inner)
            self.sizes |= {parameter: value, "outer": self.lead.size}
            lines += [*more, "rows = outer * inner", *first, "beside = row % inner", "at = row // inner"]
        else:
            self.sizes["rows"] = self.rows
            lines += [*first, "at = tl.minimum(row, rows - 1)"]
        lines.append("lane = tl.arange(0, BLOCK)[None, :]")
        flags = {p for p in self.lead.present if any(p) and not all(p)}
        if flags:
            dims = self.lead.dims
            self.sizes |= {f"d{a}": dims[a] for a in range(1, len(dims))}
            lines += index_lines("at", range(len(dims)))
        return lines + [f"{_row_name(p)} = {offset_text(p)}" for p in sorted(flags)]

    def _column(self, start: str) -> list[str]:
        self._first = start
        return [f"column = {start} + lane", "inside = column < last"]

    def _offset(self, operand: int, row: str) -> str:
        present, along = self.lead.present[operand], self.along[operand]
        if self.inner > 1:
            return self._offset_beside(present, along, self.across[operand])
        several = self.rows > 1 and any(present)
        index = row if all(present) else _row_name(present)
        if along:
            return f"({index} * last + column)" if several else "column"
        return index if several else ""

    def _offset_beside(self, present: tuple[bool, ...], along: bool, across: bool) -> str:
        """Return the offset of an operand where rows lie beside each other."""
        if all(present) and across and not along:
            return "row"
        index = "at" if all(present) else _row_name(present) if any(present) else ""
        if along:
            index = f"({index} * last + column)" if index else "column"
        if across:
            index = f"({index} * inner + beside)" if index else "beside"
        return index

    def _fetch(self, i: int) -> str:
        operand = 1 + self.used.index(i)
        offset = self._offset(operand, "at")
        if self.along[operand] and self.inner == 1 and self.block >= 4:
            start = offset[1:].removesuffix(" + column)") if offset != "column" else ""
            words = self.body.read_rows(i, start, self._first, math.gcd(self.last, 4) if start else 4)
            if words is not None:
                return words
        if self.inner > 1:
            mask = ", mask=row_inside & inside" if self.along[operand] else ", mask=row_inside"
            return self.body.read(i, offset, mask if offset else "")
        return self.body.read(i, offset, ", mask=inside" if self.along[operand] else "")

    def _stores(self, names: dict[int, str], along: bool) -> list[str]:
        lines = []
        for k, t in enumerate(self.targets):
            operand = 1 + len(self.used) + k
            if self.along[operand] != along or k in self.summed:
                continue
            mask = "row_inside & inside" if along else "row_inside"
            offset = self._offset(operand, "row")
            pointer = f"y{k} + {offset}" if offset else f"y{k}"
            if self.rows == 1 and self.inner == 1:
                pointer += " + row" if not along else " + row * last"
            lines.append(store(names[id(t.root)], t.dtype, t.spec, t.req, pointer, f", mask={mask}"))
        return lines

    # ---- reductions ----
    def _reduce_block(self, x: Expr, value: str) -> str:
        value, dtype, zero = self._widened(x, value)
        if x.value == "sum":
            return convert(f"tl.sum(tl.where(inside, {value}, {zero}), 1, keep_dims=True)", dtype, typed(x))
        return convert(f"_row_max({value}, inside, {zero}, 1)", dtype, typed(x))

    @staticmethod
    def _widened(x: Expr, value: str) -> tuple[str, np.dtype, str]:
        """The text of the reduced value, the dtype it is reduced in, and the identity."""
        dtype = float32 if is_half(typed(x)) else typed(x)
        return convert(value, typed(x), dtype), dtype, literal(identity(_COMBINE[x.value], dtype), dtype)

    def _loops(self, names: dict[int, str]) -> list[str]:
        """Return one loop over the row for each level of reductions, and a loop that stores."""
        lines: list[str] = []
        reductions = [x for x in self.body.order if x.op == REDUCE]
        joined = {id(x): largest for x in reductions if (largest := largest_of_sum(x)) is not None and not is_half(typed(x))}
        for depth in sorted({self.level[id(x)] for x in reductions if id(x) not in joined}):
            now = [x for x in reductions if self.level[id(x)] == depth and id(x) not in joined]
            lines += self._settle(names, depth)
            inner = self._column("first")
            local = dict(names)
            inner += self.body.lines([x.args[0] for x in now], local, self._fetch)
            for x in now:
                n = self.body.number[id(x)]
                value, dtype, zero = self._widened(x, local[id(x.args[0])])
                lines.append(f"f{n} = tl.full([BLOCK_ROWS, BLOCK], {zero}, {tl_type(dtype)})")
                masked = f"tl.where(inside, {value}, {zero})"
                for total in (y for y in reductions if joined.get(id(y)) is x):
                    s = f"f{self.body.number[id(total)]}"
                    lines.append(f"{s} = tl.zeros([BLOCK_ROWS, BLOCK], {tl_type(dtype)})")
                    inner.append(f"{s} = _add_exponential({s}, f{n}, {masked})")
                inner.append(f"f{n} = f{n} + {masked}" if x.value == "sum" else
                             f"f{n} = tl.maximum(f{n}, {masked}, propagate_nan=tl.PropagateNan.ALL)")
            lines += [f"for first in tl.range(0, last, BLOCK, num_stages={self._stages()}):", *indent(inner)]
            for x in now:
                n = self.body.number[id(x)]
                _, dtype, low = self._widened(x, "")
                reduced = (f"tl.sum(f{n}, 1, keep_dims=True)" if x.value == "sum"
                           else f"_row_max(f{n}, row_inside | (lane >= 0), {low}, 1)")
                lines.append(f"t{n} = {convert(reduced, dtype, typed(x))}")
                names[id(x)] = f"t{n}"
                for total in (y for y in reductions if joined.get(id(y)) is x):
                    s = self.body.number[id(total)]
                    lines.append(f"t{s} = tl.sum(f{s} * tl.exp(f{n} - t{n}), 1, keep_dims=True)")
                    names[id(total)] = f"t{s}"
        lines += self._settle(names, 1 + max(self.level.values()))
        if any(self.along[1 + len(self.used):]):
            inner = self._column("first")
            local = dict(names)
            along = [t.root for k, t in enumerate(self.targets) if self.along[1 + len(self.used) + k]]
            inner += self.body.lines(along, local, self._fetch)
            inner += self._stores(local, True)
            lines += [f"for first in tl.range(0, last, BLOCK, num_stages={self._stages()}):", *indent(inner)]
        lines += self._stores(names, False)
        return lines

    def _settle(self, names: dict[int, str], depth: int) -> list[str]:
        """Return the lines that compute the values per row that are known by now, once, outside the loop."""
        ready = [x for x in self.body.order if not self.varies[id(x)] and self.level[id(x)] < depth]
        return self.body.lines(ready, names, self._fetch)


def _row_name(present: tuple[bool, ...]) -> str:
    return "row" + "".join("1" if p else "0" for p in present)
