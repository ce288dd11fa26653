"""The C function that writes an image into its row. Oracle: OpenCV's resize, and the formula in NumPy."""

import hashlib
import types

import cv2
import numpy as np
import pytest
import tritium as mx
from hypothesis import example, given
from hypothesis import strategies as st
from support.guard_pages import dies_of, guarded
from support.image_files import write_pictures
from tritium.io.image import to_batch_c
from tritium.io.image.to_batch_c import row_writer
from tritium.kernels.cpu import c_compile

needs_compiler = pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler here")
FACTORS = np.array([123.68, 0, -3, 1 / 58.4, 1, 2.5, 0.25, 0, -1], np.float32)


def expected(pixels, height, width, mirrored, dtype):
    planes = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR).transpose(2, 0, 1)
    planes = planes[:, :, ::-1] if mirrored else planes
    mean, factor, bias = FACTORS.reshape(3, 3, 1, 1)
    return planes if dtype == np.uint8 else (planes.astype(np.float32) - mean) * factor + bias


@needs_compiler
@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 60), st.integers(1, 60), st.booleans(), st.integers(0, 9))
@example(48, 36, 24, 18, False, 1)  # OpenCV has special code for exactly half
@example(9, 9, 9, 9, True, 0)
@example(1, 1, 5, 7, False, 0)
def test_pixels_are_opencvs_to_the_bit(old_h, old_w, height, width, mirrored, edge):
    noise = np.random.default_rng(old_h * 71 + old_w).integers(0, 256, (old_h + edge, old_w + edge, 3), np.uint8)
    pixels = noise[edge:, edge // 2:edge // 2 + old_w]
    for dtype in (np.uint8, np.float32):
        around = np.full((5, height, width), 77, dtype)
        assert row_writer()(pixels, around[1:4], mirrored, FACTORS)
        assert np.array_equal(around[1:4], expected(pixels, height, width, mirrored, dtype))
        assert (around[[0, 4]] == 77).all(), "it writes nothing outside the row"


@needs_compiler
@pytest.mark.parametrize("old", [(1, 1), (1, 2), (2, 3), (5, 4), (30, 41)])
def test_the_c_function_reads_no_bytes_after_the_pixels(old):
    pixels, write = np.ones((*old, 3), np.uint8), row_writer()

    def run():
        for height, width in ((1, 1), (7, 9), (64, 80)):
            for mirrored in (False, True):
                write(guarded(pixels), guarded(np.empty((3, height, width), np.float32)), mirrored, FACTORS)

    assert dies_of(run) == 0


@needs_compiler
def test_unsupported_arrays_are_left_unchanged():
    pixels, row = np.ones((4, 5, 3), np.uint8), np.zeros((3, 4, 5), np.uint8)
    for other in (pixels[::-1], pixels[:, ::2], pixels[:, :, ::-1], pixels[:, :, :1], pixels.transpose(1, 0, 2)):
        assert not row_writer()(other, row, False, FACTORS)
    assert not row_writer()(pixels, np.zeros((3, 4, 10), np.uint8)[:, :, ::2], False, FACTORS)
    assert not row.any()


@needs_compiler
def test_if_opencv_rounds_differently_the_c_function_is_not_used(monkeypatch):
    assert to_batch_c._checked_writer.__wrapped__() is not None
    other = types.SimpleNamespace(INTER_LINEAR=1, resize=lambda *a, **k: cv2.resize(*a, **k) ^ 1)
    monkeypatch.setattr(to_batch_c, "opencv", lambda name: other)
    assert to_batch_c._checked_writer.__wrapped__() is None


@pytest.mark.parametrize("more", [
    {}, {"random_resized_crop": True, "min_random_area": 0.1, "rand_mirror": True}, {"mirror": True, "resize": 30},
    {"max_crop_size": 24, "min_crop_size": 10, "rand_crop": True}, {"dtype": "uint8", "rand_crop": True, "rand_mirror": True},
    {"random_resized_crop": True, "min_random_area": 0.1, "inter_method": 10, "max_random_contrast": 0.5,
     "max_random_illumination": 9}, {"data_shape": (1, 24, 30), "random_resized_crop": True, "min_random_area": 0.1},
    {"random_resized_crop": True, "min_random_area": 0.1, "brightness": 0.3, "dtype": "int8"},
], ids=lambda more: ",".join(more) or "plain")
def test_epochs_are_the_same_without_it(tmp_path, monkeypatch, more):
    write_pictures(tmp_path / "a.rec", 9, 40, 50)
    digests = []
    for code in ("auto", "numpy"):
        monkeypatch.setenv("TRITIUM_CPU_CODE", code)
        it = mx.io.ImageRecordIter(path_imgrec=tmp_path / "a.rec", **{"data_shape": (3, 24, 30), "batch_size": 4, "mean_r": 9.5,
                                                                     "std_g": 7.3, "scale": 0.3, "seed": 3, **more})
        writer = it._loader.load.write_row._write_in_c
        grey_or_int8 = more.get("dtype") == "int8" or "data_shape" in more
        assert (writer is None) == (code == "numpy" or grey_or_int8 or row_writer() is None)
        digests.append(hashlib.sha256(b"".join(b.data[0].asnumpy().tobytes() for b in it)).hexdigest())
        it.close()
    assert digests[0] == digests[1]


def test_without_a_compiler_the_c_function_is_not_used(monkeypatch):
    monkeypatch.setattr(c_compile, "compiler", lambda: None)
    assert row_writer() is None
