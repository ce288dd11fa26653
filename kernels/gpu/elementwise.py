"""Elementwise kernels: one program per block of the full shape in row-major order.

A block that lies inside the array takes a branch without masks, so that accesses stay 128 bits wide for any length: a mask
narrows the access. Offsets are a 64-bit base and 32-bit lanes. Dense operands are read at the element's own offset; the offset
of a broadcast operand is computed from the element's indices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from ...integers import cdiv
from ..configs import active as active_configs
from ..configs.key import Key, key
from ..ir.coalesce import Layout, merge
from ..ir.expr import LOAD, Expr, loads, topological
from ..ir.primitives import PRIMITIVES
from ..op import Expression, Shape, Specs
from .body import ArrayRef, KernelBody, KernelLaunch, StoreTarget, indent, kernel_text, size_parameter, store
from .special import HELPERS
from .target import CodegenTarget

MANY_NODES = 150  # of a body whose arithmetic, not memory, takes the time: one element a thread, or registers spill
INT32_ELEMENTS = 2**31 - 2**21  # offsets up to here, and one block beyond, fit int32


def elementwise_launch(e: Expression, ins: Specs, targets: Sequence[StoreTarget], full: Shape, name: str,
                       codegen: CodegenTarget, source: ArrayRef | None = None) -> KernelLaunch:
    """Print the kernel that stores targets, all of the full shape.

    source: the array of input 0, if it is not the operator's own.
    """
    roots = [t.root for t in targets]
    used = loads(roots)
    layout = merge([full, *(ins[i].shape for i in used), *(t.spec.shape for t in targets)])
    body = KernelBody(roots, topological(roots), [s.dtype for s in ins], e.scalars)
    n = math.prod(full)
    wide = n > INT32_ELEMENTS
    sizes: dict[str, int] = {"n": n}
    offsets, lines = {}, list(body.prologue)
    lines.append("base = tl.program_id(0).to(tl.int64) * BLOCK")
    lines.append("lane = tl.arange(0, BLOCK)")
    index = _Indices(layout, wide)
    for k, i in enumerate(used):
        offsets[i] = index.offset(k + 1)
    sizes |= index.sizes
    lines += index.lines
    singles = [i for i in used if offsets[i] == ""]
    lines += [f"v{i} = tl.load(x{i})" for i in singles]

    def branch(mask: str) -> list[str]:
        def fetch(i: int) -> str:
            return f"v{i}" if i in singles else f"tl.load(x{i} + {offsets[i]}{mask})"

        names: dict[int, str] = {}
        inner = body.lines(roots, names, fetch)
        inner += [store(names[id(t.root)], t.dtype, t.spec, t.req, f"y{k} + base + lane", mask)
                  for k, t in enumerate(targets)]
        return inner

    lines += ["if base + BLOCK <= n:", *indent(branch("")), "else:",
              *indent(["mask = lane < (n - base).to(tl.int32)", *branch(", mask=mask")])]
    size_parameters = [s + (": tl.int64" if wide or s == "n" else "") for s in sizes]
    parameters = [f"x{i}" for i in used] + [f"y{k}" for k in range(len(targets))]
    parameters += [*size_parameters, *body.scalar_parameters(), "BLOCK: tl.constexpr"]
    pointers = [(source or ("in", i), ins[i].dtype) for i in used] + [(t.array, t.spec.dtype) for t in targets]
    widest = max((d for _, d in pointers), key=lambda d: d.itemsize)
    blocks = {"BLOCK": codegen.block(n, lanes(body.order, widest)), "num_warps": 4}
    if not codegen.interpreted and active_configs.active():
        blocks = active_configs.choice(flat_key(widest.name, n, len(pointers), not index.sizes), blocks)
    return KernelLaunch(name, kernel_text(name, parameters, lines, list(sizes), codegen), pointers, sizes, body.scalars(),
                (cdiv(n, blocks["BLOCK"]),), {"BLOCK": blocks["BLOCK"]}, blocks["num_warps"])


def lanes(order: Sequence[Expr], widest: np.dtype) -> int:
    """The elements of one program: enough per thread for 128-bit accesses; fewer where arithmetic takes the time or operands
    are many, because registers would run out.

    order: the body's nodes; widest: the widest dtype of its arrays.
    """
    if len(order) > MANY_NODES:
        return 128
    some = sum(PRIMITIVES[x.op].cost for x in order if x.op in PRIMITIVES) > 16 or sum(x.op == LOAD for x in order) > 3
    usual = {1: 1024 if some else 2048, 8: 512}.get(widest.itemsize, 1024)
    work = heavy(order)
    return 128 if work >= 200 else 256 if work >= 100 else min(usual, 512) if work >= 40 else usual


def heavy(order: Sequence[Expr]) -> int:
    """The cost of a body's long functions (primitives.py), doubled where they are computed in float64."""
    total = 0
    for x in order:
        row = PRIMITIVES.get(x.op)
        if row is not None and row.cost > 1:
            inside = any("tl.float64)" in HELPERS.get(name, "") for name in re.findall(r"_\w+", row.triton))
            cost = row.cost * (2 if inside or x.dtype == np.float64 else 1)
            total += cost if cost >= 20 else 0
    return total


def flat_key(dtype: str, elements: int, arrays: int, dense: bool) -> Key:
    """The tuning key of an elementwise kernel. dtype: the widest; dense: no operand is broadcast."""
    return key("gpu flat", dtype, "flat" if dense else "broadcast", 16, elements=elements, arrays=arrays)


class _Indices:
    """Offsets of the operands of a layout, as text; collects the lines and sizes they need."""

    def __init__(self, layout: Layout, wide: bool):
        self.layout, self.sizes, self.lines = layout, {}, []
        self.wide = wide
        self._done = False

    def offset(self, operand: int) -> str:
        """ "" for a single element, "base + lane" for a dense operand, else the name of an offset."""
        present = self.layout.present[operand]
        if not any(present) or self.layout.shape(operand) == (1,) * len(present):
            return ""
        if all(present):
            return "base + lane"
        self._decode()
        name = f"o{''.join('1' if p else '0' for p in present)}"
        if not any(line.startswith(f"{name} = ") for line in self.lines):
            terms = []
            for axis, is_present in enumerate(present):
                if is_present:
                    stride = [f"d{a}" for a in range(axis + 1, len(present)) if present[a]]
                    terms.append(" * ".join([f"i{axis}", *(["(" + " * ".join(stride) + ")"] if stride else [])]))
            self.lines.append(f"{name} = {' + '.join(terms)}")
        return name

    def _decode(self) -> None:
        if self._done:
            return
        self._done = True
        last = len(self.layout.dims) - 1
        for axis in range(1, last + 1):
            d = self.layout.dims[axis]
            parameter, value, lines = size_parameter(f"d{axis}", d) if axis == last else (f"d{axis}", d, [])
            self.sizes[parameter] = value
            self.lines += lines
        self.lines.append("place = base + lane" if self.wide else "place = tl.program_id(0) * BLOCK + lane")
        for axis in range(last, 0, -1):
            self.lines.append(f"i{axis} = place % d{axis}")
            self.lines.append(f"place = place // d{axis}")
        self.lines.append("i0 = place")
