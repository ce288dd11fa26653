"""decode: every form of image that MXNet reads, and none that is damaged. Oracle: the pixels that were encoded; Pillow."""

import io
import random
import re
import struct
import sys
import zlib

import numpy as np
import pytest
import tritium as mx
from image_files import picture, write_pictures
from PIL import Image
from tritium.errors import FileError, MissingLibraryError, ParameterError
from tritium.inspection import inspect_file
from tritium.io.decode import decode, encode, opencv, simplejpeg

PIXELS = picture(3, 33, 47)


def by_pillow(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def test_png_of_every_kind():
    alpha = np.dstack([PIXELS, PIXELS[:, :, 1]])
    grey = PIXELS[:, :, 0]
    kinds = {"RGB": (Image.fromarray(PIXELS), PIXELS), "RGBA": (Image.fromarray(alpha, "RGBA"), PIXELS),
             "L": (Image.fromarray(grey), np.dstack([grey] * 3)),
             "1": (Image.fromarray(grey > 100), np.dstack([(grey > 100) * 255] * 3)),
             "I;16": (Image.fromarray(grey.astype(np.uint16) * 257), np.dstack([grey] * 3))}
    for name, (image, want) in kinds.items():
        assert np.array_equal(decode(by_pillow(image, "PNG")), want), name
    assert np.array_equal(decode(by_pillow(kinds["RGBA"][0], "PNG"), 4), alpha)
    assert np.array_equal(decode(by_pillow(kinds["L"][0], "PNG"), 1)[:, :, 0], grey)
    with pytest.raises(FileError, match="the image is uint8 with 3 channels, not uint8 with 4"):
        decode(by_pillow(kinds["RGB"][0], "PNG"), 4)


@pytest.mark.parametrize("form", ["BMP", "WEBP", "TIFF", "PPM"])
def test_other_forms(form):
    data = by_pillow(Image.fromarray(PIXELS), form, **({"lossless": True} if form == "WEBP" else {}))
    assert np.array_equal(decode(data), PIXELS)
    for cut in (len(data) // 2, len(data) - 40):
        with pytest.raises(FileError):
            decode(data[:cut])


@pytest.mark.parametrize("options", [{}, {"save_all": True, "append_images": [Image.fromarray(PIXELS[::-1])]}],
                         ids=["one", "several"])
def test_a_gif_gives_its_first_picture(options):
    data = by_pillow(Image.fromarray(PIXELS), "GIF", **options)
    assert np.array_equal(decode(data), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


def test_jpeg_of_every_kind():
    close = lambda a, b: np.abs(a.astype(int) - b).mean() < 4
    grey = Image.fromarray(PIXELS[:, :, 0])
    assert close(decode(by_pillow(grey, "JPEG")), np.dstack([PIXELS[:, :, 0]] * 3))
    assert close(decode(by_pillow(grey, "JPEG"), 1)[:, :, 0], PIXELS[:, :, 0])
    assert close(decode(by_pillow(Image.fromarray(PIXELS), "JPEG", progressive=True, quality=95)), PIXELS)
    cmyk = by_pillow(Image.fromarray(PIXELS).convert("CMYK"), "JPEG", quality=95)
    assert close(decode(cmyk), PIXELS)
    with pytest.raises(FileError, match="is damaged"):
        decode(cmyk[:-200])
    turned = Image.Exif()
    turned[0x0112] = 6
    assert decode(by_pillow(Image.fromarray(PIXELS), "JPEG", exif=turned)).shape == (33, 47, 3), "a camera's mark turns nothing"
    assert decode(by_pillow(Image.fromarray(PIXELS), "PNG", exif=turned)).shape == (33, 47, 3)
    assert decode(encode(PIXELS[:1, :1], 90, ".jpg")).shape == (1, 1, 3)
    with pytest.raises(FileError, match="the image has 3 channels, not 4"):
        decode(encode(PIXELS, 90, ".jpg"), 4)


@pytest.mark.parametrize("form", [".jpg", ".png"])
def test_cut_anywhere_it_is_refused(form):
    data = encode(PIXELS, 90 if form == ".jpg" else 1, form)
    for cut in [*range(30), *range(30, len(data) - 12, 41), len(data) - 12]:
        with pytest.raises(FileError):
            decode(data[:cut])


def test_a_bit_of_a_png_that_is_wrong_is_found_and_of_a_jpeg_never_ends_the_process():
    rng = random.Random(0)
    png, jpeg = encode(PIXELS, 1, ".png"), encode(PIXELS, 90, ".jpg")
    found = 0
    with pytest.raises(FileError, match=r"its part b'IDAT' at byte \d+ fails its checksum"):
        decode(png[:-30] + bytes([png[-30] ^ 4]) + png[-29:])
    for _ in range(300):
        data = bytearray(png)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(FileError):
            decode(bytes(data))
        data = bytearray(jpeg)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            decode(bytes(data))
        except FileError:
            found += 1
    assert found > 30, "a JPEG has no checksum: what still is one, is taken"


@pytest.mark.parametrize("data, message", [
    (b"", r"^the image is empty \(0 bytes\)$"),
    (b"Dear reader, this is text", "these 25 bytes are not an image that can be read; they begin with b'Dear rea'"),
    (bytes(1000), "these 1,000 bytes are not an image"), (b"\xff\xd8\xff", "the JPEG image of 3 bytes is damaged"),
    (b"BM" + struct.pack("<I", 900) + bytes(60), "the BMP image is cut short: it takes 900 bytes, 66 are there"),
    (b"RIFF" + struct.pack("<I", 900) + b"WEBP", "the WebP image is cut short: it takes 908 bytes, 12 are there"),
])
def test_what_is_no_image_is_named(data, message):
    with pytest.raises(FileError, match=message):
        decode(data)


def test_a_size_is_checked_before_memory_is_taken():
    head = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    jpeg = bytearray(encode(PIXELS, 90, ".jpg"))
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5:at + 9] = struct.pack(">HH", 60000, 60000)
    for data in (png, bytes(jpeg)):
        with pytest.raises(FileError, match="the image claims 60,000 x 60,000 pixels; at most 268,435,456 are decoded"):
            decode(data)


def test_misuse_is_named():
    with pytest.raises(ParameterError, match=r"^imdecode: 2 channels\. Give 1, 3 or 4\.$"):
        decode(b"x", 2)
    with pytest.raises(ParameterError, match=r"^imencode: the format '\.gif' is not one of \.jpg, \.jpeg, \.png\.$"):
        encode(PIXELS, 9, ".gif")


@pytest.mark.parametrize("form", [".jpg", ".png"])
def test_a_size_that_the_bytes_cannot_hold_is_refused_before_memory_is_taken(form):
    data = bytearray(encode(PIXELS, 90, form))
    if form == ".jpg":
        at = data.index(b"\xff\xc0")
        data[at + 5:at + 9] = struct.pack(">HH", 16000, 16000)
    else:
        data[16:24] = struct.pack(">II", 16000, 16000)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    with pytest.raises(FileError, match=rf"claims 16,000 x 16,000 pixels, which {len(data):,} bytes of (JPEG|PNG) cannot hold"):
        decode(bytes(data))


@pytest.mark.parametrize("data", [
    b"GIF89a" + struct.pack("<HH", 65535, 65535) + bytes(90),
    b"BM" + struct.pack("<IIIIii", 26, 0, 26, 40, 65535, -65535),
    b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<IB", 10, 0) + bytes(3) + b"\xfe\xff\x00" * 2,
    b"P6 65535 65535 255\n" + bytes(90),
], ids=["GIF", "BMP", "WebP", "PPM"])
def test_other_heads_that_claim_too_much_are_refused(data):
    with pytest.raises(FileError, match=r"claims 65,535 x 65,535 pixels|cannot be decoded: .*MAX_IMAGE_PIXELS|are not an image"):
        decode(data)


def pieces(data):
    """Damage in the middle of a JPEG, as cut transfers and lost sectors leave it; data of 3,000 bytes or more."""
    half = len(data) // 2
    yield "cut, and ended", data[:half] + b"\xff\xd9"
    yield "cut, and filled", data[:half] + bytes(len(data) - half)
    yield "cut, filled and ended", data[:half] + bytes(len(data) - half - 2) + b"\xff\xd9"
    yield "cut, and begun again", data[:half] + data
    yield "a gap", data[:half] + data[half + 700:]
    yield "no end", data[:-2]


KINDS = {"baseline": {}, "progressive": {"progressive": True}, "restarts": {"restart_marker_blocks": 4},
         "optimised": {"optimize": True, "subsampling": 2}}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_jpeg_is_never_grey_below(rng, options):
    pixels = (picture(5, 120, 160) // 2 + rng.integers(0, 60, (120, 160, 3))).astype(np.uint8)
    data = by_pillow(Image.fromarray(pixels), "JPEG", **options)
    decode(data)
    for what, damaged in pieces(data):
        with pytest.raises(FileError, match=r"^the JPEG image of [\d,]+ bytes is damaged: .+"):
            raise FileError(f"{what} was taken: {decode(damaged).shape}")


def test_nothing_is_said_beside_the_error(capfd):
    avif, gif = by_pillow(Image.fromarray(PIXELS), "AVIF"), by_pillow(Image.fromarray(PIXELS), "GIF")
    for data in (avif, gif):
        with pytest.raises(FileError):
            decode(data[:len(data) // 2])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("missing, form", [("cv2", ".png"), ("simplejpeg", ".jpg")])
@pytest.mark.parametrize("read", [mx.image.ImageIter, mx.io.ImageRecordIter, inspect_file], ids=lambda read: read.__name__)
def test_a_missing_library_is_no_damage(tmp_path, monkeypatch, read, missing, form):
    """Nothing passes over good images because they cannot be decoded here."""
    path = tmp_path / "a.rec"
    write_pictures(path, 5, form=form)
    monkeypatch.setitem(sys.modules, missing, None)
    opencv.cache_clear()
    simplejpeg.cache_clear()
    text = r'need (OpenCV|simplejpeg)\. Install it with pip install "tritium\[image\]"\.'
    if read is inspect_file:
        (problem,) = inspect_file(path, decoding=True).problems
        assert re.search(text, problem) and not inspect_file(path).problems
        return
    with pytest.raises(MissingLibraryError, match=text):
        next(read(path_imgrec=path, data_shape=(3, 40, 50), batch_size=2, on_error="skip"))
