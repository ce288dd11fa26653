"""Convolution on the CPU: in C where that can be (c_conv.py), else with NumPy.

With NumPy, windows of a few images at a time are copied to a matrix (im2col) that fits in cache.

The size alone determines the pieces, and the weight derivative is summed over pieces in a fixed order. So results have the same
bits for any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np

from ....integers import cdiv
from ...configs import active as active_configs
from ...configs.key import Config, Key, key
from ...declare.operator_property import assign, math_dtype
from ...kernel import Run
from ...op import Req, Reqs
from . import c_conv
from .c_conv_windows import WORK
from .conv_geometry import ConvolutionGeometry

_CACHE = 1 << 20  # bytes of the window matrix
_WIDE = 16  # positions of an image from which on its product is one of its own
_SLOTS, _PARTIAL = 16, 1 << 26  # number of partial sums of a weight derivative, and their total bytes


def channels_second(g: ConvolutionGeometry, a: np.ndarray) -> np.ndarray:
    """Return the view [n, c, ...] of an array as the output is stored."""
    return np.moveaxis(a, -1, 1) if g.channels_last else a


def weight_view(g: ConvolutionGeometry, a: np.ndarray) -> np.ndarray:
    """Return the view [f, c, ...] of a weight."""
    return a if g.weight_first else channels_second(g, a)


def conv_key(g: ConvolutionGeometry, direction: str, dtype: np.dtype) -> Key:
    """Return the tuning key. direction: "forward" or "backward"."""
    return key(f"cpu conv {direction}", dtype.name, "last" if g.channels_last else "first", m=g.n * math.prod(g.out), n=g.f,
               k=g.c, taps=math.prod(g.kernel), step=math.prod(g.stride), groups=g.groups, wide=math.prod(g.out[1:]))


#: Bytes of the window matrix; number of threads, 0 for all.
DEFAULT: Config = {"cache": _CACHE, "threads": 0}


def _config(g: ConvolutionGeometry, direction: str, dtype: np.dtype) -> Config:
    return active_configs.choice(conv_key(g, direction, dtype), DEFAULT) if active_configs.active() else DEFAULT


def row_pieces(g: ConvolutionGeometry, itemsize: int, cache: int = _CACHE) -> tuple[int, int]:
    """Return the number of images, and of rows of the first output axis, whose window matrix fits in `cache` bytes."""
    row = max(1, g.depth * g.groups * math.prod(g.out[1:]) * itemsize)
    rows = g.out[0]
    if row * rows <= cache:
        return max(1, cache // (row * max(rows, 1))), rows
    return 1, max(1, min(rows, cache // row))


def windows(g: ConvolutionGeometry, x: np.ndarray, first: int, last: int, dtype: np.dtype) -> np.ndarray:
    """Return the window matrix [groups, depth, b · positions] of images x [b, c, ...] for output rows first to last."""
    b = len(x)
    if g.pointwise and x.dtype == dtype and b == 1:
        return x[0, :, first:last].reshape(g.groups, g.depth, -1)
    low = first * g.stride[0]
    high = (last - 1) * g.stride[0] + (g.kernel[0] - 1) * g.dilate[0] + 1
    extent = (high - low, *g.needed[1:])
    start = (low, *(0,) * (len(extent) - 1))
    if any(g.pad) or x.dtype != dtype:
        padded = np.zeros((b, g.c, *extent), dtype)
        source, target = [slice(None)] * 2, [slice(None)] * 2
        for s, e, p, size in zip(start, extent, g.pad, g.spatial):
            a, z = max(0, s - p), min(size, s + e - p)
            source.append(slice(a, max(a, z)))
            target.append(slice(a + p - s, max(a, z) + p - s))
        padded[tuple(target)] = x[tuple(source)]
    else:
        padded = x[:, :, low:high]
    steps = padded.strides
    view = np.lib.stride_tricks.as_strided(
        padded, (g.c, *g.kernel, b, last - first, *g.out[1:]),
        (steps[1], *(s * d for s, d in zip(steps[2:], g.dilate)),
         steps[0], *(s * t for s, t in zip(steps[2:], g.stride))))
    out = np.empty(view.shape, dtype)
    np.copyto(out, view)
    return out.reshape(g.groups, g.depth, -1)


def _flat_weight(g: ConvolutionGeometry, weight: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return weight as [groups, filters of a group, depth], a view if possible."""
    return np.ascontiguousarray(weight_view(g, weight), dtype=dtype).reshape(g.groups, g.f // g.groups, g.depth)


def forward(run: Run, g: ConvolutionGeometry, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, y: np.ndarray, *,
            add: bool) -> None:
    """Compute y = (or +=) convolution of x with weight, plus bias."""
    dtype = math_dtype(y.dtype)
    if c_conv.in_c(g, y.dtype):
        return c_conv.forward(run, g, x, weight, bias, y, add=add)
    w, xs, ys = _flat_weight(g, weight, dtype), x if g.data_first else channels_second(g, x), channels_second(g, y)
    b = None if bias is None else bias.astype(dtype, copy=False).reshape(g.groups, -1, 1)
    config = _config(g, "forward", dtype)
    images, rows = row_pieces(g, dtype.itemsize, config["cache"])
    in_place = not add and dtype == y.dtype and not g.channels_last
    positions, inner = math.prod(g.out), math.prod(g.out[1:])
    as_they_lie = None
    if in_place and g.pointwise and x.dtype == dtype and positions >= _WIDE:
        images = max(1, min(images, WORK // max(1, positions * g.depth * g.f)))
        as_they_lie = x.reshape(g.n, g.groups, g.depth, positions), y.reshape(g.n, g.groups, g.f // g.groups, positions)
    pieces = [(n, r) for n in range(0, g.n, images) for r in range(0, g.out[0], rows)]

    def piece(i: int) -> None:
        n, r = pieces[i]
        m, q = min(n + images, g.n), min(r + rows, g.out[0])
        if as_they_lie is not None:
            data, out = (a[n:m, ..., r * inner:q * inner] for a in as_they_lie)
            np.matmul(w, data, out=out)
            if b is not None:
                out += b
            return
        columns = windows(g, xs[n:m], r, q, dtype)
        if in_place and m - n == 1:
            out = y[n].reshape(g.groups, g.f // g.groups, -1)[..., r * inner:q * inner]
            np.matmul(w, columns, out=out)
            if b is not None:
                out += b
        else:
            out = np.matmul(w, columns)
            if b is not None:
                out += b
            assign(ys[n:m, :, r:q], Req.ADD if add else Req.WRITE, out.reshape(g.f, m - n, q - r, *g.out[1:]).swapaxes(0, 1))

    active_configs.limited(run.parallel, config["threads"])(piece, len(pieces))


def backward(run: Run, g: ConvolutionGeometry, dy: np.ndarray, x: np.ndarray, weight: np.ndarray, grads: Sequence[np.ndarray],
             reqs: Reqs) -> None:
    """Compute the derivatives by data, weight and, if grads has a third array, bias."""
    dtype = math_dtype(dy.dtype)
    if c_conv.in_c(g, dy.dtype):
        return c_conv.backward(run, g, dy, x, weight, grads, reqs)
    xs, dys = channels_second(g, x), channels_second(g, dy)
    turned = _flat_weight(g, weight, dtype).transpose(0, 2, 1)
    want_x, want_w = reqs[0] != Req.NULL, reqs[1] != Req.NULL
    want_b = len(reqs) > 2 and reqs[2] != Req.NULL
    dxs = channels_second(g, grads[0])
    config = _config(g, "backward", dtype)
    images, rows = row_pieces(g, dtype.itemsize, config["cache"])
    groups = cdiv(g.n, images)
    slots = max(1, min(groups, _SLOTS, _PARTIAL // max(1, g.f * g.depth * dtype.itemsize)))
    dw = np.zeros((slots if want_w else 0, g.groups, g.f // g.groups, g.depth), dtype)
    db = np.zeros((slots, g.f))  # float64, since many pieces are added one after the other

    def slot(i: int) -> None:
        for piece in range(i * groups // slots, (i + 1) * groups // slots):
            n, m = piece * images, min(piece * images + images, g.n)
            spread = np.zeros((m - n, g.c, *g.needed), dtype) if want_x else None
            for r in range(0, g.out[0], rows):
                q = min(r + rows, g.out[0])
                d = dys[n:m, :, r:q].swapaxes(0, 1)
                d = np.ascontiguousarray(d, dtype=dtype).reshape(g.groups, g.f // g.groups, -1)
                if want_b:
                    db[i] += d.sum(axis=2).reshape(-1)
                if want_w:
                    dw[i] += np.matmul(d, windows(g, xs[n:m], r, q, dtype).transpose(0, 2, 1))
                if spread is not None:
                    _gather(g, np.matmul(turned, d), spread, r, q)
            if spread is not None:
                _store_data_gradient(g, spread, dxs[n:m], reqs[0])

    active_configs.limited(run.parallel, config["threads"])(slot, slots)
    if want_w:
        total = dw.sum(axis=0).reshape(g.f, g.c // g.groups, *g.kernel)
        assign(weight_view(g, grads[1]), reqs[1], total)
    if want_b:
        assign(grads[2], reqs[2], db.sum(axis=0))


def _gather(g: ConvolutionGeometry, columns: np.ndarray, spread: np.ndarray, first: int, last: int) -> None:
    """Add the window matrix of output rows first to last to the windows of the padded input (col2im)."""
    columns = columns.reshape(g.c, *g.kernel, len(spread), last - first, *g.out[1:])
    counts = (last - first, *g.out[1:])
    for at in product(*map(range, g.kernel)):
        where = [slice(None)] * 2
        for axis, (i, d, s, n) in enumerate(zip(at, g.dilate, g.stride, counts)):
            begin = i * d + (first * s if axis == 0 else 0)
            where.append(slice(begin, begin + (n - 1) * s + 1, s))
        spread[tuple(where)] += columns[(slice(None), *at)].swapaxes(0, 1)


def _store_data_gradient(g: ConvolutionGeometry, spread: np.ndarray, dx: np.ndarray, req: Req) -> None:
    """Compute dx = (or +=) the derivative without padding; zero where there is no window."""
    inside, reached = [slice(None)] * 2, [slice(None)] * 2
    for p, need, size in zip(g.pad, g.needed, g.spatial):
        end = max(0, min(size, need - p))
        inside.append(slice(p, p + end))
        reached.append(slice(0, end))
    part = dx[tuple(reached)]
    if part.shape != dx.shape and req != Req.ADD:
        dx[...] = 0
    assign(part, req, spread[tuple(inside)])
