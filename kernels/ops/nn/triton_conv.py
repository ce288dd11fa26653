"""Triton: convolution as a matrix product with gathered operands (implicit GEMM), of any layout.

The channels-last kernels compute it, on copies of what lies otherwise; in three dimensions the derivative by the weight one depth
of the kernel after another.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from ....integers import cdiv
from ...gpu.copy import PlannedCopy, fill, plan
from ...gpu.epilogue import Epilogue
from ...gpu.launch import dtype_of
from ...gpu.sums import sum_into
from ...gpu.target import CodegenTarget, codegen_target
from ...ir.strided import Strided
from ...kernel import DeviceArray, Run
from ...op import Req, Reqs
from . import triton_conv_nhwc as inside
from .conv_geometry import ConvolutionGeometry


def strides(c: int, spatial: Sequence[int], channels_last: bool) -> tuple[int, ...]:
    """Return the strides of a contiguous array for (n, c, d, h, w), in elements."""
    d, h, w = spatial
    if channels_last:
        return (d * h * w * c, 1, h * w * c, w * c, c)
    return (c * d * h * w, d * h * w, h * w, w, 1)


_SEVERAL = 8  # channels are padded with zeros to at least so many, where the arrays are not depthwise or grouped


class _ChannelsLast:
    """The arrays of a convolution as the channels-last kernels take them: transposed and padded copies where need be."""

    def __init__(self, run: Run, g: ConvolutionGeometry):
        s = inside.sizes(g)
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
            add: bool, epilogue: Epilogue | None = None, others: Sequence[DeviceArray] = ()) -> None:
    """y = (or +=) convolution of x with weight, plus bias (or None).

    epilogue: applied to the sum before it is stored; others: its arrays, one element per filter.
    """
    arrays = _ChannelsLast(run, g)
    result = arrays.made(y, arrays.out)
    inside.forward(run, arrays.sizes, arrays.taken(x, arrays.data), arrays.taken(weight, arrays.weight), bias, result,
                   add=add and result is y, epilogue=epilogue, others=others)
    arrays.put(result, y, arrays.out, add)


def backward(run: Run, g: ConvolutionGeometry, dy: DeviceArray, x: DeviceArray, weight: DeviceArray,
             grads: Sequence[DeviceArray | None], reqs: Reqs) -> None:
    """Compute the derivatives by data, weight and, if grads has a third, bias. No atomics, so the bits are reproducible."""
    arrays = _ChannelsLast(run, g)
    dy_last = arrays.taken(dy, arrays.out) if {*reqs[:2]} != {Req.NULL} else dy
    if reqs[0] != Req.NULL:
        made, add = arrays.made(grads[0], arrays.data), reqs[0] == Req.ADD
        inside.data_gradient(run, arrays.sizes, dy_last, arrays.taken(weight, arrays.weight), made, add=add and made is grads[0])
        arrays.put(made, grads[0], arrays.data, add)
    flat = _without_depth(g)
    if reqs[1] != Req.NULL and flat is g:
        made, add = arrays.made(grads[1], arrays.weight), reqs[1] == Req.ADD
        inside.weight_gradient(run, arrays.sizes, dy_last, arrays.taken(x, arrays.data), made, add=add and made is grads[1])
        arrays.put(made, grads[1], arrays.weight, add)
    elif reqs[1] != Req.NULL:
        arrays = _ChannelsLast(run, flat)
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
