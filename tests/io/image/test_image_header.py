"""JPEG headers: size, colours and orientation against Pillow's and the decoder's; unusual ones are left to the decoder."""

import io
import struct

import numpy as np
import pytest
from PIL import Image, ImageOps
from support.image_files import picture
from tritium.io.image.codec import decode
from tritium.io.image.image_header import read_jpeg_header

PICTURE = Image.fromarray(picture(3, 33, 47))


def by_pillow(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", **options)
    return out.getvalue()


def exif(value, *, order="<", kind=3, magic=42, directory=8):
    """Return an Exif segment with this orientation."""
    tiff = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", magic, directory) + bytes(directory - 8)
    return b"Exif\0\0" + tiff + struct.pack(f"{order}HHHIHH", 1, 0x112, kind, 1, value, 0) + bytes(4)


def with_segment(payload, marker=0xE1, data=None):
    """Return a JPEG with a segment inserted at its beginning."""
    data = by_pillow(PICTURE) if data is None else data
    return data[:2] + bytes([0xFF, marker]) + struct.pack(">H", len(payload) + 2) + payload + data[2:]


@pytest.mark.parametrize("mode, colours", [("L", 1), ("RGB", 3), ("CMYK", 4)])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"comment": b"x" * 999}, {"icc_profile": b"x" * 70_000}])
def test_size_and_colours(mode, colours, options):
    assert read_jpeg_header(by_pillow(PICTURE.convert(mode), **options)) == (33, 47, colours, 1)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_turned_upright_as_pillow_turns_it(orientation, order, mode):
    data = by_pillow(PICTURE.convert(mode), exif=exif(orientation, order=order))
    head = read_jpeg_header(data)
    assert head is not None and head.orientation == orientation
    seen = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert(mode)).astype(int)
    got = decode(data, 1 if mode == "L" else 3, upright=True)
    assert np.abs(got.reshape(seen.shape) - seen).max() <= 3
    assert decode(data).shape == (33, 47, 3), "by default nothing is turned"


@pytest.mark.parametrize("payload, orientation", [
    (exif(0), 1), (exif(9), 1), (exif(6, magic=43), 1), (exif(6, directory=20), 1), (exif(6)[:24], 1), (exif(6)[:8], 1), (b"", 1),
    (b"http://ns.adobe.com/xap/1.0/\0<x/>", 1), (exif(6, kind=4), 6), (exif(6) + b"more", 6),
])
def test_invalid_orientation_marks_are_read_as_in_mxnet(payload, orientation):
    """The second segment has orientation 3: only the first one counts."""
    head = read_jpeg_header(with_segment(payload, data=with_segment(exif(3))))
    assert head == (33, 47, 3, orientation)


def test_other_segments_are_skipped():
    assert read_jpeg_header(with_segment(exif(6), 0xE2)) == (33, 47, 3, 1)
    assert read_jpeg_header(with_segment(exif(6), data=with_segment(b"x", 0xFE))) == (33, 47, 3, 6)
    filled = by_pillow(PICTURE)
    assert read_jpeg_header(filled[:2] + b"\xff" * 5 + filled[2:]) == (33, 47, 3, 1)


@pytest.mark.parametrize("cut", [0, 2, 3, 11, 20, 150])
def test_an_incomplete_header_gives_none(cut):
    assert read_jpeg_header(by_pillow(PICTURE)[:cut]) is None
    assert read_jpeg_header(b"\xff\xd8" + bytes(cut)) is None
