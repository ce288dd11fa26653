"""linalg_potrf, potri, trsm, inverse, det, slogdet at sizes beyond a block, of batches, in every dtype. Oracle: NumPy in float64.
Identities and derivatives: test_products.py."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close
from tritium.errors import OperatorError

LA = mx.nd.linalg
SHAPES = [(1, 1), (2, 1, 1), (2, 3, 5, 5), (0, 3, 3), (35, 35), pytest.param((70, 70), marks=pytest.mark.nightly)]
DTYPES = ["float64", "float32", "float16", "bfloat16"]


def wrap(x, ctx, dtype="float64"):
    return mx.nd.array(x, ctx=ctx).astype(dtype) if dtype == "bfloat16" else mx.nd.array(x, ctx=ctx, dtype=dtype)


def regular(rng, *shape):
    """Matrices whose greatest elements are beside the diagonal, so that they need their rows exchanged."""
    n = shape[-1]
    return rng.normal(size=shape) / n + np.roll(np.eye(n) * np.linspace(1, 2, n), 1, 0)


def positive(rng, *shape):
    a = regular(rng, *shape)
    return a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])


@pytest.mark.parametrize("shape", SHAPES)
def test_matrices_of_every_size(shape, ctx, rng):
    a = regular(rng, *shape)
    assert_close(LA.inverse(wrap(a, ctx)), np.linalg.inv(a))
    assert_close(LA.det(wrap(a, ctx)), np.atleast_1d(np.linalg.det(a)))
    for got, want in zip(LA.slogdet(wrap(a, ctx)), np.linalg.slogdet(a)):
        assert_close(got, np.atleast_1d(want))


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_one_triangle_is_read_and_one_is_made(shape, lower, ctx, rng):
    a = positive(rng, *shape)
    low = np.linalg.cholesky(a)
    half = np.tril if lower else np.triu
    given = np.where(half(np.ones(shape)) > 0, a, np.nan)  # what is not read may be anything
    want = low if lower else np.swapaxes(low, -1, -2)
    assert_close(LA.potrf(wrap(given, ctx), lower=lower), want)
    assert_close(LA.potri(wrap(np.where(half(np.ones(shape)) > 0, want, np.nan), ctx), lower=lower), np.linalg.inv(a))


@pytest.mark.parametrize("rightside", [True, False])
@pytest.mark.parametrize("lower, transpose", [(True, False), (False, False), (True, True), (False, True)])
def test_systems_of_more_rows_and_columns_than_a_block(lower, transpose, rightside, ctx, rng):
    n, m = 40, 35
    t = np.tril(rng.normal(size=(n, n)) / n, -1) + np.diag(np.linspace(1, 2, n))
    t = t if lower else t.T
    b = rng.normal(size=(m, n) if rightside else (n, m))
    whole = t.T if transpose else t
    want = b @ np.linalg.inv(whole) if rightside else np.linalg.inv(whole) @ b
    got = LA.trsm(wrap(t + (np.triu(np.ones((n, n)), 1) if lower else np.tril(np.ones((n, n)), -1)), ctx), wrap(b, ctx),
                  lower=lower, transpose=transpose, rightside=rightside, alpha=3.0)
    assert_close(got, 3 * want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_float_dtype_with_its_derivative(dtype, ctx, rng):
    a = positive(rng, 2, 4, 4)
    a = wrap(a, mx.cpu(), dtype).astype("float64").asnumpy()
    low = np.linalg.cholesky(a)
    cases = {"potrf": ([a], low), "inverse": ([a], np.linalg.inv(a)), "det": ([a], np.linalg.det(a)),
             "trsm": ([a, a], np.linalg.solve(np.tril(a), a))}
    for name, (given, want) in cases.items():
        slopes = []
        for kind in (dtype, "float64"):
            xs = [wrap(x, ctx, kind) for x in given]
            for x in xs:
                x.attach_grad()
            with mx.autograd.record():
                y = getattr(LA, name)(*xs)
            y.backward()
            slopes.append([x.grad.astype("float64").asnumpy() for x in xs])
            if kind == dtype:
                assert y.dtype == xs[0].dtype == xs[0].grad.dtype
                assert_close(y, want.astype(y.dtype), scale=10)  # 10: a condition number of a few
        for got, better in zip(*slopes):
            assert_close(got, better, dtype=dtype, scale=10)  # 10: the same


@pytest.mark.parametrize("name, values", [
    ("potrf", [[1, 0], [0, -1]]), ("potrf", [[1, 2], [2, 1]]),
    ("inverse", [[1, 2], [2, 4]]), ("inverse", [[0, 0], [0, 0]])])
def test_one_matrix_of_a_batch_that_is_refused(name, values, ctx):
    a = wrap(np.stack([np.eye(2), np.array(values, float)]), ctx)
    with pytest.raises(OperatorError, match=rf"_linalg_{name}: .*: A \(2, 2, 2\)\."):
        getattr(LA, name)(a).asnumpy()


def test_nan_is_passed_on(ctx):
    a = wrap([[1, 0, 0], [0, np.nan, 0], [0, 0, 4]], ctx)
    assert np.isnan(LA.potrf(a).asnumpy()[1:, 1]).all()
    if ctx.is_gpu:  # NumPy warns
        assert np.isnan(LA.det(a).asnumpy()).all() and np.isnan(LA.inverse(a).asnumpy()[1]).any()


def test_singular_matrices_have_no_determinant(ctx):
    a = wrap([[[1, 2], [2, 4]], [[0, 0], [0, 0]], [[0, 1], [1, 0]]], ctx)
    assert LA.det(a).asnumpy().tolist() == [0, 0, -1]
    sign, log = LA.slogdet(a)
    assert sign.asnumpy().tolist() == [0, 0, -1] and log.asnumpy().tolist() == [-np.inf, -np.inf, 0]


@pytest.mark.parametrize("name", ["potrf", "potri", "trsm", "inverse", "det"])
def test_the_result_is_added(name, ctx, rng):
    a = positive(rng, 2, 3, 3)
    low = np.linalg.cholesky(a)
    given = {"potri": [low], "trsm": [low, a]}.get(name, [a])
    names = ["a", "b"][:len(given)]
    symbol = getattr(mx.sym.linalg, name)(*map(mx.sym.var, names))
    grads = []
    for request in ("write", "add"):
        args = {n: wrap(g, ctx) for n, g in zip(names, given)}
        held = {n: wrap(np.full(g.shape, 5.0), ctx) for n, g in zip(names, given)}
        executor = symbol.bind(ctx, args, held, request)
        out = executor.forward(is_train=True)[0]
        executor.backward(mx.nd.ones_like(out))
        grads.append([held[n].asnumpy() for n in names])
    for written, added in zip(*grads):
        assert_close(added, written + 5)
