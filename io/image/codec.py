"""Encoded images to pixels and back. simplejpeg and OpenCV, which are optional, are imported here alone.

Damaged images are refused, also where a decoder would fill the missing part with grey.
"""

from __future__ import annotations

import functools
import os
import zlib
from typing import Any

import numpy as np

from ...errors import FileError, MissingLibraryError, ParameterError
from .image_header import PNG_MAGIC, JpegHeader, image_format, read_jpeg_header

FORMATS = (".jpg", ".jpeg", ".png")  # that `encode` writes
MAX_PIXELS = 1 << 28  # larger images are refused before memory is allocated
_PIXELS_PER_BYTE = 512  # of a JPEG at most: each block of 64 takes a bit or more
_INFLATION = 1032  # deflate expands a byte to at most so many
_MAX_PIXELS_PER_BYTE = 4096  # of other formats; a single colour could take fewer bytes, a photograph could not
_SMALL = 1 << 24  # pixels that are decoded however short the data are


@functools.cache
def opencv(name: str) -> Any:
    """Return the cv2 module. Raises MissingLibraryError, under the calling function's name, if it is not installed."""
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MAX_PIXELS))  # read when it is first imported
    try:
        import cv2
    except ImportError:
        raise MissingLibraryError(f'{name}: images need OpenCV. Install it with pip install "tritium[image]".') from None
    cv2.setNumThreads(1)  # our threads decode; OpenCV's own would compete with them, and hang in a forked child
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # our errors report what it cannot read
    return cv2


@functools.cache
def simplejpeg(name: str) -> Any:
    """Return the simplejpeg module, as `opencv` returns cv2."""
    try:
        import simplejpeg
    except ImportError:
        raise MissingLibraryError(f'{name}: JPEG images need simplejpeg. Install it with '
                                  f'pip install "tritium[image]".') from None
    return simplejpeg


def check_libraries(name: str) -> None:
    """Raise MissingLibraryError, under the calling function's name, unless images of all formats can be decoded."""
    for library in (opencv, simplejpeg):
        library(name)


def decode(data: bytes, channels: int = 3, upright: bool = False) -> np.ndarray:
    """Decode an image to uint8[height, width, channels], red first.

    channels:  1 grey, 3 colour (alpha is dropped), 4 colour and alpha, which the image must have.
    upright:   turn a JPEG as its orientation mark says: MXNet's record iterators and im2rec do, mx.image does not.
    Raises:    FileError for an image that is empty, damaged, truncated, too large or of an unknown format.
    """
    if channels not in (1, 3, 4):
        raise ParameterError(f"imdecode: {channels} channels. Give 1, 3 or 4.")
    if not len(data):
        raise FileError("the image is empty (0 bytes)")
    if data[:2] == b"\xff\xd8":
        return _decode_jpeg(data, channels, upright)
    check_complete(data)
    return _opencv_pixels(data, channels)


def _decode_jpeg(data: bytes, channels: int, upright: bool) -> np.ndarray:
    jpeg = simplejpeg("imdecode")
    try:
        height, width, colours, orientation = _jpeg_header(data)
        _check_size(data, "JPEG", height, width, _PIXELS_PER_BYTE * len(data))
        if colours == 4:
            jpeg.decode_jpeg(data, "CMYK")  # finds damage; the colours are OpenCV's, as MXNet's
            pixels = _opencv_pixels(data, channels)
        elif channels == 4:
            raise FileError(f"the image has {colours} channels, not 4")
        else:
            pixels = jpeg.decode_jpeg(data, "GRAY" if channels == 1 else "RGB")
        return _upright(pixels, orientation) if upright and orientation > 1 else pixels
    except ValueError as e:
        if isinstance(e, FileError):
            raise
        raise FileError(f"the JPEG image of {len(data):,} bytes is damaged: {str(e).strip().rstrip('.')}") from None


def _jpeg_header(data: bytes) -> JpegHeader:
    """Return the header of a JPEG. Raises ValueError if it has none."""
    header = read_jpeg_header(data)  # the library would release the GIL, and taking it again costs more than this
    if header is None or header.colours not in (1, 3, 4):
        height, width, space, _ = simplejpeg("imdecode").decode_jpeg_header(data)  # or its error says what is wrong
        header = JpegHeader(height, width, {"Gray": 1, "CMYK": 4, "YCCK": 4}.get(space, 3), 1)
    return header


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Turn and mirror pixels [height, width, channels] of this Exif orientation to how the camera saw them."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def check_complete(data: bytes) -> None:
    """Raise FileError if the headers of an image other than a JPEG show that it is truncated, damaged or too large."""
    if data[:8] == PNG_MAGIC:
        _check_png(data)
        return
    name, size = image_format(data)
    announced = (int.from_bytes(data[2:6], "little") if data[:2] == b"BM" else
                 int.from_bytes(data[4:8], "little") + 8 if data[:4] == b"RIFF" else 0)
    if announced > len(data):
        raise FileError(f"the {'BMP' if data[:2] == b'BM' else 'WebP'} image is cut short: it takes {announced:,} bytes and "
                        f"has {len(data):,}")
    if size is not None:
        _check_size(data, name, *size, _MAX_PIXELS_PER_BYTE * len(data))


def decode_as_stored(data: bytes) -> np.ndarray:
    """Decode an image other than a JPEG with channels and depth as stored, blue first. Raises FileError."""
    check_complete(data)
    return _imdecode(data, opencv("imdecode").IMREAD_UNCHANGED)


def _opencv_pixels(data: bytes, channels: int) -> np.ndarray:
    cv2 = opencv("imdecode")
    flag = {1: cv2.IMREAD_GRAYSCALE, 3: cv2.IMREAD_COLOR, 4: cv2.IMREAD_UNCHANGED}[channels]
    pixels = _imdecode(data, flag | cv2.IMREAD_IGNORE_ORIENTATION if channels < 4 else flag)
    if channels == 4:
        if pixels.ndim != 3 or pixels.shape[2] != 4 or pixels.dtype != np.uint8:
            raise FileError(f"the image is {pixels.dtype} with {1 if pixels.ndim == 2 else pixels.shape[2]} channels, "
                            f"not uint8 with 4")
        return cv2.cvtColor(pixels, cv2.COLOR_BGRA2RGBA)
    return pixels[:, :, None] if channels == 1 else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _imdecode(data: bytes, flag: int) -> np.ndarray:
    cv2 = opencv("imdecode")
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flag) if len(data) else None
    except cv2.error as e:
        raise FileError(f"the image of {len(data):,} bytes cannot be decoded: {' '.join(str(e).split())[:160]}") from None
    if pixels is None:
        raise FileError(f"these {len(data):,} bytes are not an image that can be read; they begin with {bytes(data[:8])!r}")
    return pixels


def _check_png(data: bytes) -> None:
    """Raise FileError unless every chunk of a PNG is complete and has the right checksum."""
    at, kind = 8, b""
    while kind != b"IEND":
        if at + 12 > len(data):
            raise FileError(f"the PNG image of {len(data):,} bytes is cut short at byte {at:,}")
        length, kind = int.from_bytes(data[at:at + 4], "big"), bytes(data[at + 4:at + 8])
        end = at + 12 + length
        if end > len(data):
            raise FileError(f"the PNG image is cut short: its chunk {kind!r} ends at byte {end:,} of {len(data):,}")
        if zlib.crc32(data[at + 4:end - 4]) != int.from_bytes(data[end - 4:end], "big"):
            raise FileError(f"the PNG image is damaged: its chunk {kind!r} at byte {at:,} has a wrong checksum")
        if at == 8:
            height, width = int.from_bytes(data[20:24], "big"), int.from_bytes(data[16:20], "big")
            bits = max(1, data[24] * {2: 3, 4: 2, 6: 4}.get(data[25], 1))  # of a pixel
            _check_size(data, "PNG", height, width, (8 * _INFLATION * len(data) + 7) // bits)
        at = end


def _check_size(data: bytes, form: str, height: int, width: int, max_pixels: int) -> None:
    """Raise FileError for an image of more than MAX_PIXELS, or of more than these bytes can hold."""
    if height * width > MAX_PIXELS:
        raise FileError(f"the image claims {width:,} x {height:,} pixels; at most {MAX_PIXELS:,} are decoded")
    if height * width > max(_SMALL, max_pixels):
        raise FileError(f"the image claims {width:,} x {height:,} pixels, which {len(data):,} bytes of {form} cannot hold")


def encode(pixels: np.ndarray, quality: int, form: str, blue_first: bool = False) -> bytes:
    """Encode pixels uint8[height, width] or [height, width, 1, 3 or 4], red first or blue first.

    form:     one of FORMATS.
    quality:  of a JPEG 1 to 100; of a PNG, compression 0 to 9.
    """
    cv2 = opencv("imencode")
    if form not in FORMATS:
        raise ParameterError(f"imencode: the format {form!r} is not one of {', '.join(FORMATS)}.")
    option = cv2.IMWRITE_PNG_COMPRESSION if form == ".png" else cv2.IMWRITE_JPEG_QUALITY
    colours = 1 if pixels.ndim == 2 else pixels.shape[2]
    if not blue_first and colours > 1:
        pixels = cv2.cvtColor(pixels, {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}[colours])
    done, encoded = cv2.imencode(form, pixels, [option, quality])
    if not done:
        raise FileError(f"imencode: {pixels.dtype}{list(pixels.shape)} cannot be written as {form}.")
    return encoded.tobytes()


def stored_channels(data: bytes) -> int:
    """Return the number of channels of an encoded image: 1, 3, or 4 for a PNG with alpha."""
    if data[:2] == b"\xff\xd8":
        try:
            return 1 if _jpeg_header(data).colours == 1 else 3
        except ValueError:
            return 3  # `decode` raises its error
    return {0: 1, 4: 1, 6: 4}.get(data[25], 3) if data[:8] == PNG_MAGIC and len(data) > 25 else 3
