"""Row-sparse arrays: construction and conversion. Oracle: NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tritium as mx
from tritium.errors import ParameterError, ShapeError

sparse = mx.nd.sparse.row_sparse_array


def test_rows_and_the_dense_array(rng):
    data = rng.normal(size=(2, 3)).astype("f")
    a = sparse((data, [1, 4]), shape=(6, 3))
    whole = np.zeros((6, 3), "f")
    whole[[1, 4]] = data
    np.testing.assert_array_equal(a.asnumpy(), whole)
    np.testing.assert_array_equal(a.tostype("default").asnumpy(), whole)
    assert (a.stype, a.shape, a.size, len(a), a.dtype) == ("row_sparse", (6, 3), 18, 6, np.float32)
    assert a.indices.asnumpy().tolist() == [1, 4] and a.indices.dtype == np.int64
    assert repr(a) == "\n<RowSparseNDArray 6x3 @cpu(0)>" and a.tostype("row_sparse") is a
    assert a.as_in_context(mx.cpu(0)) is a and a.as_in_context(mx.cpu(1)).context == mx.cpu(1)
    b = a.copy()
    b.data[:] = 0
    np.testing.assert_array_equal(a.asnumpy(), whole)
    np.testing.assert_array_equal(a.retain([0, 4]).rows, [4])


def test_a_row_sparse_array_from_rows_dense_arrays_and_shapes():
    whole = np.array([[0, 0], [1, 0], [0, 0], [0, 2]], "f")
    assert sparse(mx.nd.array(whole)).rows.tolist() == sparse(whole).rows.tolist() == [1, 3]
    assert sparse((4, 2)).asnumpy().tolist() == mx.nd.sparse.zeros("row_sparse", (4, 2)).asnumpy().tolist() == [[0, 0]] * 4
    assert sparse((np.ones((1, 2)), [3])).shape == (4, 2) and sparse(sparse(whole), dtype="float64").dtype == np.float64
    assert sparse(([[1, 2], [3, 4]], [3, 1]), shape=(4, 2)).asnumpy().tolist() == [[0, 0], [3, 4], [0, 0], [1, 2]]
    assert mx.nd.sparse.zeros("default", (2,)).asnumpy().tolist() == [0, 0]


@pytest.mark.parametrize("act, error, text", [
    (lambda: sparse((np.ones((2, 2)), [1, 1])), ParameterError, "the indices of rows must ascend, each once"),
    (lambda: sparse((np.ones((1, 2)), [4]), shape=(4, 2)), ShapeError, "row indices from 4 to 4 do not fit the shape"),
    (lambda: sparse((np.ones((1, 2)), [1]), shape=(4, 3)), ShapeError, r"data \(1, 2\) is not 1 rows of an array of shape"),
    (lambda: sparse((2, 2)).tostype("csr"), ParameterError, "'csr' is not 'default' or 'row_sparse'"),
])
def test_errors(act, error, text):
    with pytest.raises(error, match=text):
        act()
