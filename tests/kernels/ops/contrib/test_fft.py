"""contrib.fft, contrib.ifft. Oracle: the sums of the definition, a matrix product."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import ShapeError


def waves(d, sign):
    return np.exp(sign * 2j * np.pi * np.outer(np.arange(d), np.arange(d)) / d)


@pytest.mark.parametrize("shape", [(3, 5), (8,), (2, 1, 2, 6), (2, 1), (0, 4)])
def test_forth_and_back(shape, ctx, rng):
    x = rng.normal(size=shape)
    y = mx.nd.contrib.fft(mx.nd.array(x, ctx=ctx, dtype="float64"))
    want = x @ waves(shape[-1], -1)
    assert y.shape == (*shape[:-1], 2 * shape[-1])
    assert_close(y.asnumpy()[..., 0::2], want.real)
    assert_close(y.asnumpy()[..., 1::2], want.imag)
    assert_close(mx.nd.contrib.ifft(y).asnumpy() / shape[-1], x)


def test_ifft_takes_the_real_part(ctx, rng):
    x = rng.normal(size=(2, 8))
    want = ((x[:, 0::2] + 1j * x[:, 1::2]) @ waves(4, 1)).real
    assert_close(mx.nd.contrib.ifft(mx.nd.array(x, ctx=ctx, dtype="float64")), want)


@pytest.mark.parametrize("name", ["fft", "ifft"])
def test_gradients(name, ctx, rng):
    check_gradient(getattr(mx.nd.contrib, name), [rng.normal(size=(2, 6))], ctx, rng)


def test_odd_pairs_are_refused():
    with pytest.raises(ShapeError, match=r"_contrib_ifft: the last axis of data \(2, 3\) must hold pairs"):
        mx.nd.contrib.ifft(mx.nd.ones((2, 3)))
