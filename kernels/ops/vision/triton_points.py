"""Triton: planes interpolated at points, and the derivatives.

The derivative by the planes is a product dy · W, where W holds for each point and element the product of two hat functions
max(0, 1 - |distance|). W is computed where it is used. There are no atomics, and the order of the sums is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....integers import cdiv, next_power_of_2
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for, interpreting
from ...kernel import DeviceArray, Run


@triton.jit
def _corner(data, base, row, col, H, W, live, WIDE: tl.constexpr):
    inside = live & (row >= 0) & (row < H) & (col >= 0) & (col < W)
    return tl.load(data + base + row * W + col, mask=inside, other=0).to(WIDE)


@triton.jit
def _at(where, i, live, size, WIDE: tl.constexpr):
    # a coordinate, its integer part and its fraction; NaN and coordinates far outside stay outside
    v = tl.load(where + i, mask=live, other=-2).to(WIDE)
    v = tl.where(v == v, v, -2.0)
    v = tl.minimum(tl.maximum(v, -2.0), size + 1.0)
    low = tl.floor(v)
    return low.to(tl.int32), v - low


@triton.jit
def _read(data, y, x, image, out, total: tl.int64, N, C, H, W, P, ADD: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: each lane's address is its point
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    p = i % P
    c = i // P % C
    g = i // P // C
    n = tl.load(image + g, mask=live, other=-1).to(tl.int64)
    row, fy = _at(y, g * P + p, live, H, WIDE)
    col, fx = _at(x, g * P + p, live, W, WIDE)
    there = live & (n >= 0) & (n < N)
    base = (n * C + c) * H * W
    top = _corner(data, base, row, col, H, W, there, WIDE) * (1 - fx) + _corner(data, base, row, col + 1, H, W, there, WIDE) * fx
    low = _corner(data, base, row + 1, col, H, W, there, WIDE) * (1 - fx) + _corner(
        data, base, row + 1, col + 1, H, W, there, WIDE) * fx
    v = top * (1 - fy) + low * fy
    if ADD:
        v += tl.load(out + i, mask=live).to(WIDE)
    tl.store(out + i, v.to(out.dtype.element_ty), mask=live)


@triton.jit
def _slope(dy, data, y, x, image, out_y, out_x, total: tl.int64, N, C, H, W, P, DOWN: tl.constexpr, RIGHT: tl.constexpr,
           ADD_Y: tl.constexpr, ADD_X: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    # narrow: each lane's address is its point
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = i < total
    p = i % P
    g = i // P
    n = tl.load(image + g, mask=live, other=-1).to(tl.int64)
    row, fy = _at(y, i, live, H, WIDE)
    col, fx = _at(x, i, live, W, WIDE)
    there = live & (n >= 0) & (n < N)
    down = tl.zeros((BLOCK,), WIDE)
    right = tl.zeros((BLOCK,), WIDE)
    for c in range(C):
        d = tl.load(dy + (g * C + c) * P + p, mask=there, other=0).to(WIDE)
        base = (n * C + c) * H * W
        a = _corner(data, base, row, col, H, W, there, WIDE)
        b = _corner(data, base, row, col + 1, H, W, there, WIDE)
        e = _corner(data, base, row + 1, col, H, W, there, WIDE)
        f = _corner(data, base, row + 1, col + 1, H, W, there, WIDE)
        down += d * ((e - a) * (1 - fx) + (f - b) * fx)
        right += d * ((b - a) * (1 - fy) + (f - e) * fy)
    if DOWN:
        if ADD_Y:
            down += tl.load(out_y + i, mask=live).to(WIDE)
        tl.store(out_y + i, down.to(out_y.dtype.element_ty), mask=live)
    if RIGHT:
        if ADD_X:
            right += tl.load(out_x + i, mask=live).to(WIDE)
        tl.store(out_x + i, right.to(out_x.dtype.element_ty), mask=live)


@triton.jit
def _spread(dy, y, x, image, out, G, C, H, W, P: tl.int64, ADD: tl.constexpr, WIDE: tl.constexpr, BC: tl.constexpr,
            BP: tl.constexpr, BE: tl.constexpr):
    # narrow: the products take longer than reading dy
    n = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    e = tl.program_id(2) * BE + tl.arange(0, BE)
    row = (e // W).to(WIDE)
    col = (e % W).to(WIDE)
    total = tl.zeros((BC, BE), WIDE)
    for g in range(G):
        if tl.load(image + g).to(tl.int32) == n:
            for first in range(0, P, BP):
                p = first + tl.arange(0, BP)
                live = p < P
                base = g * P
                py = tl.load(y + base + p, mask=live, other=-2).to(WIDE)
                px = tl.load(x + base + p, mask=live, other=-2).to(WIDE)
                py = tl.where(py == py, py, -2.0)
                px = tl.where(px == px, px, -2.0)
                near = tl.maximum(1 - tl.abs(py[:, None] - row[None, :]), 0)
                near *= tl.maximum(1 - tl.abs(px[:, None] - col[None, :]), 0)
                d = tl.load(dy + (base * C + c.to(tl.int64)[:, None] * P + p[None, :]), mask=(c < C)[:, None] & live[None, :],
                            other=0).to(WIDE)
                total = tl.dot(d, near, total, input_precision="ieee", out_dtype=WIDE)
    at = out + (n.to(tl.int64) * C + c.to(tl.int64)[:, None]) * H * W + e[None, :]
    keep = (c < C)[:, None] & (e < H * W)[None, :]
    if ADD:
        total += tl.load(at, mask=keep, other=0).to(WIDE)
    tl.store(at, total.to(out.dtype.element_ty), mask=keep)


def read(run: Run, data: DeviceArray, y: DeviceArray, x: DeviceArray, image: DeviceArray, out: DeviceArray, *, add: bool) -> None:
    """out [G, C, P] = (or +=) data [N, C, H, W] of image [G] at the points y, x [G, P]."""
    total = out.numel()
    block = block_for(total)
    launch(_read, (cdiv(total, block),), data, y, x, image, out, total, *data.shape, y.shape[1], stream=run.stream, ADD=add,
           WIDE=wide_float(out), BLOCK=block)


def back(run: Run, dy: DeviceArray, data: DeviceArray, y: DeviceArray, x: DeviceArray, image: DeviceArray,
         outputs: Sequence[DeviceArray | None], add: Sequence[bool]) -> None:
    """Write the derivatives of `read` by data, y and x to the outputs that are not None."""
    by_data, by_y, by_x = outputs
    n, c, h, w = data.shape
    groups, points = y.shape
    if by_data is not None:
        bc, bp, be = (max(16, min(next_power_of_2(k), 256 if interpreting() else most))
                      for k, most in ((c, 64), (points, 32), (h * w, 64)))
        launch(_spread, (n, cdiv(c, bc), cdiv(h * w, be)), dy, y, x, image, by_data, groups, c, h, w, points, stream=run.stream,
               ADD=add[0], WIDE=wide_float(by_data), BC=bc, BP=bp, BE=be)
    if by_y is not None or by_x is not None:
        total = groups * points
        block = block_for(total, 256)
        launch(_slope, (cdiv(total, block),), dy, data, y, x, image, by_y if by_y is not None else by_x,
               by_x if by_x is not None else by_y, total, n, c, h, w, points, stream=run.stream, DOWN=by_y is not None,
               RIGHT=by_x is not None, ADD_Y=add[1], ADD_X=add[2], WIDE=wide_float(data), BLOCK=block)
