"""Print an index formula as Triton: one program per block of elements of the output.

The indices of an element are quotients and remainders of its position by sizes that are known at run time. Index arithmetic
is 32 bits wide where the sizes keep it below 2³¹, else 64. Loops are Triton loops; one whose extent differs from element to
element runs to the longest of its block.

Accesses stay 128 bits wide where they can be. A flat block that lies inside the output takes a branch without masks (with loops,
only the stores do); the masks of a tile end where rows end, and the text states which power of two divides their length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...dtype import is_float
from ...integers import cdiv, next_power_of_2
from ..ir.expr import BOOL, CAST, CONST, Expr, const, node, topological, typed
from ..ir.indexed import (
    ACC,
    FOLD,
    GATHER,
    INDEX,
    INT64,
    LOOP,
    PLACES,
    PUT,
    SIZE,
    TRUE,
    IndexedProgram,
    Ranges,
    accumulated_in,
    axes_of,
    simplify,
)
from ..ir.primitives import PRIMITIVES
from ..ir.schedule import Item, Loop, Schedule
from ..kernel import Kernel
from ..op import Expression, Req, Reqs, Spec, Specs
from .body import (
    KernelBody,
    KernelLaunch,
    LaunchPlan,
    StoreTarget,
    convert,
    indent,
    index_lines,
    kernel_name,
    literal,
    size_parameter,
    store,
    tl_type,
    typed_root,
)
from .elementwise import INT32_ELEMENTS, elementwise_launch, lanes
from .printer import copy_launch
from .target import CodegenTarget, codegen_target

BRANCHED = 60  # nodes up to which a kernel has two branches: more text takes longer to compile than it saves
LOOP_LANES = 256  # the most elements of one program with a loop and many nodes: its accumulators stay in registers
SHORT = 16  # a shorter last axis is part of a flat block
ROW, COLUMN, STEP = 1, 2, 4  # along what a value differs
BOTH = ROW | COLUMN
_INT32 = range(-(2**31), 2**31)


def indexed_kernel(p: IndexedProgram, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> Kernel:
    """Return the kernel: kernel(run, inputs, outputs, scalars=()). All outputs have the program's shape."""
    return Kernel(_plan(p, ins, outs, reqs, name).run)


def indexed_source(p: IndexedProgram, ins: Specs, outs: Specs, reqs: Reqs, *, name: str = "kernel") -> str:
    """Return the text of the kernel, for reading."""
    return "\n\n".join(one.kernel.source for one in _plan(p, ins, outs, reqs, name).launches)


def _plan(p: IndexedProgram, ins: Specs, outs: Specs, reqs: Reqs, name: str) -> LaunchPlan:
    wanted = [i for i, (s, r) in enumerate(zip(outs, reqs)) if r != Req.NULL and s.size]
    plan = LaunchPlan()
    if wanted:
        roots = tuple(typed_root(p.roots[i], outs[i].dtype) for i in wanted)
        p = simplify(IndexedProgram(roots, p.shape, p.scalars), fixed_sizes=False)
        targets = [StoreTarget(r, outs[i], reqs[i], ("out", i)) for r, i in zip(p.roots, wanted)]
        plan.launches.append(_Printer(p, ins, targets, codegen_target()).launch(kernel_name(name)))
    return plan


def scatter_kernel(programs: Sequence[IndexedProgram], ins: Specs, out: Spec, req: Req, *, combine: str, start: Expr,
                   distinct: bool, name: str) -> Kernel:
    """Return the kernel of programs that each put elements into the one output: kernel(run, inputs, [output], scalars=()).

    combine, start, distinct: as on the CPU (cpu/indexed_scatter.py). Nothing is atomic where places are distinct.
    """
    plan, codegen, name = LaunchPlan(), codegen_target(), kernel_name(name)
    alone = distinct and combine != "maximum"  # an element is stored, or added to what is there, by one program
    wide = out.dtype if alone or combine == "put" else accumulated_in(out.dtype)
    final = StoreTarget(const(0, wide), out, req, ("out", 0))
    target = final
    if wide != out.dtype or (combine != "add" and req == Req.ADD):
        target = plan.temporary(final.root, out.shape, wide)
    if target.req != Req.ADD:
        started = StoreTarget(typed_root(start, wide), target.spec, Req.WRITE, target.array)
        filled = Expression((started.root,), scalars=programs[0].scalars if programs else ())
        plan.launches.append(elementwise_launch(filled, [], [started], out.shape, f"{name}_start", codegen))
    for p in programs:
        if math.prod(p.shape):
            p = simplify(p, fixed_sizes=False)
            how = "" if alone else combine
            stored = [StoreTarget(p.roots[0], target.spec, target.req, target.array)]
            if how == "put":  # the last element of each place is found first, and then stored alone
                who = plan.temporary(const(-1, INT64), out.shape, INT64)
                filled = Expression((who.root,))
                plan.launches.append(elementwise_launch(filled, [], [who], out.shape, f"{name}_nobody", codegen))
                inside, element, *places = p.roots[0].args
                nobody = node(PUT, (inside, const(0, typed(element)), *places), p.roots[0].value, typed(element))
                found = StoreTarget(nobody, who.spec, Req.WRITE, who.array)
                plan.launches.append(_Printer(replace(p, roots=(nobody,)), ins, [found], codegen, "last").launch(f"{name}_last"))
                stored.append(replace(found, root=p.roots[0]))
            plan.launches.append(_Printer(p, ins, stored, codegen, how).launch(name))
    if target is not final:
        plan.launches.append(copy_launch(target, final, f"{name}_copy", codegen))
    return Kernel(plan.run)


class _Printer:
    """Turns a program into one kernel.

    The elements of one program are a block along the whole output, or, where its last axis is long enough, a tile of rows and
    columns: what depends on the row alone is computed once for each row. The kind of a value says along what it differs: the
    sum of ROW and COLUMN (both: along a flat block, too), or STEP if it only differs from step to step of a loop, or 0.
    """

    def __init__(self, p: IndexedProgram, ins: Specs, targets: Sequence[StoreTarget], codegen: CodegenTarget,
                 combine: str = ""):
        self.p, self.ins, self.targets, self.codegen, self.combine = p, ins, targets, codegen, combine
        order = topological(p.roots)
        masks = {id(x.args[0]) for x in order if x.op in PLACES}
        plain = {id(a) for x in order for a in (x.args[1:] if x.op in PLACES else x.args)} | {id(r) for r in p.roots}
        self.order = [x for x in order if x is not TRUE or id(x) in plain or id(x) not in masks]
        self.body = KernelBody(p.roots, [x for x in self.order if not (x.op == CONST and x.dtype == INT64)],
                               [s.dtype for s in ins], p.scalars)
        self.ranges, self.axes = Ranges(p.roots, p.shape), axes_of(order)
        self.n, self.last = math.prod(p.shape), len(p.shape) - 1
        self.used = sorted({x.value[0] for x in order if x.op == GATHER})
        self.wide_output = self.n > INT32_ELEMENTS
        self.wide = self.wide_output or any(s.size > INT32_ELEMENTS for s in (*(ins[i] for i in self.used),
                                                                                *(t.spec for t in targets)))
        self.loops = any(x.op == FOLD for x in order)
        self.flat = self.last < 1 or p.shape[-1] < SHORT
        self.schedule = Schedule(p.roots)
        self.sizes: dict[str, int] = {}
        self.size_lines: list[str] = []
        self.views: dict[tuple, str] = {}
        self.number = {id(x): i for i, x in enumerate(order)}
        self.shapes = {STEP: "[1]", BOTH: "[BLOCK]"} if self.flat else \
            {STEP: "[1, 1]", ROW: "[BR, 1]", COLUMN: "[1, BC]", BOTH: "[BR, BC]"}

    def launch(self, name: str) -> KernelLaunch:
        along = {x.value[0] for x in self.order if x.op == GATHER and (self.flat or self.last in self.axes[id(x)])}
        specs = [*(self.ins[i] for i in along), *(t.spec for t in self.targets)]
        widest = max((s.dtype for s in specs), key=lambda d: d.itemsize)
        most = lanes(self.order, widest)
        if self.loops:
            most = min(most, LOOP_LANES if len(self.order) > BRANCHED else 1024)
        block = self.codegen.block(self.n, most)
        lines, blocks, programs = self._flat_lines(block) if self.flat else self._tile_lines(block)
        reason = self._narrow_because()
        comment = [f"# narrow: {reason}"] if reason else []
        text = [*comment, *self.size_lines, *lines]
        return self.body.launch(name, text, self.used, self.targets, self.sizes, (programs,), blocks, 4,
                                self.codegen, wide=self.sizes if self.wide else ("n",))

    def _narrow_because(self) -> str:
        """Return the reason why elements along a row are not next to each other in memory; "" if they may be."""
        for x in self.order:
            if x.op not in PLACES:
                continue
            places = x.args[PLACES[x.op]:]
            rows = bool(places) and places[-1].op == INDEX and all(self.last not in self.axes[id(a)] for a in places[:-1])
            if x.op == PUT and (self.combine in ("last", "put") or not rows):
                return "elements are put one by one"
            if x.op == GATHER and places and places[-1].op != INDEX and self.last in self.axes[id(places[-1])]:
                return "addresses along a row are computed one by one"
        return ""

    def _flat_lines(self, block: int) -> tuple[list[str], dict[str, int], int]:
        self.sizes["n"] = self.n
        lines = ["base = tl.program_id(0).to(tl.int64) * BLOCK", "lane = tl.arange(0, BLOCK)"]
        if any(x.op == INDEX for x in self.order):
            lines.append("place = base + lane" if self.wide_output else "place = tl.program_id(0) * BLOCK + lane")
            for axis in range(1, self.last + 1):
                self._size(f"d{axis}", self.p.shape[axis], last=axis == self.last)
            lines += index_lines("place", range(self.last + 1))
        mask = "mask = lane < (n - base).to(tl.int32)"
        if self.loops or len(self.order) > BRANCHED:
            lines += [mask, *self._compute(masked=True), "if base + BLOCK <= n:", *indent(self._stores("")), "else:",
                      *indent(self._stores(", mask=mask"))]
        else:
            lines += ["if base + BLOCK <= n:", *indent([*self._compute(masked=False), *self._stores("")]), "else:",
                      *indent([mask, *self._compute(masked=True), *self._stores(", mask=mask")])]
        return lines, {"BLOCK": block}, cdiv(self.n, block)

    def _tile_lines(self, block: int) -> tuple[list[str], dict[str, int], int]:
        columns, last = self.p.shape[-1], self.last
        rows = self.n // columns
        bc = min(next_power_of_2(columns), block)
        br = min(next_power_of_2(rows), block // bc)
        self._size("rows", rows)
        self._size(f"d{last}", columns, last=True)
        for axis in range(1, last):
            self._size(f"d{axis}", self.p.shape[axis])
        whole = ".to(tl.int64)" if self.wide_output else ""
        lines = [f"tiles = tl.cdiv(d{last}, BC)",
                 f"row = (tl.program_id(0) // tiles){whole} * BR + tl.arange(0, BR)[:, None]",
                 f"i{last} = (tl.program_id(0) % tiles) * BC + tl.arange(0, BC)[None, :]",
                 "in_row = row < rows", f"in_column = i{last} < d{last}", "mask = in_row & in_column",
                 f"near = row * d{last} + i{last}", *index_lines("row", range(last))]
        return [*lines, *self._compute(masked=True), *self._stores(", mask=mask")], {"BR": br, "BC": bc}, \
            cdiv(rows, br) * cdiv(columns, bc)

    def _size(self, name: str, value: int, *, last: bool = False) -> str:
        """Return the name of a size, which becomes a parameter of the kernel."""
        parameter, given, lines = size_parameter(name, value) if last else (name, value, [])
        if parameter not in self.sizes:
            self.sizes[parameter] = given
            self.size_lines += lines
        return name

    # ---- text ----
    def _kind(self, x: Expr) -> int:
        """Return the kind of an accumulator."""
        axes = self.axes[id(x)]
        if self.flat or not axes:
            return BOTH if axes else STEP
        return ROW * any(a != self.last for a in axes) | COLUMN * (self.last in axes)

    def _compute(self, *, masked: bool) -> list[str]:
        self.masked = masked
        self.names: dict[int, str] = {}
        self.kinds: dict[int, int] = {}
        self.narrow: set[int] = set()
        self.live: list[tuple[str, int]] = []
        for x in self.order:
            narrow = False
            if id(x) in self.body.inner:
                continue
            if x.op == CONST:
                name, kind = literal(x.value, INT64) if x.dtype == INT64 else self.body.leaves[id(x)], 0
                narrow = x.dtype == INT64 and x.value in _INT32
            elif id(x) in self.body.leaves:  # of run-time scalars alone
                name, kind = self.body.leaves[id(x)], 0
            elif x.op == SIZE:
                source, axis, value = x.value
                name, kind = self._size(f"n_{axis}" if source < 0 else f"n{source}_{axis}", value), 0
                narrow = not self.wide
            elif x.op == INDEX:
                name, kind = f"i{x.value}", self._kind(x)
                narrow = not self.wide_output
            elif x.op == LOOP:
                name, kind = f"k{x.value}", STEP
                narrow = self._fits(x) and not self.wide
            else:
                continue
            self.names[id(x)], self.kinds[id(x)] = name, kind
            if narrow:
                self.narrow.add(id(x))
        lines: list[str] = []
        self._items(self.schedule.items, lines)
        return lines

    def _stores(self, mask: str) -> list[str]:
        place = "base + lane" if self.flat else "near"
        if self.targets[0].root.op == PUT:
            return [self._put(self.targets[0], place, mask)]
        return [store(self._block(t.root, BOTH), t.dtype, t.spec, t.req, f"y{k} + {place}", mask)
                for k, t in enumerate(self.targets)]

    def _put(self, t: StoreTarget, number: str, mask: str) -> str:
        """Return the line that puts an element; number: the text of its number in the index space."""
        inside, element, *places = t.root.args
        offset = self._offset(t.root, t.spec) or "0"
        if _union(self.kinds[id(a)] for a in places) != BOTH:
            offset = f"({offset} + tl.zeros({self.shapes[BOTH]}, tl.int32))"
        limits = [m for m in (mask.removeprefix(", mask="), "" if inside is TRUE else self._block(inside, BOTH)) if m]
        value = self._block(element, BOTH)
        options = f", mask={' & '.join(limits)}" if limits else ""
        if self.combine == "last":
            return f"tl.atomic_max(y0 + {offset}, ({number}).to(tl.int64){options}, sem=\"relaxed\")"
        if self.combine == "put":
            there = f"tl.load(y1 + {offset}{options}{', other=-1' if limits else ''}) == {number}"
            limits.append(f"({there})")
            options = f", mask={' & '.join(limits)}"
        if self.combine in ("", "put"):
            return store(value, typed(element), t.spec, t.req, f"y0 + {offset}", options)
        return f"tl.atomic_{'add' if self.combine == 'add' else 'max'}(y0 + {offset}, {value}{options}, sem=\"relaxed\")"

    def _fits(self, x: Expr) -> bool:
        known = self.ranges.of(x)
        return known is not None and known[0] in _INT32 and known[1] in _INT32

    def _block(self, x: Expr, kind: int) -> str:
        """Return x as a block of its dtype and of this kind."""
        text, dtype, shape = self.names[id(x)], typed(x), self.shapes[kind]
        if self.kinds[id(x)] == kind:
            return f"{text}.to(tl.int64)" if id(x) in self.narrow else text
        if x.op == CONST:
            return f"tl.full({shape}, {literal(x.value, dtype)}, {tl_type(dtype)})"
        if dtype == BOOL:
            return f"((tl.zeros({shape}, tl.int32) + {text}) != 0)"
        return f"(tl.zeros({shape}, {tl_type(dtype)}) + {text})"

    def _items(self, items: Sequence[Item], lines: list[str]) -> None:
        for x in items:
            if isinstance(x, Loop):
                self._loop(x, lines)
                continue
            if x.op == PUT or id(x) in self.body.inner or id(x) in self.body.leaves:
                continue
            text = self._gather(x) if x.op == GATHER else self._apply(x)
            self.names[id(x)] = f"t{self.number[id(x)]}"
            lines.append(f"{self.names[id(x)]} = {text}")

    def _gather(self, x: Expr) -> str:
        source, mask, places = x.value[0], x.args[0], x.args[1:]
        have = kind = _union(self.kinds[id(a)] for a in places)
        offset, limits = self._offset(x, self.ins[source]), []
        if mask is not TRUE:
            limits.append(self.names[id(mask)])
            kind = _union((kind, self.kinds[id(mask)]))
        for text, other in self.live:  # an element whose own loop has ended reads nothing
            limits.append(text)
            kind = _union((kind, other))
        if kind != have:
            offset = f"({offset or 0} + tl.zeros({self.shapes[kind]}, tl.int32))"
        if self.masked and kind & BOTH:
            limits.append("mask" if kind == BOTH else "in_row" if kind == ROW else "in_column")
        self.kinds[id(x)] = kind
        options = f", mask={' & '.join(limits)}, other=0" if limits else ""
        return f"tl.load(x{source}{f' + {offset}' if offset else ''}{options})"

    def _offset(self, x: Expr, spec: Spec) -> str:
        source, shape = x.value
        places = x.args[PLACES[x.op]:]
        source = "out" if x.op == PUT else source
        if shape == self.p.shape and all(a.op == INDEX and a.value == i for i, a in enumerate(places)):
            return ("base + lane" if self.flat else "near") if places else ""
        text = ""
        for j, a in enumerate(places):
            at = self.names[id(a)]
            if id(a) not in self.narrow and spec.size <= INT32_ELEMENTS:
                at = f"{at}.to(tl.int32)"
            if text:
                text = f"{f'({text})' if ' ' in text else text} * {self._view_size(source, shape, j)}"
                text += f" + {at}" if at != "0" else ""
            elif at != "0":
                text = at
        return text

    def _view_size(self, source: object, shape: tuple[int, ...], j: int) -> str:
        key = source, shape, j
        name = self.views.setdefault(key, f"m{len(self.views)}")
        return self._size(name, shape[j], last=j == len(shape) - 1)

    def _apply(self, x: Expr) -> str:
        self.kinds[id(x)] = _union(self.kinds[id(a)] for a in x.args)
        texts = [self.names[id(a)] for a in x.args]
        if x.op == CAST:
            source = typed(x.args[0])
            if typed(x) == INT64 and not is_float(source) and self._fits(x):
                self.narrow.add(id(x))
                return f"{texts[0]}.to(tl.int32)"
            if texts[0].isdigit():  # the index along an axis of one element
                texts[0] = f"tl.full((), {texts[0]}, {tl_type(source)})"
            return convert(texts[0], source, typed(x))
        compares = PRIMITIVES[x.op].rule == "compare"
        if compares and self.kinds[id(x)] == 0:  # the interpreter mistypes scalars
            texts[0] = f"(tl.zeros({self.shapes[STEP]}, {tl_type(typed(x.args[0]))}) + {texts[0]})"
            self.kinds[id(x)] = STEP
        if typed(x) != INT64:
            return PRIMITIVES[x.op].triton.format(*texts) if compares else self.body.apply(x, texts)
        wide = [a.dtype == INT64 and id(a) not in self.narrow for a in x.args]
        fits = self._fits(x)
        if not fits and not any(wide):
            texts = [t if a.op == CONST or a.dtype != INT64 else f"{t}.to(tl.int64)" for t, a in zip(texts, x.args)]
        if x.value == "plain":
            text = f"{texts[0]} {'//' if x.op == 'quotient' else '%'} {texts[1]}"
        else:
            if PRIMITIVES[x.op].triton.startswith("_"):  # a function's arguments are blocks
                texts = [f"tl.full({self.shapes[STEP]}, {t}, {'tl.int32' if id(a) in self.narrow else 'tl.int64'})"
                         if a.op == CONST else t for t, a in zip(texts, x.args)]
            text = PRIMITIVES[x.op].triton.format(*texts)
        if fits:
            self.narrow.add(id(x))
            if any(wide):
                text = f"({text}).to(tl.int32)"
        return text

    def _loop(self, loop: Loop, lines: list[str]) -> None:
        accs = {j: f"a{loop.number}_{j}" for j in loop.accumulators}
        kinds = {f.value[2]: self._kind(f) for f in loop.results}
        for x in self.order:
            if x.op == ACC and x.value[0] == loop.level and x.value[1] in accs:
                kinds[x.value[1]] = self._kind(x)
                self.names[id(x)], self.kinds[id(x)] = accs[x.value[1]], self._kind(x)
        for j, (first, _) in loop.accumulators.items():
            lines.append(f"{accs[j]} = {self._block(first, kinds[j])}")
        extent, kind = self.names[id(loop.extent)], self.kinds[id(loop.extent)]
        end, live = f"tl.max({extent})" if kind else extent, f"(k{loop.level} < {extent})"
        uneven = bool(kind & BOTH)
        self.live += [(live, kind)] * uneven
        step = f"tl.zeros({self.shapes[STEP]}, {'tl.int64' if self.wide else 'tl.int32'})"
        inner = [f"k{loop.level} = l{loop.level} + {step}"]
        self._items(loop.items, inner)
        for j, (_, new) in loop.accumulators.items():
            value = self._block(new, kinds[j])
            inner.append(f"b{loop.number}_{j} = {f'tl.where({live}, {value}, {accs[j]})' if uneven else value}")
        del self.live[len(self.live) - uneven:]
        inner += [f"{accs[j]} = b{loop.number}_{j}" for j in accs]
        lines += [f"for l{loop.level} in range(0, {end}):", *indent(inner)]
        for x in loop.results:
            self.names[id(x)], self.kinds[id(x)] = accs[x.value[2]], kinds[x.value[2]]


def _union(kinds: Iterable[int]) -> int:
    """Return the kind of what is computed from values of these kinds."""
    found = 0
    for kind in kinds:
        found |= kind
    return found & BOTH or found
