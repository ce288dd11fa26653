"""NumPy's functions on NDArrays: those with an operator run as it and are recorded, others return NumPy arrays. Oracle: NumPy."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium import autograd, nd
from tritium.ndarray.interop import numpy_protocol

X = np.array([[0.5, -0.25, 0.75], [0.125, 0.9, -0.5]], "float32")
UNARY = sorted({*numpy_protocol._FLOATS, *numpy_protocol._SAME}, key=lambda f: f.__name__)
REDUCED = [np.sum, np.mean, np.prod, np.max, np.min]


@pytest.mark.parametrize("f", UNARY, ids=lambda f: f.__name__)
def test_unary_ufuncs_are_operators(f, ctx):
    x = np.abs(X) + (1 if f is np.arccosh else 0)
    got = f(nd.array(x, ctx))
    assert isinstance(got, nd.NDArray) and got.ctx == ctx
    assert_close(got, f(x), scale=4)  # 4: several functions by another formula


@pytest.mark.parametrize("f", [*numpy_protocol._BINARY, *numpy_protocol._PAIRS], ids=lambda f: f.__name__)
def test_binary_ufuncs_are_operators(f):
    x, y = (np.abs(X) + 0.1, np.abs(X[::-1].copy()) + 0.2)
    if f is np.matmul:
        y = y.T.copy()
    for a, b in ((nd.array(x), nd.array(y)), (nd.array(x), y), (x, nd.array(y))):
        got = f(a, b)
        assert isinstance(got, nd.NDArray)
        assert_close(got, f(x, y).astype("float32"), scale=4)
    if f is not np.matmul:
        assert_close(f(nd.array(x), 0.5), f(x, np.float32(0.5)).astype("float32"), scale=4)
        assert_close(f(0.5, nd.array(x)), f(np.float32(0.5), x).astype("float32"), scale=4)


@pytest.mark.parametrize("f", REDUCED, ids=lambda f: f.__name__)
def test_reductions(f):
    for axis in (0, 1, -1, (0, 1)):
        assert_close(f(nd.array(X), axis=axis), np.atleast_1d(f(X, axis=axis)))
        assert f(nd.array(X), axis=axis, keepdims=True).shape == f(X, axis=axis, keepdims=True).shape
    assert isinstance(f(nd.array(X)), nd.NDArray) and f(nd.array(X)).shape == (1,)


A, B = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12).reshape(2, 3)
CALLS = {
    "concatenate": lambda a, b: np.concatenate([a, b], axis=1), "stack": lambda a, b: np.stack([a, b], axis=-1),
    "transpose": lambda a, b: np.transpose(a), "axes": lambda a, b: np.transpose(a, (1, 0)),
    "reshape": lambda a, b: np.reshape(a, (3, 2)),
    "ravel": lambda a, b: np.ravel(a), "expand_dims": lambda a, b: np.expand_dims(a, 1),
    "squeeze": lambda a, b: np.squeeze(a[:1], 0),
    "swapaxes": lambda a, b: np.swapaxes(a, 0, 1), "clip": lambda a, b: np.clip(a, 1, 3), "where": lambda a, b: np.where(a, a, b),
    "dot": lambda a, b: np.dot(a, b.T), "tile": lambda a, b: np.tile(a, (2, 2)), "repeat": lambda a, b: np.repeat(a, 2, 1),
    "zeros_like": lambda a, b: np.zeros_like(a), "ones_like": lambda a, b: np.ones_like(a), "copy": lambda a, b: np.copy(a),
    "argmax": lambda a, b: np.argmax(a, axis=1), "argmin": lambda a, b: np.argmin(a, 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_are_operators(name, ctx):
    got = CALLS[name](nd.array(A, ctx), nd.array(B, ctx))
    want = CALLS[name](A, B)
    assert isinstance(got, nd.NDArray) and got.shape == want.shape and np.allclose(got.asnumpy(), want)


@pytest.mark.filterwarnings("ignore:'where' used without 'out'")  # here it leaves nothing out; NumPy 2.4 on warns in any case
@pytest.mark.parametrize("call", [
    lambda a, b: np.std(a), lambda a, b: np.linalg.norm(a), lambda a, b: np.allclose(a, b), lambda a, b: np.add.reduce(a),
    lambda a, b: np.sum(a, axis=0, dtype="float64"), lambda a, b: np.concatenate([a, np.zeros((1, 3))]),
    lambda a, b: np.cumsum(a, axis=1), lambda a, b: np.median(a), lambda a, b: np.exp(a, where=np.ones((2, 3), bool)),
    lambda a, b: np.array_equal(a, b), lambda a, b: np.isnan(a), lambda a, b: np.outer(a, b),
], ids=["std", "norm", "allclose", "reduce", "dtype", "mixed", "cumsum", "median", "where", "equal", "isnan", "outer"])
def test_other_functions_return_numpys_result(call):
    got, want = call(nd.array(A), nd.array(B)), call(A.astype("float32"), B.astype("float32"))
    assert not isinstance(got, nd.NDArray) and type(got) is type(want) and np.allclose(got, want)


def test_functions_are_recorded():
    x = nd.array(X)
    x.attach_grad()
    with autograd.record():
        y = np.sum(np.concatenate([np.exp(x), np.multiply(2, x)]), axis=0)
    y.backward()
    assert_close(x.grad, np.exp(X) + 2)


def test_out():
    a, out, host = nd.array(A), nd.zeros((2, 3)), np.zeros((2, 3), "float32")
    assert np.exp(a, out=out) is out and np.allclose(out.asnumpy(), np.exp(A))
    assert np.add(a, a, out=host) is host and np.allclose(host, 2 * A)
    assert np.isnan(a, out=out) is out and out.asnumpy().sum() == 0
    total = nd.zeros((1,))
    assert np.sum(a, out=total) is total and total.item() == 15


def test_functions_of_integers_have_fractional_results():
    got = np.exp(nd.array([0, 1], dtype="int32"))
    assert got.dtype is np.float32 and np.allclose(got.asnumpy(), [1, np.e])
    assert np.square(nd.array([2, 3], dtype="int32")).dtype is np.int32


def test_an_error_of_the_operator_is_not_hidden():
    with pytest.raises(mx.MXNetError, match="Concat"):
        np.concatenate([nd.ones((2, 3)), nd.ones((3, 4))], axis=0)


def test_asarray():
    a = nd.array(A)
    assert np.asarray(a).dtype == np.float32 and np.asarray(a, dtype="int64").dtype == np.int64
    assert np.array([a, a]).shape == (2, 2, 3)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(a, copy=False)


def test_clip_between_bounds_that_cross_is_numpys():
    a = np.array([-3.0, 0.0, 3.0], np.float32)
    assert np.clip(mx.nd.array(a), 1, -1).tolist() == np.clip(a, 1, -1).tolist()
