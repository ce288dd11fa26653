"""Triton: channels-last convolution in one and two dimensions.

A matrix product with a gathered left operand: rows are positions, and the inner sum runs over taps of the kernel and, within a
tap, over channels, which are contiguous. The data derivative is the same kernel, once per phase of the stride: within a phase
every position uses the same taps, so no product with an inserted zero is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ....errors import DTypeError
from ....integers import cdiv, next_power_of_2
from ...configs import active as active_configs
from ...configs.key import alignment, key
from ...gpu.epilogue import Epilogue, epilogue, with_epilogue
from ...gpu.launch import launch, wide_float
from ...gpu.source import tl, triton
from ...gpu.target import block_for, interpreting, multiprocessors, tile_size
from ...kernel import DeviceArray, Run
from ..linalg import triton_gemm_kernels as products
from ..linalg.triton_gemm import Blocks, gemm, precision
from .conv_geometry import ConvolutionGeometry


@triton.jit
def conv_gather(x, w, bias, y, N, H, W, C, P, Q, F, OH, OW, rows: tl.int64, row_c: tl.int64, row_f: tl.int64,
                off_h, off_w, tap_0, step_h, step_w, taps_w, tap_h, tap_w, taps_all, out_h, out_w,
                UNIT_C: tl.constexpr, UNIT_F: tl.constexpr, MUL_H: tl.constexpr, MUL_W: tl.constexpr,
                OUT_H: tl.constexpr, OUT_W: tl.constexpr, TAPS: tl.constexpr, TURN: tl.constexpr, ADD: tl.constexpr,
                BIAS: tl.constexpr, WIDE: tl.constexpr, CAST: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr,
                BN: tl.constexpr, BK: tl.constexpr):
    # reads x [N, H, W, .] at (p * MUL_H + off_h + i * step_h, ...), for P x Q positions of each image and TAPS taps;
    # writes y [N, OH, OW, .] at (p * OUT_H + out_h, ...). TURN: w is [inner, tap, column], else [column, tap, inner]
    C = C * UNIT_C
    F = F * UNIT_F
    row_c = row_c * UNIT_C
    row_f = row_f * UNIT_F
    tiles_f = tl.cdiv(F, BN)
    group = tl.program_id(1)
    m = (tl.program_id(0) // tiles_f).to(tl.int64) * BM + tl.arange(0, BM)
    f = (tl.program_id(0) % tiles_f) * BN + tl.arange(0, BN)
    q = (m % Q).to(tl.int32)
    p = (m // Q % P).to(tl.int32)
    n = m // Q // P
    h0 = p * MUL_H + off_h
    w0 = q * MUL_W + off_w
    from_x = x + ((n * H + h0) * W + w0) * row_c + group * C
    blocks = tl.cdiv(C, BK)
    total = tl.zeros((BM, BN), WIDE)
    for turn in range(TAPS * blocks):
        tap = turn // blocks
        c = (turn % blocks) * BK + tl.arange(0, BK)
        dh = tap // taps_w * step_h
        dw = tap % taps_w * step_w
        h = h0 + dh
        v = w0 + dw
        inside = (m < rows) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        a = tl.load(from_x[:, None] + ((dh * W + dw) * row_c + c)[None, :], mask=inside[:, None] & (c < C)[None, :], other=0)
        at = tap_0 + tap // taps_w * tap_h + tap % taps_w * tap_w
        if TURN:
            b = tl.load(w + (((group * C + c).to(tl.int64) * taps_all + at) * F)[:, None] + f[None, :],
                        mask=(c < C)[:, None] & (f < F)[None, :], other=0)
        else:
            b = tl.load(w + (((group * F + f).to(tl.int64) * taps_all + at) * C)[None, :] + c[:, None],
                        mask=(c < C)[:, None] & (f < F)[None, :], other=0)
        if CAST:
            a = a.to(WIDE)
            b = b.to(WIDE)
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=WIDE)
    if BIAS:
        total += tl.load(bias + group * F + f, mask=f < F, other=0).to(WIDE)[None, :]
    total = epilogue(total, group * F + f, f < F)
    to = y + (((n * OH + p * OUT_H + out_h) * OW + q * OUT_W + out_w) * row_f + group * F)[:, None] + f[None, :]
    keep = (m < rows)[:, None] & (f < F)[None, :]
    if ADD:
        total += tl.load(to, mask=keep, other=0).to(WIDE)
    tl.store(to, total.to(y.dtype.element_ty), mask=keep)


@triton.jit
def conv_weight(dy, x, parts, H, W, C, P, Q, F, rows: tl.int64, row_c: tl.int64, row_f: tl.int64, per_split: tl.int64,
                groups, UNIT_C: tl.constexpr, UNIT_F: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                SH: tl.constexpr, SW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, PH: tl.constexpr,
                PW: tl.constexpr, WIDE: tl.constexpr, CAST: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr,
                BN: tl.constexpr, BK: tl.constexpr):
    # rows: filters of a group; columns: channels at one tap; inner: a part of the positions. parts [split, filter, tap, c]
    C = C * UNIT_C
    F = F * UNIT_F
    row_c = row_c * UNIT_C
    row_f = row_f * UNIT_F
    tiles_c = tl.cdiv(C, BN)
    tiles_f = tl.cdiv(F, BM)
    i = tl.program_id(0)
    tap = i % (KH * KW)
    i = i // (KH * KW)
    c = (i % tiles_c) * BN + tl.arange(0, BN)
    f = (i // tiles_c % tiles_f) * BM + tl.arange(0, BM)
    split = i // tiles_c // tiles_f
    group = tl.program_id(1)
    first = split * per_split
    last = tl.minimum(first + per_split, rows)
    total = tl.zeros((BM, BN), WIDE)
    for start in range(first, last, BK):
        m = start + tl.arange(0, BK).to(tl.int64)
        q = (m % Q).to(tl.int32)
        p = (m // Q % P).to(tl.int32)
        h = p * SH - PH + tap // KW * DH
        v = q * SW - PW + tap % KW * DW
        inside = (m < last) & (h >= 0) & (h < H) & (v >= 0) & (v < W)
        g = tl.load(dy + (m * row_f + group * F)[:, None] + f[None, :], mask=(m < last)[:, None] & (f < F)[None, :], other=0)
        b = tl.load(x + (((m // Q // P * H + h) * W + v) * row_c + group * C)[:, None] + c[None, :],
                    mask=inside[:, None] & (c < C)[None, :], other=0)
        if CAST:
            g = g.to(WIDE)
            b = b.to(WIDE)
        total = tl.dot(g.T, b, total, input_precision=PRECISION, out_dtype=WIDE)
    filter = (split * groups + group).to(tl.int64) * F + f
    to = parts + ((filter * (KH * KW) + tap) * C)[:, None] + c[None, :]
    tl.store(to, total, mask=(f < F)[:, None] & (c < C)[None, :])


@triton.jit
def depthwise(x, w, bias, y, H, W, C, P, Q, rows: tl.int64, UNIT_C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
              SH: tl.constexpr, SW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, PH: tl.constexpr,
              PW: tl.constexpr, BACK: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr, WIDE: tl.constexpr,
              BM: tl.constexpr, BN: tl.constexpr):
    # one filter per channel. BACK: x is dy [., H, W, C], y is dx [., P, Q, C], and a tap counts where the stride hits it
    C = C * UNIT_C
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BN + tl.arange(0, BN)
    q = (m % Q).to(tl.int32)
    p = (m // Q % P).to(tl.int32)
    n = m // Q // P
    total = tl.zeros((BM, BN), WIDE)
    for r in tl.static_range(KH):
        for s in tl.static_range(KW):
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
            a = tl.load(x + ((n * H + h) * W + v)[:, None] * C + c[None, :], mask=inside[:, None] & (c < C)[None, :], other=0)
            b = tl.load(w + c * (KH * KW) + (r * KW + s), mask=c < C, other=0)
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
    """Sizes of a convolution in two dimensions; c channels and f filters per group."""

    n: int
    c: int
    f: int
    groups: int
    x: tuple[int, int]
    y: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilate: tuple[int, int]
    pad: tuple[int, int]

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def depthwise(self) -> bool:
        return self.c == self.f == 1 and self.groups > 1

    @property
    def plain(self) -> bool:
        """True for a 1 × 1 kernel: a single matrix product over positions."""
        return self.taps == 1 and self.stride == (1, 1) and self.pad == (0, 0) and self.groups == 1


def sizes(g: ConvolutionGeometry) -> Sizes | None:
    """Return the sizes of a convolution; None for three dimensions."""
    if len(g.kernel) > 2:
        return None

    def two(values: Sequence[int], fill: int) -> tuple[int, int]:
        return (fill, *values) if len(values) == 1 else tuple(values)  # type: ignore[return-value]

    return Sizes(g.n, g.c // g.groups, g.f // g.groups, g.groups, two(g.spatial, 1), two(g.out, 1), two(g.kernel, 1),
                 two(g.stride, 1), two(g.dilate, 1), two(g.pad, 0))


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
    """Choose blocks for the product of m positions, n filters and k channels per tap, by sizes alone."""
    bn = max(16, min(128, next_power_of_2(n)))
    bk = max(16, min(32 if tensor_cores and itemsize == 2 else 16, k))
    if tensor_cores and itemsize == 2 and k % 64 == 0:
        bk = 64
    if cdiv(m, 128) * cdiv(n, bn) >= sms and itemsize < 8:
        return Blocks(0, 128, bn, bk, 8)
    return Blocks(0, 64, min(64, bn), bk if itemsize < 8 else 16)


def _unit(*values: int) -> int:
    return 1 if math.gcd(*values) % 8 else 8


def _blocks(run: Run, what: str, s: Sizes, array: DeviceArray, m: int, n: int, k: int, tap_k: int) -> Blocks:
    name = str(array.dtype).removeprefix("torch.")
    itemsize = {"float64": 8, "float32": 4}.get(name, 2)
    if interpreting():
        rows, inner = (256, 512) if what == "weight" else (1024, 64)
        return Blocks(0, tile_size(m, 0, rows), tile_size(n, 0), tile_size(tap_k, 0, inner))
    default = choose(m, n, tap_k, itemsize, itemsize == 2 or (itemsize == 4 and precision() != "ieee"),
                     multiprocessors(getattr(run.stream, "device_index", 0)))
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
    how = precision() if str(array.dtype) == "torch.float32" else "ieee"
    return {"WIDE": wide_float(array), "CAST": double or interpreting(), "PRECISION": how}


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
        _gather(run, "forward", s, x, weight, bias, y, s.x, s.y, s.y, s.c, s.f, *every, s.stride, (1, 1), turn=False, add=add,
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
    axes = [phases(*a) for a in zip(s.x, s.kernel, s.stride, s.dilate, s.pad)]
    for vertical in axes[0]:
        for horizontal in axes[1]:
            _gather(run, "data", s, dy, weight, None, dx, s.y, (vertical.positions, horizontal.positions), s.x, s.f, s.c,
                    vertical, horizontal, (1, 1), s.stride, turn=True, add=add)


def _gather(run: Run, what: str, s: Sizes, x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None, y: DeviceArray,
            read: tuple[int, int], walked: tuple[int, int], written: tuple[int, int], inner: int, columns: int, vertical: Phase,
            horizontal: Phase, mul: tuple[int, int], out: tuple[int, int], *, turn: bool, add: bool,
            epilogue: Epilogue | None = None, others: Sequence[DeviceArray] = ()) -> None:
    rows, taps = s.n * math.prod(walked), vertical.taps * horizontal.taps
    b = _blocks(run, what, s, y, rows, columns, inner * taps, inner)
    uc, uf = _unit(inner), _unit(columns)
    launch(with_epilogue(conv_gather, epilogue), (cdiv(rows, b.BM) * cdiv(columns, b.BN), s.groups), x, weight,
           y if bias is None else bias, *others, y, s.n,
           *read, inner // uc, *walked, columns // uf, *written, rows, inner * s.groups // uc, columns * s.groups // uf,
           vertical.offset, horizontal.offset, vertical.tap * s.kernel[1] + horizontal.tap, vertical.step,
           horizontal.step, max(1, horizontal.taps), vertical.tap_step * s.kernel[1], horizontal.tap_step, s.taps,
           vertical.first, horizontal.first, UNIT_C=uc, UNIT_F=uf, MUL_H=mul[0], MUL_W=mul[1], OUT_H=out[0],
           OUT_W=out[1], TAPS=taps, TURN=turn, ADD=add, BIAS=bias is not None, **numbers(y), BM=b.BM, BN=b.BN, BK=b.BK,
           num_warps=b.num_warps, num_stages=b.num_stages, stream=run.stream)


#: Upper bounds of the blocks of a weight gradient along channels and positions.
WEIGHT_BN, WEIGHT_BK = 128, 64


def splits_of(rows: int, tiles: int, step: int, sms: int) -> tuple[int, int]:
    """Return the number of parts of a sum over rows, and the rows per part, by sizes and GPU alone."""
    n = max(1, min(cdiv(2 * sms, tiles), rows // (4 * step), 128))
    per = cdiv(cdiv(rows, n), step) * step
    return cdiv(rows, per), per


def weight_gradient(run: Run, s: Sizes, dy: DeviceArray, x: DeviceArray, dw: DeviceArray, *, add: bool) -> None:
    """dw [f, r, s, c] = (or +=) the derivative by weight: sums over parts of the positions, added in order."""
    m = s.n * math.prod(s.y)
    if s.plain:
        gemm(run, dy, ((1, s.f, m), (m * s.f, 1, s.f)), x, _rows(m, s.c), dw, _rows(s.f, s.c), add=add)
        return
    geometry: dict[str, Any] = dict(zip(("KH", "KW", "SH", "SW", "DH", "DW", "PH", "PW"),
                                        (*s.kernel, *s.stride, *s.dilate, *s.pad)))
    scratch = np.dtype("float64" if str(dy.dtype) == "torch.float64" else "float32")
    sms = 1 if interpreting() else multiprocessors(getattr(run.stream, "device_index", 0))
    if s.depthwise:
        c = s.groups
        uc = _unit(c)
        bm, bn = tile_size(m, 32, 1024), tile_size(c, 64)
        splits, per = splits_of(m, s.taps * cdiv(c, bn), bm, sms)
        parts = run.workspace((splits, c, s.taps), scratch)
        launch(depthwise_weight, (s.taps * splits, cdiv(c, bn)), dy, x, parts, *s.x, c // uc, *s.y, m, per, UNIT_C=uc,
               **geometry, WIDE=wide_float(dy), BM=bm, BN=bn, stream=run.stream)
        _sum(run, parts, dw, splits, c * s.taps, add)
        return
    b = _blocks(run, "weight", s, dy, s.f, s.c * s.taps, m, m)
    b = replace(b, BN=min(b.BN, tile_size(s.c, WEIGHT_BN)), BK=b.BK if interpreting() else min(b.BK, WEIGHT_BK))
    uc, uf = _unit(s.c), _unit(s.f)
    tiles = s.taps * cdiv(s.c, b.BN) * cdiv(s.f, b.BM)
    splits, per = splits_of(m, tiles * s.groups, b.BK, sms)
    parts = run.workspace((splits, s.f * s.groups, s.taps, s.c), scratch)
    launch(conv_weight, (tiles * splits, s.groups), dy, x, parts, *s.x, s.c // uc, *s.y, s.f // uf, m, s.c * s.groups // uc,
           s.f * s.groups // uf, per, s.groups, UNIT_C=uc, UNIT_F=uf, **geometry, **numbers(dy), BM=b.BM, BN=b.BN, BK=b.BK,
           num_warps=b.num_warps, num_stages=b.num_stages, stream=run.stream)
    _sum(run, parts, dw, splits, s.f * s.groups * s.taps * s.c, add)


def _sum(run: Run, parts: DeviceArray, out: DeviceArray, splits: int, size: int, add: bool) -> None:
    unit, block = _unit(size), block_for(size)
    launch(products.gemm_sum_splits, (cdiv(size, block),), parts, out, out, 1, size // unit, size // unit, 1, 0, splits,
           UNIT=unit, DENSE=True, ADD=add, BIAS=False, WIDE=wide_float(parts), BLOCK=block, stream=run.stream)


def _depthwise(run: Run, s: Sizes, x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None, y: DeviceArray,
               read: tuple[int, int], written: tuple[int, int], *, back: bool, add: bool, epilogue: Epilogue | None = None,
               others: Sequence[DeviceArray] = ()) -> None:
    c, rows = s.groups, s.n * math.prod(written)
    uc, bm, bn = _unit(c), tile_size(rows, 16, 1024), tile_size(c, 64)
    launch(with_epilogue(depthwise, epilogue), (cdiv(rows, bm), cdiv(c, bn)), x, weight, y if bias is None else bias, *others, y,
           *read, c // uc, *written, rows, UNIT_C=uc, KH=s.kernel[0], KW=s.kernel[1], SH=s.stride[0], SW=s.stride[1],
           DH=s.dilate[0], DW=s.dilate[1], PH=s.pad[0], PW=s.pad[1], BACK=back, ADD=add, BIAS=bias is not None,
           WIDE=wide_float(y), BM=bm, BN=bn, stream=run.stream)
