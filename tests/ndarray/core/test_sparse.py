"""csr and row-sparse arrays against results recorded from MXNet 1.9.1, and their errors."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from tritium.errors import FileError, MissingLibraryError, NotAvailableError, ParameterError, ShapeError

GOLDEN = Path(__file__).parents[2] / "golden" / "sparse"
spec = importlib.util.spec_from_file_location("record_sparse", GOLDEN / "record.py")
record = importlib.util.module_from_spec(spec)
spec.loader.exec_module(record)

csr = mx.nd.sparse.csr_matrix
A = csr(([1, 2, 3], [1, 0, 2], [0, 1, 2, 2, 3]), shape=(4, 3))
ROWS = mx.nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [0, 2]), shape=(4, 2))


def test_expressions_have_mxnets_class_dtype_and_values():
    expected = json.loads((GOLDEN / "results.json").read_text())
    found = list(record.results(mx, np))
    assert len(found) == len(expected) > 100
    for text, ours, theirs in zip(";".join(record.EXPRESSIONS.split("\n")).replace(";;", ";").split(";")[1:], found, expected):
        assert ours[:4] == theirs[:4], text
        np.testing.assert_allclose(ours[4], theirs[4], rtol=1e-6, err_msg=text)


def test_files_have_mxnets_bytes(tmp_path):
    mx.nd.save(tmp_path / "sparse.params", record.saved(mx))
    assert (tmp_path / "sparse.params").read_bytes() == (GOLDEN / "sparse.params").read_bytes()
    for name, a in mx.nd.load(GOLDEN / "sparse.params").items():
        wanted = record.saved(mx)[name]
        assert type(a) is type(wanted) and a.dtype == wanted.dtype and np.array_equal(a.asnumpy(), wanted.asnumpy())
    mx.nd.save(tmp_path / "one", A)
    assert np.array_equal(mx.nd.load(tmp_path / "one")[0].asnumpy(), A.asnumpy())
    with pytest.raises(TypeError, match="save: 'a' is a csr array, which a safetensors file cannot hold"):
        mx.nd.save(tmp_path / "x.safetensors", {"a": A})


def test_every_cut_of_a_file_is_refused():
    whole = (GOLDEN / "sparse.params").read_bytes()
    for n in range(len(whole)):
        with pytest.raises(FileError, match="load: buffer"):
            mx.nd.load_frombuffer(whole[:n])


def test_a_module_learns_from_csr_batches(tmp_path):
    """Its first outputs are those of dense batches."""
    (tmp_path / "a.libsvm").write_text("1 0:1 2:3\n0 1:2\n1 0:4\n0\n")
    outputs = []
    for stype in ("csr", "default"):
        batches = mx.io.LibSVMIter(tmp_path / "a.libsvm", (3,), 2, stype=stype)
        module = mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2), name="softmax"))
        module.bind(batches.provide_data, batches.provide_label)
        module.init_params(mx.init.One())
        outputs.append(module.predict(batches).asnumpy())
        batches.reset()
        module.fit(batches, num_epoch=1)
    assert np.array_equal(*outputs)


def random_csr(rng, shape, density=0.3):
    dense = rng.normal(size=shape) * (rng.uniform(size=shape) < density)
    return csr(mx.nd.array(dense, dtype="float64")), dense


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("shape", [(5, 7), (1, 4), (6, 1), (3, 3), (4, 0), (0, 4)])
def test_dot_and_its_derivatives_are_those_of_the_dense_matrix(shape, transpose, rng):
    a, dense = random_csr(rng, shape)
    w = mx.nd.array(rng.normal(size=(shape[0] if transpose else shape[1], 3)), dtype="float64")
    w.attach_grad()
    a.data.attach_grad()
    with mx.autograd.record():
        y = mx.nd.dot(a, w, transpose_a=transpose, forward_stype="default")
    left = dense.T if transpose else dense
    np.testing.assert_allclose(y.asnumpy(), left @ w.asnumpy(), atol=1e-12)
    if y.size and a.data.size:
        y.backward()
        dy = np.ones(y.shape)
        np.testing.assert_allclose(w.grad.asnumpy(), left.T @ dy, atol=1e-12)
        whole = (dy @ w.asnumpy().T).T if transpose else dy @ w.asnumpy().T
        np.testing.assert_allclose(a.data.grad.asnumpy(), whole[a.rows, a.columns], atol=1e-12)


def test_csr_from_scipy_and_back():
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.coo_matrix(([1.0, 2.0, 4.0], ([0, 1, 1], [2, 0, 0])), shape=(3, 3))
    for a in (csr(matrix), mx.nd.array(matrix), mx.nd.sparse.array(matrix)):
        assert a.stype == "csr" and np.array_equal(a.asnumpy(), matrix.toarray())
        assert (a.asscipy() != matrix).nnz == 0


def test_scipy_is_optional(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.sparse", None)
    with pytest.raises(MissingLibraryError, match="asscipy: SciPy is not installed"):
        A.asscipy()


def test_copies_contexts_and_pickles():
    import pickle

    for a in (A, ROWS):
        there = a.copyto(mx.cpu(1))
        assert there.context == mx.cpu(1) and np.array_equal(there.asnumpy(), a.asnumpy())
        assert a.as_in_context(a.context) is a and a.astype(a.dtype, copy=False) is a
        b = a.copy()
        b.data[:] = 0
        assert a.asnumpy().any() and not b.asnumpy().any()
        assert np.array_equal(pickle.loads(pickle.dumps(a)).asnumpy(), a.asnumpy())
        a.copyto(b)
        assert np.array_equal(b.asnumpy(), a.asnumpy())
    assert np.asarray(A).shape == (4, 3) and len(A) == 4 and A.ndim == 2 and A.size == 12


@pytest.mark.parametrize("act, error, text", [
    (lambda: A[4], IndexError, "csr: row 4 of 4 rows"),
    (lambda: A[1, 0], NotAvailableError, r"csr: a\[\(1, 0\)\]: only rows can be selected"),
    (lambda: A[::2], NotAvailableError, r"csr: a\[0:4:2\]: only consecutive rows"),
    (lambda: ROWS[0], NotAvailableError, r"row_sparse: a\[0\]: only a\[:\] is available. Use retain"),
    (lambda: A.tostype("row_sparse"), ParameterError, r"tostype: 'row_sparse' is not 'default' or 'csr'\. Convert to"),
    (lambda: mx.nd.ones(3).tostype("csr"), ShapeError, r"csr: an array of shape \(3,\) is not a matrix"),
    (lambda: mx.nd.ones((3, 1)).tostype("coo"), ParameterError, "tostype: stype='coo' is not one of 'default', "),
    (lambda: mx.nd.zeros((3, 1), stype="coo"), ParameterError, "zeros: stype='coo' is not one of"),
    (lambda: A.reshape((3, 4)), NotAvailableError, "reshape: not available for a csr array. Convert it with tostype"),
    (lambda: A.__setitem__(0, A), NotAvailableError, r"csr: only a\[:\] = value is available"),
    (lambda: A.__setitem__(slice(None), 3), NotAvailableError, "csr: a number cannot be assigned"),
    (lambda: A.__setitem__(slice(None), mx.nd.ones((2, 2))), ShapeError, r"csr: an array \(2, 2\) cannot be assigned"),
    (lambda: A.copyto(mx.nd.ones((2, 2))), ShapeError, r"copyto: a csr array \(4, 3\) does not fit in an array \(2, 2\)"),
    (lambda: mx.nd.dot(A, mx.nd.ones((4, 2))), ShapeError, r"a csr matrix \(4, 3\) and a matrix \(4, 2\): inner sizes differ"),
    (lambda: mx.nd.concat(A, csr((1, 2)), dim=0), ShapeError, "concat: csr matrices of 3, 2 columns"),
    (lambda: mx.nd.sparse.array([1]), ParameterError, "sparse.array: a list is not sparse. Use mx.nd.array"),
    (lambda: mx.nd.sparse.retain(A, [1]), NotAvailableError, "sparse.retain: a csr array has no stored rows"),
    (lambda: csr(([1, 2], [0, 1], [0, 1])), ParameterError, "indptr must be 2 numbers that do not fall, from 0 to 2"),
    (lambda: csr(([1], [0, 1], [0, 2])), ParameterError, "csr_matrix: 1 elements for 2 indices"),
    (lambda: csr(([1], [5], [0, 1]), shape=(1, 3)), ShapeError, "indices from 5 to 5 in a matrix of 3 columns"),
    (lambda: csr(([1], ([5], [0])), shape=(1, 3)), ShapeError, "rows up to 5 and columns up to 0 in a matrix of 1 x 3"),
    (lambda: csr(([1], ([5, 1], [0]))), ParameterError, "csr_matrix: 1 elements, 2 rows and 1 columns"),
    (lambda: csr([[1]], shape=(2, 2)), ShapeError, r"csr_matrix: shape=\(2, 2\), but the dense matrix is \(1, 1\)"),
])
def test_errors(act, error, text):
    with pytest.raises(error, match=text):
        act()


def test_columns_of_a_row_come_in_any_order_and_equal_ones_add_up():
    assert csr(([1, 2, 3, 4], [2, 0, 1, 1], [0, 2, 4]), shape=(2, 3)).asnumpy().tolist() == [[2, 0, 1], [0, 7, 0]]


@pytest.mark.parametrize("stype", ["row_sparse", "csr"])
def test_a_gradient_is_cleared_in_place(stype, ctx):
    a = mx.nd.array([[1.0, 0.0], [0.0, 0.0]], ctx=ctx).tostype(stype)
    a.attach_grad(grad_req="add")
    for times in (1, 2):
        with mx.autograd.record():
            y = a * 3
        y.backward()
        np.testing.assert_array_equal(a.grad.asnumpy(), np.full((2, 2), 3.0 * times))
    a.grad[:] = mx.nd.zeros((2, 2), ctx=ctx)
    assert a.grad.stype == stype and not a.grad.asnumpy().any()
    with mx.autograd.record():
        y = a * 3
    y.backward()
    np.testing.assert_array_equal(a.grad.asnumpy(), np.full((2, 2), 3.0))
