"""im2col, col2im, Correlation: copy windows of planes to columns, add columns back, and compare windows of two planes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from ....errors import ParameterError, ShapeError
from ....integers import cdiv
from ...declare.composite import CompositeGradient, TracedValue, composite, ops
from ...op import Shape
from ...params import Params


def _geometry(name: str, rank: int, p: Any) -> tuple[Shape, Shape, Shape]:
    stride, dilate, pad = (v or (default,) * rank for v, default in ((p.stride, 1), (p.dilate, 1), (p.pad, 0)))
    whole = len(p.kernel) == len(stride) == len(dilate) == len(pad) == rank
    if not whole or min((*p.kernel, *stride, *dilate)) < 1 or min(pad) < 0:
        raise ParameterError(f"{name}: kernel={p.kernel}, stride={stride}, dilate={dilate} (at least 1) and pad={pad} must hold "
                             f"a number for each of {rank} axes.")
    return stride, dilate, pad


def padded(x: TracedValue, pad: Sequence[int], after: Sequence[int] | None = None, value: float = 0.0) -> TracedValue:
    """Pad the last axes of x with value. after: elements at the end, if not as many as at the start."""
    after = pad if after is None else after
    if not any((*pad, *after)):
        return x
    lead = x.ndim - len(pad)
    shape, ones = x.shape, max(0, 4 - x.ndim)  # the operator Pad takes planes and volumes
    x = x.reshape((*shape[:2], *(1,) * ones, *shape[2:]))
    width = (0, 0) * (lead + ones) + tuple(n for pair in zip(pad, after) for n in pair)
    x = ops.Pad(x, mode="constant", pad_width=width, constant_value=value)
    return x.reshape((*x.shape[:2], *x.shape[2 + ones:]))


@composite("im2col", linear=True)
def im2col(data: TracedValue, *, kernel: tuple[int, ...], stride: tuple[int, ...] = (), dilate: tuple[int, ...] = (),
           pad: tuple[int, ...] = ()) -> TracedValue:
    """The windows a convolution reads, as columns: [n, c · kernel, windows]. data: [n, c, ...]."""
    n, c, *size = data.shape
    p = Params({"kernel": kernel, "stride": stride, "dilate": dilate, "pad": pad})
    stride, dilate, pad = _geometry("im2col", len(size), p)
    outs = [(s + 2 * a - d * (k - 1) - 1) // t + 1 for s, a, d, k, t in zip(size, pad, dilate, kernel, stride)]
    if min(outs) < 1:
        raise ShapeError(f"im2col: kernel {kernel} with dilate={dilate} is larger than the padded data {data.shape}.")
    return _columns(padded(data, pad), kernel, stride, dilate, outs).reshape((n, c * math.prod(kernel), math.prod(outs)))


def _columns(x: TracedValue, kernel: Sequence[int], stride: Sequence[int], dilate: Sequence[int], outs: Sequence[int]
             ) -> TracedValue:
    """Return the elements of each window of x [n, c, ...] as [n, c, kernel, windows]."""
    n, c, *_ = x.shape
    parts = []
    for at in itertools.product(*map(range, kernel)):
        begin = tuple(i * d for i, d in zip(at, dilate))
        end = tuple(b + (o - 1) * t + 1 for b, o, t in zip(begin, outs, stride))
        part = ops.slice(x, begin=(0, 0, *begin), end=(n, c, *end), step=(1, 1, *stride))
        parts.append(part.reshape((n, c, 1, math.prod(outs))))
    return ops.Concat(*parts, dim=2) if len(parts) > 1 else parts[0]


@composite("_at_the_largest", gives=("values",))
def at_the_largest(values: TracedValue, data: TracedValue, *, kernel: tuple[int, ...], stride: tuple[int, ...],
                   pad: tuple[int, ...], outs: tuple[int, ...]) -> TracedValue:
    """Return values at the largest element of data [n, c, ...] in each window, the first of equals: [n, c, *outs]."""
    n, c, *size = data.shape
    after = [max(0, (o - 1) * t + k - s - p) for o, t, k, s, p in zip(outs, stride, kernel, size, pad)]
    ones = (1,) * len(kernel)
    place = ops.argmax(_columns(padded(data, pad, after, -float("inf")), kernel, stride, ones, outs), axis=2)
    found = _columns(padded(values, pad, after), kernel, stride, ones, outs)
    return ops.pick(found, place, axis=2).reshape((n, c, *outs))


_adjoint = CompositeGradient(im2col)


@composite("col2im", linear=True)
def col2im(data: TracedValue, *, output_size: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...] = (),
           dilate: tuple[int, ...] = (), pad: tuple[int, ...] = ()) -> list[TracedValue]:
    """Add columns to the planes at their windows: the derivative of im2col. data: [n, c · kernel, windows].

    Returns: [n, c, *output_size].
    """
    taps = math.prod(kernel)
    if data.ndim != 3 or data.shape[1] % max(taps, 1):
        raise ShapeError(f"col2im: data {data.shape} must be [n, c · {taps}, windows].")
    shape = (data.shape[0], data.shape[1] // taps, *output_size)
    p = im2col.parse({"kernel": kernel, "stride": stride, "dilate": dilate, "pad": pad})
    plane = data.trace.call(ops._zeros, [], {"shape": shape, "dtype": data.dtype.name})
    (columns,) = im2col.infer_shape(p, [shape])[1]
    if columns != data.shape:
        raise ShapeError(f"col2im: data {data.shape} does not fit output_size={output_size}: its columns would be {columns}.")
    return _adjoint.results(p, [data, plane])


def _check_correlation(p: Params) -> None:
    if p.kernel_size < 1 or p.kernel_size % 2 == 0 or min(p.stride1, p.stride2) < 1 or min(p.max_displacement, p.pad_size) < 0:
        raise ParameterError(f"Correlation: kernel_size={p.kernel_size} must be odd, stride1={p.stride1} and stride2={p.stride2} "
                             f"at least 1, max_displacement={p.max_displacement} and pad_size={p.pad_size} at least 0.")


@composite("Correlation", check=_check_correlation)
def correlation(data1: TracedValue, data2: TracedValue, *, kernel_size: int = 1, max_displacement: int = 1,
                stride1: int = 1, stride2: int = 1, pad_size: int = 0, is_multiply: bool = True) -> TracedValue:
    """Correlation of windows of data1 with displaced windows of data2: the mean product over window and channels, or the mean
    absolute difference if not is_multiply.

    data1, data2: [n, c, h, w], with pad_size zeros at each end. Returns: [n, displacements, h', w']; displacements of at most
    max_displacement positions, in row order, stride2 apart. Windows have kernel_size × kernel_size positions, stride1 apart.
    Source: Dosovitskiy et al. 2015, FlowNet, arXiv:1504.06852.
    """
    if data1.ndim != 4 or data1.shape != data2.shape:
        raise ShapeError(f"Correlation: data1 {data1.shape} and data2 {data2.shape} must have the same shape [n, c, h, w].")
    _, c, *size = data1.shape
    border = max_displacement + kernel_size // 2
    outs = [cdiv(s + 2 * pad_size - 2 * border, stride1) for s in size]
    if min(outs) < 1:
        raise ShapeError(f"Correlation: max_displacement={max_displacement} and kernel_size={kernel_size} leave no output of "
                         f"data {data1.shape} with pad_size={pad_size}. Pad more.")
    a, b = (padded(x, (pad_size, pad_size)) for x in (data1, data2))
    extent = [(o - 1) * stride1 + kernel_size for o in outs]

    def window(x: TracedValue, row: int, column: int) -> TracedValue:
        for axis, (at, n) in enumerate(zip((row, column), extent), 2):
            x = ops.slice_axis(x, axis=axis, begin=at, end=at + n)
        return x

    start, reach = max_displacement, max_displacement // stride2
    first, found = window(a, start, start), []
    for down, right in itertools.product(range(-reach, reach + 1), repeat=2):
        other = window(b, start + down * stride2, start + right * stride2)
        # where both are equal, the derivative by data1 is 1 and that by data2 is -1, as in MXNet
        alike = first * other if is_multiply else (first - other) * (ops._greater_equal(first, other) * 2 - 1)
        total = ops.sum(alike, axis=(1,), keepdims=True)
        if kernel_size > 1 or stride1 > 1:
            total = ops.Pooling(total, kernel=(kernel_size,) * 2, stride=(stride1,) * 2, pool_type="sum")
        found.append(total / (kernel_size * kernel_size * c))
    return ops.Concat(*found, dim=1) if len(found) > 1 else found[0]
