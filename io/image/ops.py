"""Functions of mx.image: read, decode, resize, crop, normalise, rotate. Images are NDArrays [height, width, channels], red first.

Random functions draw from Python's `random`, so that `random.seed(n)` gives MXNet's crops. random_rotate draws from NumPy's.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...context import cpu
from ...dtype import as_dtype
from ...errors import DTypeError, FileError, ParameterError, ShapeError, check_choice, describe
from ...ndarray import NDArray, array
from ..records.files import ByteSource
from .codec import decode, opencv

Size = Sequence[int]  # (width, height)


def imread(filename: str | os.PathLike, flag: int = 1, to_rgb: bool = True) -> NDArray:
    """Read and decode the image in a file or at a URL, as imdecode. Raises FileError that names it."""
    with ByteSource(filename) as source:
        data = source.read(0, source.size)
    try:
        return imdecode(data, flag, to_rgb)
    except FileError as e:
        raise FileError(f"{os.fspath(filename)}: {e}") from None


def imdecode(buf: Any, flag: int = 1, to_rgb: bool = True, out: NDArray | None = None) -> NDArray:
    """Decode buf (bytes, or uint8[n]) to uint8[height, width, 3], or [height, width, 1] with flag=0.

    to_rgb:  red first; False: blue first.
    Raises:  FileError for a damaged or truncated image, also where other decoders would fill the missing part with grey.
    """
    if isinstance(buf, NDArray):
        buf = buf.asnumpy()
    try:
        pixels = decode(buf.tobytes() if isinstance(buf, np.ndarray) else bytes(buf), 3 if flag else 1)
    except FileError as e:
        raise FileError(f"imdecode: {str(e).rstrip('.')}.") from None
    image = array(pixels if to_rgb or not flag else pixels[:, :, ::-1], cpu(), np.uint8)
    if out is None:
        return image
    out[:] = image
    return out


def imresize(src: NDArray, w: int, h: int, interp: int = 1, out: NDArray | None = None) -> NDArray:
    """Resize src to width w and height h. interp: 0 nearest, 1 bilinear, 2 cubic, 3 area, 4 Lanczos, 9 by size, 10 random.

    out: the array to write to and to return, instead of a new one.
    """
    return _placed(_resized(_pixels(src, "imresize"), w, h, interp), src, out)


def _resized(pixels: np.ndarray, w: int, h: int, interp: int) -> np.ndarray:
    if w < 1 or h < 1:
        raise ParameterError(f"imresize: w={w}, h={h} must be at least 1 each.")
    method = interpolation(interp, (*pixels.shape[:2], h, w))
    resized = opencv("imresize").resize(pixels, (int(w), int(h)), interpolation=method)
    return resized.reshape(h, w, pixels.shape[2])


def interpolation(interp: int, sizes: Sequence[int] = ()) -> int:
    """Return OpenCV's method for MXNet's number. 9: by (old height, old width, new height, new width); 10: random."""
    if interp == 9:
        return interpolation_by_size(*sizes) if sizes else 2
    if interp == 10:
        return random.randint(0, 4)
    check_choice("mx.image", "interp", interp, (0, 1, 2, 3, 4, 9, 10))
    return interp


def interpolation_by_size(old_h: int, old_w: int, new_h: int, new_w: int) -> int:
    """Return MXNet's choice: cubic to enlarge, area to shrink, otherwise bilinear."""
    return 2 if new_h > old_h and new_w > old_w else 3 if new_h < old_h and new_w < old_w else 1


def copyMakeBorder(src: NDArray, top: int, bot: int, left: int, right: int, type: int = 0, value: float = 0.0,
                   values: Sequence[float] | float = (), out: NDArray | None = None) -> NDArray:
    """Add a border to src.

    type: OpenCV's; 0 fills with value, or with `values`, one per channel, where missing ones are 0. out: as in imresize.
    """
    pixels = _pixels(src, "copyMakeBorder")
    fill = [float(v) for v in np.atleast_1d(values)] or [float(value)] * 4
    padded = opencv("copyMakeBorder").copyMakeBorder(pixels, top, bot, left, right, type, value=fill)
    return _placed(padded.reshape(*padded.shape[:2], pixels.shape[2]), src, out)


def _placed(pixels: np.ndarray, like: NDArray, out: NDArray | None) -> NDArray:
    """Return pixels as an array of the context and dtype of `like`, or in out."""
    if out is None:
        return array(pixels, like.context, like.dtype)
    if out.shape != pixels.shape:
        raise ShapeError(f"mx.image: out is {describe(out)}, the result has the shape {pixels.shape}.")
    out[:] = pixels
    return out


def scale_down(src_size: Size, size: Size) -> tuple[int, int]:
    """Return size (width, height), shrunk in proportion if it does not fit in src_size."""
    (w, h), (most_w, most_h) = size, src_size
    if most_h < h:
        w, h = w * most_h / h, most_h
    if most_w < w:
        w, h = most_w, h * most_w / w
    return int(w), int(h)


def fitting(height: int, width: int, most_height: int, most_width: int, *, enlarge: bool) -> tuple[int, int]:
    """Return (height, width) scaled in proportion to the largest that fits, upwards only with enlarge."""
    if height <= most_height and width <= most_width and not enlarge:
        return height, width
    if height * most_width > width * most_height:
        return most_height, max(1, width * most_height // height)
    return max(1, height * most_width // width), most_width


def shorter_edge_to(size: int, h: int, w: int) -> tuple[int, int]:
    """Return (height, width) scaled in proportion so that the shorter edge is size."""
    return (size * h // w, size) if h > w else (size, size * w // h)


def resize_short(src: NDArray, size: int, interp: int = 2) -> NDArray:
    """Resize src so that its shorter edge is size."""
    h, w = shorter_edge_to(size, *src.shape[:2])
    return imresize(src, w, h, interp)


def fixed_crop(src: NDArray, x0: int, y0: int, w: int, h: int, size: Size | None = None, interp: int = 2) -> NDArray:
    """Cut w x h pixels out of src at (x0, y0), and resize them to size (width, height) if it is given."""
    if x0 < 0 or y0 < 0 or w < 1 or h < 1 or x0 + w > src.shape[1] or y0 + h > src.shape[0]:
        raise ParameterError(f"fixed_crop: {w} x {h} pixels at ({x0}, {y0}) are not inside an image of {src.shape[1]} x "
                             f"{src.shape[0]}.")
    if size is None or (w, h) == tuple(size):
        return src[y0:y0 + h, x0:x0 + w]
    return _placed(_resized(_pixels(src, "imresize")[y0:y0 + h, x0:x0 + w], size[0], size[1], interp), src, None)


def random_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, tuple[int, int, int, int]]:
    """Cut size (width, height) out of src at a random place; return the image and (x, y, width, height).

    If size does not fit, the largest part of its aspect is cut out and resized.
    """
    return _crop(src, size, interp, lambda room: random.randint(0, room))


def center_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, tuple[int, int, int, int]]:
    """Like random_crop, at the centre."""
    return _crop(src, size, interp, lambda room: room // 2)


def _crop(src: NDArray, size: Size, interp: int, start: Callable[[int], int]) -> tuple[NDArray, tuple[int, int, int, int]]:
    h, w = src.shape[:2]
    new_w, new_h = scale_down((w, h), size)
    place = start(w - new_w), start(h - new_h), new_w, new_h
    return fixed_crop(src, *place, size, interp), place


def random_size_crop(src: NDArray, size: Size, area: float | Sequence[float], ratio: Sequence[float], interp: int = 2,
                     **kwargs: Any) -> tuple[NDArray, tuple[int, int, int, int]]:
    """Cut out a part of random area and aspect, and resize it to size; return the image and (x, y, width, height).

    area:   (min, max) as fractions of src's area, or only the min.
    ratio:  (min, max) of width / height.
    After ten failed attempts, center_crop.
    """
    area = kwargs.pop("min_area", area)
    if kwargs:
        raise ParameterError(f"random_size_crop: unknown parameter {', '.join(map(repr, kwargs))}.")
    min_area, max_area = (area, 1.0) if isinstance(area, (int, float)) else area
    h, w = src.shape[:2]
    for _ in range(10):
        target = random.uniform(min_area, max_area) * h * w
        aspect = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        new_w, new_h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if new_w <= w and new_h <= h:
            x0, y0 = random.randint(0, w - new_w), random.randint(0, h - new_h)
            return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)
    return center_crop(src, size, interp)


def color_normalize(src: NDArray, mean: NDArray | None, std: NDArray | None = None) -> NDArray:
    """Return (src - mean) / std, without the part that is None."""
    if mean is not None:
        src = src - mean
    return src / std if std is not None else src


def _pixels(src: NDArray, name: str) -> np.ndarray:
    """Return the pixels of an image, to be read only: on the host without a copy."""
    if src.ndim != 3 or not src.size:
        raise ShapeError(f"{name}: src is {describe(src)}. Give [height, width, channels].")
    if src.dtype not in (np.uint8, np.float32, np.float64, np.int16, np.uint16):
        raise ParameterError(f"{name}: images of dtype {as_dtype(src.dtype)} are not supported. Convert with astype('float32').")
    if src.context.is_gpu:
        return src.asnumpy()
    src.wait_to_read()
    return src.device_array()


def imrotate(src: NDArray, rotation_degrees: float | NDArray, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Rotate src about its centre, bilinear, in the same size. Pixels from outside are 0.

    src:               float32[channels, height, width], or [batch, channels, height, width].
    rotation_degrees:  counterclockwise; for a batch one number, or one for each image.
    zoom_in:           enlarge until nothing from outside is visible.   zoom_out: shrink until no corner is lost.
    Raises:            DTypeError, ShapeError, ParameterError.
    """
    if zoom_in and zoom_out:
        raise ParameterError("imrotate: zoom_in and zoom_out are both True. Give one of them.")
    if as_dtype(src.dtype) != np.float32:
        raise DTypeError(f"imrotate: src is {describe(src)}. Convert it with astype('float32').")
    if src.ndim not in (3, 4):
        raise ShapeError(f"imrotate: src is {describe(src)}. Give [channels, height, width], or a batch of them.")
    batch = src if src.ndim == 4 else src.expand_dims(axis=0)
    degrees = rotation_degrees.asnumpy() if isinstance(rotation_degrees, NDArray) else np.asarray(rotation_degrees)
    if degrees.ndim > 1 or (degrees.ndim == 1 and (src.ndim == 3 or len(degrees) != len(src))):
        raise ShapeError(f"imrotate: {list(degrees.shape)} angles for src {describe(src)}. Give one number, or one for each "
                         f"image.")
    radians = np.broadcast_to(np.deg2rad(degrees.astype(np.float64)), (batch.shape[0],))
    grid = np.stack([_grid(float(angle), batch.shape[2], batch.shape[3], zoom_in, zoom_out) for angle in radians])
    rotated = nd.BilinearSampler(batch, nd.array(grid.astype(np.float32), src.context))
    return rotated if src.ndim == 4 else rotated.reshape(src.shape)


def random_rotate(src: NDArray, angle_limits: Sequence[float], zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Rotate by a random angle between two limits, in degrees; another one for each image of a batch."""
    low, high = angle_limits
    angles = np.random.uniform(low, high) if src.ndim == 3 else nd.array(np.random.uniform(low, high, len(src)))
    return imrotate(src, angles, zoom_in, zoom_out)


def _grid(angle: float, height: int, width: int, zoom_in: bool, zoom_out: bool) -> np.ndarray:
    """Return the source position of each pixel, [2, height, width]: x, then y, from -1 to 1 across src."""
    c, s = np.cos(angle), np.sin(angle)
    half_w, half_h = (width - 1) / 2, (height - 1) / 2
    y, x = np.mgrid[0:height, 0:width] - np.array([half_h, half_w])[:, None, None]
    scale = 1.0
    if zoom_in or zoom_out:  # by how much the bounding box of the rotated image is larger, at the edge where it is most
        larger = max((abs(c) * width + abs(s) * height) / width, (abs(s) * width + abs(c) * height) / height)
        scale = larger if zoom_out else 1 / larger
    return np.stack([(x * c - y * s) / max(half_w, 1), (x * s + y * c) / max(half_h, 1)]) * scale
