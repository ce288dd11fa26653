"""Python's operators. Oracle: NumPy; where MXNet differs, values read off MXNet 1.9.1."""

import operator

import numpy as np
import pytest
from support.helpers import assert_close
from tritium import autograd
from tritium import ndarray as nd
from tritium.context import cpu
from tritium.errors import ContextError, DTypeError, ShapeError

BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.mod, operator.pow, operator.floordiv]
COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
A = np.array([[1.5, 2.0, 3.0], [0.5, 7.25, 2.0]], "float32")


@pytest.mark.parametrize("op", BINARY, ids=lambda f: f.__name__)
@pytest.mark.parametrize("b", [2, 1.5, A[::-1].copy(), A[:1] + 1, A[:, :1] + 1, A[0], np.float64(3)],
                         ids=["int", "float", "same", "row", "column", "vector", "numpy scalar"])
def test_binary(op, b, ctx):
    x = nd.array(A, ctx)
    y = nd.array(b, ctx) if isinstance(b, np.ndarray) else b
    assert_close(op(x, y), op(A, np.asarray(b, "float32")))
    assert_close(op(y, x), op(np.asarray(b, "float32"), A))


@pytest.mark.parametrize("op", COMPARE, ids=lambda f: f.__name__)
def test_comparisons_keep_the_dtype(op, ctx):
    x = nd.array([1, 2, 3], ctx)
    for other in (2, nd.array([3, 2, 1], ctx), np.array([3, 2, 1])):
        got = op(x, other)
        want = op(np.array([1, 2, 3]), other.asnumpy() if isinstance(other, nd.NDArray) else other)
        assert got.dtype is np.float32 and np.array_equal(got.asnumpy(), want)


@pytest.mark.parametrize("op", [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.imod,
                                operator.ipow], ids=lambda f: f.__name__)
def test_in_place_writes_through(op, ctx):
    x = nd.array(A, ctx)
    view, y = x[1], x
    y = op(y, 2)
    y = op(y, nd.array([2, 3, 4], ctx))
    assert y is x
    want = op(op(A.copy(), 2), np.array([2, 3, 4], "float32"))
    assert_close(x, want)
    assert_close(view, want[1])


def test_in_place_with_itself_and_parts_of_itself():
    x = nd.array([1, 2, 3, 4])
    x += x
    assert x.tolist() == [2, 4, 6, 8]
    x *= x[1:2]
    assert x.tolist() == [8, 16, 24, 32]
    y = x[:2]
    y += x[1:3]  # overlaps, out of step
    assert x.tolist() == [24, 40, 24, 32]


def test_reflected_and_unary():
    x = nd.array([2.0, -4.0])
    assert (10 - x).tolist() == [8, 14] and (8 / x).tolist() == [4, -2] and (2 ** x).tolist() == [4, 0.0625]
    assert (-x).tolist() == [-2, 4] and abs(x).tolist() == [2, 4] and (+x) is x and (7 % x).tolist() == [1, -1]
    assert (-7 // nd.array([2.0])).item() == -4


def test_integers_truncate_scalars_and_quotients():
    x = nd.array([1, 2], dtype="int32")
    assert (x + 1.5).tolist() == [2, 3] and (x + 1.5).dtype is np.int32
    assert (nd.array([7, -7], dtype="int32") / 2).tolist() == [3, -3]
    assert (nd.array([7, -7], dtype="int32") // 2).tolist() == [3, -4]


def test_a_floored_quotient_is_whole_and_flat(ctx, rng):
    a, b = (rng.normal(size=500).astype("float32") * scale for scale in (300, 0.1))
    x, y = nd.array(a, ctx), nd.array(b, ctx)
    for v in (x, y):
        v.attach_grad()
    with autograd.record():
        z = x // y
    z.backward()
    assert np.array_equal(z.asnumpy(), a // b)
    assert not x.grad.asnumpy().any() and not y.grad.asnumpy().any()


def test_zeros_of_both_signs_are_two_scalars():
    x = nd.array([1.0])
    assert np.signbit((x * 0.0).asnumpy()).tolist() == [False]
    assert np.signbit((x * -0.0).asnumpy()).tolist() == [True]


def test_arithmetic_with_numpy_arrays():
    x = nd.array([1, 2])
    for got in (np.array([1, 1]) + x, np.add(np.array([1, 1]), x), x + np.array([1, 1])):
        assert isinstance(got, nd.NDArray) and got.tolist() == [2, 3]
    assert np.exp(nd.zeros((2,))).tolist() == [1, 1] and np.mean(x) == 1.5
    assert np.concatenate([x, x]).tolist() == [1, 2, 1, 2]
    assert np.asarray(x, dtype="int8").dtype == np.int8


@pytest.mark.parametrize("call, error, text", [
    (lambda x, ctx: x + nd.zeros((2, 4), ctx), ShapeError, "broadcast_add: shapes do not broadcast"),
    (lambda x, ctx: x + nd.zeros((2, 3), ctx, dtype="float64"), DTypeError, "elemwise_add: inputs disagree"),
    (lambda x, ctx: x + nd.zeros((2, 3), cpu(1)), ContextError,
     r"elemwise_add: inputs live on different contexts.*@cpu\(1\).*as_in_context"),
    (lambda x, ctx: operator.iadd(nd.zeros((2,), ctx), nd.zeros((3, 2), ctx)), ShapeError,
     r"broadcast_add: out is float32\[2\]@.*the result is float32\[3,2\]"),
    (lambda x, ctx: x.__eq__(None), TypeError, "cannot be compared with a NoneType"),
    (lambda x, ctx: x + "text", TypeError, "unsupported operand"),
])
def test_errors_name_operator_and_arrays(call, error, text, ctx):
    with pytest.raises(error, match=text):
        call(nd.zeros((2, 3), ctx), ctx)
