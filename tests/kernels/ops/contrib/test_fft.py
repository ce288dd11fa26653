"""contrib.fft, contrib.ifft. Oracle: the sums of the definition, a matrix product."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import ShapeError
from tritium.kernels.ops.contrib.fft import radices


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


@pytest.mark.parametrize("d", [2, 3, 16, 31, 77, 360, 521, pytest.param(1042, marks=pytest.mark.nightly)])
def test_lengths_of_every_kind_of_factors(d, ctx, rng):
    x = rng.normal(size=(2, d))
    y = mx.nd.contrib.fft(mx.nd.array(x, ctx=ctx, dtype="float64"))
    want = np.fft.fft(x)
    assert_close(y, np.stack([want.real, want.imag], -1).reshape(2, -1), scale=10)  # 10: sums of a thousand products
    assert_close(mx.nd.contrib.ifft(y).asnumpy() / d, x)


@pytest.mark.parametrize("d, dtype", [(60, "float16"), (60, "bfloat16"), (60, "float32"), (521, "float32")])
def test_every_float_dtype_is_computed_in_single_precision(d, dtype, ctx, rng):
    x = mx.nd.array(rng.integers(-3, 4, (2, d)), ctx=ctx).astype(dtype)
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.contrib.fft(x)
    head = mx.nd.array(rng.normal(size=y.shape), ctx=ctx).astype(dtype)
    y.backward(head)
    z, h = np.fft.fft(x.astype("float64").asnumpy()), head.astype("float64").asnumpy()
    assert y.dtype == x.grad.dtype == x.dtype
    eps = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6}[dtype]  # of the greatest element: the others are sums of such
    for got, want in ((y, np.stack([z.real, z.imag], -1).reshape(2, -1)),
                      (x.grad, (np.fft.ifft(h[:, 0::2] + 1j * h[:, 1::2], norm="forward")).real)):
        np.testing.assert_allclose(got.astype("float64").asnumpy(), want, rtol=0, atol=eps * np.abs(want).max())


def test_the_result_is_added(ctx, rng):
    x = mx.nd.array(rng.normal(size=(2, 6)), ctx=ctx, dtype="float64")
    grads = []
    for request in ("write", "add"):
        x.attach_grad(grad_req=request)
        x.grad[:] = 5
        with mx.autograd.record():
            y = mx.nd.contrib.fft(x)
        y.backward()
        grads.append(x.grad.asnumpy())
    assert_close(grads[1], grads[0] + 5)


def test_radices_multiply_to_the_length():
    assert radices(1024) == [16, 16, 4] and radices(1) == [1] and radices(7 * 2 * 521) == [521, 14]
    for d in range(1, 300):
        assert np.prod(radices(d)) == d
