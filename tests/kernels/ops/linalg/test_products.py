"""linalg_*: products, factors, inverses and determinants of matrices. Oracle: NumPy's loops over matrices, and identities."""

import numpy as np
import pytest
import tritium as mx
from support.helpers import assert_close, check_gradient
from tritium.errors import DTypeError, OperatorError, ShapeError

LA = mx.nd.linalg


def wrap(x, ctx, dtype="float64"):
    return mx.nd.array(x, ctx=ctx, dtype=dtype)


def positive(rng, *shape):
    a = rng.normal(size=shape)
    return a @ np.swapaxes(a, -1, -2) + 3 * np.eye(shape[-1])


def triangle(x, lower):
    return np.tril(x) if lower else np.triu(x)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("rightside", [False, True])
@pytest.mark.parametrize("lower", [False, True])
def test_trsm_undoes_trmm(rng, ctx, transpose, rightside, lower):
    p = {"transpose": transpose, "rightside": rightside, "lower": lower}
    a, b = rng.normal(size=(2, 3, 3)) + 3 * np.eye(3), rng.normal(size=(2, 5, 3) if rightside else (2, 3, 5))
    t = triangle(a, lower)
    t = np.swapaxes(t, 1, 2) if transpose else t
    y = LA.trmm(wrap(a, ctx), wrap(b, ctx), alpha=2.0, **p)
    assert_close(y, 2 * (b @ t if rightside else t @ b), scale=10)
    assert_close(LA.trsm(wrap(a, ctx), y, alpha=0.5, **p), b, scale=10)
    check_gradient(lambda u, v: LA.trsm(u, v, alpha=0.7, **p), [a, b], ctx, rng)


def test_factors_multiply_back(rng, ctx):
    a, wide = positive(rng, 2, 4, 4), rng.normal(size=(2, 3, 5))
    low = LA.potrf(wrap(a, ctx)).asnumpy()
    np.testing.assert_allclose(low @ np.swapaxes(low, 1, 2), a, rtol=1e-12)  # closer than the table
    np.testing.assert_array_equal(low, np.tril(low))
    assert_close(LA.potri(wrap(low, ctx)).asnumpy() @ a, np.broadcast_to(np.eye(4), a.shape))
    q, lq = (o.asnumpy() for o in LA.gelqf(wrap(wide, ctx)))
    np.testing.assert_allclose(lq @ q, wide, rtol=1e-11, atol=1e-12)  # closer than the table
    assert_close(q @ np.swapaxes(q, 1, 2), np.broadcast_to(np.eye(3), (2, 3, 3)))
    u, v = (o.asnumpy() for o in LA.syevd(wrap(a, ctx)))
    np.testing.assert_allclose(np.swapaxes(u, 1, 2) @ (v[..., None] * u), a, rtol=1e-11, atol=1e-11)  # closer than the table
    assert (np.diff(v) >= 0).all()
    assert (np.take_along_axis(u, np.abs(u).argmax(-1)[..., None], -1) > 0).all()


def test_inverse_and_determinants(rng, ctx):
    a = rng.normal(size=(2, 3, 3))
    assert_close(LA.inverse(wrap(a, ctx)).asnumpy() @ a, np.broadcast_to(np.eye(3), a.shape))
    by_hand = [sum(m[0, i] * (m[1, (i + 1) % 3] * m[2, (i + 2) % 3] - m[1, (i + 2) % 3] * m[2, (i + 1) % 3]) for i in range(3))
               for m in a]
    np.testing.assert_allclose(LA.det(wrap(a, ctx)).asnumpy(), by_hand, rtol=1e-11)  # closer than the table
    sign, log = (o.asnumpy() for o in LA.slogdet(wrap(a, ctx)))
    np.testing.assert_allclose(sign * np.exp(log), by_hand, rtol=1e-11)  # closer than the table
    assert LA.det(wrap(a[0], ctx)).shape == (1,)
    sign, log = LA.slogdet(wrap(np.ones((3, 3)), ctx))
    assert (sign.asscalar(), log.asscalar()) == (0.0, -np.inf)


@pytest.mark.parametrize("name", ["potrf", "potri", "gelqf", "syevd", "inverse", "det", "slogdet", "sumlogdiag"])
def test_gradients(rng, ctx, name):
    a = rng.normal(size=(2, 3, 5)) if name == "gelqf" else positive(rng, 2, 3, 3)

    def fn(x):
        x = LA.syrk(x) if name in ("potrf", "potri", "syevd") else x  # moved along symmetric directions
        made = getattr(LA, name)(LA.potrf(x) if name == "potri" else x)
        return made if not isinstance(made, list) else mx.nd.concat(*(m.reshape((-1,)) for m in made), dim=0)

    check_gradient(fn, a, ctx, rng, tolerance=1e-4)


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 2])
def test_triangles_and_diagonals_and_back(rng, ctx, offset):
    a = rng.normal(size=(2, 4, 4))
    diagonal = LA.extractdiag(wrap(a, ctx), offset=offset)
    np.testing.assert_array_equal(diagonal.asnumpy(), np.diagonal(a, offset, 1, 2))
    np.testing.assert_array_equal(LA.makediag(diagonal, offset=offset).asnumpy(),
                                  [np.diag(d, offset) for d in diagonal.asnumpy()])
    for lower in (True, False):
        upper = offset > 0 or (offset == 0 and not lower)
        got = LA.maketrian(LA.extracttrian(wrap(a, ctx), offset=offset, lower=lower), offset=offset, lower=lower)
        np.testing.assert_array_equal(got.asnumpy(), np.triu(a, offset) if upper else np.tril(a, offset))
    upper = LA.extracttrian(wrap(a, ctx), lower=False).asnumpy()[0]
    np.testing.assert_array_equal(upper[:4], [a[0, 0, 0], a[0, 0, 1], a[0, 1, 1], a[0, 0, 2]])  # column by column


def test_halves_are_computed_in_single_precision(rng, ctx):
    a = positive(rng, 3, 3).astype("float16")
    got = LA.inverse(wrap(a, ctx, "float16"))
    assert got.dtype == np.float16
    assert_close(got, np.linalg.inv(a.astype("float64")), scale=4)  # 4: a condition number of a few


@pytest.mark.parametrize("call, text", [
    (lambda a: LA.potrf(-a), "_linalg_potrf: matrix is not positive definite"),
    (lambda a: LA.inverse(0 * a), "_linalg_inverse: singular matrix"),
])
def test_what_lapack_refuses(rng, ctx, call, text):
    with pytest.raises(OperatorError, match=text):
        call(wrap(positive(rng, 3, 3), ctx)).asnumpy()


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: LA.gemm2(mx.nd.ones((2, 3, 4)), mx.nd.ones((2, 5, 5))),
     ShapeError, r"linalg_gemm2: the matrices of A \(2, 3, 4\) and B \(2, 5, 5\) do not multiply"),
    (lambda: LA.gemm2(mx.nd.ones((2, 5, 5)), mx.nd.ones((2, 5, 5)), axis=2),
     ShapeError, r"linalg_gemm2: axis=2 cannot hold the rows"),
    (lambda: LA.gemm(mx.nd.ones((2, 3, 3)), mx.nd.ones((2, 3, 4)), mx.nd.ones((2, 3, 5))),
     ShapeError, r"linalg_gemm: the products are \(2, 3, 4\), C is \(2, 3, 5\)"),
    (lambda: LA.det(mx.nd.ones((2, 3, 4))), ShapeError, r"_linalg_det: A \(2, 3, 4\) must end in two equal axes"),
    (lambda: LA.trsm(mx.nd.ones((2, 5, 5)), mx.nd.ones((2, 3, 4))),
     ShapeError, r"_linalg_trsm: A \(2, 5, 5\) and B \(2, 3, 4\) do not fit"),
    (lambda: LA.gelqf(mx.nd.ones((5, 3))),
     ShapeError, r"_linalg_gelqf: A \(5, 3\) must end in matrices with at least as many columns"),
    (lambda: LA.maketrian(mx.nd.ones((2, 5))),
     ShapeError, r"_linalg_maketrian: 5 elements, the last axis of A \(2, 5\), do not fill"),
    (lambda: LA.extractdiag(mx.nd.ones((4, 4)), offset=4),
     ShapeError, r"_linalg_extractdiag: offset=4 is outside the matrices of A \(4, 4\)"),
    (lambda: LA.det(mx.nd.ones((3, 3), dtype="int32")), DTypeError, r"_linalg_det: A is int32. It must hold floats"),
])
def test_matrices_that_do_not_fit(call, error, text):
    with pytest.raises(error, match=text):
        call()
