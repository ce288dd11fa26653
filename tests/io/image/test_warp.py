"""warp_affine: digests of the pixels of MXNet 1.9.1's ImageRecordIter; shifts by whole pixels are slices."""

import hashlib

import cv2
import numpy as np
import pytest
import tritium as mx
from hypothesis import given
from hypothesis import strategies as st
from support.image_files import picture, write_pictures
from tritium.io.image.record_augmenter import warp_affine

# of write_pictures(path, 4, 60, 80, ".png"), data_shape (3 or 1, 36, 40), as uint8, recorded with MXNet 1.9.1
DIGESTS = [
    ({"rotate": 17}, "cce6c4184a0467cf", "f0e847e44f352b5d"),
    ({"rotate": 90}, "1ad9af95013f4bad", "e65dc1c16bcca80e"),
    ({"rotate": 133, "fill_value": 7}, "182d8a097130ec25", "2f4bf5d72d5111c6"),
    ({"rotate": 200, "inter_method": 3}, "2d515823b0784236", "23a09bd5c369c9ac"),
    ({"rotate": 33, "inter_method": 4}, "b9c7eb033817bed5", "d3ede2c134eb9da1"),
    ({"min_random_scale": 0.7, "max_random_scale": 0.7}, "efc014c4de86a188", "52d400b0a187ea7c"),
    ({"min_random_scale": 1.3, "max_random_scale": 1.3, "rotate": 5}, "326ecef58205bb26", "76bf4ca1c604cc75"),
    ({"min_random_scale": 1.3, "max_random_scale": 1.3, "min_img_size": 70.0, "max_img_size": 90.0}, "c0f9f7984c64d244",
     "94e08f1de7017c0d"),
    ({"min_aspect_ratio": 1.2, "max_aspect_ratio": 1.2, "pad": 3}, "d48c2a2e75304156", "3494f521ba22ab81"),
]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "pictures.rec"
    write_pictures(path, 4, 60, 80, ".png")
    return path


@pytest.mark.parametrize(("more", "colour", "grey"), DIGESTS, ids=lambda p: ",".join(p) if isinstance(p, dict) else "")
def test_pixels_are_mxnets_to_the_bit(pictures, more, colour, grey):
    for channels, digest in ((3, colour), (1, grey)):
        with mx.io.ImageRecordIter(path_imgrec=pictures, data_shape=(channels, 36, 40), batch_size=4, **more) as it:
            made = next(it).data[0].asnumpy().astype(np.uint8)
        assert hashlib.sha256(made.tobytes()).hexdigest()[:16] == digest


@given(st.integers(-12, 12), st.integers(-12, 12), st.integers(1, 15), st.integers(1, 15), st.sampled_from([0, 1, 2, 3, 4]))
def test_a_shift_by_whole_pixels_is_a_slice(x, y, width, height, method):
    pixels = picture(3, 9, 11)
    want = np.full((40, 40, 3), 99, np.uint8)
    want[12 + y:21 + y, 12 + x:23 + x] = pixels
    made = warp_affine(cv2, pixels, np.array([[1, 0, x], [0, 1, y]], np.float32), width, height, method, 99)
    assert np.array_equal(made, want[12:12 + height, 12:12 + width])


def test_a_singular_matrix_shows_the_first_pixel():
    pixels = picture(1, 5, 6)
    for matrix in ([[0, 0, 3], [0, 0, 3]], [[1, 2, 3], [2, 4, 1]]):
        assert (warp_affine(cv2, pixels, np.array(matrix, np.float32), 4, 3, 1, 0) == pixels[0, 0]).all()


def test_positions_far_outside_are_filled():
    matrix = np.array([[1e-9, 0, 1], [0, 1e-9, 1]], np.float32)
    made = warp_affine(cv2, picture(1, 5, 6), matrix, 4, 3, 1, 7)
    assert (np.delete(made.reshape(12, 3), 5, axis=0) == 7).all()
