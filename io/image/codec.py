"""Encoded images to pixels and back: the one file that knows simplejpeg and OpenCV, which are optional.

What is damaged is refused, also where a decoder would fill the missing part with grey.
"""

from __future__ import annotations

import functools
import os
import struct
import zlib
from typing import Any

import numpy as np

from ...errors import FileError, MissingLibraryError, ParameterError
from .jpeg_header import JpegHeader, read_jpeg_header

MAX_PIXELS = 1 << 28  # a header may claim any size; more than this is refused before a byte is allocated
_PIXELS_PER_BYTE = 512  # of a JPEG at most: each block of 64 takes a bit or more
_INFLATION = 1032  # deflate makes at most so many bytes of one
_OF_A_BYTE = 4096  # pixels that other forms may make of one byte: they could make more of one colour, but no photograph does
_SMALL = 1 << 24  # pixels that are decoded whatever the file's length
_PNG = b"\x89PNG\r\n\x1a\n"


@functools.cache
def opencv(name: str) -> Any:
    """The cv2 module, for the function called name. Raises MissingLibraryError that says how to install it."""
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MAX_PIXELS))  # read when it is first imported
    try:
        import cv2
    except ImportError:
        raise MissingLibraryError(f'{name}: images need OpenCV. Install it with pip install "tritium[image]".') from None
    cv2.setNumThreads(1)  # our threads decode; OpenCV's own would compete with them, and hang in a forked child
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)  # what it cannot read, our errors tell, with a name
    return cv2


@functools.cache
def simplejpeg(name: str) -> Any:
    """The simplejpeg module, as `opencv` gives cv2."""
    try:
        import simplejpeg
    except ImportError:
        raise MissingLibraryError(f'{name}: JPEG images need simplejpeg. Install it with '
                                  f'pip install "tritium[image]".') from None
    return simplejpeg


def check_libraries(name: str) -> None:
    """Raises MissingLibraryError, for the function called name, unless images of every kind can be decoded."""
    for library in (opencv, simplejpeg):
        library(name)


def decode(data: bytes, channels: int = 3, upright: bool = False) -> np.ndarray:
    """The pixels of an encoded image, uint8[height, width, channels], red first.

    channels:  1 grey, 3 colour (alpha is dropped), 4 colour and alpha, which the image must have.
    upright:   turn a JPEG as its camera's mark says: MXNet's record iterators and im2rec do, mx.image does not.
    Raises:    FileError saying what is wrong with the image: empty, of no known format, damaged, cut short, too large.
    """
    if channels not in (1, 3, 4):
        raise ParameterError(f"imdecode: {channels} channels. Give 1, 3 or 4.")
    if not len(data):
        raise FileError("the image is empty (0 bytes)")
    if data[:2] == b"\xff\xd8":
        return _jpeg(data, channels, upright)
    check_whole(data)
    return _opencv_pixels(data, channels)


def _jpeg(data: bytes, channels: int, upright: bool) -> np.ndarray:
    jpeg = simplejpeg("imdecode")
    try:
        height, width, colours, orientation = _head(data)
        _bound(width, height)
        if height * width > max(_SMALL, _PIXELS_PER_BYTE * len(data)):
            raise FileError(f"the image claims {width:,} x {height:,} pixels, which {len(data):,} bytes of JPEG cannot hold")
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


def _head(data: bytes) -> JpegHeader:
    """The head of a JPEG. Raises ValueError where it has none."""
    head = read_jpeg_header(data)  # the library gives up Python's lock to read it, and to take that again costs more than to read
    if head is None:
        height, width, space, _ = simplejpeg("imdecode").decode_jpeg_header(data)  # odd: the library finds it, or says why not
        head = JpegHeader(height, width, {"Gray": 1, "CMYK": 4, "YCCK": 4}.get(space, 3), 1)
    return head


def _upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Pixels [height, width, channels] as they were seen, of a camera held as Exif's orientation says."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def check_whole(data: bytes) -> None:
    """Raises FileError where the frame of an image that is not a JPEG says that it is cut short, damaged or too large."""
    if data[:8] == _PNG:
        _check_png(data)
    elif data[:2] == b"BM":
        size = int.from_bytes(data[2:6], "little")
        if size > len(data):
            raise FileError(f"the BMP image is cut short: it takes {size:,} bytes, {len(data):,} are there")
        if len(data) >= 26:
            old = data[14:18] == b"\x0c\0\0\0"  # OS/2's head
            _justified(data, "BMP", *map(abs, struct.unpack_from("<HH" if old else "<ii", data, 18)))
    elif data[:4] == b"RIFF":
        size = int.from_bytes(data[4:8], "little") + 8
        if size > len(data):
            raise FileError(f"the WebP image is cut short: it takes {size:,} bytes, {len(data):,} are there")
        _justified(data, "WebP", *_webp_size(data))
    elif data[:3] == b"GIF" and len(data) >= 10:
        _justified(data, "GIF", *struct.unpack_from("<HH", data, 6))
    elif data[:4] in _TIFF_ORDERS:
        _justified(data, "TIFF", *_tiff_size(data))


_TIFF_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_TIFF_NUMBERS = {1: "B", 3: "H", 4: "I"}  # by the type of a field


def _webp_size(data: bytes) -> tuple[int, int]:
    """Width and height of a WebP (RFC 9649), 0 and 0 where they cannot be read."""
    kind, head = data[12:16], data[20:30]
    if len(head) < 10:
        return 0, 0
    if kind == b"VP8X":
        return int.from_bytes(head[4:7], "little") + 1, int.from_bytes(head[7:10], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(head[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(head[6:8], "little") & 0x3FFF, int.from_bytes(head[8:10], "little") & 0x3FFF


def _tiff_size(data: bytes) -> tuple[int, int]:
    """Width and height of the first image of a TIFF 6.0 file, 0 and 0 where they cannot be read."""
    order, found = _TIFF_ORDERS[bytes(data[:4])], {}
    at = struct.unpack_from(f"{order}I", data, 4)[0] if len(data) >= 8 else len(data)
    count = struct.unpack_from(f"{order}H", data, at)[0] if at + 2 <= len(data) else 0
    for field in range(at + 2, min(at + 2 + 12 * count, len(data) - 11), 12):
        tag, kind = struct.unpack_from(f"{order}HH", data, field)
        if tag in (0x100, 0x101) and kind in _TIFF_NUMBERS:
            found[tag] = struct.unpack_from(f"{order}{_TIFF_NUMBERS[kind]}", data, field + 8)[0]
    return found.get(0x100, 0), found.get(0x101, 0)


def decode_as_stored(data: bytes) -> np.ndarray:
    """The pixels of an image that is no JPEG, channels and depth as stored, blue first. Raises FileError."""
    check_whole(data)
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
    """Every chunk of a PNG is whole and has its checksum, so that no decoder has to guess."""
    at, kind = 8, b""
    while kind != b"IEND":
        if at + 12 > len(data):
            raise FileError(f"the PNG image of {len(data):,} bytes is cut short at byte {at:,}")
        length, kind = int.from_bytes(data[at:at + 4], "big"), bytes(data[at + 4:at + 8])
        end = at + 12 + length
        if end > len(data):
            raise FileError(f"the PNG image is cut short: its part {kind!r} ends at byte {end:,}, {len(data):,} are there")
        if zlib.crc32(data[at + 4:end - 4]) != int.from_bytes(data[end - 4:end], "big"):
            raise FileError(f"the PNG image is damaged: its part {kind!r} at byte {at:,} fails its checksum")
        if at == 8:
            height, width = int.from_bytes(data[20:24], "big"), int.from_bytes(data[16:20], "big")
            _bound(width, height)
            depth = data[24] * {2: 3, 4: 2, 6: 4}.get(data[25], 1)  # bits of a pixel
            if height * width > _SMALL and height * width * depth // 8 > _INFLATION * len(data):
                raise FileError(f"the image claims {width:,} x {height:,} pixels, which {len(data):,} bytes of PNG cannot hold")
        at = end


def _justified(data: bytes, form: str, width: int, height: int) -> None:
    _bound(width, height)
    if height * width > max(_SMALL, _OF_A_BYTE * len(data)):
        raise FileError(f"the image claims {width:,} x {height:,} pixels, which is too much for {len(data):,} bytes of {form}")


def _bound(width: int, height: int) -> None:
    if height * width > MAX_PIXELS:
        raise FileError(f"the image claims {width:,} x {height:,} pixels; at most {MAX_PIXELS:,} are decoded")


def encode(pixels: np.ndarray, quality: int, form: str) -> bytes:
    """The bytes of an image, pixels uint8[height, width] or [height, width, 1, 3 or 4], red first.

    form:     ".jpg" or ".png".
    quality:  of a JPEG 1 to 100; of a PNG, compression 0 to 9.
    """
    cv2 = opencv("imencode")
    option = {".jpg": cv2.IMWRITE_JPEG_QUALITY, ".jpeg": cv2.IMWRITE_JPEG_QUALITY, ".png": cv2.IMWRITE_PNG_COMPRESSION}
    if form not in option:
        raise ParameterError(f"imencode: the format {form!r} is not one of {', '.join(option)}.")
    colours = 1 if pixels.ndim == 2 else pixels.shape[2]
    turned = {1: None, 3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}[colours]
    done, encoded = cv2.imencode(form, pixels if turned is None else cv2.cvtColor(pixels, turned), [option[form], quality])
    if not done:
        raise FileError(f"imencode: {pixels.dtype}{list(pixels.shape)} cannot be written as {form}.")
    return encoded.tobytes()


def stored_channels(data: bytes) -> int:
    """How many channels an encoded image has: 1, 3, or 4 where a PNG has colour and alpha."""
    if data[:2] == b"\xff\xd8":
        try:
            return 1 if _head(data).colours == 1 else 3
        except ValueError:
            return 3  # `decode` says what is wrong with it
    return {0: 1, 4: 1, 6: 4}.get(data[25], 3) if data[:8] == _PNG and len(data) > 25 else 3
