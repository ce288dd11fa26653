"""Functions of mx.image: read, decode, resize, crop, normalise. Images are NDArrays [height, width, channels], red first.

Random ones draw from Python's `random`, as MXNet's do, so that `random.seed(n)` gives the crops that MXNet gives.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...context import cpu
from ...dtype import as_dtype
from ...errors import FileError, ParameterError, ShapeError, describe
from ...ndarray import NDArray, array
from ..records.files import ByteSource
from .codec import decode, opencv

Size = Sequence[int]  # (width, height)


def imread(filename: str | os.PathLike, flag: int = 1, to_rgb: bool = True) -> NDArray:
    """The image in a file or at a URL; see imdecode. Raises FileError that names it."""
    with ByteSource(filename) as source:
        data = source.read(0, source.size)
    try:
        return imdecode(data, flag, to_rgb)
    except FileError as e:
        raise FileError(f"{os.fspath(filename)}: {e}") from None


def imdecode(buf: Any, flag: int = 1, to_rgb: bool = True, out: NDArray | None = None) -> NDArray:
    """The image encoded in buf (bytes, or uint8[n]): uint8[height, width, 3], or [height, width, 1] with flag=0.

    to_rgb:  red first; False: blue first.
    Raises:  FileError saying what is wrong, also where other decoders would fill a missing part with grey.
    """
    if isinstance(buf, NDArray):
        buf = buf.asnumpy()
    try:
        pixels = decode(buf.tobytes() if isinstance(buf, np.ndarray) else bytes(buf), 3 if flag else 1)
    except FileError as e:
        raise FileError(f"imdecode: {str(e).rstrip('.')}.") from None
    made = array(pixels if to_rgb or not flag else pixels[:, :, ::-1], cpu(), np.uint8)
    if out is None:
        return made
    out[:] = made
    return out


def imresize(src: NDArray, w: int, h: int, interp: int = 1) -> NDArray:
    """src resized to width w and height h. interp: 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos, 9 by size, 10 random."""
    pixels = _pixels(src, "imresize")
    if w < 1 or h < 1:
        raise ParameterError(f"imresize: w={w}, h={h}: at least 1 each.")
    method = interpolation(interp, (*pixels.shape[:2], h, w))
    made = opencv("imresize").resize(pixels, (int(w), int(h)), interpolation=method)
    return array(made.reshape(h, w, pixels.shape[2]), src.context, src.dtype)


def interpolation(interp: int, sizes: Sequence[int] = ()) -> int:
    """OpenCV's method for MXNet's number. 9: by (old height, old width, new height, new width); 10: random."""
    if interp == 9:
        if not sizes:
            return 2
        old_h, old_w, new_h, new_w = sizes
        return 2 if new_h > old_h and new_w > old_w else 3 if new_h < old_h and new_w < old_w else 1
    if interp == 10:
        return random.randint(0, 4)
    if interp not in (0, 1, 2, 3, 4):
        raise ParameterError(f"mx.image: interp={interp} is not one of 0, 1, 2, 3, 4, 9, 10.")
    return interp


def copyMakeBorder(src: NDArray, top: int, bot: int, left: int, right: int, type: int = 0, value: float = 0.0,
                   values: Sequence[float] = ()) -> NDArray:
    """src with a border. type: OpenCV's; 0 fills with value, or with `values`, one per channel."""
    pixels = _pixels(src, "copyMakeBorder")
    fill = [float(v) for v in values] or [float(value)] * 4
    made = opencv("copyMakeBorder").copyMakeBorder(pixels, top, bot, left, right, type, value=fill)
    return array(made.reshape(*made.shape[:2], pixels.shape[2]), src.context, src.dtype)


def scale_down(src_size: Size, size: Size) -> tuple[int, int]:
    """size (width, height), shrunk in proportion until it fits in src_size."""
    (w, h), (most_w, most_h) = size, src_size
    if most_h < h:
        w, h = w * most_h / h, most_h
    if most_w < w:
        w, h = most_w, h * most_w / w
    return int(w), int(h)


def fitting(height: int, width: int, most_height: int, most_width: int, *, enlarge: bool) -> tuple[int, int]:
    """(height, width) in proportion, as large as fits; not larger than it is, unless enlarge."""
    if height <= most_height and width <= most_width and not enlarge:
        return height, width
    if height * most_width > width * most_height:
        return most_height, max(1, width * most_height // height)
    return max(1, height * most_width // width), most_width


def resize_short(src: NDArray, size: int, interp: int = 2) -> NDArray:
    """src resized so that its shorter edge is size."""
    h, w = src.shape[:2]
    new_h, new_w = (size * h // w, size) if h > w else (size, size * w // h)
    return imresize(src, new_w, new_h, interp)


def fixed_crop(src: NDArray, x0: int, y0: int, w: int, h: int, size: Size | None = None, interp: int = 2) -> NDArray:
    """The part of src at (x0, y0), w wide and h high, resized to size (width, height) if that is another."""
    if x0 < 0 or y0 < 0 or w < 1 or h < 1 or x0 + w > src.shape[1] or y0 + h > src.shape[0]:
        raise ParameterError(f"fixed_crop: {w} x {h} pixels at ({x0}, {y0}) do not lie in an image of {src.shape[1]} x "
                             f"{src.shape[0]}.")
    out = src[y0:y0 + h, x0:x0 + w]
    return imresize(out, size[0], size[1], interp) if size is not None and (w, h) != tuple(size) else out


def random_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, tuple[int, int, int, int]]:
    """A part of src of size (width, height), or of its shape and as large as fits, resized; and (x, y, width, height)."""
    h, w = src.shape[:2]
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = random.randint(0, w - new_w), random.randint(0, h - new_h)
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def center_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, tuple[int, int, int, int]]:
    """As random_crop, from the middle."""
    h, w = src.shape[:2]
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = (w - new_w) // 2, (h - new_h) // 2
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def random_size_crop(src: NDArray, size: Size, area: float | Sequence[float], ratio: Sequence[float], interp: int = 2,
                     **kwargs: Any) -> tuple[NDArray, tuple[int, int, int, int]]:
    """A part of src of random area and aspect, resized to size; and (x, y, width, height). After ten misses, the middle.

    area:   (least, most) as shares of src's, or the least.
    ratio:  (least, most) of width / height.
    """
    area = kwargs.pop("min_area", area)
    if kwargs:
        raise ParameterError(f"random_size_crop: no parameter is called {', '.join(map(repr, kwargs))}.")
    least, most = (area, 1.0) if isinstance(area, (int, float)) else area
    h, w = src.shape[:2]
    for _ in range(10):
        target = random.uniform(least, most) * h * w
        aspect = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        new_w, new_h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if new_w <= w and new_h <= h:
            x0, y0 = random.randint(0, w - new_w), random.randint(0, h - new_h)
            return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)
    return center_crop(src, size, interp)


def color_normalize(src: NDArray, mean: NDArray | None, std: NDArray | None = None) -> NDArray:
    """(src - mean) / std; a part that is None is left out."""
    if mean is not None:
        src = src - mean
    return src / std if std is not None else src


def _pixels(src: NDArray, name: str) -> np.ndarray:
    if src.ndim != 3 or not src.size:
        raise ShapeError(f"{name}: src is {describe(src)}, and must be [height, width, channels].")
    if as_dtype(src.dtype) not in (np.uint8, np.float32, np.float64, np.int16, np.uint16):
        raise ParameterError(f"{name}: images of dtype {as_dtype(src.dtype)} cannot be resized. Convert with astype('float32').")
    return src.asnumpy()
