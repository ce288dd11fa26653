"""Products in C: equal to float64's for every kind of memory, whichever operand is packed; the pieces by sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.layer_helpers import Run
from tritium.kernels.configs import active as active_configs
from tritium.kernels.cpu import c_compile
from tritium.kernels.ops.linalg import c_product, gemm
from tritium.kernels.ops.linalg.c_product import LEAST, Operand, Product

pytestmark = pytest.mark.skipif(not c_compile.available(), reason="no C compiler")
SIZE = st.one_of(st.integers(8, 90), st.sampled_from([12, 16, 24, 31, 32, 33, 64, 97]))


@pytest.fixture(autouse=True)
def _wherever_it_can(cpu_code):
    cpu_code("c")


def matrix(rng, shape, turned):
    return rng.normal(size=shape[::-1]).astype("f").T if turned else rng.normal(size=shape).astype("f")


@given(m=SIZE, n=SIZE, k=st.one_of(SIZE, st.integers(1, 7), st.integers(1000, 2100)), turned=st.tuples(*[st.booleans()] * 3),
       add=st.booleans(), bias=st.booleans(), backwards=st.booleans())
def test_it_equals_float64(m, n, k, turned, add, bias, backwards):
    rng = np.random.default_rng(m * n * k)
    a, b, out = (matrix(rng, s, t) for s, t in zip(((m, k), (k, n), (m, n)), turned))
    each = rng.normal(size=n).astype("f") if bias else None
    want = a.astype("d") @ b + (out if add else 0) + (0 if each is None else each)
    product = c_product.planned(a, b, out, add)
    assert product is not None
    c_product.bound([(product, a, b, out, each)])(Run(backwards=backwards))
    size = np.abs(a).astype("d") @ np.abs(b) + 3
    assert (np.abs(out - want) <= 2e-7 * np.sqrt(k + 10) * size).all()


@given(batch=st.integers(1, 5), m=SIZE, n=SIZE, k=SIZE, turned=st.tuples(*[st.booleans()] * 3), shared=st.sampled_from([0, 1, 2]),
       add=st.booleans())
def test_several_matrices_at_once(batch, m, n, k, turned, shared, add):
    """shared: the operand, if any, that is the same matrix for all."""
    rng = np.random.default_rng(m * n * k)
    a, b, out = (np.stack([matrix(rng, s, False).T if t else matrix(rng, s, False) for _ in range(batch)])
                 for s, t in zip(((k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n), (m, n)), (0, 0, 0)))
    a, b = (x.swapaxes(1, 2) if t else x for x, t in zip((a, b), turned))
    if shared == 1:
        a = np.broadcast_to(a[:1], a.shape)
    if shared == 2:
        b = np.broadcast_to(b[:1], b.shape)
    want = a.astype("d") @ b + (out if add else 0)
    gemm.gemm(a, b, out, add)(Run())
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


def test_a_part_of_a_matrix_and_nothing_around_it():
    """Views whose rows lie apart; what lies between the rows of the result stays."""
    rng = np.random.default_rng(0)
    a, b, out = rng.normal(size=(40, 50)).astype("f"), rng.normal(size=(50, 60)).astype("f"), np.full((40, 70), 9, "f")
    gemm.gemm(a[:, 5:45], b[2:42, 10:55], out[:, 3:48])(Run())
    np.testing.assert_allclose(out[:, 3:48], a[:, 5:45].astype("d") @ b[2:42, 10:55], rtol=1e-4, atol=1e-5)
    assert (out[:, :3] == 9).all() and (out[:, 48:] == 9).all()


@pytest.mark.parametrize(("m", "n", "k", "steps", "turned"), [
    (64, 512, 784, (Operand(784, 1), Operand(1, 784), Operand(512, 1)), True),  # a batch and a weight: the batch is packed
    (512, 784, 64, (Operand(1, 512), Operand(784, 1), Operand(784, 1)), False),  # the weight's derivative, written as it lies
    (1024, 1024, 1024, (Operand(1024, 1),) * 3, False),
])
def test_the_operand_that_costs_less_is_packed(m, n, k, steps, turned):
    assert Product(1, m, n, k, *steps, add=False, piece=1 << 20, threads=0).roles.turned == turned


@pytest.mark.parametrize(("sizes", "dtype", "why"), [
    ((7, 100, 100), "f", "few rows"), ((100, 7, 100), "f", "few columns"), ((100, 100, 100), "d", "float64"),
    ((31, 31, 31), "f", "small")])
def test_blas_computes_the_rest(sizes, dtype, why, cpu_code):
    cpu_code("auto")
    m, n, k = sizes
    a, b, out = np.ones((m, k), dtype), np.ones((k, n), dtype), np.ones((m, n), dtype)
    assert c_product.planned(a, b, out, False) is None, why
    assert (m * n * k < LEAST) == (why == "small")
    gemm.gemm(a, b, out)(Run())
    assert (out == k).all()


def test_without_c_blas_computes(cpu_code):
    cpu_code("numpy")
    a = np.ones((100, 100), "f")
    assert c_product.planned(a, a, a, False) is None


def test_the_tuner_chooses_the_pieces():
    a, out, made = np.ones((256, 256), "f"), np.empty((256, 256), "f"), []

    class Counting(Run):
        def parallel(self, fn, n):
            made.append(n)
            super().parallel(fn, n)

    for piece in (1 << 22, 1 << 23):
        with active_configs.forced("cpu gemm", {"piece": piece, "threads": 0}):
            gemm.gemm(a, a, out)(Counting())
    assert made == [4, 2] and (out == 256).all()  # nothing is packed


def test_products_together_are_those_one_by_one(rng):
    x, y = rng.normal(size=(300, 400)).astype("f"), rng.normal(size=(400, 200)).astype("f")
    outs = [[np.ones(s, "f") for s in ((300, 200), (200, 300), (10, 200))] for _ in range(2)]

    def products(made):
        return [(x, y, made[0], False), (y.T, x.T, made[1], True), (x[:10], y, made[2], False)]
    gemm.together(products(outs[0]))(Run(backwards=True))
    for p in products(outs[1]):
        gemm.gemm(*p)(Run())
    assert all((a == b).all() for a, b in zip(*outs))
