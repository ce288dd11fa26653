"""Triton: channels-last convolution; the derivative by the weight for kernels without depth.

A matrix product with a gathered left operand: rows are positions, and the inner sum runs over taps of the kernel and, within a
tap, over channels, which are contiguous. The data derivative is the same kernel, once per phase of the stride: within a phase
every position uses the same taps, so no product with an inserted zero is computed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from ....errors import DTypeError
from ....integers import cdiv, next_power_of_2
from ...configs import active as active_configs
from ...configs import float32_matmul
from ...configs.key import alignment, key
from ...gpu.epilogue import Epilogue, epilogue, with_epilogue
from ...gpu.launch import launch, wide_float
from ...gpu.source import Name, tl, triton
from ...gpu.target import block_for, compute_capability, interpreting, multiprocessors, tile_size
from ...kernel import DeviceArray, Run
from ...op import Shape
from ..linalg import triton_gemm_kernels as products
from ..linalg.triton_gemm import Blocks, gemm
from .conv_geometry import ConvolutionGeometry, three


@triton.jit
def _within(i, n):
    # 0 <= i < n, in one comparison
    return i.to(tl.uint32) < n.to(tl.uint32)


@triton.jit
def conv_gather(x, w, bias, y, D, H, W, C, Z, P, Q, F, OD, OH, OW, rows: tl.int64, row_c: tl.int64, row_f: tl.int64,
                off_d, off_h, off_w, tap_0, step_d, step_h, step_w, taps_h, taps_w, tap_d, tap_h, tap_w, taps_all, out_d, out_h,
                out_w, UNIT_C: tl.constexpr, UNIT_F: tl.constexpr, DEEP: tl.constexpr, MUL_D: tl.constexpr, MUL_H: tl.constexpr,
                MUL_W: tl.constexpr, OUT_D: tl.constexpr, OUT_H: tl.constexpr, OUT_W: tl.constexpr, TAPS: tl.constexpr,
                RUN: tl.constexpr, BITS: tl.constexpr, WHOLE: tl.constexpr, FULL: tl.constexpr, TURN: tl.constexpr,
                ADD: tl.constexpr, BIAS: tl.constexpr, OFFSET: tl.constexpr, WIDE: tl.constexpr, CAST: tl.constexpr,
                PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # reads x [., D, H, W, .] at (..., p * MUL_H + off_h + i * step_h, ...), for Z x P x Q positions of each image and TAPS taps;
    # writes y [., OD, OH, OW, .] at (..., p * OUT_H + out_h, ...). TURN: w is [inner, tap, column], else [column, tap, inner].
    # DEEP: taps and positions differ in depth; else slices are images: D, Z and OD are 1, or all the same.
    # RUN: so many taps along the width are neighbours in x and in w, and their channels one long row; WHOLE: of whole blocks;
    # FULL: so are the columns
    C = C * UNIT_C
    F = F * UNIT_F
    row_c = row_c * UNIT_C
    row_f = row_f * UNIT_F
    tiles_f = tl.cdiv(F, BN)
    group = tl.program_id(1)
    first = (tl.program_id(0) // tiles_f).to(tl.int64) * BM
    f = (tl.program_id(0) % tiles_f) * BN + tl.arange(0, BN)
    filled = tl.full((BN,), True, tl.int1) if FULL else f < F
    image = first // P // Q  # offsets count from the program's first image on, in OFFSET's width
    before = image * P * Q
    if DEEP:
        image = image // Z
        before = image * Z * P * Q
    m = (first - before).to(tl.int32) + tl.arange(0, BM)
    exists = m < rows - before
    q = m % Q
    p = m // Q % P
    n = (m // Q // P).to(OFFSET)
    h0 = p * MUL_H + off_h
    w0 = q * MUL_W + off_w
    line = (W * row_c).to(OFFSET)
    from_x = x + image * (D if DEEP else 1) * H * line + group * C
    lane = tl.arange(0, BK)
    if DEEP:
        z = m // Q // P % Z
        n = (m // Q // P // Z).to(OFFSET)
        d0 = z * MUL_D + off_d
        to_x = (((n * D + d0) * H + h0) * line + w0 * row_c.to(OFFSET))[:, None] + lane[None, :]
    else:
        to_x = ((n * H + h0) * line + w0 * row_c.to(OFFSET))[:, None] + lane[None, :]
    from_w = w + group * C.to(tl.int64) * taps_all * F + tap_0 * (F if TURN else C)
    deep_w = tap_d * (F if TURN else C)
    if TURN:
        row_w = (taps_all * F).to(OFFSET)
        down_w = tap_h * F
        across_w = tap_w * F
        to_w = (lane * row_w)[:, None] + f[None, :]
    else:
        row_w = 1
        down_w = tap_h * C
        across_w = tap_w * C
        to_w = lane[:, None] + (f * (taps_all * C).to(OFFSET))[None, :]
    length = RUN * C
    start = 0  # of the block in the run
    i = 0  # the tap: down, across, and in depth
    j = 0
    e = 0
    tap = 0
    if BITS:  # which taps of each position lie inside, a bit each
        bits = tl.zeros((BM,), tl.int32)
        for t in range(TAPS):
            h = h0 + i * step_h
            v = w0 + j * step_w
            seen = exists & _within(h, H) & _within(v, W)
            if DEEP:
                seen = seen & _within(d0 + e * step_d, D)
            bits |= seen.to(tl.int32) << t
            j += 1
            after = j >= taps_w
            j = tl.where(after, 0, j)
            i += after
            if DEEP:
                after = i >= taps_h
                i = tl.where(after, 0, i)
                e += after
        i = 0
        e = 0
        bits = bits[:, None]  # laid out as loads are: in the loop it would be moved each round
    total = tl.zeros((BM, BN), WIDE)
    for _ in range(TAPS // RUN * tl.cdiv(length, BK)):
        k = start + lane
        if BITS:
            keep = (bits >> tap) & 1 != 0
        else:
            h = h0 + i * step_h
            column = ((w0 + j * step_w) * C)[:, None] + (k if RUN > 1 else k * 0)[None, :]
            keep = exists & _within(h, H)
            if DEEP:
                keep = keep & _within(d0 + e * step_d, D)
            keep = keep[:, None] & _within(column, W * C)
        if WHOLE:
            keep = tl.broadcast_to(keep, (BM, BK))
            some = tl.broadcast_to(filled[None, :], (BK, BN))
        else:
            keep = keep & (k < length)[None, :]
            some = filled[None, :] & (k < length)[:, None]
        at_w = i * down_w + j * across_w + start * row_w
        if DEEP:
            at_w += e * deep_w
        b = tl.load(from_w + at_w + to_w, mask=some, other=0)
        away = i * step_h * line + j * step_w * row_c.to(OFFSET) + start
        if DEEP:
            away += e * step_d * H * line
        a = tl.load(from_x + away + to_x, mask=keep, other=0)
        if CAST:
            a = a.to(WIDE)
            b = b.to(WIDE)
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=WIDE)
        start += BK
        after = start >= length
        start = tl.where(after, 0, start)
        tap += after
        j += RUN * after
        after = j >= taps_w
        j = tl.where(after, 0, j)
        i += after
        if DEEP:
            after = i >= taps_h
            i = tl.where(after, 0, i)
            e += after
    if BIAS:
        total += tl.load(bias + group * F + f, mask=filled, other=0).to(WIDE)[None, :]
    total = epilogue(total, group * F + f, filled)
    to = y + image * (OD if DEEP else 1) * OH * OW * row_f + group * F
    if DEEP:
        n = n * OD + z * OUT_D + out_d
    to += (((n * OH + p * OUT_H + out_h) * OW + q * OUT_W + out_w) * row_f.to(OFFSET))[:, None] + f[None, :]
    keep = exists[:, None] & filled[None, :]
    if ADD:
        total += tl.load(to, mask=keep, other=0).to(WIDE)
    tl.store(to, total.to(y.dtype.element_ty), mask=keep)


@triton.jit
def conv_weight(dy, x, parts, H, W, C, P, Q, F, rows: tl.int64, row_c: tl.int64, row_f: tl.int64, per_split: tl.int64,
                groups, UNIT_C: tl.constexpr, UNIT_F: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                SH: tl.constexpr, SW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, PH: tl.constexpr,
                PW: tl.constexpr, RUN: tl.constexpr, FULL: tl.constexpr, OFFSET: tl.constexpr, WIDE: tl.constexpr,
                CAST: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # rows: filters of a group; columns: channels of RUN taps that are neighbours in x; inner: a part of the positions.
    # parts [split, filter, tap, c]. FULL: no tile is partly outside
    C = C * UNIT_C
    F = F * UNIT_F
    row_c = row_c * UNIT_C
    row_f = row_f * UNIT_F
    columns = RUN * C
    tiles_c = tl.cdiv(columns, BN)
    tiles_f = tl.cdiv(F, BM)
    i = tl.program_id(0)
    tap = i % (KH * KW // RUN) * RUN
    i = i // (KH * KW // RUN)
    c = (i % tiles_c) * BN + tl.arange(0, BN)
    f = (i // tiles_c % tiles_f) * BM + tl.arange(0, BM)
    some_f = tl.full((BM,), True, tl.int1) if FULL else f < F
    some_c = tl.full((BN,), True, tl.int1) if FULL else c < columns
    split = i // tiles_c // tiles_f
    group = tl.program_id(1)
    first = split * per_split
    count = (tl.minimum(first + per_split, rows) - first).to(tl.int32)
    image = first // P // Q  # offsets count from the part's first image on, in OFFSET's width
    m = tl.arange(0, BK)
    k = (first - image * P * Q).to(tl.int32) + m
    line = (W * row_c).to(OFFSET)
    from_dy = dy + first * row_f + group * F
    to_dy = (m * row_f.to(OFFSET))[:, None] + f[None, :]
    from_x = x + image * H * line + group * C
    left = tap % KW * DW - PW
    top = tap // KW * DH - PH
    v = k % Q * SW + left
    h = k // Q % P * SH + top
    to_x = ((k // Q // P).to(OFFSET) * H + h) * line + v * row_c.to(OFFSET)
    on_v = BK % Q * SW  # BK positions on: the sums carry, and nothing is divided
    on_h = BK // Q % P * SH
    on_x = (BK // Q // P * H + on_h) * line + on_v * row_c.to(OFFSET)
    row_x = SH * line - Q * SW * row_c.to(OFFSET)
    image_x = (H - P * SH) * line
    total = tl.zeros((BM, BN), WIDE)
    for start in range(0, count, BK):
        exists = start + m < count
        g = tl.load(from_dy + to_dy, mask=exists[:, None] & some_f[None, :], other=0)
        keep = exists & _within(h, H)
        if RUN > 1:
            keep = keep[:, None] & _within((v * C)[:, None] + c[None, :], W * C)
        else:
            keep = (keep & _within(v, W))[:, None]
        b = tl.load(from_x + (to_x[:, None] + c[None, :]), mask=keep & some_c[None, :], other=0)
        if CAST:
            g = g.to(WIDE)
            b = b.to(WIDE)
        total = tl.dot(g.T, b, total, input_precision=PRECISION, out_dtype=WIDE)
        from_dy += BK * row_f
        v += on_v
        carry = v >= Q * SW + left
        v = tl.where(carry, v - Q * SW, v)
        h = tl.where(carry, h + (on_h + SH), h + on_h)
        to_x = tl.where(carry, to_x + (on_x + row_x), to_x + on_x)
        carry = h >= P * SH + top
        h = tl.where(carry, h - P * SH, h)
        to_x = tl.where(carry, to_x + image_x, to_x)
    filter = (split * groups + group).to(tl.int64) * F + f
    to = parts + ((filter * (KH * KW) + tap) * C)[:, None] + c[None, :]
    tl.store(to, total, mask=some_f[:, None] & some_c[None, :])


@triton.jit
def depthwise(x, w, bias, y, D, H, W, C, Z, P, Q, rows: tl.int64, UNIT_C: tl.constexpr, DEEP: tl.constexpr, KD: tl.constexpr,
              KH: tl.constexpr, KW: tl.constexpr, SD: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, DD: tl.constexpr,
              DH: tl.constexpr, DW: tl.constexpr, PD: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, BACK: tl.constexpr,
              ADD: tl.constexpr, BIAS: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    # one filter per channel. BACK: x is dy [., D, H, W, C], y is dx [., Z, P, Q, C], and a tap counts where the stride hits it.
    # DEEP: as in conv_gather
    C = C * UNIT_C
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BN + tl.arange(0, BN)
    q = (m % Q).to(tl.int32)
    p = (m // Q % P).to(tl.int32)
    n = m // Q // P
    total = tl.zeros((BM, BN), WIDE)
    for t in tl.static_range(KD * KH * KW):
        e = t // (KH * KW)
        r = t // KW % KH
        s = t % KW
        if BACK:
            h = p + PH - r * DH
            v = q + PW - s * DW
            inside = (h >= 0) & (v >= 0) & (h % SH == 0) & (v % SW == 0)
            h = h // SH
            v = v // SW
        else:
            h = p * SH - PH + r * DH
            v = q * SW - PW + s * DW
            inside = (h >= 0) & (v >= 0)
        inside = inside & (h < H) & (v < W) & (m < rows)
        slice = n
        if DEEP:
            z = (n % Z).to(tl.int32)
            if BACK:
                d = z + PD - e * DD
                inside = inside & (d >= 0) & (d % SD == 0)
                d = d // SD
            else:
                d = z * SD - PD + e * DD
                inside = inside & (d >= 0)
            inside = inside & (d < D)
            slice = n // Z * D + d
        a = tl.load(x + ((slice * H + h) * W + v)[:, None] * C + c[None, :], mask=inside[:, None] & (c < C)[None, :], other=0)
        b = tl.load(w + c * (KD * KH * KW) + t, mask=c < C, other=0)
        total += a.to(WIDE) * b.to(WIDE)[None, :]
    if BIAS:
        total += tl.load(bias + c, mask=c < C, other=0).to(WIDE)[None, :]
    total = epilogue(total, c, c < C)
    to = y + m[:, None] * C + c[None, :]
    keep = (m < rows)[:, None] & (c < C)[None, :]
    if ADD:
        total += tl.load(to, mask=keep, other=0).to(WIDE)
    tl.store(to, total.to(y.dtype.element_ty), mask=keep)


@triton.jit
def depthwise_weight(dy, x, parts, H, W, C, P, Q, rows: tl.int64, per_split: tl.int64, UNIT_C: tl.constexpr,
                     KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr, DH: tl.constexpr,
                     DW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr,
                     BN: tl.constexpr):
    # parts [split, c, tap]
    C = C * UNIT_C
    tap = tl.program_id(0) % (KH * KW)
    split = tl.program_id(0) // (KH * KW)
    c = tl.program_id(1) * BN + tl.arange(0, BN)
    first = split * per_split
    last = tl.minimum(first + per_split, rows)
    total = tl.zeros((BM, BN), WIDE)
    for start in range(first, last, BM):
        m = start + tl.arange(0, BM).to(tl.int64)
        q = (m % Q).to(tl.int32)
        p = (m // Q % P).to(tl.int32)
        h = p * SH - PH + tap // KW * DH
        v = q * SW - PW + tap % KW * DW
        inside = (m < last) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        keep = inside[:, None] & (c < C)[None, :]
        g = tl.load(dy + m[:, None] * C + c[None, :], mask=keep, other=0).to(WIDE)
        total += g * tl.load(x + ((m // Q // P * H + h) * W + v)[:, None] * C + c[None, :], mask=keep, other=0).to(WIDE)
    tl.store(parts + (split.to(tl.int64) * C + c) * (KH * KW) + tap, tl.sum(total, axis=0), mask=c < C)


# ---- sizes -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sizes:
    """Sizes of a convolution in three dimensions, with sizes of one in front of fewer; c channels and f filters per group."""

    n: int
    c: int
    f: int
    groups: int
    x: Shape
    y: Shape
    kernel: Shape
    stride: Shape
    dilate: Shape
    pad: Shape

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def depthwise(self) -> bool:
        return self.c == self.f == 1 and self.groups > 1

    @property
    def plain(self) -> bool:
        """True for a kernel of one tap: a single matrix product over positions."""
        return self.taps == 1 and set(self.stride) == {1} and not any(self.pad) and self.groups == 1

    @property
    def deep(self) -> bool:
        """True if a slice of the output is not made of the slice of the data at the same depth alone."""
        return (self.kernel[0], self.stride[0], self.pad[0]) != (1, 1, 0)


def sizes(g: ConvolutionGeometry) -> Sizes:
    """Return the sizes of a convolution."""
    return Sizes(g.n, g.c // g.groups, g.f // g.groups, g.groups, three(g.spatial, 1), three(g.out, 1), three(g.kernel, 1),
                 three(g.stride, 1), three(g.dilate, 1), three(g.pad, 0))


@dataclass(frozen=True)
class Phase:
    """The taps used at positions first, first + stride, ... along one axis of the data.

    Position first + j * stride reads dy at j + offset + i * step through tap tap + i * tap_step, for i < taps.
    """

    first: int
    positions: int
    offset: int
    step: int
    tap: int
    tap_step: int
    taps: int


def phases(size: int, kernel: int, stride: int, dilate: int, pad: int) -> list[Phase]:
    """Return all phases of an axis of `size` positions."""
    found = []
    for first in range(min(stride, size)):
        met = [r for r in range(kernel) if (first + pad - r * dilate) % stride == 0]
        tap_step = met[1] - met[0] if len(met) > 1 else 1
        tap = met[0] if met else 0
        found.append(Phase(first, cdiv(size - first, stride), (first + pad - tap * dilate) // stride,
                           -(tap_step * dilate) // stride if len(met) > 1 else 0, tap, tap_step, len(met)))
    return found


def choose(m: int, n: int, k: int, itemsize: int, tensor_cores: bool, sms: int) -> Blocks:
    """Choose blocks for the product of m positions, n filters and k channels per run of taps, by sizes alone."""
    bn = max(16, min(128, next_power_of_2(n)))
    bk = max(16, min(128 // itemsize if tensor_cores else 16, next_power_of_2(k)))
    if cdiv(m, 128) * cdiv(n, bn) >= sms and itemsize < 8:
        return Blocks(0, 128, bn, bk, 8)
    return Blocks(0, 64, min(64, bn), bk if itemsize < 8 else 16)


def choose_weight(f: int, columns: int, itemsize: int, tensor_cores: bool, target: int) -> Blocks:
    """Choose blocks for a weight gradient: f filters by the channels of neighbouring taps, by sizes and target alone.

    Both operands are read once per tile of the other, so tiles are wide, but not where a third of one would be empty. For sm_100
    the widest spills registers.
    """
    if not tensor_cores or itemsize > 2:
        return Blocks(0, 64, max(16, min(64, next_power_of_2(columns))), 16, 4)
    bn = max(16, min(256, next_power_of_2(columns)))
    if cdiv(columns, bn) * bn > 1.34 * columns:
        bn = 128
    return Blocks(0, 128 if f > 64 and (bn < 256 or target < 100) else 64, bn, 64, 8 if bn > 64 else 4)


def _unit(*values: int) -> int:
    return 1 if math.gcd(*values) % 8 else 8


def _blocks(run: Run, what: str, s: Sizes, array: DeviceArray, m: int, n: int, k: int, run_k: int) -> Blocks:
    """run_k: the channels of the taps that are neighbours: of the inner sum, in a weight gradient of the columns."""
    name = str(array.dtype).removeprefix("torch.")
    itemsize = {"float64": 8, "float32": 4}.get(name, 2)
    if interpreting() and what == "weight":
        return Blocks(0, tile_size(m, 0, 256), tile_size(run_k, 0), tile_size(k, 0, 512))
    if interpreting():
        return Blocks(0, tile_size(m, 0, 1024), tile_size(n, 0), tile_size(run_k, 0, 64))
    cores = itemsize == 2 or (itemsize == 4 and float32_matmul.of_launch() != "ieee")
    device = getattr(run.stream, "device_index", 0)
    default = choose_weight(m, run_k, itemsize, cores, compute_capability(device)) if what == "weight" else choose(
        m, n, run_k, itemsize, cores, multiprocessors(device))
    if not active_configs.active():
        return default
    asked = key(f"gpu conv {what}", name, "last", alignment(s.c * itemsize, s.f * itemsize), m=m, n=n, k=k, taps=s.taps,
                step=math.prod(s.stride), groups=s.groups)
    return Blocks(**active_configs.choice(asked, asdict(default)))


def numbers(array: DeviceArray) -> dict[str, Any]:
    """Return the constexprs of the arithmetic for this dtype. Raises DTypeError for integers."""
    if "float" not in str(array.dtype):
        raise DTypeError(f"Convolution: {str(array.dtype).removeprefix('torch.')} has no kernel on a GPU: integers are "
                         f"convolved on the CPU only. Convert data and weight with astype(\"float32\").")
    double = str(array.dtype) == "torch.float64"
    how = float32_matmul.of_launch() if str(array.dtype) == "torch.float32" else "ieee"
    return {"WIDE": wide_float(array), "CAST": double or interpreting(), "PRECISION": how}


def _geometry(s: Sizes, first: int) -> dict[str, Any]:
    """Return the constexprs of kernel, stride, dilate and pad from an axis on: KD, KH, KW, SD ..."""
    return {letter + axis: size for letter, sizes in zip("KSDP", (s.kernel, s.stride, s.dilate, s.pad))
            for axis, size in list(zip("DHW", sizes))[first:]}


def _rows(n: int, columns: int) -> Any:
    return ((1, n, columns), (n * columns, columns, 1))


# ---- launches --------------------------------------------------------------------------------------------------------
def forward(run: Run, s: Sizes, x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None, y: DeviceArray, *, add: bool,
            epilogue: Epilogue | None = None, others: Sequence[DeviceArray] = ()) -> None:
    """y [n, p, q, f] = (or +=) convolution of x [n, h, w, c] with weight [f, r, s, c], plus bias (or None); then the epilogue."""
    m, more = s.n * math.prod(s.y), {"epilogue": epilogue, "others": others}
    if s.plain:
        gemm(run, x, _rows(m, s.c), weight, ((1, s.c, s.f), (s.c * s.f, 1, s.c)), y, _rows(m, s.f), bias=bias, add=add, **more)
    elif s.depthwise:
        _depthwise(run, s, x, weight, bias, y, s.x, s.y, back=False, add=add, **more)
    else:
        every = [Phase(0, y, -pad, dilate, 0, 1, k) for y, pad, dilate, k in zip(s.y, s.pad, s.dilate, s.kernel)]
        _gather(run, "forward", s, x, weight, bias, y, s.x, s.y, s.c, s.f, every, s.stride, (1, 1, 1), turn=False, add=add,
                **more)


def data_gradient(run: Run, s: Sizes, dy: DeviceArray, weight: DeviceArray, dx: DeviceArray, *, add: bool) -> None:
    """dx [n, h, w, c] = (or +=) the derivative by data."""
    m = s.n * math.prod(s.x)
    if s.plain:
        gemm(run, dy, _rows(m, s.f), weight, _rows(s.f, s.c), dx, _rows(m, s.c), add=add)
        return
    if s.depthwise:
        _depthwise(run, s, dy, weight, None, dx, s.y, s.x, back=True, add=add)
        return
    for axes in product(*(phases(*a) for a in zip(s.x, s.kernel, s.stride, s.dilate, s.pad))):
        _gather(run, "data", s, dy, weight, None, dx, s.y, s.x, s.f, s.c, axes, (1, 1, 1), s.stride, turn=True, add=add)


def _gather(run: Run, what: str, s: Sizes, x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None, y: DeviceArray,
            read: Shape, written: Shape, inner: int, columns: int, axes: Sequence[Phase], mul: Shape, out: Shape, *, turn: bool,
            add: bool, epilogue: Epilogue | None = None, others: Sequence[DeviceArray] = ()) -> None:
    deep, vertical, horizontal = axes
    walked = [a.positions for a in axes]
    rows, taps = s.n * math.prod(walked), math.prod(a.taps for a in axes)
    neighbours = horizontal.taps if s.groups == 1 and horizontal.step == 1 and not turn else 1
    b = _blocks(run, what, s, y, rows, columns, inner * taps, inner * neighbours)
    if inner % b.BK == 0:
        neighbours = 1  # no block would hold two of them
    uc, uf = _unit(inner), _unit(columns)
    images, line, plane = cdiv(b.BM, math.prod(walked)) + 1, s.kernel[2], s.kernel[1] * s.kernel[2]
    launch(with_epilogue(conv_gather, epilogue), (cdiv(rows, b.BM) * cdiv(columns, b.BN), s.groups), x, weight,
           y if bias is None else bias, *others, y,
           *read, inner // uc, *walked, columns // uf, *written, rows, inner * s.groups // uc, columns * s.groups // uf,
           deep.offset, vertical.offset, horizontal.offset, deep.tap * plane + vertical.tap * line + horizontal.tap, deep.step,
           vertical.step, horizontal.step, max(1, vertical.taps), max(1, horizontal.taps), deep.tap_step * plane,
           vertical.tap_step * line, horizontal.tap_step, s.taps, deep.first, vertical.first, horizontal.first, UNIT_C=uc,
           UNIT_F=uf, DEEP=s.deep, MUL_D=mul[0], MUL_H=mul[1], MUL_W=mul[2], OUT_D=out[0], OUT_H=out[1], OUT_W=out[2], TAPS=taps,
           RUN=neighbours, BITS=neighbours == 1 and taps <= 32,
           WHOLE=inner * neighbours % b.BK == 0, FULL=columns % b.BN == 0, TURN=turn, ADD=add, BIAS=bias is not None,
           OFFSET=_offset(images * s.groups * max(math.prod(read) * inner, math.prod(written) * columns),
                          s.f * s.c * s.groups * s.taps), **numbers(y), BM=b.BM, BN=b.BN, BK=b.BK,
           num_warps=b.num_warps, num_stages=b.num_stages, stream=run.stream)


def _offset(*elements: int) -> Name:
    """The integers that count so many elements, with those of a block that lie outside."""
    return tl.int32 if max(elements) < 2**30 else tl.int64


#: Rows of a sum for which the tensor cores of an H100 need the time in which its memory writes and reads a part of it: 8 bytes at
#: 3 TB/s, and 2 operations a row at 600 TFLOP/s.
_PART = 800


@functools.cache
def splits_of(rows: int, tiles: int, step: int, sms: int, warps: int) -> tuple[int, int]:
    """Return the number of parts of a sum over rows, and the rows per part, by sizes and GPU alone.

    A multiprocessor has the registers for 8 warps of these kernels at once. A wave of programs that is not full takes as long as
    a full one, and each part is written and read: so many parts as make the sum of both least.
    """
    at_once = sms * max(1, 8 // warps)
    found = dict.fromkeys(cdiv(cdiv(rows, n), step) * step for n in range(1, max(1, min(rows // (4 * step), 256)) + 1))

    def cost(per: int) -> float:
        n = cdiv(rows, per)
        return cdiv(tiles * n, at_once) * at_once / (tiles * n) + n * _PART / rows

    per = min(found, key=cost)
    return cdiv(rows, per), per


def weight_gradient(run: Run, s: Sizes, dy: DeviceArray, x: DeviceArray, dw: DeviceArray, *, add: bool) -> None:
    """dw [f, r, s, c] = (or +=) the derivative by weight of a kernel without depth: sums over parts of the positions, added in
    order."""
    m, data, out = s.n * math.prod(s.y), s.x[1:], s.y[1:]
    if s.plain:
        gemm(run, dy, ((1, s.f, m), (m * s.f, 1, s.f)), x, _rows(m, s.c), dw, _rows(s.f, s.c), add=add)
        return
    assert not s.deep, s
    geometry = _geometry(s, 1)
    scratch = np.dtype("float64" if str(dy.dtype) == "torch.float64" else "float32")
    sms = 4 if interpreting() else multiprocessors(getattr(run.stream, "device_index", 0))
    if s.depthwise:
        c = s.groups
        uc = _unit(c)
        bm, bn = tile_size(m, 32, 1024), tile_size(c, 64)
        splits, per = splits_of(m, s.taps * cdiv(c, bn), bm, sms, 4)
        parts = run.workspace((splits, c, s.taps), scratch)
        launch(depthwise_weight, (s.taps * splits, cdiv(c, bn)), dy, x, parts, *data, c // uc, *out, m, per, UNIT_C=uc,
               **geometry, WIDE=wide_float(dy), BM=bm, BN=bn, stream=run.stream)
        _sum(run, parts, dw, splits, c * s.taps, add)
        return
    neighbours = s.kernel[2] if s.groups == 1 and s.dilate[2] == 1 else 1
    b = _blocks(run, "weight", s, dy, s.f, s.c * s.taps, m, s.c * neighbours)
    if s.c % b.BN == 0:
        neighbours = 1  # no tile would hold two of them
    uc, uf = _unit(s.c), _unit(s.f)
    tiles = s.taps // neighbours * cdiv(s.c * neighbours, b.BN) * cdiv(s.f, b.BM)
    splits, per = splits_of(m, tiles * s.groups, b.BK, sms, b.num_warps)
    images = cdiv(per, math.prod(out)) + 1
    parts = run.workspace((splits, s.f * s.groups, s.taps, s.c), scratch)
    launch(conv_weight, (tiles * splits, s.groups), dy, x, parts, *data, s.c // uc, *out, s.f // uf, m, s.c * s.groups // uc,
           s.f * s.groups // uf, per, s.groups, UNIT_C=uc, UNIT_F=uf, **geometry, RUN=neighbours,
           FULL=s.c * neighbours % b.BN == s.f % b.BM == 0,
           OFFSET=_offset(images * s.groups * s.c * math.prod(data), b.BK * s.f * s.groups, s.taps * s.c), **numbers(dy), BM=b.BM,
           BN=b.BN, BK=b.BK, num_warps=b.num_warps, num_stages=b.num_stages, stream=run.stream)
    _sum(run, parts, dw, splits, s.f * s.groups * s.taps * s.c, add)


def _sum(run: Run, parts: DeviceArray, out: DeviceArray, splits: int, size: int, add: bool) -> None:
    unit = _unit(size)
    block = block_for(size, max(128, min(1024, next_power_of_2(size // 512))))  # few sums of many parts: many small programs
    launch(products.gemm_sum_splits, (cdiv(size, block),), parts, out, out, 1, size // unit, size // unit, 1, 0, splits,
           UNIT=unit, DENSE=True, ADD=add, BIAS=False, WIDE=wide_float(parts), BLOCK=block, stream=run.stream)


def _depthwise(run: Run, s: Sizes, x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None, y: DeviceArray,
               read: Shape, written: Shape, *, back: bool, add: bool, epilogue: Epilogue | None = None,
               others: Sequence[DeviceArray] = ()) -> None:
    c, rows = s.groups, s.n * math.prod(written)
    uc, bm, bn = _unit(c), tile_size(rows, 16, 1024), tile_size(c, 64)
    launch(with_epilogue(depthwise, epilogue), (cdiv(rows, bm), cdiv(c, bn)), x, weight, y if bias is None else bias, *others, y,
           *read, c // uc, *written, rows, UNIT_C=uc, DEEP=s.deep, **_geometry(s, 0), BACK=back, ADD=add, BIAS=bias is not None,
           WIDE=wide_float(y), BM=bm, BN=bn, stream=run.stream)
