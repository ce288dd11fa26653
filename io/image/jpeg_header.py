"""What stands at the front of a JPEG, read without decoding it: its size, its colours, and how the camera was held."""

from __future__ import annotations

import struct
from typing import NamedTuple

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # markers SOF0 to SOF15; the three are others
_APP1, _FILL = 0xE1, 0xFF
_EXIF = b"Exif\0\0"
_ORDERS = {b"II*\0\x08\0\0\0": "<", b"MM\0*\0\0\0\x08": ">"}  # of bytes, by a TIFF head whose directory stands at byte 8
_ORIENTATION = 0x112


class JpegHeader(NamedTuple):
    """height, width in pixels; colours: 1 grey, 3, or 4 for CMYK; orientation: 1 upright, to 8 as Exif counts."""

    height: int
    width: int
    colours: int
    orientation: int


def read_jpeg_header(data: bytes) -> JpegHeader | None:
    """The head of a JPEG, or None where its frame header is not where ITU-T T.81 (B.1, B.2) puts it.

    The orientation is that of the first APP1 segment, if it is Exif's (CIPA DC-008), as OpenCV 3 and so MXNet read it.
    """
    at, orientation = 2, 0
    while at + 10 <= len(data) and data[at] == 0xFF:
        kind, stop = data[at + 1], at + 2 + int.from_bytes(data[at + 2:at + 4], "big")
        if kind in _FRAMES:
            height, width, colours = struct.unpack_from(">HHB", data, at + 5)
            return JpegHeader(height, width, colours, orientation or 1) if colours in (1, 3, 4) else None
        if kind == _APP1 and not orientation:
            orientation = _orientation(data[at + 4:stop])
        at = at + 1 if kind == _FILL else stop
    return None


def _orientation(segment: bytes) -> int:
    """What an APP1 segment says, 1 to 8; 1 where it says nothing that can be."""
    order = _ORDERS.get(segment[6:14])
    if segment[:6] != _EXIF or order is None:
        return 1
    tiff = segment[6:]
    count = int.from_bytes(tiff[8:10], "little" if order == "<" else "big")
    for at in range(10, min(10 + 12 * count, len(tiff) - 11), 12):
        tag, value = struct.unpack_from(f"{order}H6xH", tiff, at)
        if tag == _ORIENTATION:
            return value if 1 <= value <= 8 else 1
    return 1
