"""imrotate and random_rotate: results of MXNet 1.9.1 (mxnet_det_image.npz), exact quarter turns, refusals."""

from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import DTypeError, ParameterError, ShapeError

GIVEN = {k: v for k, v in np.load(Path(__file__).with_name("mxnet_det_image.npz")).items() if k.startswith("rotate.")}
SRC = GIVEN["rotate.src"]


@pytest.mark.parametrize("zoom", [(0, 0), (1, 0), (0, 1)])
def test_angles_and_zooms_as_mxnet(zoom):
    for angle in (0, 30, -45, 90, 200.5):
        got = mx.image.imrotate(mx.nd.array(SRC[0]), angle, *map(bool, zoom))
        assert_close(got, GIVEN[f"rotate.{angle}.{zoom[0]}.{zoom[1]}"], scale=10)  # MXNet computes its grid in float32
    got = mx.image.imrotate(mx.nd.array(SRC), mx.nd.array([33, -70]), *map(bool, zoom))
    assert_close(got, GIVEN[f"rotate.batch.{zoom[0]}.{zoom[1]}"], scale=10)


def test_random_angles_as_mxnet():
    np.random.seed(3)
    assert_close(mx.image.random_rotate(mx.nd.array(SRC[0]), (-30, 50)), GIVEN["rotate.random"], scale=10)
    batch = mx.image.random_rotate(mx.nd.array(SRC), (-30, 50))
    assert_close(batch, GIVEN["rotate.random_batch"], scale=10)
    assert not np.allclose(batch.asnumpy()[0], mx.image.imrotate(mx.nd.array(SRC[0]), 10).asnumpy())


def test_quarter_turns_of_a_square(rng):
    x = rng.random((3, 9, 9)).astype("f")
    for turns in range(4):
        want = np.rot90(x, turns, axes=(1, 2))
        assert_close(mx.image.imrotate(mx.nd.array(x), 90 * turns), want, scale=100)  # sin(180 degrees) is not quite 0


@pytest.mark.parametrize("call, error, message", [
    (lambda x: mx.image.imrotate(x, 3, True, True), ParameterError, "^imrotate: zoom_in and zoom_out are both True"),
    (lambda x: mx.image.imrotate(x.astype("uint8"), 3), DTypeError, r"^imrotate: src is uint8\[2,7,10\]@cpu\(0\)\. Convert it"),
    (lambda x: mx.image.imrotate(x[0], 3), ShapeError, r"^imrotate: src is float32\[7,10\]@cpu\(0\)\. Give \[channels"),
    (lambda x: mx.image.imrotate(x, mx.nd.array([1, 2])), ShapeError, r"^imrotate: \[2\] angles for src float32\[2,7,10\]"),
    (lambda x: mx.image.imrotate(mx.nd.array(SRC), mx.nd.array([1, 2, 3])), ShapeError, r"^imrotate: \[3\] angles for src"),
])
def test_misuse_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(mx.nd.array(SRC[0]))
