"""Sorted order and extremes in C: equal to NumPy's stable order for every dtype, NaN, signed zeros and ties included."""

import numpy as np
import pytest
from tritium.kernels.cpu import c_compile, c_order
from tritium.kernels.cpu.c_team import Phases
from tritium.kernels.kernel import HostRun
from tritium.kernels.ops.tensor.order import order_of

pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="there is no C compiler")

DTYPES = ["float32", "float64", "bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]
LINES = [(1, 1, 1), (3, 5, 2), (2, 24, 3), (1, 25, 1), (2, 700, 2), (1, 5000, 3), (70, 33, 1), (1, 40, 700)]


@pytest.fixture(autouse=True)
def _wherever_it_can(cpu_code):
    cpu_code("c")


def numbers(rng, lines, dtype, spread):
    x = rng.integers(-spread, spread, lines).astype(dtype)
    if dtype.kind == "f":
        at = rng.random(lines)
        for value, low in ((np.nan, 0.0), (-np.nan, 0.05), (np.inf, 0.1), (-np.inf, 0.15), (-0.0, 0.2), (0.0, 0.3)):
            x[(at >= low) & (at < low + 0.05)] = value
    return x


@pytest.mark.parametrize("dtype", [np.dtype(d) for d in DTYPES], ids=str)
@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("spread", [3, 10**9])
def test_the_order_is_numpys(rng, dtype, lines, spread):
    outer, n, inner = lines
    x = numbers(rng, lines, dtype, spread)
    for down in (False, True):
        for k in {1, min(4, n), min(40, n), min(600, n), n}:
            want = order_of(x, down, k)
            values, found, mask = np.empty(want.shape, dtype), np.empty(want.shape, np.int64), np.full(lines, 3, dtype)
            c_order.ordered(dtype, lines, k, down, c_order.KINDS["int64"])(x, values, found, mask)(HostRun())
            np.testing.assert_array_equal(found, want)
            assert values.tobytes() == np.take_along_axis(x, want, 1).tobytes()  # payloads and signs too
            chosen = np.zeros(lines, dtype)
            np.put_along_axis(chosen, want, 1, axis=1)
            np.testing.assert_array_equal(mask, chosen)
    for low in (False, True):
        at = np.empty((outer, inner), np.int64)
        Phases([[c_order.extreme(dtype, lines, low, c_order.KINDS["int64"]).prepare(x, at)]])(HostRun())
        np.testing.assert_array_equal(at, x.argmin(1) if low else x.argmax(1))


@pytest.mark.parametrize("name", c_order.KINDS)
def test_indices_in_other_dtypes(rng, name):
    x = rng.normal(size=(2, 50, 3)).astype("f")
    found = np.empty((2, 4, 3), name)
    c_order.ordered(x.dtype, x.shape, 4, True, c_order.KINDS[name])(x, None, found, None)(HostRun())
    np.testing.assert_array_equal(found, order_of(x, True, 4))


def test_ascending_numbers_where_each_is_among_the_largest_so_far():
    x = np.arange(2000, dtype="f").reshape(1, 2000, 1)
    found = np.empty((1, 20, 1), np.int64)
    c_order.ordered(x.dtype, x.shape, 20, True, c_order.KINDS["int64"])(x, None, found, None)(HostRun())
    assert found.ravel().tolist() == list(range(1999, 1979, -1))


def test_where_c_sorts(cpu_code):
    f4 = np.dtype("float32")
    assert not c_order.orders(np.dtype("float16"), (1, 1 << 20, 1))
    cpu_code("auto")
    assert c_order.template(f4).functions() and c_order.orders(f4, (1, 1, 1)) and not c_order.orders(f4, (1, 0, 1))
    cpu_code("numpy")
    assert not c_order.orders(f4, (1, 1 << 20, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize("n", [1, 2, 7, c_order.RANKED - 1, c_order.RANKED, c_order.RANKED + 1])
def test_equal_elements_keep_their_order_in_short_and_long_lines(dtype, n, rng):
    x = rng.integers(0, 5, (3, n, 1)).astype(dtype)
    found = np.empty((3, n, 1), np.int64)
    c_order.ordered(x.dtype, x.shape, n, False, c_order.KINDS["int64"])(x, None, found, None)(HostRun())
    np.testing.assert_array_equal(found, np.argsort(x, 1, kind="stable"))
