"""Reductions: sums, products, maxima and minima over axes, in a fixed order.

The kept and the reduced axes become two indices, m and r. A program reduces a block of m over consecutive blocks of r. If m alone
gives too few programs, r is split, and a second kernel reduces the parts in their order. It uses no atomics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import float32, is_float, is_half
from ...integers import cdiv, next_power_of_2
from ..configs import active as active_configs
from ..configs.key import Key, key
from ..ir.coalesce import Layout, merge
from ..ir.expr import BOOL, Expr, load, loads, topological
from ..op import Expression, Shape, Spec, Specs
from .body import (
    ArrayRef,
    KernelBody,
    KernelLaunch,
    LaunchPlan,
    StoreTarget,
    convert,
    indent,
    kernel_text,
    literal,
    size_parameter,
    store,
    tl_type,
)
from .elementwise import INT32_ELEMENTS
from .target import CodegenTarget

ENOUGH_PROGRAMS = 512  # about four waves of the smaller data-centre GPUs
MAX_BLOCKS = 256  # blocks that a program adds one after the other; longer sums are split further, or they lose digits
_INT32 = np.dtype("int32")
_COMBINE = {
    "add": "acc + {v}",
    "mul": "acc * {v}",
    "maximum": "tl.maximum(acc, {v}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum(acc, {v}, propagate_nan=tl.PropagateNan.ALL)",
}


def identity(combine: str, dtype: np.dtype) -> Any:
    """The identity of a reduction: combining it with a value gives that value."""
    if combine in ("add", "mul"):
        return int(combine == "mul")
    low = combine == "maximum"
    if is_float(dtype):
        return -math.inf if low else math.inf
    info = np.iinfo(dtype)
    return int(info.min if low else info.max)


def reduction_launches(plan: LaunchPlan, e: Expression, ins: Specs, t: StoreTarget, full: Shape, name: str,
                       codegen: CodegenTarget, source: ArrayRef | None = None, split: int | None = None) -> list[KernelLaunch]:
    """Print the kernel, or two, that reduce t.root over the axes that t's array does not have.

    source: the array of input 0, if it is not the operator's own. split: the number of parts of r; None: by size.
    """
    used = loads([t.root])
    layout = merge([full, *(ins[i].shape for i in used), t.spec.shape])
    kept_flags = layout.present[-1] if math.prod(layout.dims) != 1 else (False,)
    kept = [a for a, k in enumerate(kept_flags) if k]
    reduced = [a for a, k in enumerate(kept_flags) if not k]
    m = math.prod(layout.dims[a] for a in kept)
    r = math.prod(layout.dims[a] for a in reduced)
    inner = bool(reduced) and reduced[-1] == len(layout.dims) - 1
    block_m, block_r = _tile(m, r, inner, codegen)
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
    accumulator = _accumulator(t.root)
    if split == 1:
        target = t
    else:
        target = plan.temporary(t.root, (split, m), accumulator)
    first = _Reduction(e, ins, target, used, layout, kept, reduced, (m, r, steps), inner, accumulator)
    launches = [first.launch(name, (cdiv(m, block_m), split), block_m, block_r, source, codegen, warps)]
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
    dtype = root.dtype
    assert dtype is not None
    if is_half(dtype):
        return float32
    return _INT32 if dtype == BOOL or (dtype.kind in "iu" and dtype.itemsize < 4) else dtype


def _tile(m: int, r: int, inner: bool, codegen: CodegenTarget) -> tuple[int, int]:
    """Block sizes along m and r: wide along the contiguous one."""
    total = max(16, codegen.block(max(1, m) * max(1, r), 2048))
    if inner:
        block_r = min(next_power_of_2(r), total)
        return min(next_power_of_2(m), max(1, total // block_r)), block_r
    block_m = min(next_power_of_2(m), 4096 if codegen.interpreted else 128, total)
    return block_m, min(next_power_of_2(r), max(1, total // block_m))


class _Reduction:
    """Prints one reduction kernel."""

    def __init__(self, e: Expression, ins: Specs, t: StoreTarget, used: Sequence[int], layout: Layout,
                 kept: Sequence[int], reduced: Sequence[int], extent: tuple[int, int, int], inner: bool,
                 accumulator: np.dtype):
        self.e, self.ins, self.t, self.used, self.layout = e, ins, t, used, layout
        self.kept, self.reduced, (self.m, self.r, self.steps), self.inner = kept, reduced, extent, inner
        self.accumulator = accumulator
        self.wide = max(math.prod(layout.dims), self.m * self.r) > INT32_ELEMENTS
        self.body = KernelBody([t.root], topological([t.root]), [s.dtype for s in ins], e.scalars)
        self.sizes: dict[str, int] = {}

    def launch(self, name: str, grid: tuple[int, int], block_m: int, block_r: int, source: ArrayRef | None,
             codegen: CodegenTarget, warps: int) -> KernelLaunch:
        lines = [*self.body.prologue, *self._sizes()]
        along_m, along_r = ("[:, None]", "[None, :]") if self.inner else ("[None, :]", "[:, None]")
        first, second = ("0", "1")
        if self.wide:
            first, second = ("0).to(tl.int64", "1).to(tl.int64")
        lines += [f"m = tl.program_id({first}) * BLOCK_M + tl.arange(0, BLOCK_M){along_m}",
                  "m_inside = m < M",
                  f"lane = tl.arange(0, BLOCK_R){along_r}",
                  f"start = tl.program_id({second}) * STEPS * BLOCK_R",
                  "stop = tl.minimum(start + STEPS * BLOCK_R, R)",
                  "whole = start + (stop - start) // BLOCK_R * BLOCK_R"]
        if self.inner:
            lines.append("at = tl.minimum(m, M - 1)")
        lines += self._decode("at" if self.inner else "m", self.kept)
        shape = "[BLOCK_M, BLOCK_R]" if self.inner else "[BLOCK_R, BLOCK_M]"
        zero = literal(identity(self.e.combine, self.accumulator), self.accumulator)
        lines.append(f"acc = tl.full({shape}, {zero}, {tl_type(self.accumulator)})")
        fixed = [i for i in self.used if not self._axes(i, self.reduced)]
        for i in fixed:
            mask = ", mask=m_inside" if self._axes(i, self.kept) and not self.inner else ""
            lines.append(f"v{i} = tl.load({self._pointer(i)}{mask})")
        lines += ["for r0 in range(start, whole, BLOCK_R):", *indent(self._block("r0", False, fixed, zero))]
        lines += ["if whole < stop:", *indent(self._block("whole", True, fixed, zero))]
        lines += self._finish()
        pointers = [(source or ("in", i), self.ins[i].dtype) for i in self.used] + [(self.t.array, self.t.spec.dtype)]
        wide = ": tl.int64" if self.wide else ""
        parameters = [f"x{i}" for i in self.used] + ["y0"] + [s + wide for s in self.sizes]
        parameters += [*self.body.scalar_parameters(), "BLOCK_M: tl.constexpr", "BLOCK_R: tl.constexpr"]
        return KernelLaunch(name, kernel_text(name, parameters, lines, list(self.sizes), codegen), pointers, self.sizes,
                    self.body.scalars(), grid, {"BLOCK_M": block_m, "BLOCK_R": block_r}, warps)

    def _sizes(self) -> list[str]:
        lines = []
        last = len(self.layout.dims) - 1
        for axis, d in enumerate(self.layout.dims):
            parameter, value, more = size_parameter(f"d{axis}", d) if axis == last else (f"d{axis}", d, [])
            self.sizes[parameter] = value
            lines += more
        self.sizes["STEPS"] = self.steps
        for letter, axes in (("M", self.kept), ("R", self.reduced)):
            lines.append(f"{letter} = {' * '.join(f'd{a}' for a in axes) or '1'}")
        return lines

    def _axes(self, i: int, among: Sequence[int]) -> list[int]:
        """Those of the axes that the input has."""
        return [a for a in among if self.layout.present[1 + self.used.index(i)][a] and self.layout.dims != (1,)]

    def _decode(self, index: str, axes: Sequence[int]) -> list[str]:
        lines = []
        for k, axis in enumerate(reversed(axes)):
            outermost = k == len(axes) - 1
            lines.append(f"i{axis} = {index}" if outermost else f"i{axis} = {index} % d{axis}")
            if not outermost:
                lines.append(f"{index}_{axis} = {index} // d{axis}")
                index = f"{index}_{axis}"
        return lines

    def _pointer(self, i: int) -> str:
        present = self.layout.present[1 + self.used.index(i)]
        terms = []
        for axis in (*self._axes(i, self.kept), *self._axes(i, self.reduced)):
            stride = [f"d{a}" for a in range(axis + 1, len(present)) if present[a]]
            terms.append(f"i{axis}" + (f" * ({' * '.join(stride)})" if stride else ""))
        return f"x{i}" + (f" + ({' + '.join(terms)})" if terms else "")

    def _block(self, start: str, partial: bool, fixed: Sequence[int], zero: str) -> list[str]:
        """Return the lines that combine one block of r with acc."""
        lines = [f"r = {start} + lane", *self._decode("r", self.reduced)]
        if partial:
            lines.append("r_inside = r < stop")

        def fetch(i: int) -> str:
            if i in fixed:
                return f"v{i}"
            masks = ["m_inside"] if self._axes(i, self.kept) and not self.inner else []
            masks += ["r_inside"] if partial else []
            return f"tl.load({self._pointer(i)}" + (f", mask={' & '.join(masks)})" if masks else ")")

        names: dict[int, str] = {}
        root = self.t.root
        lines += self.body.lines([root], names, fetch)
        assert root.dtype is not None
        value = convert(names[id(root)], root.dtype, self.accumulator)
        if partial:
            value = f"tl.where(r_inside, {value}, {zero})"
        lines.append(f"acc = {_COMBINE[self.e.combine].format(v=value)}")
        return lines

    def _finish(self) -> list[str]:
        axis = "1" if self.inner else "0"
        zero = literal(identity(self.e.combine, self.accumulator), self.accumulator)
        reduce = {
            "add": f"_block_sum(acc, {axis}, BLOCK_R, BLOCK_M)",
            "mul": f"_row_product(acc, lane, BLOCK_R, {axis})",
            "maximum": f"_row_max(acc, m_inside | (lane >= 0), {zero}, {axis})",
            "minimum": f"_row_min(acc, m_inside | (lane >= 0), {zero}, {axis})",
        }[self.e.combine]
        lines = [f"result = {reduce}"]
        pointer = "y0 + tl.program_id(1).to(tl.int64) * M + m"  # one row of results per part
        lines.append(store("result", self.accumulator, self.t.spec, self.t.req, pointer, ", mask=m_inside"))
        return lines
