"""Reductions: sums, products, maxima and minima over axes, in a fixed order.

The kept and the reduced axes become two indices, m and r. A program reduces a block of m over consecutive blocks of r. If m alone
gives too few programs, r is split, and a second kernel reduces the parts in their order. It uses no atomics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...dtype import float32, is_half
from ...integers import cdiv, next_power_of_2
from ..configs import active as active_configs
from ..configs.key import Key, key
from ..ir.coalesce import BroadcastLayout, merge
from ..ir.combine import Combine
from ..ir.draws import PlacedDraw
from ..ir.expr import BOOL, Expr, identity, load, loads, topological, typed
from ..op import Expression, Shape, Spec, Specs
from .body import (
    NO_DRAWS,
    ArrayRef,
    KernelBody,
    KernelLaunch,
    LaunchPlan,
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
from .elementwise import INT32_ELEMENTS, heavy
from .target import CodegenTarget

ENOUGH_PROGRAMS = 1024  # eight for each multiprocessor of a large GPU
MAX_BLOCKS = 256  # blocks that a program adds one after the other; longer sums are split further, or they lose digits
NARROWEST = 16  # elements beside each other that a program reads at least: two sectors of memory
STRIP = 64  # rows that a program should have at least, before it takes a wider block
AT_ONCE = 16384  # bytes that one of few programs reads at once: they must keep the memory busy
HELD = 32768  # bytes of partial results that a program holds at most: 64 registers of each of its 128 threads
_INT32 = np.dtype("int32")
_COMBINE = {
    "add": "acc + {v}",
    "mul": "acc * {v}",
    "maximum": "tl.maximum(acc, {v}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum(acc, {v}, propagate_nan=tl.PropagateNan.ALL)",
}


def reduction_launches(plan: LaunchPlan, e: Expression, ins: Specs, t: StoreTarget, full: Shape, name: str,
                       codegen: CodegenTarget, source: ArrayRef | None = None, split: int | None = None,
                       draws: Mapping[int, PlacedDraw] = NO_DRAWS) -> list[KernelLaunch]:
    """Print the kernel, or two, that reduce t.root over the axes that t's array does not have.

    source: the array of input 0, if it is not the operator's own. split: the number of parts of r; None: by size.
    draws: the inputs that are random numbers.
    """
    used = loads([t.root])
    layout = merge([full, *(ins[i].shape for i in used), t.spec.shape])
    kept_flags = layout.present[-1] if math.prod(layout.dims) != 1 else (False,)
    kept = [a for a, k in enumerate(kept_flags) if k]
    reduced = [a for a, k in enumerate(kept_flags) if not k]
    m = math.prod(layout.dims[a] for a in kept)
    r = math.prod(layout.dims[a] for a in reduced)
    inner = bool(reduced) and reduced[-1] == len(layout.dims) - 1
    accumulator = _accumulator(t.root)
    block_m, block_r = _tile(m, r, inner, codegen, 2048 if isinstance(e.combine, str) else 512)
    if isinstance(e.combine, str) and cdiv(m, block_m) < ENOUGH_PROGRAMS:
        most = _in_flight([ins[i].dtype for i in used], topological([t.root]), accumulator)
        block_m, block_r = _tile(m, r, inner, codegen, most)
    warps = 4
    if split is None and not codegen.interpreted and active_configs.active():
        widest = max((ins[i].dtype for i in used), key=lambda d: d.itemsize, default=t.spec.dtype)
        blocks = active_configs.choice(reduction_key(widest.name, m, r, len(used), inner),
                              {"BLOCK_M": block_m, "BLOCK_R": block_r, "num_warps": warps})
        block_m, block_r, warps = blocks["BLOCK_M"], blocks["BLOCK_R"], blocks["num_warps"]
    if split is None:
        rows = cdiv(m, block_m)
        split = 1 if codegen.interpreted or rows >= ENOUGH_PROGRAMS else min(cdiv(r, 4 * block_r), cdiv(ENOUGH_PROGRAMS, rows))
        split = max(split, cdiv(cdiv(r, block_r), MAX_BLOCKS))
    split = max(1, split)
    steps = max(1, cdiv(cdiv(r, split), block_r))
    split = max(1, cdiv(r, steps * block_r))
    target = t if split == 1 else plan.temporary(t.root, (split, m), accumulator)
    first = _Reduction(e, ins, target, used, layout, kept, reduced, (m, r, steps), inner, accumulator, draws)
    launches = [first.launch(name, (cdiv(m, block_m), split), {"BLOCK_M": block_m, "BLOCK_R": block_r}, warps, codegen, source)]
    if split > 1:
        root: Expr = load(0, accumulator)
        parts = Expression((root,), combine=e.combine)
        last = StoreTarget(root, Spec((1, m), t.spec.dtype), t.req, t.array)
        launches += reduction_launches(plan, parts, [Spec((split, m), accumulator)], last, (split, m), f"{name}_parts", codegen,
                                       source=target.array, split=1)
    return launches


def reduction_key(dtype: str, m: int, r: int, arrays: int, inner: bool) -> Key:
    """The tuning key of a reduction: r elements into each of m results; inner: the r elements are contiguous."""
    return key("gpu fold", dtype, "inner" if inner else "outer", 16, m=m, r=r, arrays=arrays)


def _accumulator(root: Expr) -> np.dtype:
    dtype = typed(root)
    if is_half(dtype):
        return float32
    return _INT32 if dtype == BOOL or (dtype.kind in "iu" and dtype.itemsize < 4) else dtype


def _in_flight(dtypes: Sequence[np.dtype], order: Sequence[Expr], accumulator: np.dtype) -> int:
    """The elements that one of few programs takes at once: fewer where arithmetic takes the time, not memory, and where partial
    results, of the accumulator's dtype, would take too many registers."""
    width = max(1, sum(d.itemsize for d in dtypes))
    return 2048 if heavy(order) else max(2048, min(HELD // accumulator.itemsize, AT_ONCE // next_power_of_2(width)))


def _tile(m: int, r: int, inner: bool, codegen: CodegenTarget, most: int) -> tuple[int, int]:
    """Block sizes along m and r: wide along the contiguous one; of at most so many elements, compiled.

    A block along m takes whole rows where they are short, so that a program reads memory from one end to the other; of few
    rows it takes a narrow strip, so that there are enough programs.
    """
    total = max(16, codegen.block(max(1, m) * max(1, r), most))
    if inner:
        block_r = min(next_power_of_2(r), total)
        return min(next_power_of_2(m), max(1, total // block_r)), block_r
    within = next_power_of_2(m) if m < NARROWEST else 1 << (m.bit_length() - 1)  # up to m, so that no block has a mask
    block_m = min(within, 4096 if codegen.interpreted else 1024, total)
    if not codegen.interpreted:
        while block_m > NARROWEST and (cdiv(m, block_m) * block_m > m + m // 8 or m * r < ENOUGH_PROGRAMS * block_m * STRIP):
            block_m //= 2
    return block_m, min(next_power_of_2(r), max(1, total // block_m))


class _Reduction:
    """Prints one reduction kernel."""

    def __init__(self, e: Expression, ins: Specs, t: StoreTarget, used: Sequence[int], layout: BroadcastLayout,
                 kept: Sequence[int], reduced: Sequence[int], extent: tuple[int, int, int], inner: bool, accumulator: np.dtype,
                 draws: Mapping[int, PlacedDraw]):
        self.e, self.t, self.used, self.layout = e, t, used, layout
        self.kept, self.reduced, (self.m, self.r, self.steps), self.inner = kept, reduced, extent, inner
        self.accumulator, self.zero = accumulator, literal(identity(e.combine, accumulator), accumulator)
        self.wide = max(math.prod(layout.dims), self.m * self.r) > INT32_ELEMENTS
        self.body = KernelBody([t.root], topological([t.root]), [s.dtype for s in ins], e.scalars, draws)

    def launch(self, name: str, grid: tuple[int, int], blocks: dict[str, int], warps: int, codegen: CodegenTarget,
               source: ArrayRef | None) -> KernelLaunch:
        sizes, lines = self._sizes()
        along_m, along_r = ("[:, None]", "[None, :]") if self.inner else ("[None, :]", "[:, None]")
        wide = ".to(tl.int64)" * self.wide
        self.clear = not self.inner and blocks["BLOCK_M"] <= self.m
        if self.clear:  # the last block ends where the array does: no load has a mask, and only the block's own part is stored
            lines += [f"first = tl.program_id(0){wide} * BLOCK_M",
                      f"m = tl.minimum(first, M - BLOCK_M) + tl.arange(0, BLOCK_M){along_m}", "m_inside = m >= first"]
        else:
            lines += [f"m = tl.program_id(0){wide} * BLOCK_M + tl.arange(0, BLOCK_M){along_m}", "m_inside = m < M"]
        lines += [
                  f"lane = tl.arange(0, BLOCK_R){along_r}",
                  f"start = tl.program_id(1){wide} * STEPS * BLOCK_R",
                  "stop = tl.minimum(start + STEPS * BLOCK_R, R)",
                  "whole = start + (stop - start) // BLOCK_R * BLOCK_R"]
        if self.inner:
            lines.append("at = tl.minimum(m, M - 1)")
        lines += index_lines("at" if self.inner else "m", self.kept)
        shape = "[BLOCK_M, BLOCK_R]" if self.inner else "[BLOCK_R, BLOCK_M]"
        lines.append(f"acc = tl.full({shape}, {self.zero}, {tl_type(self.accumulator)})")
        fixed = [i for i in self.used if not self._has(i, self.reduced)]
        for i in fixed:
            mask = ", mask=m_inside" if self._has(i, self.kept) and not (self.inner or self.clear) else ""
            lines.append(f"v{i} = {self.body.read(i, self._offset(i), mask)}")
        lines += ["for r0 in range(start, whole, BLOCK_R):", *indent(self._block("r0", False, fixed))]
        lines += ["if whole < stop:", *indent(self._block("whole", True, fixed))]
        lines += [*self._finish(blocks["BLOCK_R"], codegen.interpreted)]
        if not isinstance(self.e.combine, str):
            self.body.functions = self._combine_function(self.e.combine)
        return self.body.launch(name, lines, self.used, [self.t], sizes, grid, blocks, warps, codegen,
                                wide=sizes if self.wide else (), source=source)

    def _sizes(self) -> tuple[dict[str, int], list[str]]:
        """Return the sizes, and the lines that compute the axes' sizes, M and R from them."""
        *dims, last = self.layout.dims
        parameter, value, lines = size_parameter(f"d{len(dims)}", last)
        for letter, axes in (("M", self.kept), ("R", self.reduced)):
            lines.append(f"{letter} = {' * '.join(f'd{a}' for a in axes) or '1'}")
        return {**{f"d{axis}": d for axis, d in enumerate(dims)}, parameter: value, "STEPS": self.steps}, lines

    def _has(self, i: int, axes: Sequence[int]) -> bool:
        """Return whether the input has one of the axes."""
        present = self.layout.present[1 + self.used.index(i)]
        return self.layout.dims != (1,) and any(present[a] for a in axes)

    def _offset(self, i: int) -> str:
        offset = offset_text(self.layout.present[1 + self.used.index(i)], (*self.kept, *self.reduced))
        return f"({offset})" if offset and self.layout.dims != (1,) else ""

    def _block(self, start: str, partial: bool, fixed: Sequence[int]) -> list[str]:
        """Return the lines that combine one block of r with acc."""
        lines = [f"r = {start} + lane", *index_lines("r", self.reduced), *(["r_inside = r < stop"] if partial else [])]

        def fetch(i: int) -> str:
            if i in fixed:
                return f"v{i}"
            masks = ["m_inside"] if self._has(i, self.kept) and not (self.inner or self.clear) else []
            masks += ["r_inside"] if partial else []
            return self.body.read(i, self._offset(i), f", mask={' & '.join(masks)}" if masks else "")

        names: dict[int, str] = {}
        lines += self.body.lines([self.t.root], names, fetch)
        value = convert(names[id(self.t.root)], self.t.dtype, self.accumulator)
        if partial:
            value = f"tl.where(r_inside, {value}, {self.zero})"
        combine = self.e.combine
        text = _COMBINE[combine].format(v=value) if isinstance(combine, str) else f"_combine(acc, {value})"
        return [*lines, f"acc = {text}"]

    def _combine_function(self, combine: Combine) -> str:
        """Return the text of the device function _combine(a, b)."""
        root = combine.root(self.accumulator)
        body = KernelBody([root], topological([root]), [self.accumulator] * 2, ())
        names: dict[int, str] = {}
        lines = [*body.prologue, *body.lines([root], names, lambda i: "ab"[i]), f"return {names[id(root)]}"]
        return "\n".join(["@triton.jit", "def _combine(a, b):", *indent(lines)]) + "\n\n\n"

    def _folded_block(self, block_r: int, interpreted: bool) -> list[str]:
        """Return the lines that fold a block by the user's function.

        The interpreter calls the function of tl.reduce once per element: there halves of the block are combined instead.
        """
        if not interpreted:
            return [f"result = tl.reduce(acc, {1 if self.inner else 0}, _combine, keep_dims=True)"]
        lines = [] if self.inner else ["acc = tl.trans(acc)"]
        while block_r > 1:
            block_r //= 2
            lines += [f"left, right = tl.split(tl.reshape(acc, (BLOCK_M, {block_r}, 2)))", "acc = _combine(left, right)"]
        return [*lines, "result = acc" if self.inner else "result = tl.trans(acc)"]

    def _finish(self, block_r: int, interpreted: bool) -> list[str]:
        pointer = "y0 + tl.program_id(1).to(tl.int64) * M + m"  # one row of results per part
        stored = store("result", self.accumulator, self.t.spec, self.t.req, pointer, ", mask=m_inside")
        if not isinstance(self.e.combine, str):
            return [*self._folded_block(block_r, interpreted), stored]
        axis = "1" if self.inner else "0"
        reduce = {
            "add": f"_block_sum(acc, {axis}, BLOCK_R, BLOCK_M)",
            "mul": f"_row_product(acc, lane, BLOCK_R, {axis})",
            "maximum": f"_row_max(acc, m_inside | (lane >= 0), {self.zero}, {axis})",
            "minimum": f"_row_min(acc, m_inside | (lane >= 0), {self.zero}, {axis})",
        }[self.e.combine]
        return [f"result = {reduce}", stored]
