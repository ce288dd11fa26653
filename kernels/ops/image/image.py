"""mx.nd.image: convert images [h, w, c] (or batches) to tensors; normalize, crop, flip and resize them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtype import float32
from ....errors import DTypeError, ParameterError, ShapeError
from ...declare.composite import TracedValue, composite, ops
from ...declare.indexed import indexed
from ...ir.lang import floor, maximum, minimum, where
from ...op import Shape
from ..vision.boxes import one_of


def picture_axes(name: str, rank: int) -> tuple[int, int, int]:
    """Return the axes of height, width and channels of [h, w, c] or [n, h, w, c]."""
    if rank not in (3, 4):
        raise ShapeError(f"{name}: data has {rank} axes. It must be an image [h, w, c] or a batch [n, h, w, c].")
    return rank - 3, rank - 2, rank - 1


def _tensor_shape(data: Shape) -> Shape:
    h, w, c = picture_axes("to_tensor", len(data))
    return *data[:h], data[c], data[h], data[w]


@indexed("_image_to_tensor", shape=_tensor_shape, dtype=float32)
def to_tensor(at: Any, data: Any) -> Any:
    """data [h, w, c] or [n, h, w, c] with values 0 … 255, as float32 [c, h, w] or [n, c, h, w] with values 0 … 1."""
    *lead, c, i, j = at
    return data[(*lead, i, j, c)].astype("float32") / 255.0


def _normalized_shape(data: Shape, *, mean: tuple, std: tuple) -> Shape:
    if len(data) not in (3, 4):
        raise ShapeError(f"normalize: data {data} must be [c, h, w] or [n, c, h, w].")
    c = data[-3]
    if len(mean) not in (1, c) or len(std) not in (1, c):
        raise ParameterError(f"normalize: mean={mean} and std={std} must hold one number, or one for each of the {c} channels.")
    return data


def _normalized_dtype(data: np.dtype, **_: Any) -> np.dtype:
    if data.kind not in "fV":
        raise DTypeError(f"normalize: data is {data}; it must hold floats. Use to_tensor first.")
    return data


@indexed("_image_normalize", shape=_normalized_shape, dtype=_normalized_dtype)
def normalize(at: Any, data: Any, *, mean: tuple[float, ...] = (0.0,), std: tuple[float, ...] = (1.0,)) -> Any:
    """(data - mean) / std, channel by channel. data: [c, h, w] or [n, c, h, w]; mean, std: one number, or one per channel."""
    channel = at[-3]
    by, of = (values[0] if len(set(values)) == 1 else one_of(channel, values) for values in (mean, std))
    return (data[at] - by) / of


@composite("_image_crop")
def crop(data: TracedValue, *, x: int, y: int, width: int, height: int) -> TracedValue:
    """The window of an image of height × width positions that begins at row y and column x. data: [h, w, c] or [n, h, w, c]."""
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


def _resized_shape(data: Shape, *, size: tuple, keep_ratio: bool, interp: int) -> Shape:
    if len(size) not in (1, 2) or min(size) < 1:
        raise ParameterError(f"_image_resize: size={size} must be one or two positive integers: width, height.")
    if interp not in (0, 1):
        raise ParameterError(f"_image_resize: interp={interp} must be 0 (nearest) or 1 (bilinear). mx.image.imresize has more "
                             f"modes.")
    h, w, _ = picture_axes("_image_resize", len(data))
    width, height = size * 2 if len(size) == 1 else size
    if keep_ratio and len(size) == 1:
        if data[h] > data[w]:
            height = int(width * data[h] / data[w])
        else:
            width = int(height * data[w] / data[h])
    return *data[:h], height, width, data[-1]


def _place(i: Any, n: Any, m: Any) -> Any:
    """Return the place among n elements of point i of m, which may lie before the first."""
    return (i.astype("float64") + 0.5) * (n.astype("float64") / m.astype("float64")) - 0.5


@indexed("_image_resize", shape=_resized_shape, differentiable=False)
def image_resize(at: Any, data: Any, *, size: tuple = (), keep_ratio: bool = False, interp: int = 1) -> Any:
    """Images in another size. data: [h, w, c] or [n, h, w, c]; integer results are rounded. No derivative.

    size: (width, height), or one number for both; with keep_ratio, for the shorter side. interp: 0 nearest, 1 bilinear, with
    pixel centres at half integers. uint8 images are interpolated in integer arithmetic, with the bits of OpenCV: weights have
    11 bits, and sums of rows are shifted right by 4 bits before and by 16 bits after each product.
    """
    *lead, i, j, c = at
    h, w, (height, width) = *data.shape[-3:-1], at.shape[-3:-1]

    def pixel(y: Any, x: Any) -> Any:
        return data[(*lead, y, x, c)]

    if interp == 0:
        return pixel(minimum(i * h // height, h - 1), minimum(j * w // width, w - 1))
    if data.dtype != np.uint8:
        ends = []
        for place, n in ((maximum(_place(i, h, height), 0), h), (maximum(_place(j, w, width), 0), w)):
            low = minimum(place.astype("int64"), n - 1)
            ends.append((low, minimum(low + 1, n - 1), where(low < n - 1, place - low.astype("float64"), 0.0)))
        (y0, y1, down), (x0, x1, across) = ends
        kind = "float64" if data.dtype == np.float64 else "float32"
        wide = [((1 - s).astype(kind), s.astype(kind)) for s in (down, across)]
        (a, b), (p, q) = wide
        upper, lower = (pixel(y0, x).astype(kind) * a + pixel(y1, x).astype(kind) * b for x in (x0, x1))
        value = upper * p + lower * q
        return value if data.dtype.kind == "f" or data.dtype.name == "bfloat16" else floor(value + 0.5)

    def weights(place: Any, n: Any, sharp: bool) -> tuple[Any, ...]:
        low = floor(place).astype("int64")
        share = (place - floor(place)).astype("float32")
        share = where((low < 0) | (low >= n - 1), 0, share) if sharp else share
        whole = 1.5 * 2**23  # added and subtracted again, it rounds halves to even
        both = [((2048 * s + whole) - whole).astype("int64") for s in (1 - share, share)]
        return *(maximum(minimum(k, n - 1), 0) for k in (low, low + 1)), *both

    y0, y1, above, below = weights(_place(i, h, height), h, False)
    x0, x1, left, right = weights(_place(j, w, width), w, True)
    upper, lower = (pixel(y, x0).astype("int64") * left + pixel(y, x1).astype("int64") * right for y in (y0, y1))
    total = (above * (upper // 16) // 65536) + (below * (lower // 16) // 65536)
    return maximum(minimum((total + 2) // 4, 255), 0)
