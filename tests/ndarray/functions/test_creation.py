"""Creation. Oracle: dtypes and values read off MXNet 1.9.1, NumPy."""

import numpy as np
import pytest
from tritium import ndarray as nd
from tritium.context import cpu
from tritium.errors import DTypeError, MXNetError, ParameterError, ShapeError


@pytest.mark.parametrize("source, dtype", [
    ([1, 2], "float32"), (np.array([1, 2]), "float32"), (np.array([1.0, 2]), "float32"),
    (np.array([1, 2], "float16"), "float32"), (np.array([True, False]), "float32"), (3, "float32"), ([], "float32"),
    ([[1, 2], [3, 4]], "float32"), ((1, 2), "float32"), (range(3), "float32"),
])
def test_array_is_float32_by_default(source, dtype, ctx):
    a = nd.array(source, ctx)
    assert a.dtype is np.dtype(dtype).type and a.ctx == ctx
    assert np.array_equal(a.asnumpy(), np.array(source, dtype))


def test_array_keeps_the_dtype_of_arrays_and_takes_another():
    a = nd.array([1, 2], dtype="int32")
    assert nd.array(a).dtype is np.int32 and nd.array(a, dtype="float16").dtype is np.float16
    assert nd.array([a, a]).shape == (2, 2) and nd.from_numpy(np.zeros(2, "int8")).dtype is np.int8
    b = nd.array(a)
    b[:] = 0
    assert a.tolist() == [1, 2]


def test_array_is_a_snapshot():
    source = np.ones((300, 300), "float32")
    a = nd.array(source)
    source[:] = 0
    assert a.asnumpy().min() == 1


@pytest.mark.parametrize("source", [["a"], [[1], [1, 2]], [None], object()])
def test_array_refuses_values_that_are_not_numbers(source):
    with pytest.raises(MXNetError, match="array: "):
        nd.array(source)
    with pytest.raises(DTypeError, match="complex"):
        nd.array([1], dtype="complex64")


def test_arrays_filled_with_one_value(ctx):
    assert nd.zeros(3, ctx).tolist() == [0, 0, 0] and nd.ones((2, 1), ctx, "int8").tolist() == [[1], [1]]
    assert nd.full((2,), 2.5, ctx).tolist() == [2.5, 2.5] and nd.empty((4, 5), ctx).shape == (4, 5)
    assert nd.zeros((0, 3), ctx).asnumpy().shape == (0, 3) and nd.full((2,), nd.array([4], ctx), ctx).tolist() == [4, 4]
    with pytest.raises(ShapeError, match=r"empty: shape 1\.5"):
        nd.empty(1.5)
    with pytest.raises(ShapeError, match="negative size"):
        nd.zeros((2, -1))


def test_ranges():
    assert nd.arange(5).tolist() == [0, 1, 2, 3, 4] and nd.arange(3, repeat=2).tolist() == [0, 0, 1, 1, 2, 2]
    assert nd.arange(0, 5, 2, dtype="int32").dtype is np.int32 and nd.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert nd.linspace(0, 1, 3).tolist() == [0, 0.5, 1] and nd.linspace(0, 1, 2, endpoint=False).tolist() == [0, 0.5]
    assert np.array_equal(nd.eye(2, 3, 1).asnumpy(), np.eye(2, 3, 1))
    with pytest.raises(ParameterError, match="step must not be 0"):
        nd.arange(0, 5, 0)


def test_the_current_context_is_the_default():
    with cpu(1):
        assert nd.zeros((1,)).ctx == cpu(1) and nd.array([1]).ctx == cpu(1)
    assert nd.zeros((1,), ctx="cpu(1)").ctx == cpu(1)


def test_moveaxis():
    x = np.arange(24).reshape(2, 3, 4)
    for source, to in ((0, 2), (-1, 0), ([0, 1], [1, 2])):
        assert np.array_equal(nd.moveaxis(nd.array(x), source, to).asnumpy(), np.moveaxis(x, source, to))
    with pytest.raises(ShapeError, match="moveaxis"):
        nd.moveaxis(nd.array(x), 3, 0)
