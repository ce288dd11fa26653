"""mx.nd.image: convert images [h, w, c] (or batches) to tensors; normalize, crop, flip and resize them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ....dtype import float32
from ....errors import DTypeError, ParameterError, ShapeError
from ...declare.composite import TracedValue, composite, ops
from ...declare.host_op import HostOp
from ...declare.operator_property import KnownShapes, Shapes
from ...declare.property_op import register_operator
from ...op import Shape
from ..nn.resize import Taps, applied, bilinear_taps, taps_at


def picture_axes(name: str, rank: int) -> tuple[int, int, int]:
    """Return the axes of height, width and channels of [h, w, c] or [n, h, w, c]."""
    if rank not in (3, 4):
        raise ShapeError(f"{name}: data has {rank} axes. It must be an image [h, w, c] or a batch [n, h, w, c].")
    return rank - 3, rank - 2, rank - 1


@composite("_image_to_tensor", dtypes=lambda p, d: (list(d), [float32]))
def to_tensor(data: TracedValue) -> TracedValue:
    """data [h, w, c] or [n, h, w, c] with values 0 … 255, as float32 [c, h, w] or [n, c, h, w] with values 0 … 1."""
    h, w, c = picture_axes("to_tensor", data.ndim)
    x = data if data.dtype == float32 else ops.Cast(data, dtype="float32")
    return ops.transpose(x, axes=(*range(h), c, h, w)) / 255.0


@composite("_image_normalize")
def normalize(data: TracedValue, *, mean: tuple[float, ...] = (0.0,), std: tuple[float, ...] = (1.0,)) -> TracedValue:
    """(data - mean) / std, channel by channel. data: [c, h, w] or [n, c, h, w]; mean, std: one number, or one per channel."""
    if data.ndim not in (3, 4):
        raise ShapeError(f"normalize: data {data.shape} must be [c, h, w] or [n, c, h, w].")
    if data.dtype.kind not in "fV":
        raise DTypeError(f"normalize: data is {data.dtype}; it must hold floats. Use to_tensor first.")
    axis = data.ndim - 3
    c = data.shape[axis]
    if len(mean) not in (1, c) or len(std) not in (1, c):
        raise ParameterError(f"normalize: mean={mean} and std={std} must hold one number, or one for each of the {c} channels.")
    if len(set(mean)) == len(set(std)) == 1:
        return (data - mean[0]) / std[0]
    parts = [ops.slice_axis(data, axis=axis, begin=i, end=i + 1) for i in range(c)]
    moved = [(x - mean[i % len(mean)]) / std[i % len(std)] for i, x in enumerate(parts)]
    return ops.Concat(*moved, dim=axis) if c > 1 else moved[0]


@composite("_image_crop")
def crop(data: TracedValue, *, x: int, y: int, width: int, height: int) -> TracedValue:
    """The window of an image that begins at row y and column x. data: [h, w, c] or [n, h, w, c]."""
    h, w, _ = picture_axes("image.crop", data.ndim)
    if min(x, y) < 0 or min(width, height) < 1 or x + width > data.shape[w] or y + height > data.shape[h]:
        raise ParameterError(f"image.crop: x={x}, y={y}, width={width}, height={height} is not within data {data.shape}.")
    return ops.slice_axis(ops.slice_axis(data, axis=h, begin=y, end=y + height), axis=w, begin=x, end=x + width)


@composite("_image_flip_left_right")
def flip_left_right(data: TracedValue) -> TracedValue:
    """The image flipped left to right. data: [h, w, c] or [n, h, w, c]."""
    return _mirrored("flip_left_right", data, 1)


@composite("_image_flip_top_bottom")
def flip_top_bottom(data: TracedValue) -> TracedValue:
    """The image flipped top to bottom. data: [h, w, c] or [n, h, w, c]."""
    return _mirrored("flip_top_bottom", data, 0)


def _mirrored(name: str, data: TracedValue, which: int) -> TracedValue:
    return ops.reverse(data, axis=(picture_axes(name, data.ndim)[which],))


def _nearest_taps(n: int, m: int) -> Taps:
    return taps_at(n, np.minimum(np.arange(m) * n // m, n - 1))


@register_operator("_image_resize")
class ImageResize(HostOp):
    """Images in another size. data: [h, w, c] or [n, h, w, c]; integer results are rounded. No derivative.

    size: (width, height), or one number for both; with keep_ratio, for the shorter side. interp: 0 nearest, 1 bilinear, with
    pixel centres at half integers. Computed on the host.
    """

    size: tuple = ()
    keep_ratio: bool = False
    interp: int = 1
    gradient_arguments = ()

    def validate(self) -> None:
        if len(self.size) not in (1, 2) or min(self.size) < 1:
            raise ParameterError(f"{self.name}: size={self.size} must be one or two positive integers: width, height.")
        if self.interp not in (0, 1):
            raise ParameterError(f"{self.name}: interp={self.interp} must be 0 (nearest) or 1 (bilinear). mx.image.imresize "
                                 f"has more modes.")

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        h, w, _ = picture_axes(self.name, len(x))
        width, height = self.size * 2 if len(self.size) == 1 else self.size
        if self.keep_ratio and len(self.size) == 1:
            if x[h] > x[w]:
                height = int(width * x[h] / x[w])
            else:
                width = int(height * x[w] / x[h])
        return [(*x[:h], height, width, x[-1])]

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        x = arrays[0]
        (_,), (out,), _ = self.infer_shape([x.shape], [None])
        assert out is not None
        if x.dtype == np.uint8 and self.interp:
            return _bytes_between(_bytes_between(x, x.ndim - 2, out, False), x.ndim - 3, out, True)
        make = _nearest_taps if self.interp == 0 else lambda n, m: bilinear_taps(n, m, False)
        y = x.astype(np.float32) if x.dtype.kind != "f" and self.interp else x
        for axis in (x.ndim - 3, x.ndim - 2):
            y = _along(y, axis, lambda lines, axis=axis: applied(make(lines.shape[1], out[axis]), lines))
        return np.floor(y + 0.5) if x.dtype.kind != "f" and self.interp else y


def _along(x: np.ndarray, axis: int, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Apply change to x seen as [outer, n, inner], where n is the size of axis."""
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1:])
    y = change(x.reshape(outer, x.shape[axis], inner))
    return y.reshape(*x.shape[:axis], y.shape[1], *x.shape[axis + 1:])


def _bytes_between(x: np.ndarray, axis: int, out: Shape, down: bool) -> np.ndarray:
    """Resize one axis of a uint8 image bilinearly in integer arithmetic, with the bits of OpenCV.

    Weights have 11 bits. Columns come first, then rows: there sums are shifted right by 4 bits before and by 16 bits after
    each product, also where both terms are the same edge.
    """

    def change(lines: np.ndarray) -> np.ndarray:
        n, m = lines.shape[1], out[axis]
        at = (np.arange(m) + 0.5) * (n / m) - 0.5
        low = np.floor(at).astype(np.int64)
        share = (at - low).astype(np.float32)
        if not down:
            share[(low < 0) | (low >= n - 1)] = 0
        a, b = (lines[:, np.clip(place, 0, n - 1)].astype(np.int64) for place in (low, low + 1))
        wa, wb = (np.rint(np.float32(2048) * w).astype(np.int64)[:, None] for w in (1 - share, share))
        if not down:
            return a * wa + b * wb
        return np.clip(((wa * (a >> 4) >> 16) + (wb * (b >> 4) >> 16) + 2) >> 2, 0, 255).astype(np.uint8)

    return _along(x, axis, change)
