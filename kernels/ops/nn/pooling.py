"""Pooling in one, two and three dimensions: declaration and CPU kernels. The GPU kernels are in triton_pool.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, Literal

import ml_dtypes
import numpy as np

from ....dtype import is_float
from ....errors import ParameterError, ShapeError
from ....integers import cdiv
from ...cpu.c_template import Template
from ...declare.operator_property import Shapes, assign, gpu_module, math_dtype
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Specs, merge_shapes
from . import c_pool
from .convolution import Spatial, check_axes
from .pooling_geometry import PoolingGeometry
from .softmax import pieces

_CACHE = 1 << 22  # bytes of input per piece; with smaller pieces, waiting for the GIL costs more than the cache saves


@register_operator("Pooling")
class Pooling(Spatial):
    """The maximum, mean, sum or p-norm (pool_type "lp", with p_value 1, 2 or 3) of every window, for each channel.

    data:    [n, c, w], [n, c, h, w] or [n, c, d, h, w]; with layout NWC, NHWC, NDHWC channels are last.
    Returns: [n, c, ...]; along an axis of size s there are (s + 2 pad - kernel) / stride + 1 windows, rounded down
             (pooling_convention "valid") or up ("full"); "same", for one axis, gives (s + 2 pad) / stride, up.
    stride, pad: more numbers than kernel has are not read.
    A window of padding alone gives 0, or the lowest finite value for a maximum. global_pool: one window of all elements.
    count_include_pad: include padding in the mean. Of equal maxima the first gets the derivative.
    """

    kernel: tuple = ()
    pool_type: Literal["max", "avg", "sum", "lp"] = "max"
    global_pool: bool = False
    cudnn_off: bool = False  # ignored
    pooling_convention: Literal["valid", "full", "same"] = "valid"
    stride: tuple = ()
    pad: tuple = ()
    p_value: int | None = None
    count_include_pad: bool | None = None
    layout: Literal["NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC"] | None = None

    def with_channels_last(self) -> dict[str, object] | None:
        return {"layout": "NHWC"} if self.layout in (None, "NCHW") else None

    def backward_transpose(self, shape: Shape) -> tuple[str, dict[str, object]] | None:
        g = self.geometry(shape)
        if self.pool_type != "max" or g.channels_last:
            return None
        return "_at_the_largest", {"kernel": g.kernel, "stride": g.stride, "pad": g.pad, "outs": g.out}

    @property
    def linear(self) -> bool:
        return self.pool_type in ("avg", "sum")

    def validate(self) -> None:
        if not self.global_pool:
            rank = len(self.kernel)
            if not 1 <= rank <= 3 or min(self.kernel) < 1:
                raise ParameterError(f"{self.name}: kernel={self.kernel} must be one to three sizes of at least 1, "
                                     f"or global_pool=True.")
            check_axes(self.name, self, rank, surplus=True, stride=1, pad=0)
        if self.pool_type == "lp" and self.p_value not in (1, 2, 3):
            raise ParameterError(f"{self.name}: pool_type 'lp' needs p_value 1, 2 or 3, not {self.p_value}.")

    def _windows(self, size: int, i: int) -> int:
        k, p = self.kernel[i], self.pad[i] if self.pad else 0
        s = self.stride[i] if self.stride else 1
        if size + 2 * p < k:
            raise ShapeError(f"{self.name}: kernel {self.kernel} is larger than the input, {size} with pad {p}, on "
                             f"spatial axis {i}. Pad more, or use a smaller kernel.")
        if self.pooling_convention == "same":
            return cdiv(size + 2 * p, s)
        if self.pooling_convention == "full":
            return cdiv(size + 2 * p - k, s) + 1
        return (size + 2 * p - k) // s + 1

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x, y = in_shape[0], out_shape[0]
        if x is None:
            return [x], [y], []
        rank = len(x) - 2
        if not 1 <= rank <= 3 or (self.kernel and not self.global_pool and len(self.kernel) != rank):
            raise ShapeError(f"{self.name}: data {x} has {max(rank, 0)} spatial axes, kernel={self.kernel} has "
                             f"{len(self.kernel)}. Data is [n, c, w], [n, c, h, w] or [n, c, d, h, w].")
        if self.pooling_convention == "same" and rank != 1:
            raise ShapeError(f"{self.name}: pooling_convention 'same' needs one spatial axis, data {x} has {rank}. Use "
                             f"'valid' or 'full'.")
        n, c, spatial = self.split(x)
        out = tuple(1 if self.global_pool else -1 if s < 0 else self._windows(s, i) for i, s in enumerate(spatial))
        return [x], [merge_shapes(self.name, "the output", y, self.join(n, c, out))], []

    @property
    def backward_reads(self) -> tuple[str, ...]:
        return ("dy",) if self.linear else ("dy", "x", "y")

    def geometry(self, x: Shape) -> PoolingGeometry:
        """Return all sizes of one call."""
        n, c, spatial = self.split(x)
        rank = len(spatial)
        if self.global_pool:
            return PoolingGeometry(n, c, spatial, (1,) * rank, spatial, (1,) * rank, (0,) * rank, self.channels_last)
        out = tuple(self._windows(s, i) for i, s in enumerate(spatial))
        return PoolingGeometry(n, c, spatial, out, self.kernel, tuple(self.stride[:rank]) or (1,) * rank,
                               tuple(self.pad[:rank]) or (0,) * rank, self.channels_last)

    def counts(self, g: PoolingGeometry) -> np.ndarray:
        """Return the divisor of the mean of each window, [*out]."""
        padded = self.count_include_pad is None or self.count_include_pad
        total = np.ones((), np.float64)
        for size, o, k, s, p in zip(g.spatial, g.out, g.kernel, g.stride, g.pad):
            begin = np.arange(o) * s - p
            end = np.minimum(begin + k, size + p)
            if not padded:
                begin, end = np.maximum(begin, 0), np.minimum(end, size)
            total = np.multiply.outer(total, np.maximum(end - begin, 1))
        return total

    def c_files(self, ins: Specs, train: bool) -> Sequence[Template]:
        return c_pool.c_files(self.geometry(ins[0].shape), self.pool_type, ins[0].dtype)

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        g, req = self.geometry(ins[0].shape), reqs[0]
        if target == "gpu":
            pool, p = gpu_module("nn.triton_pool"), self
            return lambda run, inputs, outputs: pool.forward(run, g, p, inputs[0], outputs[0], add=req == Req.ADD)
        counts = self.counts(g).astype(math_dtype(outs[0].dtype))
        if c_pool.in_c(g, self.pool_type, outs[0].dtype):
            return c_pool.forward(g, self.pool_type, counts, req == Req.ADD)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            x, y = _planes(g, inputs[0]), _planes(g, outputs[0])
            _blocks(run, x, lambda a, z: assign(y[a:z], req, self._pool(g, x[a:z], counts)))

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        g, req = self.geometry(outs[0].shape), reqs[0]
        if target == "gpu":
            pool, p = gpu_module("nn.triton_pool"), self
            return lambda run, inputs, outputs: pool.backward(run, g, p, inputs, outputs[0], add=req == Req.ADD)
        counts = self.counts(g).astype(math_dtype(outs[0].dtype))
        if c_pool.in_c(g, self.pool_type, outs[0].dtype):
            return c_pool.backward(g, self.pool_type, counts, req == Req.ADD)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            arrays, dx = [_planes(g, a) for a in inputs], _planes(g, outputs[0])
            _blocks(run, dx, lambda a, z: assign(dx[a:z], req, self._spread(g, counts, *(v[a:z] for v in arrays))))

        return kernel

    def _empty(self, g: PoolingGeometry) -> np.ndarray | None:
        """Return a mask [*out] of the windows that contain padding only; None if there are none."""
        total = np.zeros((), bool)
        for size, o, k, s, p in zip(g.spatial, g.out, g.kernel, g.stride, g.pad):
            begin = np.arange(o) * s - p
            total = np.logical_or.outer(total, (begin >= size) | (begin + k <= 0))
        return total if total.any() else None

    # ---- CPU ----------------------------------------------------------------------------------------------------
    def _pool(self, g: PoolingGeometry, x: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Pool planes x [m, ..., *spatial]."""
        kind, dtype = self.pool_type, math_dtype(x.dtype)
        padded = _pad(g, x, dtype, lowest(dtype) if kind == "max" else 0)
        if kind == "lp":
            padded = np.abs(padded) ** self.p_value
        y = padded
        for axis in range(len(g.out)):  # one axis after the other: fewer steps, and the first ones read contiguous memory
            y = _fold_axis(g, axis, y, np.maximum if kind == "max" else np.add)
        if kind == "max" and (empty := self._empty(g)) is not None:
            y[..., empty] = finite_lowest(x.dtype)
        if kind == "avg":
            y = y / counts if is_float(dtype) else (y // counts.astype(dtype))
        elif kind == "lp":
            y **= 1 / self.p_value  # type: ignore[operator]
        return y

    def _spread(self, g: PoolingGeometry, counts: np.ndarray, dy: np.ndarray, x: np.ndarray | None = None,
                y: np.ndarray | None = None) -> np.ndarray:
        """Distribute the derivative dy of windows to the elements of the windows."""
        kind, dtype = self.pool_type, math_dtype(dy.dtype)
        spread = np.zeros((*dy.shape[:-len(g.out)], *_extent(g)), dtype)
        dy = dy.astype(dtype, copy=False)
        if kind == "avg":
            dy = dy / counts
        if kind in ("avg", "sum"):
            for _, w in offsets(g):
                spread[w] += dy
        else:
            assert x is not None and y is not None
            padded = _pad(g, x, dtype, lowest(dtype) if kind == "max" else 0)
            y = y.astype(dtype, copy=False)
            if kind == "max":
                left = np.ones(dy.shape, bool)
                apart = all(s >= k for s, k in zip(g.stride, g.kernel))  # windows do not overlap
                for _, w in offsets(g):
                    here = padded[w] == y
                    here &= left
                    left ^= here
                    if apart:
                        spread[w] = np.where(here, dy, 0)
                    else:
                        spread[w] += np.where(here, dy, 0)
            else:
                p: int = self.p_value  # type: ignore[assignment]
                with np.errstate(divide="ignore", invalid="ignore"):
                    scaled = np.where(y > 0, dy / y ** (p - 1), 0)
                for _, w in offsets(g):
                    spread[w] += scaled * np.sign(padded[w]) * np.abs(padded[w]) ** (p - 1)
        return spread[(..., *(slice(p, p + s) for p, s in zip(g.pad, g.spatial)))]


def _fold_axis(g: PoolingGeometry, axis: int, x: np.ndarray, fold: np.ufunc) -> np.ndarray:
    """Reduce the windows of one spatial axis of x, which then has the size of the output."""
    size, step = g.out[axis], g.stride[axis]
    views = [x[(slice(None),) * (2 + axis) + (slice(i, i + (size - 1) * step + 1, step),)] for i in range(g.kernel[axis])]
    if len(views) == 1:
        return views[0].copy() if axis == 0 else views[0]
    y = fold(views[0], views[1])
    for v in views[2:]:
        fold(y, v, out=y)
    return y


def lowest(dtype: np.dtype) -> float:
    """Return the lowest value of dtype, -inf for floats."""
    return -np.inf if is_float(dtype) else np.iinfo(dtype).min


def finite_lowest(dtype: np.dtype) -> float:
    """Return the lowest finite value of dtype, the maximum of an empty window."""
    return float(ml_dtypes.finfo(dtype).min) if is_float(dtype) else np.iinfo(dtype).min


def _planes(g: PoolingGeometry, a: np.ndarray) -> np.ndarray:
    """Return a as [n · c, 1, *spatial] if channels are first, else as a view [n, c, *spatial]."""
    return np.moveaxis(a, -1, 1) if g.channels_last else a.reshape(g.n * g.c, 1, *a.shape[2:])


def _blocks(run: Any, x: np.ndarray, work: Callable[[int, int], None]) -> None:
    """Call work(first, last) over the planes of x in pieces that fit in cache, in parallel."""
    if not x.size:
        return
    pieces(run, len(x), max(1, _CACHE * len(x) // x.nbytes), work)


def _extent(g: PoolingGeometry) -> Shape:
    return tuple(max(e, p + s) for e, p, s in zip(g.extent, g.pad, g.spatial))


def _pad(g: PoolingGeometry, x: np.ndarray, dtype: np.dtype, fill: Any) -> np.ndarray:
    """Pad x with fill to the size that the windows cover."""
    extent = _extent(g)
    if extent == g.spatial and not any(g.pad):
        return x.astype(dtype, copy=False)
    padded = np.full((*x.shape[:2], *extent), fill, dtype)
    padded[(..., *(slice(p, p + s) for p, s in zip(g.pad, g.spatial)))] = x
    return padded


def offsets(g: PoolingGeometry) -> list[tuple[Shape, tuple]]:
    """Return each index within a window, and the view of the padded input at that index of all windows."""
    return [(at, (..., *(slice(i, i + (o - 1) * s + 1, s) for i, o, s in zip(at, g.out, g.stride))))
            for at in product(*map(range, g.kernel))]
