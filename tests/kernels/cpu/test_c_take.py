"""Rows selected by index in C, and added where they came from: equal to NumPy's, and to additions one after the other."""

import numpy as np
import pytest
from support.layer_helpers import Run
from tritium.kernels.cpu import c_compile, c_take
from tritium.kernels.kernel import HostRun
from tritium.kernels.ops.tensor.take import add_slices

pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="there is no C compiler")

SIZES = [(1, 1, 1, 1), (1, 7, 40, 1), (3, 5, 9, 2), (1, 4, 300, 17), (2, 1031, 64, 40), (1, 50, 2000, 130)]


@pytest.fixture(autouse=True)
def _wherever_it_can(cpu_code):
    cpu_code("c")


def indices(rng, k, n, dtype):
    at = rng.integers(-n if np.dtype(dtype).kind != "u" else 0, min(2 * n, 120), k).astype(dtype)
    if dtype in ("float32", "float64"):
        at[::5] += np.dtype(dtype).type(0.7)
        at[3::11], at[4::11], at[5::11] = np.nan, np.inf, -1e30
    return at


def below(at, n, wrap):
    with np.errstate(invalid="ignore"):
        at = at.astype(np.int64)
    return at % n if wrap else np.clip(at, 0, n - 1)


@pytest.mark.parametrize("index", c_take.INDICES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("wrap", [False, True])
def test_selected_rows(rng, sizes, index, wrap):
    outer, n, k, inner = sizes
    at = indices(rng, k, n, index)
    for dtype in (np.dtype(d) for d in ("int8", "float16", "float32", "float64")):
        x, y = rng.integers(-99, 99, (outer, n, inner)).astype(dtype), np.empty((outer, k, inner), dtype)
        assert c_take.selects(*sizes, dtype, at.dtype)
        run = HostRun() if wrap else Run(backwards=True)  # the one runs a table of functions, the other each piece
        c_take.selected(*sizes, dtype, at.dtype, wrap)(x, at, y)(run)
        np.testing.assert_array_equal(y, x[:, below(at, n, wrap)])


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("add", [False, True])
def test_added_rows(rng, sizes, dtype, add):
    outer, n, k, inner = sizes
    at = indices(rng, k, n, "int32")
    at[k // 3:k // 2] = 0  # one row often
    given, y = (rng.normal(scale=50, size=s).astype(dtype) for s in ((outer, k, inner), (outer, n, inner)))
    want = y.copy() if add else np.zeros_like(y)
    plain = want.copy()
    for i, row in enumerate(below(at, n, False)):
        want[:, row] += given[:, i]
    add_slices(plain, below(at, n, False), given)
    assert plain.tobytes() == want.tobytes()
    assert c_take.adds(*sizes, np.dtype(dtype), at.dtype)
    for run in (HostRun(), Run(backwards=True)):
        found = y.copy()
        c_take.added(*sizes, np.dtype(dtype), at.dtype, False, add)(given, at, found)(run)
        assert found.tobytes() == want.tobytes()


def test_what_numpy_computes(cpu_code):
    f4, f2 = np.dtype("float32"), np.dtype("float16")
    assert not c_take.adds(1, 9, 9, 9, f2, f4) and not c_take.selects(1, 9, 9, 9, f4, f2) and not c_take.adds(1, 9, 0, 9, f4, f4)
    cpu_code("auto")
    assert c_take._SELECTED.functions() and c_take.selects(1, 1, 1, 1, f4, f4) and c_take.adds(1, 1, 1, 1, f4, f4)
