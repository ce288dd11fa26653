"""decode: all formats that MXNet reads; damaged images are refused. Oracle: the pixels that were encoded; Pillow."""

import io
import random
import re
import struct
import sys
import zlib
from itertools import pairwise

import numpy as np
import pytest
import tritium as mx
from PIL import Image
from support.image_files import picture, write_pictures
from tritium.cli.inspect import inspect_file
from tritium.errors import FileError, MissingLibraryError, ParameterError
from tritium.io.image.codec import decode, encode, opencv, simplejpeg
from tritium.io.image.image_header import image_format

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
def test_a_gif_gives_its_first_image(options):
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
    assert decode(by_pillow(Image.fromarray(PIXELS), "JPEG", exif=turned)).shape == (33, 47, 3), "the mark is ignored"
    assert decode(by_pillow(Image.fromarray(PIXELS), "PNG", exif=turned)).shape == (33, 47, 3)
    assert decode(encode(PIXELS[:1, :1], 90, ".jpg")).shape == (1, 1, 3)
    with pytest.raises(FileError, match="the image has 3 channels, not 4"):
        decode(encode(PIXELS, 90, ".jpg"), 4)


@pytest.mark.parametrize("form", [".jpg", ".png"])
def test_a_truncated_image_is_refused(form):
    data = encode(PIXELS, 90 if form == ".jpg" else 1, form)
    for cut in [*range(30), *range(30, len(data) - 12, 41), len(data) - 12]:
        with pytest.raises(FileError):
            decode(data[:cut])


def test_a_flipped_bit_is_detected_in_a_png_and_never_crashes_in_a_jpeg():
    rng = random.Random(0)
    png, jpeg = encode(PIXELS, 1, ".png"), encode(PIXELS, 90, ".jpg")
    found = 0
    with pytest.raises(FileError, match=r"its chunk b'IDAT' at byte \d+ has a wrong checksum"):
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
    assert found > 30, "a JPEG has no checksum, so some damage gives another valid JPEG"


@pytest.mark.parametrize("data, message", [
    (b"", r"^the image is empty \(0 bytes\)$"),
    (b"Dear reader, this is text", "these 25 bytes are not an image that can be read; they begin with b'Dear rea'"),
    (bytes(1000), "these 1,000 bytes are not an image"), (b"\xff\xd8\xff", "the JPEG image of 3 bytes is damaged"),
    (b"BM" + struct.pack("<I", 900) + bytes(60), "the BMP image is cut short: it takes 900 bytes and has 66"),
    (b"RIFF" + struct.pack("<I", 900) + b"WEBP", "the WebP image is cut short: it takes 908 bytes and has 12"),
])
def test_data_that_are_not_an_image_are_named(data, message):
    with pytest.raises(FileError, match=message):
        decode(data)


def test_a_size_is_checked_before_memory_is_allocated():
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
def test_a_size_that_the_bytes_cannot_hold_is_refused_before_memory_is_allocated(form):
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
def test_other_headers_that_claim_too_much_are_refused(data):
    with pytest.raises(FileError, match=r"claims 65,535 x 65,535 pixels|cannot be decoded: .*MAX_IMAGE_PIXELS|are not an image"):
        decode(data)


def pieces(data):
    """Yield a JPEG of 3,000 bytes or more, damaged as by interrupted transfers and lost sectors.

    It is cut inside its longest scan: a progressive JPEG that ends between two scans is a valid, coarser image.
    """
    scans = [match.start() for match in re.finditer(b"\xff\xda", data)]
    half = max((stop - start, (start + stop) // 2) for start, stop in pairwise([*scans, len(data)]))[1]
    yield "cut, and ended", data[:half] + b"\xff\xd9"
    yield "cut, and filled", data[:half] + bytes(len(data) - half)
    yield "cut, filled and ended", data[:half] + bytes(len(data) - half - 2) + b"\xff\xd9"
    yield "cut, and begun again", data[:half] + data
    yield "a gap", data[:half] + data[half + 700:]
    yield "no end", data[:-2]


KINDS = {"baseline": {}, "progressive": {"progressive": True}, "restarts": {"restart_marker_blocks": 4},
         "optimised": {"optimize": True, "subsampling": 2}}


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_truncated_jpeg_is_never_filled_with_grey(rng, options):
    pixels = (picture(5, 120, 160) // 2 + rng.integers(0, 60, (120, 160, 3))).astype(np.uint8)
    data = by_pillow(Image.fromarray(pixels), "JPEG", **options)
    decode(data)
    for what, damaged in pieces(data):
        with pytest.raises(FileError, match=r"^the JPEG image of [\d,]+ bytes is damaged: .+"):
            raise FileError(f"{what} was taken: {decode(damaged).shape}")


def test_decoders_print_nothing_beside_the_error(capfd):
    avif, gif = by_pillow(Image.fromarray(PIXELS), "AVIF"), by_pillow(Image.fromarray(PIXELS), "GIF")
    for data in (avif, gif):
        with pytest.raises(FileError):
            decode(data[:len(data) // 2])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("missing, form", [("cv2", ".png"), ("simplejpeg", ".jpg")])
@pytest.mark.parametrize("read", [mx.image.ImageIter, mx.io.ImageRecordIter, inspect_file], ids=lambda read: read.__name__)
def test_a_missing_library_is_not_reported_as_damage(tmp_path, monkeypatch, read, missing, form):
    """Good images are not skipped because a library is missing."""
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


def webp_of_one_colour(width, height):
    """Return a complete image of any size in 34 bytes: each of its codes has one symbol of no bits (RFC 9649, 6.2.1)."""
    bits = (width - 1) | (height - 1) << 14 | sum(0b0001 << 35 + 4 * code for code in range(5))
    body = b"\x2f" + bits.to_bytes(13, "little")
    return b"RIFF" + struct.pack("<I", 26) + b"WEBPVP8L" + struct.pack("<I", len(body)) + body


def webp(width, height, kind):
    """Return the header of a WebP without its data: VP8 (lossy) or VP8X (extended)."""
    if kind == b"VP8 ":
        body = b"\x10\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height) + bytes(4)
    else:
        body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF" + struct.pack("<I", 12 + len(body)) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


def gif(width, height):
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x80\0\0" + bytes(6) + b"," + struct.pack("<4HB", 0, 0, 1, 1, 0) + \
        b"\x02\x02D\x01\0;"


def tiff(width, height, order="<"):
    fields = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8),
              (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, 1)]
    packed = b"".join(struct.pack(f"{order}HHI" + ("HH" if kind == 3 else "I"), tag, kind, n, *([v, 0] if kind == 3 else [v]))
                      for tag, kind, n, v in fields)
    return {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}IH", 8, len(fields)) + packed + bytes(4)


def bmp(width, height):
    """Return a BMP with run-length encoding and only a few pixels."""
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, 4, 0, 0, 2, 0) + bytes(8)
    return b"BM" + struct.pack("<IHHI", 66, 0, 0, 62) + head + b"\x05\x01\x00\x01"


def old_bmp(width, height):
    return b"BM" + struct.pack("<IHHI", 32, 0, 0, 26) + struct.pack("<IHHHH", 12, width, height, 1, 24) + bytes(6)


HEADS = {"WebP": webp_of_one_colour, "WebP, lossy": lambda w, h: webp(w, h, b"VP8 "),
         "WebP, extended": lambda w, h: webp(w, h, b"VP8X"), "GIF": gif, "BMP": bmp,
         "BMP, old": old_bmp, "TIFF": tiff, "TIFF, big end first": lambda w, h: tiff(w, h, ">")}


@pytest.mark.parametrize("form", HEADS)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_few_bytes_cannot_claim_a_huge_image(form, channels, monkeypatch):
    """It is refused before it is decoded."""
    monkeypatch.setattr(opencv("test"), "imdecode", None)
    for width, height in ((16383, 16383), (16383, 1100), (5000, 4000)):
        data = HEADS[form](width, height)
        assert len(data) < 130
        text = f"the image claims {width:,} x {height:,} pixels, which {len(data)} bytes of {form.split(',')[0]} cannot hold$"
        with pytest.raises(FileError, match=text):
            decode(data, channels)


@pytest.mark.parametrize("width, height", [(1, 1), (7, 300), (2000, 3)])
def test_a_small_image_of_a_few_bytes_is_decoded(width, height):
    assert decode(webp_of_one_colour(width, height)).shape == (height, width, 3)
    assert len(webp_of_one_colour(width, height)) == 34


@pytest.mark.parametrize("form", ["WEBP", "GIF", "TIFF", "BMP"])
@pytest.mark.parametrize("seed", range(8))
def test_sizes_are_read_from_headers(form, seed):
    """For all variants that Pillow writes."""
    chance = random.Random(seed)
    width, height = chance.randrange(1, 60), chance.randrange(1, 60)
    image = Image.fromarray(picture(seed, height, width)).convert(chance.choice(["RGB", "L"]))
    options = {"WEBP": {"lossless": chance.random() < 0.5, "exif": chance.choice([b"", b"Exif\0\0II*\0"])},
               "TIFF": {"compression": chance.choice(["tiff_lzw", "tiff_deflate", "raw"])}, "GIF": {}, "BMP": {}}[form]
    data = by_pillow(image, form, **options)
    assert image_format(data) == (form.replace("WEBP", "WebP"), (height, width))
    assert decode(data).shape == (height, width, 3)


@pytest.mark.parametrize("form", HEADS)
def test_truncated_headers_are_refused(form):
    """A header that is truncated or has changed bytes raises only FileError."""
    chance, whole = random.Random(form), HEADS[form](40, 30)
    for _ in range(60):
        data = bytearray(whole[:chance.randrange(4, len(whole) + 1)])
        for _ in range(chance.randrange(3)):
            data[chance.randrange(4, len(data) + 1) - 1] = chance.randrange(256)
        try:
            assert decode(bytes(data)).dtype == np.uint8
        except FileError:
            pass
