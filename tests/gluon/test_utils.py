"""gluon.utils: parts of batches, the norm of gradients, files."""

import hashlib

import numpy as np
import pytest
import tritium as mx
from tritium.gluon import utils

X = mx.nd.array(np.arange(14).reshape(7, 2))


def test_split_data():
    assert [p.shape for p in utils.split_data(X, 3, even_split=False)] == [(3, 2), (2, 2), (2, 2)]
    assert [p.asnumpy().tolist() for p in utils.split_data(X[:2], 2, batch_axis=1)] == [[[0], [2]], [[1], [3]]]
    assert utils.split_data(X, 1)[0] is X
    with pytest.raises(ValueError, match=r"data with shape \(7, 2\) cannot be evenly split into 2 slices along axis 0"):
        utils.split_data(X, 2)


def test_split_and_load():
    parts = utils.split_and_load(X.asnumpy()[:6], [mx.cpu(0), mx.cpu(1)])
    assert [p.context for p in parts] == [mx.cpu(0), mx.cpu(1)]
    assert np.array_equal(np.concatenate([p.asnumpy() for p in parts]), X.asnumpy()[:6])
    assert utils.split_and_load(X, [mx.cpu(0)])[0] is X


def test_clip_global_norm():
    arrays = [mx.nd.ones((3, 3)), mx.nd.ones((7,), ctx=mx.cpu(1))]
    assert utils.clip_global_norm(arrays, 1.0) == pytest.approx(4)
    assert all(np.allclose(a.asnumpy(), 0.25) for a in arrays)
    assert utils.clip_global_norm(arrays, 5.0, check_isfinite=False).asnumpy() == pytest.approx([1])
    assert all(np.allclose(a.asnumpy(), 0.25) for a in arrays)
    with pytest.warns(UserWarning, match="nan or inf is detected"):
        utils.clip_global_norm([mx.nd.array([np.inf])], 1.0)
    with pytest.raises(AssertionError, match="no arrays were given"):
        utils.clip_global_norm([], 1.0)


def test_files(tmp_path):
    file = tmp_path / "f.bin"
    file.write_bytes(b"tritium")
    digest = hashlib.sha1(b"tritium").hexdigest()
    assert utils.check_sha1(file, digest) and not utils.check_sha1(file, "0" * 40)
    assert utils.download("https://host/f.bin", str(tmp_path), sha1_hash=digest) == str(file)
    with pytest.raises(ValueError, match="has another SHA-1"):
        utils.download("https://host/f.bin", str(tmp_path), sha1_hash="0" * 40)
    with pytest.raises(ValueError, match=r"g.bin does not exist, and nothing is fetched from the network. Get https://host/g.bin"):
        utils.download("https://host/g.bin", str(tmp_path))


def test_shape_is_known():
    assert utils.shape_is_known((2, 3)) and not utils.shape_is_known((0, 3)) and not utils.shape_is_known(None)
