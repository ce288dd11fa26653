"""Elementwise kernels: one program per block of the full shape in row-major order.

A block that lies inside the array takes a branch without masks, so that accesses stay 128 bits wide for any length: a mask
narrows the access. Offsets are a 64-bit base and 32-bit lanes. Dense operands are read at the element's own offset; the offset
of a broadcast operand is computed from the element's indices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from ...integers import cdiv
from ..configs import active as active_configs
from ..configs.key import Key, key
from ..ir.coalesce import BroadcastLayout, merge
from ..ir.draws import PlacedDraw
from ..ir.expr import LOAD, Expr, loads, topological
from ..ir.primitives import PRIMITIVES
from ..op import Expression, Shape, Specs
from .body import (
    BLOCK_OFFSET,
    NO_DRAWS,
    ArrayRef,
    KernelBody,
    KernelLaunch,
    StoreTarget,
    indent,
    index_lines,
    offset_text,
    size_parameter,
    store,
)
from .special import HELPERS
from .target import CodegenTarget

MANY_NODES = 150  # of a body whose arithmetic, not memory, takes the time: one element a thread, or registers spill
INT32_ELEMENTS = 2**31 - 2**21  # offsets up to here, and one block beyond, fit int32


def elementwise_launch(e: Expression, ins: Specs, targets: Sequence[StoreTarget], full: Shape, name: str,
                       codegen: CodegenTarget, source: ArrayRef | None = None, draws: Mapping[int, PlacedDraw] = NO_DRAWS
                       ) -> KernelLaunch:
    """Print the kernel that stores targets, all of the full shape.

    source: the array of input 0, if it is not the operator's own. draws: the inputs that are random numbers.
    """
    roots = [t.root for t in targets]
    used = loads(roots)
    layout = merge([full, *(ins[i].shape for i in used), *(t.spec.shape for t in targets)])
    body = KernelBody(roots, topological(roots), [s.dtype for s in ins], e.scalars, draws)
    n = math.prod(full)
    wide = n > INT32_ELEMENTS
    offsets, sizes, lines = _offsets(layout, wide)
    offset = dict(zip(used, offsets[1:]))
    singles = [i for i in used if offset[i] == ""]
    lines = ["base = tl.program_id(0).to(tl.int64) * BLOCK", "lane = tl.arange(0, BLOCK)", *lines,
             *(f"v{i} = {body.read(i, '')}" for i in singles)]

    def branch(mask: str) -> list[str]:
        def fetch(i: int) -> str:
            return f"v{i}" if i in singles else body.read(i, offset[i], mask)

        names: dict[int, str] = {}
        inner = body.lines(roots, names, fetch)
        return inner + [store(names[id(t.root)], t.dtype, t.spec, t.req, f"y{k} + base + lane", mask)
                        for k, t in enumerate(targets)]

    lines += ["if base + BLOCK <= n:", *indent(branch("")), "else:",
              *indent(["mask = lane < (n - base).to(tl.int32)", *branch(", mask=mask")])]
    widest = max((s.dtype for s in (*(ins[i] for i in used), *(t.spec for t in targets))), key=lambda d: d.itemsize)
    blocks = {"BLOCK": codegen.block(n, lanes(body.order, widest)), "num_warps": 4}
    if not codegen.interpreted and active_configs.active():
        blocks = active_configs.choice(flat_key(widest.name, n, len(used) + len(targets), not sizes), blocks)
    sizes = {"n": n, **sizes}
    return body.launch(name, lines, used, targets, sizes, (cdiv(n, blocks["BLOCK"]),), {"BLOCK": blocks["BLOCK"]},
                       blocks["num_warps"], codegen, wide=sizes if wide else ("n",), source=source)


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


def _offsets(layout: BroadcastLayout, wide: bool) -> tuple[list[str], dict[str, int], list[str]]:
    """Return (the offset of each operand; the sizes and the lines that compute them).

    An offset is "" for a single element, BLOCK_OFFSET for a dense operand, else the name of a variable.
    """
    last = len(layout.dims) - 1
    offsets, named = [], {}
    for operand, present in enumerate(layout.present):
        if not any(present) or set(layout.shape(operand)) == {1}:
            offsets.append("")
        elif all(present):
            offsets.append(BLOCK_OFFSET)
        else:
            offsets.append(f"o{''.join('1' if p else '0' for p in present)}")
            named[offsets[-1]] = offset_text(present)
    if not named:
        return offsets, {}, []
    parameter, value, lines = size_parameter(f"d{last}", layout.dims[last])
    sizes = {**{f"d{axis}": layout.dims[axis] for axis in range(1, last)}, parameter: value}
    lines += ["place = base + lane" if wide else "place = tl.program_id(0) * BLOCK + lane"]
    lines += [*index_lines("place", range(last + 1)), *(f"{name} = {text}" for name, text in named.items())]
    return offsets, sizes, lines
