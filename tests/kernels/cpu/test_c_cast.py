"""Casts between float32 and half precision in C: NumPy's for every half, and for floats around every half."""

import numpy as np
import pytest
from support.layer_helpers import Run
from tritium.dtype import bfloat16
from tritium.kernels.cpu import c_cast, c_compile
from tritium.kernels.op import Req, Spec

pytestmark = pytest.mark.skipif(c_compile.compiler() is None, reason="there is no C compiler")

FLOAT32, HALVES = np.dtype("float32"), [np.dtype("float16"), bfloat16]
EVERY = np.arange(1 << 16, dtype=np.uint16)


@pytest.fixture(autouse=True)
def _wherever_it_can(cpu_code):
    cpu_code("c")


def cast(x, dtype):
    y = np.empty(x.shape, dtype)
    kernel = c_cast.cast_kernel(Spec(x.shape, x.dtype), Spec(y.shape, y.dtype), Req.WRITE)
    kernel(Run(backwards=True), [x], [y])
    return y


def equal(found, want):
    np.testing.assert_array_equal(np.isnan(found.astype("f")), np.isnan(want.astype("f")))
    there = ~np.isnan(want.astype("f"))
    assert found[there].tobytes() == want[there].tobytes()


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_every_half(half):
    x = EVERY.view(half)
    with np.errstate(invalid="ignore"):
        equal(cast(x, FLOAT32), x.astype(FLOAT32))


@pytest.mark.parametrize("half", HALVES, ids=str)
def test_floats_beside_and_between_halves(half, rng):
    with np.errstate(invalid="ignore", over="ignore"):
        at = EVERY.view(half).astype(FLOAT32).view(np.uint32)
        between = np.uint32((1 << 12) if half == np.float16 else 1 << 15)
        near = np.concatenate([at + d for d in (0, 1, -1 & 0xFFFFFFFF, between, between - 1, between + 1)]).astype(np.uint32)
        x = np.concatenate([near, rng.integers(0, 2**32, 100_003, dtype=np.uint32)]).view(FLOAT32)
        equal(cast(x, half), x.astype(half))


def test_what_numpy_casts(cpu_code):
    half, wide = Spec((99,), HALVES[0]), Spec((99,), FLOAT32)
    assert c_cast.cast_kernel(half, wide, Req.ADD) is None and c_cast.cast_kernel(wide, wide, Req.WRITE) is None
    cpu_code("numpy")
    assert c_cast.cast_kernel(half, wide, Req.WRITE) is None
