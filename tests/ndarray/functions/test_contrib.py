"""nd.contrib's functions that are not operators. Oracle: NumPy."""

import numpy as np
import pytest
import tritium as mx
from tritium.errors import ParameterError, ShapeError


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_boolean_mask_selects_and_differentiates(ctx, rng, axis):
    x = rng.normal(size=(3, 4)).astype("float32")
    mask = np.array([1, 0, 2, 1][: x.shape[axis]])
    a = mx.nd.array(x, ctx=ctx)
    a.attach_grad()
    with mx.autograd.record():
        y = mx.nd.contrib.boolean_mask(a, mx.nd.array(mask, ctx=ctx), axis=axis)
    np.testing.assert_array_equal(y.asnumpy(), np.compress(mask != 0, x, axis))
    y.backward()
    np.testing.assert_array_equal(a.grad.asnumpy(), np.expand_dims(mask != 0, 1 - axis % 2) * np.ones_like(x))


def test_a_boolean_mask_of_zeros_selects_no_rows(ctx):
    assert mx.nd.contrib.boolean_mask(mx.nd.ones((3, 2), ctx=ctx), mx.nd.zeros(3, ctx=ctx)).shape == (0, 2)
    with pytest.raises(ShapeError, match=r"boolean_mask: index \(2,\) must be one axis, as long as axis 0 of data \(3, 2\)"):
        mx.nd.contrib.boolean_mask(mx.nd.ones((3, 2), ctx=ctx), mx.nd.zeros(2, ctx=ctx))


def test_zipf_draws_small_numbers_more_often(ctx):
    mx.random.seed(1)
    drawn, expected_true, expected = mx.nd.contrib.rand_zipfian(mx.nd.array([0, 3], ctx=ctx), 4000, 50, ctx=ctx)
    counts = np.bincount(drawn.asnumpy(), minlength=50)
    assert drawn.dtype == np.int64 and counts.sum() == 4000 and len(counts) == 50
    assert abs(counts[0] - expected_true.asnumpy()[0]) < 100 and abs(counts[3] - expected_true.asnumpy()[1]) < 60
    assert expected.shape == (4000,)


GRAPH = ([7.0, 0.0, 9.0], [0, 2, 1], [0, 2, 2, 3])  # (0, 0), (0, 2) and (2, 1) of 3 x 4


def test_stored_elements_are_counted_with_their_zeros(ctx):
    graph = mx.nd.sparse.csr_matrix(GRAPH, shape=(3, 4), ctx=ctx)
    for axis, expected in ((None, [3]), (0, [1, 1, 1, 0]), (1, [2, 0, 1])):
        counted = mx.nd.contrib.getnnz(graph, axis=axis)
        np.testing.assert_array_equal(counted.asnumpy(), expected)
        assert counted.dtype == np.int64
    with pytest.raises(ParameterError, match="getnnz: axis=2 is not one of None, 0, 1"):
        mx.nd.contrib.getnnz(graph, axis=2)
    with pytest.raises(ParameterError, match=r"getnnz: data is NDArray, and must be a CSRNDArray. Use data.tostype\('csr'\)"):
        mx.nd.contrib.getnnz(mx.nd.ones((2, 2), ctx=ctx))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_edges_of_a_graph_have_their_values_and_others_minus_one(ctx, dtype):
    graph = mx.nd.sparse.csr_matrix(GRAPH, shape=(3, 4), ctx=ctx, dtype=dtype)
    stored = {(0, 0): 7, (0, 2): 0, (2, 1): 9}
    u, v = np.indices((3, 4)).reshape(2, -1)
    ids = mx.nd.contrib.edge_id(graph, mx.nd.array(u, ctx=ctx), mx.nd.array(v, ctx=ctx, dtype="int64"))
    np.testing.assert_array_equal(ids.asnumpy(), [stored.get((i, j), -1) for i, j in zip(u.tolist(), v.tolist())])
    assert ids.dtype == np.dtype(dtype)


def test_edges_outside_of_a_graph_are_an_error(ctx):
    graph = mx.nd.sparse.csr_matrix(GRAPH, shape=(3, 4), ctx=ctx)
    with pytest.raises(ShapeError, match=r"edge_id: v has nodes from 0 to 4, the matrix is \(3, 4\)"):
        mx.nd.contrib.edge_id(graph, mx.nd.array([0, 0], ctx=ctx), mx.nd.array([0, 4], ctx=ctx))
    with pytest.raises(ShapeError, match=r"edge_id: u \(2,\) and v \(1,\) must be one axis of the same length"):
        mx.nd.contrib.edge_id(graph, mx.nd.array([0, 0], ctx=ctx), mx.nd.array([0], ctx=ctx))
    empty = mx.nd.sparse.zeros("csr", (2, 2), ctx=ctx)
    assert mx.nd.contrib.edge_id(empty, mx.nd.array([1], ctx=ctx), mx.nd.array([0], ctx=ctx)).asnumpy().tolist() == [-1]


def test_a_name_is_taken_as_by_every_operator():
    matrix = mx.nd.sparse.csr_matrix(np.eye(3, dtype="float32"))
    node = mx.nd.array([1])
    assert mx.nd.contrib.getnnz(matrix, name="a").asscalar() == 3
    assert mx.nd.contrib.edge_id(matrix, node, node, name="b").asscalar() == 1
    assert mx.nd.contrib.boolean_mask(matrix.tostype("default"), mx.nd.array([0, 1, 0]), name="c").shape == (1, 3)
