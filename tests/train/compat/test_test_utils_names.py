"""mx.test_utils: all names of MXNet's star import, and the functions of random and sparse arrays, matrices and data."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tritium as mx
from tritium import test_utils as tu
from tritium.errors import MissingLibraryError, MXNetError, NotAvailableError, ParameterError

NAMES = Path(__file__).parents[2].joinpath("golden/names/test_utils.txt").read_text().split()


def test_a_star_import_has_mxnets_names():
    names = {}
    exec("from tritium.test_utils import *", names)
    names.pop("__builtins__")
    assert sorted(names) == NAMES and names["mx"] is mx and names["np"] is np


@pytest.mark.parametrize("stype", ["row_sparse", "csr"])
def test_random_sparse_arrays(stype):
    a, parts = tu.rand_sparse_ndarray((30, 20), stype, density=0.3)
    dense = a.asnumpy()
    assert a.stype == stype and a.dtype == np.float32 and dense.min() >= 0 and dense.max() < 1
    assert 0.1 < np.count_nonzero(dense) / dense.size < 0.5 and len(parts) == (2 if stype == "row_sparse" else 3)
    assert set(np.unique(tu.create_sparse_array((30, 20), stype, data_init=2.0).asnumpy())) == {0, 2}
    assert not tu.create_sparse_array_zd((5, 4), stype, 0.0).asnumpy().any()
    halved = tu.rand_ndarray((9, 8), stype, density=1.0, dtype="float64", modifier_func=lambda x: x / 2)
    assert halved.stype == stype and halved.dtype == np.float64 and 0 < halved.asnumpy().max() < 0.5


def test_random_sparse_arrays_of_given_rows_and_powers():
    a, (data, rows) = tu.rand_sparse_ndarray((6, 2), "row_sparse", rsp_indices=[4, 1])
    assert rows.tolist() == a.indices.asnumpy().tolist() == [1, 4] and data.shape == (2, 2)
    powers, _ = tu.rand_sparse_ndarray((4, 8), "csr", density=0.5, distribution="powerlaw")
    assert np.count_nonzero(powers.asnumpy(), axis=1).tolist() == [1, 2, 4, 8]


def test_shuffled_columns_of_scipy():
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.csr_matrix(np.ones((3, 50)))
    tu.shuffle_csr_column_indices(matrix)
    assert sorted(matrix.indices[:50]) == list(range(50)) and matrix.indices[:50].tolist() != list(range(50))


def test_generators_are_verified():
    pytest.importorskip("scipy.stats")
    buckets, probs = tu.gen_buckets_probs_with_ppf(lambda p: 2 * p, 4)
    assert buckets == [(0, 0.5), (0.5, 1), (1, 1.5), (1.5, 2)] and probs == [0.25] * 4
    draw = np.random.default_rng(0)
    assert min(tu.verify_generator(lambda n: draw.uniform(0, 2, n), buckets, probs, 1000, nrepeat=2)) > 0.01
    assert tu.chi_square_check(lambda n: draw.integers(0, 3, n), [0, 1, 2], [1 / 3] * 3, 999)[2].tolist() == [333] * 3
    with pytest.raises(AssertionError, match="verify_generator: p-values"):
        tu.verify_generator(lambda n: draw.uniform(0, 1, n), buckets, probs, 1000)
    assert tu.mean_check(lambda n: draw.normal(1, 2, n), 1, 2, 1000)
    assert not tu.mean_check(lambda n: draw.normal(2, 2, n), 1, 2, 1000)
    assert tu.var_check(lambda n: draw.normal(1, 2, n), 2, 1000) and not tu.var_check(lambda n: draw.normal(1, 3, n), 2, 1000)


def test_matrices_have_real_eigenvalues():
    for make in (tu.new_matrix_with_real_eigvals_nd, tu.new_sym_matrix_with_real_eigvals_nd):
        matrices = make((2, 3, 4, 4))
        assert matrices.shape == (2, 3, 4, 4) and np.abs(np.linalg.eigvals(matrices).imag).max() < 1e-6
    q = tu.new_orthonormal_matrix_2d(5)
    np.testing.assert_allclose(q @ q.T, np.eye(5), atol=1e-12)
    assert tu.get_identity_mat_batch(2).tolist() == [[[1, 0], [0, 1]]] * 2 and tu.get_identity_mat(1).tolist() == [[1]]


def test_comparisons_and_tolerances():
    half, single = np.ones(2, "float16"), np.ones(2, "float32")
    assert tu.get_tols(half, single, None, None) == (1e-2, 1e-1) and tu.get_tols(1.0, half, 0.5, {"float16": 3}) == (0.5, 3)
    assert tu.default_rtols()[np.dtype("int32")] == 0 and tu.effective_dtype(single) == np.float32
    assert {k.name: v for k, v in tu.default_numeric_eps().items()} == {"float16": 2**-6, "float32": 2**-9, "float64": 2**-14}
    tu.assert_allclose(mx.nd.ones(2), single)
    with pytest.raises(AssertionError):
        tu.assert_allclose(single, single + 1e-5)
    far = np.array([1.0, 1, 1, 5])
    tu.assert_almost_equal_with_err(far, np.ones(4), etol=0.25)
    with pytest.raises(AssertionError, match="a and b differ"):
        tu.assert_almost_equal_with_err(far, np.ones(4), etol=0.2)
    tu.compare_ndarray_tuple((single, (half, None)), (single, (half, None)))
    with pytest.raises(AssertionError, match=r"a.shape = \(2,\) and b.shape = \(1,\) are not equal"):
        tu.checkShapes(single, single[:1])
    assert tu.locationError(far, far, (3,), ("x", "y"), True) == "Location of maximum error: (3,), x=5.00000000, y=5.00000000"
    assert tu.collapse_sum_like(np.ones((2, 3, 4)), (3, 1)).tolist() == [[8], [8], [8]]
    assert tu.collapse_sum_like(np.ones((2, 0)), (1, 0)).shape == (1, 0)
    assert tu.is_op_runnable() and not tu.has_tvm_ops() and tu.is_cd_run() == (os.environ.get("CD_JOB") == "1")


def test_optimizers_are_compared_with_row_sparse_gradients():
    tu.compare_optimizer(mx.optimizer.SGD(0.1), mx.optimizer.SGD(0.1), (5, 2), "float32", "row_sparse", "row_sparse")
    with pytest.raises(AssertionError):
        tu.compare_optimizer(mx.optimizer.SGD(0.1), mx.optimizer.SGD(0.2), (5, 2), "float32", g_stype="row_sparse")


def test_the_error_output_is_discarded():
    code = ("import os, sys; from tritium.test_utils import discard_stderr\n"
            "with discard_stderr():\n    os.write(2, b'low '); print('high', file=sys.stderr)\n"
            "print('after', file=sys.stderr)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250).stderr == "after\n"


def test_data_are_unpacked_from_local_files(tmp_path, monkeypatch):
    import bz2
    import zipfile

    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("a.zip", "w") as archive:
        archive.writestr("inner", "text")
    tu.get_zip_data(".", "http://x", "a.zip")
    (tmp_path / "b.bz2").write_bytes(bz2.compress(b"more"))
    tu.get_bz2_data(".", "b", "http://x", "b.bz2")
    assert (tmp_path / "inner").read_text() + (tmp_path / "b").read_text() == "textmore"
    for name in ("m-symbol.json", "m-0000.params"):
        (tmp_path / name).touch()
    assert tu.download_model("m") == ("./m", 0)


@pytest.mark.parametrize("act, error, text", [
    (lambda: tu.get_cifar10(), MXNetError, r"get_cifar10: data/cifar/train.rec, .* do not exist, and Tritium does not use the"),
    (lambda: tu.get_mnist_pkl(), MXNetError, r"get_mnist_pkl: data/mnist.pkl.gz does not exist"),
    (lambda: tu.get_mnist_ubyte(), MXNetError, "get_mnist_ubyte: data/train-images-idx3-ubyte"),
    (lambda: tu.download_model("no"), MXNetError, "download_model: ./no-symbol.json"),
    (lambda: tu.get_im2rec_path(), NotAvailableError, "Run the command `tritium im2rec` with the same arguments"),
    (lambda: tu.rand_sparse_ndarray((2, 2), "coo"), ParameterError, "stype='coo' is not one of"),
    (lambda: tu.rand_sparse_ndarray((2,), "csr"), ParameterError, "a csr array has two axes"),
    (lambda: tu.rand_sparse_ndarray((2, 2), "row_sparse", distribution="powerlaw"), ParameterError, "'powerlaw' is not one"),
    (lambda: tu.shuffle_csr_column_indices(tu.rand_ndarray((2, 2), "csr")), ParameterError, "columns of a csr array must ascend"),
    (lambda: tu.gen_buckets_probs_with_ppf(abs, 0), ParameterError, "nbuckets=0 must be at least 1"),
    (lambda: tu.chi_square_check(abs, [1], []), ParameterError, "1 buckets, in a list, need as many probabilities, not 0"),
    (lambda: tu.collapse_sum_like(np.ones((2, 3)), (2, 2)), ParameterError, r"shape \(2, 2\) does not broadcast to \(2, 3\)"),
])
def test_errors(act, error, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=text):
        act()


def test_scipy_is_optional(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(MissingLibraryError, match="chi_square_check: SciPy is not installed"):
        tu.chi_square_check(abs, [1], [1.0])
