"""Triton: convolution as a matrix product with gathered operands (implicit GEMM).

The channels-last kernels compute it in one and two dimensions, and the derivative by the weight in three, one depth of the kernel
after another. The rest of three dimensions reads every tensor through strides; there one and two have sizes of one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....integers import cdiv
from ...gpu.copy import PlannedCopy, fill, plan
from ...gpu.epilogue import Epilogue, epilogue, with_epilogue
from ...gpu.launch import dtype_of, launch
from ...gpu.source import tl, triton
from ...gpu.sums import sum_into
from ...gpu.target import CodegenTarget, codegen_target, interpreting, tile_size
from ...ir.strided import Strided
from ...kernel import DeviceArray, Run
from ...op import Req, Reqs
from . import triton_conv_nhwc as inside
from .conv_geometry import ConvolutionGeometry


@triton.jit
def _unravel(i, A, B, C):
    # splits i into (outer, a, b, c), c fastest
    return i // C // B // A, (i // C // B) % A, (i // C) % B, i % C


@triton.jit
def _sum_windows(x, w, bias, y, N, C, F, D, H, W, OD, OH, OW, tiles_f,
                 x_n: tl.int64, x_c: tl.int64, x_d: tl.int64, x_h: tl.int64, x_w: tl.int64,
                 w_f: tl.int64, w_c: tl.int64, w_d: tl.int64, w_h: tl.int64, w_w: tl.int64,
                 y_n: tl.int64, y_c: tl.int64, y_d: tl.int64, y_h: tl.int64, y_w: tl.int64,
                 sd, sh, sw, dd, dh, dw, pd, ph, pw,
                 KD: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, BACK: tl.constexpr,
                 ADD: tl.constexpr, BIAS: tl.constexpr, WIDE: tl.constexpr, CAST: tl.constexpr, PRECISION: tl.constexpr,
                 BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # rows: positions of every image of y; columns: its F channels of one group; inner: the C channels of x times the kernel.
    # BACK: x is the derivative of the output, y that of the data, and a tap counts where the stride hits it
    group = tl.program_id(1)
    m = (tl.program_id(0) // tiles_f).to(tl.int64) * BM + tl.arange(0, BM)
    f = (tl.program_id(0) % tiles_f) * BN + tl.arange(0, BN)
    n, od, oh, ow = _unravel(m, OD, OH, OW)
    K = C * KD * KH * KW
    total = tl.zeros((BM, BN), WIDE)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        c, kd, kh, kw = _unravel(k, KD, KH, KW)
        tap = kd * w_d + kh * w_h + kw * w_w
        if BACK:
            d = od[:, None] + pd - (kd * dd)[None, :]
            h = oh[:, None] + ph - (kh * dh)[None, :]
            v = ow[:, None] + pw - (kw * dw)[None, :]
            inside = (d >= 0) & (h >= 0) & (v >= 0) & (d % sd == 0) & (h % sh == 0) & (v % sw == 0)
            d = d // sd
            h = h // sh
            v = v // sw
            from_w = w + (f * w_c)[None, :] + ((group * C + c) * w_f + tap)[:, None]
        else:
            d = od[:, None] * sd + (kd * dd)[None, :] - pd
            h = oh[:, None] * sh + (kh * dh)[None, :] - ph
            v = ow[:, None] * sw + (kw * dw)[None, :] - pw
            inside = (d >= 0) & (h >= 0) & (v >= 0)
            from_w = w + (group * F + f).to(tl.int64)[None, :] * w_f + (c * w_c + tap)[:, None]
        inside = inside & (n[:, None] < N) & (k[None, :] < K) & (d < D) & (h < H) & (v < W)
        a = tl.load(x + n[:, None] * x_n + (group * C + c)[None, :] * x_c + d * x_d + h * x_h + v * x_w,
                    mask=inside, other=0)
        b = tl.load(from_w, mask=(k[:, None] < K) & (f[None, :] < F), other=0)
        if CAST:
            a = a.to(WIDE)
            b = b.to(WIDE)
        total = tl.dot(a, b, total, input_precision=PRECISION, out_dtype=WIDE)
    if BIAS:
        total += tl.load(bias + group * F + f, mask=f < F, other=0).to(WIDE)[None, :]
    total = epilogue(total, group * F + f, f < F)
    at = y + (n * y_n + od * y_d + oh * y_h + ow * y_w)[:, None] + (group * F + f).to(tl.int64)[None, :] * y_c
    keep = (n[:, None] < N) & (f[None, :] < F)
    if ADD:
        total += tl.load(at, mask=keep, other=0).to(WIDE)
    tl.store(at, total.to(y.dtype.element_ty), mask=keep)


def three(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """Return one number per axis, padded in front to three axes."""
    return (fill,) * (3 - len(values)) + tuple(values)


def strides(c: int, spatial: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """Return the strides of a contiguous array for (n, c, d, h, w), in elements."""
    d, h, w = spatial
    if channels_last:
        return (d * h * w * c, 1, h * w * c, w * c, c)
    return (c * d * h * w, d * h * w, h * w, w, 1)


def _sizes(g: ConvolutionGeometry, *, back: bool = False) -> tuple[Any, ...]:
    """Return channels per group and spatial sizes of the array read and of the one written, the kernel, and all strides with
    stride, dilate and pad. back: the output is read and the data written."""
    data, out = ((n // g.groups, three(spatial, 1), strides(n, three(spatial, 1), g.channels_last))
                 for n, spatial in ((g.c, g.spatial), (g.f, g.out)))
    (c, x, x_steps), (f, y, y_steps) = (out, data) if back else (data, out)
    k = three(g.kernel, 1)
    w_steps = strides(data[0], k, g.channels_last)
    return c, f, x, y, k, (*x_steps, *w_steps, *y_steps, *three(g.stride, 1), *three(g.dilate, 1), *three(g.pad, 0))


_SEVERAL = 8  # channels are padded with zeros to at least so many, where the arrays are not depthwise or grouped


def _inside(g: ConvolutionGeometry) -> inside.Sizes | None:
    """Return the sizes if the channels-last kernels compute this convolution; None for three dimensions.

    The interpreter, which pays for every program, transposes for the derivative by the weight alone.
    """
    return inside.sizes(g) if g.channels_last or not interpreting() else None


class _ChannelsLast:
    """The arrays of a convolution as the channels-last kernels take them: transposed and padded copies where need be."""

    def __init__(self, run: Run, g: ConvolutionGeometry, s: inside.Sizes):
        self.run, self.last = run, g.channels_last
        width = s.c if s.groups > 1 else max(s.c, _SEVERAL)
        self.sizes = replace(s, c=width)
        #: (outer size, positions, channels, channels of the copy)
        self.data = g.n, math.prod(s.x), g.c, width * s.groups
        self.weight = g.f, s.taps, s.c, width
        self.out = g.n, math.prod(s.y), g.f, g.f

    def taken(self, array: DeviceArray, kind: tuple[int, int, int, int]) -> DeviceArray:
        """The values of an array of a kind."""
        made = self.made(array, kind)
        if made is not array:
            if kind[2] < kind[3]:
                fill(self.run, made, 0)
            _moving(*kind, self.last, False, False, codegen_target())(self.run, array, made)
        return made

    def made(self, array: DeviceArray, kind: tuple[int, int, int, int]) -> DeviceArray:
        """The array, or memory for its copy."""
        outer, positions, channels, width = kind
        return array if self.last and channels == width else self.run.workspace((outer * positions * width,), dtype_of(array))

    def put(self, made: DeviceArray, array: DeviceArray, kind: tuple[int, int, int, int], add: bool) -> None:
        """Write, or add, what the kernels made to the array, if that is another."""
        if made is not array:
            _moving(*kind, self.last, True, add, codegen_target())(self.run, made, array)


@functools.lru_cache(1024)
def _moving(outer: int, positions: int, channels: int, width: int, last: bool, back: bool, add: bool, codegen: CodegenTarget
            ) -> PlannedCopy:
    """Return the planned copy from an array as it lies to [outer, positions, width], or back."""
    shape, n = (outer, positions, channels), positions * channels
    given = Strided(0, shape, (n, channels, 1) if last else (n, 1, positions))
    wanted = Strided(0, shape, (positions * width, width, 1))
    return plan(wanted, given, add) if back else plan(given, wanted)


def forward(run: Run, g: ConvolutionGeometry, x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None, y: DeviceArray, *,
            add: bool, turned: bool | None = None, epilogue: Epilogue | None = None, others: Sequence[DeviceArray] = ()) -> None:
    """y = (or +=) convolution of x with weight, plus bias (or None).

    turned: use the channels-last kernels, and copies of what they do not take as it is; None: choose.
    epilogue: applied to the sum before it is stored; others: its arrays, one element per filter.
    """
    more: dict[str, Any] = {"epilogue": epilogue, "others": others}
    s = inside.sizes(g) if turned else _inside(g)
    if s is None:
        _windows(run, g, x, weight, bias, y, add=add, **more)
        return
    arrays = _ChannelsLast(run, g, s)
    result = arrays.made(y, arrays.out)
    inside.forward(run, arrays.sizes, arrays.taken(x, arrays.data), arrays.taken(weight, arrays.weight), bias, result,
                   add=add and result is y, **more)
    arrays.put(result, y, arrays.out, add)


def _windows(run: Run, g: ConvolutionGeometry, x: DeviceArray, weight: DeviceArray, bias: DeviceArray | None, y: DeviceArray, *,
             add: bool, back: bool = False, epilogue: Epilogue | None = None, others: Sequence[DeviceArray] = ()) -> None:
    """As forward, through strides. back: x is the derivative of the output, and y becomes that of the data."""
    c, f, xs, ys, k, rest = _sizes(g, back=back)
    m, inner = g.n * math.prod(ys), c * math.prod(k)
    bm, bn, bk = tile_size(m, 64, 1024), tile_size(f, 64), tile_size(inner, 32, 64)
    tiles = cdiv(f, bn)
    launch(with_epilogue(_sum_windows, epilogue), (cdiv(m, bm) * tiles, g.groups), x, weight, y if bias is None else bias,
           *others, y, g.n, c, f, *xs, *ys, tiles, *rest, stream=run.stream, KD=k[0], KH=k[1], KW=k[2], BACK=back, ADD=add,
           BIAS=bias is not None, **inside.numbers(y), BM=bm, BN=bn, BK=bk, num_warps=8)


def backward(run: Run, g: ConvolutionGeometry, dy: DeviceArray, x: DeviceArray, weight: DeviceArray,
             grads: Sequence[DeviceArray | None], reqs: Reqs, *, turned: bool | None = None) -> None:
    """Compute the derivatives by data, weight and, if grads has a third, bias. No atomics, so the bits are reproducible."""
    flat = _without_depth(g)
    arrays = _ChannelsLast(run, flat, inside.sizes(flat))
    by_data = reqs[0] != Req.NULL and flat is g and (turned or _inside(g) is not None)
    dy_last = arrays.taken(dy, (g.n, math.prod(g.out), g.f, g.f)) if by_data or reqs[1] != Req.NULL else dy
    if by_data:
        made, add = arrays.made(grads[0], arrays.data), reqs[0] == Req.ADD
        inside.data_gradient(run, arrays.sizes, dy_last, arrays.taken(weight, arrays.weight), made, add=add and made is grads[0])
        arrays.put(made, grads[0], arrays.data, add)
    elif reqs[0] != Req.NULL:
        _windows(run, g, dy, weight, None, grads[0], back=True, add=reqs[0] == Req.ADD)
    if reqs[1] != Req.NULL and flat is g:
        made, add = arrays.made(grads[1], arrays.weight), reqs[1] == Req.ADD
        inside.weight_gradient(run, arrays.sizes, dy_last, arrays.taken(x, arrays.data), made, add=add and made is grads[1])
        arrays.put(made, grads[1], arrays.weight, add)
    elif reqs[1] != Req.NULL:
        size = g.f * arrays.sizes.taps * arrays.sizes.c
        for depth in range(g.kernel[0]):
            made = run.workspace((size,), dtype_of(grads[1]))
            inside.weight_gradient(run, arrays.sizes, dy_last, _slices(run, g, arrays, x, depth), made, add=False)
            _at_depth(g, arrays.sizes.c, depth, reqs[1] == Req.ADD, codegen_target())(run, made, grads[1])
    if len(reqs) > 2 and reqs[2] != Req.NULL:
        positions = math.prod(g.out)
        shape, kept = ((g.n * positions, g.f), (1, g.f)) if g.channels_last else ((g.n, g.f, positions), (1, g.f, 1))
        sum_into(run, dy, shape, kept, grads[2], add=reqs[2] == Req.ADD)


def _without_depth(g: ConvolutionGeometry) -> ConvolutionGeometry:
    """Return the geometry itself; of three dimensions, that of slices of the output as images, for one depth of the kernel."""
    if len(g.kernel) < 3:
        return g
    cut = {k: getattr(g, k)[1:] for k in ("spatial", "out", "kernel", "stride", "dilate", "pad")}
    return replace(g, n=g.n * g.out[0], **cut)


def _slices(run: Run, g: ConvolutionGeometry, arrays: _ChannelsLast, x: DeviceArray, depth: int) -> DeviceArray:
    """Return the slice of the data that this depth of the kernel reads for each slice of the output, zeros outside the data."""
    images, positions, _, width = arrays.data
    made = run.workspace((images * positions * width,), dtype_of(x))
    planned, whole = _slicing(g, width, depth, codegen_target())
    if not whole:
        fill(run, made, 0)
    if planned is not None:
        planned(run, x, made)
    return made


@functools.lru_cache(1024)
def _slicing(g: ConvolutionGeometry, width: int, depth: int, codegen: CodegenTarget) -> tuple[PlannedCopy | None, bool]:
    """Return the planned copy of what `_slices` takes from the data, and whether that is all of the slices."""
    start = depth * g.dilate[0] - g.pad[0]
    first = max(0, cdiv(-start, g.stride[0]))
    count = min(g.out[0], cdiv(g.spatial[0] - start, g.stride[0])) - first
    if count <= 0:
        return None, False
    positions = math.prod(g.spatial[1:])
    n, c, d, _, w = strides(g.c, g.spatial, g.channels_last)
    shape = g.n, count, positions, g.c
    given = Strided((first * g.stride[0] + start) * d, shape, (n, g.stride[0] * d, w, c))
    wanted = Strided(first * positions * width, shape, (g.out[0] * positions * width, positions * width, width, 1))
    return plan(given, wanted), count == g.out[0] and width == g.c


@functools.lru_cache(1024)
def _at_depth(g: ConvolutionGeometry, width: int, depth: int, add: bool, codegen: CodegenTarget) -> PlannedCopy:
    """Return the planned copy of [filter, tap, width], derivatives by one depth of the weight, to the weight's."""
    c, taps = g.c // g.groups, math.prod(g.kernel[1:])
    f, channel, d, _, tap = strides(c, g.kernel, g.channels_last)
    shape = g.f, taps, c
    return plan(Strided(0, shape, (taps * width, width, 1)), Strided(depth * d, shape, (f, tap, channel)), add)
