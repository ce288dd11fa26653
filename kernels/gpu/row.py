"""Row kernels: expressions that also reduce over the last axis (softmax, layer norm, losses).

A program takes some rows. A row that fits one block is read once. A longer one is read in blocks: once for each level of
reductions that depend on each other, and once more for the results.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtype import float32, is_half
from ...integers import cdiv, next_power_of_2
from ..configs import active as active_configs
from ..configs.key import alignment, key
from ..ir.coalesce import Layout, merge
from ..ir.expr import REDUCE, Expr, loads, topological
from ..op import Expression, Shape, Specs
from .body import KernelBody, KernelLaunch, StoreTarget, convert, indent, kernel_text, literal, size_parameter, store, tl_type
from .elementwise import INT32_ELEMENTS
from .reduction import identity
from .target import CodegenTarget

LONGEST_BLOCK = 16384  # elements of a row held at once; above it, registers spill
LOOP_BLOCK = 8192  # elements of a longer row taken at a time
_COMBINE = {"sum": "add", "max": "maximum"}


def row_launch(e: Expression, ins: Specs, targets: Sequence[StoreTarget], full: Shape, name: str, codegen: CodegenTarget,
             longest: int | None = None) -> KernelLaunch:
    """Print the kernel that stores targets, each [rows, last] or [rows, 1] of the full shape.

    longest: the longest row that is held in one block, a power of two; default LONGEST_BLOCK.
    """
    return _Rows(e, ins, targets, full, longest or LONGEST_BLOCK, codegen).launch(name)


class _Rows:
    """Prints one row kernel."""

    def __init__(self, e: Expression, ins: Specs, targets: Sequence[StoreTarget], full: Shape, longest: int,
                 codegen: CodegenTarget):
        self.ins, self.targets, self.codegen = ins, targets, codegen
        roots = [t.root for t in targets]
        self.used = loads(roots)
        self.order = topological(roots)
        self.body = KernelBody(roots, self.order, [s.dtype for s in ins], e.scalars)
        rank = max(len(full), 1)
        shapes = [(1,) * (rank - len(s)) + tuple(s) for s in
                  (full, *(ins[i].shape for i in self.used), *(t.spec.shape for t in targets))]
        self.last = shapes[0][-1]
        self.lead: Layout = merge([s[:-1] for s in shapes])
        self.rows = self.lead.size
        self.along = [s[-1] != 1 for s in shapes]  # per operand: it has the last axis
        self.wide = self.rows * self.last > INT32_ELEMENTS
        dtypes = [s.dtype for s in (*(ins[i] for i in self.used), *(t.spec for t in targets))]
        if len(dtypes) > 5 and any(d.itemsize > 4 for d in dtypes):  # a longer row does not fit the registers
            longest = min(longest, 2048)
        self.looped = self.last > longest
        self.crowded = self.looped * ((len(dtypes) > 3) + any(d.itemsize > 4 for d in dtypes))  # how often its block is halved
        self.block = min(longest, LOOP_BLOCK >> self.crowded) if self.looped else next_power_of_2(self.last)
        budget = 1 << 16 if codegen.interpreted else 2048
        self.block_rows = min(next_power_of_2(self.rows), max(1, budget // self.block))
        self.sizes: dict[str, int] = {}
        self.level = self._levels()

    def _levels(self) -> dict[int, int]:
        """The depth of nested reductions below each node."""
        level: dict[int, int] = {}
        for x in self.order:
            level[id(x)] = max((level[id(a)] for a in x.args), default=0) + (x.op == REDUCE)
        return level

    def launch(self, name: str) -> KernelLaunch:
        lines = [*self.body.prologue, *self._row_offsets()]
        roots = [t.root for t in self.targets]
        names: dict[int, str] = {}
        if self.looped:
            lines += self._loops(names)
        else:
            lines += self._column("0")
            lines += self.body.lines(roots, names, self._fetch, self._reduce_block)
            lines += self._stores(names, True) + self._stores(names, False)
        operands = [("in", i) for i in self.used]
        pointers = [(p, self.ins[p[1]].dtype) for p in operands] + [(t.array, t.spec.dtype) for t in self.targets]
        wide = ": tl.int64" if self.wide else ""
        parameters = [f"x{i}" for i in self.used] + [f"y{k}" for k in range(len(self.targets))]
        parameters += [s + wide for s in self.sizes]
        parameters += [*self.body.scalar_parameters(), "BLOCK_ROWS: tl.constexpr", "BLOCK: tl.constexpr"]
        fewest = 16 if self.crowded else 4 if self.block * self.block_rows <= 2048 else 8
        blocks = {"BLOCK_ROWS": self.block_rows, "num_warps": fewest if self.block <= 8192 else 16}
        if not self.codegen.interpreted and active_configs.active():
            widest = max((d for _, d in pointers), key=lambda d: d.itemsize)
            row_key = key("gpu row", widest.name, "", alignment(self.last * widest.itemsize), rows=self.rows, last=self.last,
                          arrays=len(pointers))
            blocks = active_configs.choice(row_key, blocks)
        return KernelLaunch(name, kernel_text(name, parameters, lines, list(self.sizes), self.codegen), pointers, self.sizes,
                    self.body.scalars(), (cdiv(self.rows, blocks["BLOCK_ROWS"]),),
                    {"BLOCK_ROWS": blocks["BLOCK_ROWS"], "BLOCK": self.block}, blocks["num_warps"])

    # ---- offsets ----
    def _row_offsets(self) -> list[str]:
        """Return the lines of the row's index and of the row part of every operand's offset."""
        parameter, value, lines = size_parameter("last", self.last)
        self.sizes[parameter] = value
        self.sizes["rows"] = self.rows
        start = "tl.program_id(0)" + (".to(tl.int64)" if self.wide else "")
        lines += [f"row = {start} * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]",
                  "row_inside = row < rows",
                  "at = tl.minimum(row, rows - 1)",
                  "lane = tl.arange(0, BLOCK)[None, :]"]
        flags = {p for p in self.lead.present if any(p) and not all(p)}
        if flags:
            dims = self.lead.dims
            self.sizes |= {f"d{a}": dims[a] for a in range(1, len(dims))}
            lines.append("lead = at")
            for a in range(len(dims) - 1, 0, -1):
                lines += [f"i{a} = lead % d{a}", f"lead = lead // d{a}"]
            lines.append("i0 = lead")
        for p in sorted(flags):
            terms = []
            for a, is_present in enumerate(p):
                if is_present:
                    terms.append(" * ".join([f"i{a}", *(f"d{b}" for b in range(a + 1, len(p)) if p[b])]))
            lines.append(f"{_row_name(p)} = {' + '.join(terms)}")
        return lines

    def _column(self, start: str) -> list[str]:
        return [f"column = {start} + lane", "inside = column < last"]

    def _offset(self, operand: int, row: str) -> str:
        present, along = self.lead.present[operand], self.along[operand]
        several = self.rows > 1 and any(present)
        index = row if all(present) else _row_name(present)
        if along:
            return (f" + ({index} * last + column)" if several else " + column")
        return f" + {index}" if several else ""

    def _fetch(self, i: int) -> str:
        operand = 1 + self.used.index(i)
        pointer = f"x{i}{self._offset(operand, 'at')}"
        return f"tl.load({pointer}, mask=inside)" if self.along[operand] else f"tl.load({pointer})"

    def _stores(self, names: dict[int, str], along: bool) -> list[str]:
        lines = []
        for k, t in enumerate(self.targets):
            operand = 1 + len(self.used) + k
            if self.along[operand] != along:
                continue
            mask = "row_inside & inside" if along else "row_inside"
            pointer = f"y{k}{self._offset(operand, 'row')}"
            if self.rows == 1:
                pointer += " + row" if not along else " + row * last"
            lines.append(store(names[id(t.root)], t.dtype, t.spec, t.req, pointer, f", mask={mask}"))
        return lines

    # ---- reductions ----
    def _varies(self) -> dict[int, bool]:
        """True for the nodes with a value per column."""
        varies: dict[int, bool] = {}
        for x in self.order:
            if x.op == "load":
                varies[id(x)] = self.along[1 + self.used.index(x.value)]
            else:
                varies[id(x)] = x.op != REDUCE and any(varies[id(a)] for a in x.args)
        return varies

    def _reduce_block(self, x: Expr, value: str) -> str:
        if not self._varies()[id(x.args[0])]:
            return value
        value, dtype, zero = self._widened(x, value)
        if x.value == "sum":
            return self._narrowed(x, f"tl.sum(tl.where(inside, {value}, {zero}), 1, keep_dims=True)", dtype)
        return self._narrowed(x, f"_row_max({value}, inside, {zero}, 1)", dtype)

    @staticmethod
    def _widened(x: Expr, value: str) -> tuple[str, np.dtype, str]:
        """The text of the reduced value, the dtype it is reduced in, and the identity."""
        assert x.dtype is not None
        dtype = float32 if is_half(x.dtype) else x.dtype
        return convert(value, x.dtype, dtype), dtype, literal(identity(_COMBINE[x.value], dtype), dtype)

    @staticmethod
    def _narrowed(x: Expr, text: str, dtype: np.dtype) -> str:
        assert x.dtype is not None
        return convert(text, dtype, x.dtype)

    def _loops(self, names: dict[int, str]) -> list[str]:
        """Return one loop over the row for each level of reductions, and a loop that stores."""
        lines: list[str] = []
        varies = self._varies()
        reductions = [x for x in self.order if x.op == REDUCE and varies[id(x.args[0])]]
        for depth in sorted({self.level[id(x)] for x in reductions}):
            now = [x for x in reductions if self.level[id(x)] == depth]
            self._settle(names, lines, depth, varies)
            inner = self._column("first")
            local = dict(names)
            inner += self.body.lines([x.args[0] for x in now], local, self._fetch, self._keep)
            for x in now:
                n = self.body.number[id(x)]
                value, dtype, zero = self._widened(x, local[id(x.args[0])])
                lines.append(f"f{n} = tl.full([BLOCK_ROWS, BLOCK], {zero}, {tl_type(dtype)})")
                masked = f"tl.where(inside, {value}, {zero})"
                inner.append(f"f{n} = f{n} + {masked}" if x.value == "sum" else
                             f"f{n} = tl.maximum(f{n}, {masked}, propagate_nan=tl.PropagateNan.ALL)")
            lines += ["for first in range(0, last, BLOCK):", *indent(inner)]
            for x in now:
                n = self.body.number[id(x)]
                _, dtype, low = self._widened(x, "")
                reduced = (f"tl.sum(f{n}, 1, keep_dims=True)" if x.value == "sum"
                           else f"_row_max(f{n}, row_inside | (lane >= 0), {low}, 1)")
                lines.append(f"t{n} = {self._narrowed(x, reduced, dtype)}")
                names[id(x)] = f"t{n}"
        self._settle(names, lines, 1 + max(self.level.values()), varies)
        if any(self.along[1 + len(self.used):]):
            inner = self._column("first")
            local = dict(names)
            along = [t.root for k, t in enumerate(self.targets) if self.along[1 + len(self.used) + k]]
            inner += self.body.lines(along, local, self._fetch, self._keep)
            inner += self._stores(local, True)
            lines += ["for first in range(0, last, BLOCK):", *indent(inner)]
        lines += self._stores(names, False)
        return lines

    def _settle(self, names: dict[int, str], lines: list[str], depth: int, varies: dict[int, bool]) -> None:
        """Compute the values per row that are known by now once, outside the loop."""
        ready = [x for x in self.order if not varies[id(x)] and self.level[id(x)] < depth]
        lines += self.body.lines(ready, names, self._fetch, self._keep)

    @staticmethod
    def _keep(x: Expr, value: str) -> str:
        return value


def _row_name(present: tuple[bool, ...]) -> str:
    return "row" + "".join("1" if p else "0" for p in present)
