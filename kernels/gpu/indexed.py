"""Print an index formula as Triton: one program per block of elements of the output, in row-major order.

The indices of an element are quotients and remainders of its position by sizes that are known at run time. Index arithmetic
is 32 bits wide where the sizes keep it below 2³¹, else 64. Loops are Triton loops; one whose extent differs from element to
element runs to the longest of its block. A block that lies inside the output takes a branch without masks, so that accesses
stay 128 bits wide; with loops there is one branch only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...dtype import is_float
from ...integers import cdiv
from ..ir.expr import BOOL, CAST, CONST, PARAM, Expr, topological, typed
from ..ir.indexed import (
    ACC,
    FOLD,
    GATHER,
    INDEX,
    INT64,
    LOOP,
    SIZE,
    TRUE,
    IndexedProgram,
    Item,
    Loop,
    Ranges,
    Schedule,
    simplify,
)
from ..ir.primitives import PRIMITIVES
from ..kernel import Kernel
from ..op import Req, Reqs, Specs
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
from .elementwise import INT32_ELEMENTS, lanes
from .target import CodegenTarget, codegen_target

BRANCHED = 60  # nodes up to which a kernel has two branches: more text takes longer to compile than it saves
LOOP_LANES = 256  # the most elements of one program with a loop
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


class _Printer:
    """Turns a program into one kernel.

    A value is a scalar, a block of one element ("one": it differs from step to step of a loop), or a block: kind 0, 1 or 2.
    """

    def __init__(self, p: IndexedProgram, ins: Specs, targets: Sequence[StoreTarget], codegen: CodegenTarget):
        self.p, self.ins, self.targets, self.codegen = p, ins, targets, codegen
        order = topological(p.roots)
        masks = {id(x.args[0]) for x in order if x.op == GATHER}
        plain = {id(a) for x in order for a in (x.args[1:] if x.op == GATHER else x.args)} | {id(r) for r in p.roots}
        self.order = [x for x in order if x is not TRUE or id(x) in plain or id(x) not in masks]
        self.body = KernelBody(p.roots, [x for x in self.order if not (x.op == CONST and x.dtype == INT64)],
                               [s.dtype for s in ins], p.scalars)
        self.ranges = Ranges(p.roots, p.shape)
        self.n = math.prod(p.shape)
        self.used = sorted({x.value[0] for x in order if x.op == GATHER})
        self.wide_output = self.n > INT32_ELEMENTS
        self.wide = self.wide_output or any(ins[i].size > INT32_ELEMENTS for i in self.used)
        self.loops = any(x.op == FOLD for x in order)
        self.schedule = Schedule(p.roots)
        self.sizes: dict[str, int] = {"n": self.n}
        self.size_lines: list[str] = []
        self.views: dict[tuple, str] = {}
        self.number = {id(x): i for i, x in enumerate(order)}

    def launch(self, name: str) -> KernelLaunch:
        lines = ["base = tl.program_id(0).to(tl.int64) * BLOCK", "lane = tl.arange(0, BLOCK)"]
        indexed = any(x.op == INDEX for x in self.order)
        if indexed:
            lines.append("place = base + lane" if self.wide_output else "place = tl.program_id(0) * BLOCK + lane")
            rank = len(self.p.shape)
            for axis in range(1, rank):
                self._size(f"d{axis}", self.p.shape[axis], last=axis == rank - 1)
            lines += index_lines("place", range(rank))
        if self.loops or len(self.order) > BRANCHED:
            inner = ["mask = lane < (n - base).to(tl.int32)", *self._branch(masked=True)]
        else:
            inner = ["if base + BLOCK <= n:", *indent(self._branch(masked=False)), "else:",
                     *indent(["mask = lane < (n - base).to(tl.int32)", *self._branch(masked=True)])]
        widest = max((s.dtype for s in (*(self.ins[i] for i in self.used), *(t.spec for t in self.targets))),
                     key=lambda d: d.itemsize)
        block = self.codegen.block(self.n, min(LOOP_LANES, lanes(self.order, widest)) if self.loops else
                                   lanes(self.order, widest))
        return self.body.launch(name, [*self.size_lines, *lines, *inner], self.used, self.targets, self.sizes,
                                (cdiv(self.n, block),), {"BLOCK": block}, 4, self.codegen,
                                wide=self.sizes if self.wide else ("n",))

    def _size(self, name: str, value: int, *, last: bool = False) -> str:
        """Return the name of a size, which becomes a parameter of the kernel."""
        parameter, given, lines = size_parameter(name, value) if last else (name, value, [])
        if parameter not in self.sizes:
            self.sizes[parameter] = given
            self.size_lines += lines
        return name

    # ---- text ----
    def _branch(self, *, masked: bool) -> list[str]:
        self.masked = masked
        self.names: dict[int, str] = {}
        self.kinds: dict[int, int] = {}
        self.narrow: set[int] = set()
        self.live: list[str] = []
        for x in self.order:
            if x.op == CONST:
                self.names[id(x)] = literal(x.value, INT64) if x.dtype == INT64 else self.body.leaves[id(x)]
                self.kinds[id(x)] = 0
                narrow = x.value in _INT32 if x.dtype == INT64 else False
            elif x.op == PARAM:
                self.names[id(x)], self.kinds[id(x)], narrow = self.body.leaves[id(x)], 0, False
            elif x.op == SIZE:
                source, axis, value = x.value
                name = f"n_{axis}" if source < 0 else f"n{source}_{axis}"
                self.names[id(x)], self.kinds[id(x)], narrow = self._size(name, value), 0, not self.wide
            elif x.op == INDEX:
                self.names[id(x)], self.kinds[id(x)], narrow = f"i{x.value}", 2, not self.wide_output
            elif x.op == LOOP:
                self.names[id(x)], self.kinds[id(x)], narrow = f"k{x.value}", 1, self._fits(x) and not self.wide
            else:
                continue
            if narrow:
                self.narrow.add(id(x))
        lines: list[str] = []
        self._items(self.schedule.items, lines)
        for k, t in enumerate(self.targets):
            value = self._block(t.root)
            lines.append(store(value, t.dtype, t.spec, t.req, f"y{k} + base + lane", ", mask=mask" if masked else ""))
        return lines

    def _fits(self, x: Expr) -> bool:
        known = self.ranges.of(x)
        return known is not None and known[0] in _INT32 and known[1] in _INT32

    def _block(self, x: Expr) -> str:
        """Return x as a block of its dtype."""
        text, kind, dtype = self.names[id(x)], self.kinds[id(x)], typed(x)
        if kind == 2:
            return f"{text}.to(tl.int64)" if id(x) in self.narrow else text
        if x.op == CONST:
            return f"tl.full([BLOCK], {literal(x.value, dtype)}, {tl_type(dtype)})"
        if dtype == BOOL:
            return f"((tl.zeros([BLOCK], tl.int32) + {text}) != 0)"
        return f"(tl.zeros([BLOCK], {tl_type(dtype)}) + {text})"

    def _items(self, items: Sequence[Item], lines: list[str]) -> None:
        for x in items:
            if isinstance(x, Loop):
                self._loop(x, lines)
                continue
            text = self._gather(x) if x.op == GATHER else self._apply(x)
            self.names[id(x)] = f"t{self.number[id(x)]}"
            lines.append(f"{self.names[id(x)]} = {text}")

    def _gather(self, x: Expr) -> str:
        source, shape = x.value
        mask, places = x.args[0], x.args[1:]
        kind = max((self.kinds[id(a)] for a in places), default=0)
        offset = self._offset(x)
        limits = []
        if mask is not TRUE:
            if self.kinds[id(mask)] > kind:
                kind = self.kinds[id(mask)]
                offset = f"({offset or 0} + tl.zeros([{'BLOCK' if kind == 2 else '1'}], tl.int32))"
            limits.append(self.names[id(mask)])
        if self.live and kind < 2:  # an element whose own loop has ended reads nothing
            kind = 2
            offset = f"({offset or 0} + tl.zeros([BLOCK], tl.int32))"
        limits += self.live
        if self.masked and kind == 2:
            limits.append("mask")
        self.kinds[id(x)] = kind
        if typed(x) == INT64:
            self.narrow.discard(id(x))
        options = f", mask={' & '.join(limits)}, other=0" if limits else ""
        return f"tl.load(x{source}{f' + {offset}' if offset else ''}{options})"

    def _offset(self, x: Expr) -> str:
        source, shape = x.value
        places = x.args[1:]
        if shape == self.p.shape and all(a.op == INDEX and a.value == i for i, a in enumerate(places)):
            return "base + lane" if places else ""
        text = ""
        for j, a in enumerate(places):
            at = self.names[id(a)]
            if id(a) not in self.narrow and self.ins[source].size <= INT32_ELEMENTS:
                at = f"{at}.to(tl.int32)"
            if text:
                text = f"{f'({text})' if ' ' in text else text} * {self._view_size(source, shape, j)}" + (f" + {at}" if at != "0" else "")
            elif at != "0":
                text = at
        return text

    def _view_size(self, source: int, shape: tuple[int, ...], j: int) -> str:
        key = source, shape, j
        name = self.views.setdefault(key, f"m{len(self.views)}")
        return self._size(name, shape[j], last=j == len(shape) - 1)

    def _apply(self, x: Expr) -> str:
        self.kinds[id(x)] = max(self.kinds[id(a)] for a in x.args)
        texts = [self.names[id(a)] for a in x.args]
        if x.op == CAST:
            source = typed(x.args[0])
            if typed(x) == INT64 and not is_float(source) and self._fits(x):
                self.narrow.add(id(x))
                return f"{texts[0]}.to(tl.int32)"
            return convert(texts[0], source, typed(x))
        compares = PRIMITIVES[x.op].rule == "compare"
        if compares and self.kinds[id(x)] == 0:  # the interpreter mistypes scalars
            texts[0] = f"(tl.zeros([1], {tl_type(typed(x.args[0]))}) + {texts[0]})"
            self.kinds[id(x)] = 1
        if typed(x) != INT64:
            return PRIMITIVES[x.op].triton.format(*texts) if compares else self.body.apply(x, texts)
        wide = [a.dtype == INT64 and id(a) not in self.narrow for a in x.args]
        fits = self._fits(x)
        if not fits and not any(wide):
            texts = [t if a.op == CONST or a.dtype != INT64 else f"{t}.to(tl.int64)" for t, a in zip(texts, x.args)]
        if x.value == "plain":
            text = f"{texts[0]} {'//' if x.op == 'quotient' else '%'} {texts[1]}"
        else:
            text = PRIMITIVES[x.op].triton.format(*texts)
        if fits:
            self.narrow.add(id(x))
            if any(wide):
                text = f"({text}).to(tl.int32)"
        return text

    def _loop(self, loop: Loop, lines: list[str]) -> None:
        accs = {j: f"a{loop.number}_{j}" for j in loop.accumulators}
        for j, (first, _) in loop.accumulators.items():
            lines.append(f"{accs[j]} = {self._block(first)}")
        for x in self.order:
            if x.op == ACC and x.value[0] == loop.level and x.value[1] in accs:
                self.names[id(x)], self.kinds[id(x)] = accs[x.value[1]], 2
        extent, kind = self.names[id(loop.extent)], self.kinds[id(loop.extent)]
        end, live = extent if kind == 0 else f"tl.max({extent}, 0)", f"(k{loop.level} < {extent})"
        self.live += [live] * (kind == 2)
        inner = [f"k{loop.level} = l{loop.level} + tl.zeros([1], {'tl.int32' if not self.wide else 'tl.int64'})"]
        self._items(loop.items, inner)
        for j, (_, new) in loop.accumulators.items():
            value = self._block(new)
            if kind == 2:
                value = f"tl.where({live}, {value}, {accs[j]})"
            inner.append(f"b{loop.number}_{j} = {value}")
        del self.live[len(self.live) - (kind == 2):]
        inner += [f"{accs[j]} = b{loop.number}_{j}" for j in accs]
        lines += [f"for l{loop.level} in range(0, {end}):", *indent(inner)]
        for x in loop.results:
            self.names[id(x)], self.kinds[id(x)] = accs[x.value[2]], 2
