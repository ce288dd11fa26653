"""`mx.nd.imdecode`: MXNet's first decoder, which gives the colours of an image as planes."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ParameterError, ShapeError
from ...ndarray import NDArray
from .ops import imdecode as decode_image


def imdecode(str_img: bytes, clip_rect: Sequence[int] = (0, 0, 0, 0), out: NDArray | None = None, index: int = 0,
             channels: int = 3, mean: NDArray | None = None) -> NDArray:
    """Decode an image to float32[channels, height, width], red first. New programs use mx.image.imdecode.

    clip_rect:  (x0, y0, x1, y1), the part to return; by default all.
    out:        written with the image: [channels, height, width], or [n, channels, height, width], of which image `index`.
    channels:   3, or 1 for gray.
    mean:       subtracted from the image: [channels, height, width].
    Raises:     FileError for a damaged image; ShapeError for a part outside the image, or an out of another shape.
    """
    if channels not in (1, 3):
        raise ParameterError(f"nd.imdecode: channels={channels} is not 1 or 3.")
    image = decode_image(str_img, int(channels == 3)).transpose((2, 0, 1)).astype("float32")
    x0, y0, x1, y1 = clip_rect
    if x1 - x0 or y1 - y0:
        if not (0 <= x0 < x1 <= image.shape[2] and 0 <= y0 < y1 <= image.shape[1]):
            raise ShapeError(f"nd.imdecode: clip_rect {tuple(clip_rect)} is not inside an image of width {image.shape[2]} and "
                             f"height {image.shape[1]}.")
        image = image[:, y0:y1, x0:x1]
    if mean is not None:
        image = image - mean
    if out is None:
        return image
    place = out[index] if len(out.shape) == 4 else out
    if place.shape != image.shape:
        raise ShapeError(f"nd.imdecode: out has room for {place.shape}, the image is {image.shape}.")
    place[:] = image
    return out
