"""Headers of encoded images, read without decoding: format and size; of a JPEG also colours and orientation."""

from __future__ import annotations

import struct
from typing import NamedTuple

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers SOF0 to SOF15; the three mean other segments
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})  # markers TEM and RST0 to RST7
_APP1, _FILL = 0xE1, 0xFF
_EXIF = b"Exif\0\0"
_EXIF_ORDERS = {b"II*\0\x08\0\0\0": "<", b"MM\0*\0\0\0\x08": ">"}  # byte order by a TIFF header whose directory is at byte 8
_ORIENTATION = 0x112
_TIFF_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_TIFF_TYPES = {1: "B", 3: "H", 4: "I"}  # struct codes by the type of a field


class JpegHeader(NamedTuple):
    """height, width in pixels; colours: 1 grey, 3, or 4 for CMYK; orientation: 1 (upright) to 8, as in Exif."""

    height: int
    width: int
    colours: int
    orientation: int


def read_jpeg_header(data: bytes) -> JpegHeader | None:
    """Read the frame header of a JPEG; None where it is not as in ITU-T T.81 (B.1, B.2).

    The orientation is that of the first APP1 segment, if it is Exif's (CIPA DC-008), as OpenCV 3 and so MXNet read it.
    """
    at, orientation = 2, 0
    while at + 10 <= len(data) and data[at] == 0xFF:
        marker, stop = data[at + 1], at + 2 + int.from_bytes(data[at + 2:at + 4], "big")
        if marker in _FRAMES:
            height, width, colours = struct.unpack_from(">HHB", data, at + 5)
            return JpegHeader(height, width, colours, orientation or 1)
        if marker == _APP1 and not orientation:
            orientation = _orientation(data[at + 4:stop])
        at = at + 1 if marker == _FILL else at + 2 if marker in _WITHOUT_LENGTH else stop
    return None


def _orientation(segment: bytes) -> int:
    """Return the orientation in an APP1 segment, 1 to 8; 1 if it has no valid one."""
    order = _EXIF_ORDERS.get(segment[6:14])
    if segment[:6] != _EXIF or order is None:
        return 1
    tiff = segment[6:]
    count = int.from_bytes(tiff[8:10], "little" if order == "<" else "big")
    for at in range(10, min(10 + 12 * count, len(tiff) - 11), 12):
        tag, value = struct.unpack_from(f"{order}H6xH", tiff, at)
        if tag == _ORIENTATION:
            return value if 1 <= value <= 8 else 1
    return 1


def image_format(data: bytes) -> tuple[str, tuple[int, int] | None]:
    """Return the format of encoded data, by their first bytes, and (height, width), or None if the header has no size.

    JPEG: ITU T.81; PNG: RFC 2083; GIF89a; BMP of Windows and OS/2; WebP: RFC 9649; TIFF 6.0: its first image.
    """
    if data[:2] == b"\xff\xd8":
        header = read_jpeg_header(data)
        return ("JPEG", (header.height, header.width)) if header else ("JPEG without a frame", None)
    if data[:8] == PNG_MAGIC:
        return "PNG", (_swapped(struct.unpack_from(">II", data, 16)) if len(data) >= 24 else None)
    if data[:3] == b"GIF" and len(data) >= 10:
        return "GIF", _swapped(struct.unpack_from("<HH", data, 6))
    if data[:2] == b"BM" and len(data) >= 26:
        os2 = data[14:18] == b"\x0c\0\0\0"
        return "BMP", _swapped(struct.unpack_from("<HH" if os2 else "<ii", data, 18))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP", _webp_size(data)
    if data[:4] in _TIFF_ORDERS:
        return "TIFF", _tiff_size(data)
    return ("NumPy" if data[:6] == b"\x93NUMPY" else "bytes"), None


def _swapped(width_height: tuple[int, ...]) -> tuple[int, int]:
    width, height = width_height
    return abs(height), abs(width)


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind, header = data[12:16], data[20:30]
    if len(header) < 10:
        return None
    if kind == b"VP8X":
        return int.from_bytes(header[7:10], "little") + 1, int.from_bytes(header[4:7], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(header[1:5], "little")
        return (bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1
    return int.from_bytes(header[8:10], "little") & 0x3FFF, int.from_bytes(header[6:8], "little") & 0x3FFF


def _tiff_size(data: bytes) -> tuple[int, int] | None:
    order, sizes = _TIFF_ORDERS[bytes(data[:4])], {}
    at = struct.unpack_from(f"{order}I", data, 4)[0] if len(data) >= 8 else len(data)
    count = struct.unpack_from(f"{order}H", data, at)[0] if at + 2 <= len(data) else 0
    for field in range(at + 2, min(at + 2 + 12 * count, len(data) - 11), 12):
        tag, kind = struct.unpack_from(f"{order}HH", data, field)
        if tag in (0x100, 0x101) and kind in _TIFF_TYPES:
            sizes[tag] = struct.unpack_from(f"{order}{_TIFF_TYPES[kind]}", data, field + 8)[0]
    return (sizes[0x101], sizes[0x100]) if len(sizes) == 2 else None
