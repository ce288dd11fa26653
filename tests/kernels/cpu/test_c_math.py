"""The functions C kernels call: how far each is from the true value, over the whole range of float32, and integers."""

import ctypes
import math

import ml_dtypes
import numpy as np
import pytest
from tritium.kernels.cpu import c_compile
from tritium.kernels.cpu.c_math import BLOCKWISE, FUNCTIONS
from tritium.kernels.cpu.c_printer import c_function
from tritium.kernels.ir.expr import load, prim
from tritium.kernels.op import Expression, Req, Spec

F32 = np.dtype("float32")
pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="no C compiler here")
ORACLE = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "log1p": np.log1p, "expm1": np.expm1, "erf": np.vectorize(math.erf),
          "sin": np.sin, "cos": np.cos, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "abs": np.abs}
ULPS = {"sin": 2, "cos": 2, "exp": 1, "log": 1, "tanh": 6, "log1p": 4, "expm1": 4, "erf": 6}


def compute(name, *arrays):
    """The primitive as a C kernel."""
    d = arrays[0].dtype
    out = np.empty_like(arrays[0])
    spec = Spec(out.shape, d)
    root = prim(name, *(load(i, d) for i in range(len(arrays))))
    f = c_function(Expression((root,)), [spec] * len(arrays), [spec], [Req.WRITE])
    assert not isinstance(f, str), f
    loaded = c_compile.function(f)
    assert loaded is not None
    loaded.free((ctypes.c_void_p * (len(arrays) + 1))(*(a.ctypes.data for a in (*arrays, out))), 0, out.size)
    return out


def move(root, x, out):
    """Store root, of the array x, in out by a C kernel."""
    f = c_function(Expression((root,)), [Spec(x.shape, x.dtype)], [Spec(out.shape, out.dtype)], [Req.WRITE])
    assert not isinstance(f, str), f
    loaded = c_compile.function(f)
    assert loaded is not None
    loaded.free((ctypes.c_void_p * 2)(x.ctypes.data, out.ctypes.data), 0, out.size)


def every_kind_of_float():
    """Numbers of every sign and exponent, with random digits; those around 0 and 1; infinities, NaN, denormals."""
    rng = np.random.default_rng(0)
    bits = (np.arange(512, dtype=np.uint32) << 23).repeat(300) | rng.integers(0, 1 << 23, 512 * 300, dtype=np.uint32)
    x = bits.view(np.float32)
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 88.72283, 88.72284, -87.33655, -103.97, -104, 9.01,
                      -9.01, 4, -4], np.float32)
    beside = [np.nextafter(edges, np.float32(towards)) for towards in (np.inf, -np.inf)]
    usual = np.arange(1, 2000) * (np.pi / 2), rng.normal(size=100_000), 1 + rng.normal(scale=1e-3, size=10_000)
    return np.concatenate([x, edges, *beside, *usual], dtype=np.float32)


@pytest.mark.parametrize("name", ORACLE)
def test_distance_from_the_true_value(name):
    x = every_kind_of_float()
    got = compute(name, x)
    with np.errstate(all="ignore"):
        true = ORACLE[name](x.astype(np.float64))
        rounded = true.astype(np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(rounded))
    infinite = np.isinf(rounded)
    assert np.array_equal(got[infinite], rounded[infinite])
    finite = np.isfinite(rounded)
    with np.errstate(all="ignore"):
        ulps = np.abs(got[finite] - true[finite]) / np.spacing(np.maximum(np.abs(rounded[finite]), np.float32(1e-38)))
    worst = int(np.argmax(ulps))
    assert ulps[worst] <= ULPS.get(name, 0.5), (ulps[worst], x[finite][worst], got[finite][worst], true[finite][worst])
    zero = (x == 0) & (rounded == 0)
    assert np.array_equal(np.signbit(got[zero]), np.signbit(rounded[zero]))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("name", ["mod", "maximum", "minimum"])
def test_whole_numbers_of_two(name, dtype):
    known = np.iinfo(dtype)
    edges = np.array([known.min, known.max, 0, 1, 2, 3, 7, known.max - 1, *([-1, -2, -7] if known.min else [])], dtype)
    a, b = (m.reshape(-1).copy() for m in np.meshgrid(edges, edges))
    want = {"maximum": np.maximum, "minimum": np.minimum}.get(name)
    oracle = want(a, b) if want else np.array([int(x) % int(y) if y else 0 for x, y in zip(a, b)], dtype)
    assert np.array_equal(compute(name, a, b), oracle)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint32"])
@pytest.mark.parametrize("name", ["abs", "neg", "square", "floor"])
def test_whole_numbers_wrap(name, dtype):
    known = np.iinfo(dtype)
    x = np.array([known.min, known.max, 0, 1, 100, known.max - 1], dtype)
    oracle = {"abs": np.abs, "neg": np.negative, "square": np.square, "floor": np.floor}[name]
    with np.errstate(all="ignore"):
        assert np.array_equal(compute(name, x), oracle(x))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_goes_through(name, dtype):
    x = np.array([np.nan, 1, -np.inf, 2, np.nan], dtype)
    y = np.array([1, np.nan, 3, 2, np.nan], dtype)
    np.testing.assert_array_equal(compute(name, x, y), {"maximum": np.maximum, "minimum": np.minimum}[name](x, y))


HALVES = [np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_every_half_becomes_the_same_float32_and_returns(half):
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits.view(half)
    wide, back = np.empty(x.shape, np.float32), np.empty(x.shape, half)
    move(load(0, half), x, wide)
    nan = np.isnan(x.astype(np.float32))
    assert np.array_equal(wide.view(np.uint32)[~nan], x.astype(np.float32).view(np.uint32)[~nan]) and np.isnan(wide[nan]).all()
    move(load(0, F32), wide, back)
    assert np.array_equal(back.view(np.uint16)[~nan], bits[~nan]) and np.isnan(back[nan].astype(np.float32)).all()


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_float32_is_rounded_to_the_nearest_half_ties_to_even(half):
    numbers = np.arange(1 << 16, dtype=np.uint16).view(half).astype(np.float32)
    numbers = np.sort(numbers[np.isfinite(numbers)])
    ties = ((numbers[:-1].astype(np.float64) + numbers[1:]) / 2).astype(np.float32)  # exact
    x = np.concatenate([ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf)),
                        every_kind_of_float()])
    got, nan = np.empty(x.shape, half), np.isnan(x)
    move(load(0, F32), x, got)
    with np.errstate(all="ignore"):
        assert np.array_equal(got[~nan].view(np.uint16), x[~nan].astype(half).view(np.uint16))
    assert np.isnan(got[nan].astype(np.float32)).all()


def test_every_blockwise_function_is_there():
    assert {f"{n}_float32" for n in BLOCKWISE} <= set(FUNCTIONS)
