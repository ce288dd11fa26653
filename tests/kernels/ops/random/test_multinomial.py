"""_sample_multinomial and _shuffle: frequencies, certain classes, log-probabilities, permutations, CPU and GPU alike."""

import itertools

import numpy as np
import pytest
from support.layer_helpers import TARGETS, backward, close, forward
from tritium.errors import ShapeError
from tritium.kernels import op as ops


def draw(p, target="cpu", seed=3, **params):
    return forward("_sample_multinomial", [p], target, random=(seed, 7), **params)


@pytest.mark.parametrize("target", TARGETS)
def test_frequencies(target):
    x = draw(np.array([0.1, 0.0, 0.7, 0.2], "f"), target, shape=(4000,))[0]
    counts = np.bincount(x, minlength=4)
    assert x.dtype == "int32" and counts[1] == 0 and np.abs(counts / 4000 - [0.1, 0, 0.7, 0.2]).max() < 0.03


@pytest.mark.parametrize("target", TARGETS)
def test_rows_scale_and_certainty(target):
    p = np.array([[[0, 0, 2], [5, 0, 0]], [[0, 3, 0], [0, 0, 1]]], "f")  # weights need not add up to 1
    assert draw(p, target)[0].tolist() == [[2, 0], [1, 2]]
    assert draw(p, target, shape=(2, 3), dtype="uint8")[0].shape == (2, 2, 2, 3)
    assert draw(p[0, 0], target)[0].tolist() == [2]


@pytest.mark.parametrize("target", TARGETS)
def test_probability_and_its_derivative(target, rng):
    p = rng.dirichlet(np.ones(5), 3).astype("f")
    index, log_p = draw(p, target, shape=(6,), get_prob=True)
    close(log_p, np.log(np.take_along_axis(p, index.astype(int), 1)))
    dy = rng.standard_normal((3, 6)).astype("f")
    want = np.zeros_like(p)
    for i, j in itertools.product(range(3), range(6)):
        want[i, index[i, j]] += dy[i, j] / p[i, index[i, j]]
    got = backward("_sample_multinomial", [p], [dy, dy], target, random=(3, 7), shape=(6,), get_prob=True)
    close(got[0], want)


@pytest.mark.parametrize("target", TARGETS)
def test_gpu_draws_the_same(target, rng):
    p = rng.dirichlet(np.ones(9), 4).astype("f")
    assert (draw(p, target, shape=(30,))[0] == draw(p, shape=(30,))[0]).all()
    x = rng.standard_normal((70, 3)).astype("f")
    assert (forward("_shuffle", [x], target, random=(1, 2))[0] == forward("_shuffle", [x], random=(1, 2))[0]).all()


@pytest.mark.parametrize("target", TARGETS)
def test_shuffle_keeps_every_row_whole(target):
    x = np.arange(300, dtype="f").reshape(100, 3)
    y = forward("_shuffle", [x], target, random=(9, 0))[0]
    assert (np.sort(y[:, 0]) == x[:, 0]).all() and (y - y[:, :1] == [0, 1, 2]).all() and (y != x).any()


def test_every_order_is_as_likely():
    counts = {}
    for seed in range(1800):
        y = tuple(forward("_shuffle", [np.array([1, 2, 3], "f")], random=(seed, 0))[0])
        counts[y] = counts.get(y, 0) + 1
    assert len(counts) == 6 and max(abs(c - 300) for c in counts.values()) < 75


def test_errors():
    op = ops.get("_sample_multinomial")
    with pytest.raises(ShapeError, match=r"_sample_multinomial: data \(3, 0\) has no classes"):
        op.infer_shape(op.parse({}), [(3, 0)])
