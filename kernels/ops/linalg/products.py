"""linalg_gemm, gemm2, syrk, trmm, sumlogdiag: products of matrices, which are the last two axes of arrays."""

from __future__ import annotations

import math

from ....errors import ShapeError
from ...declare.composite import TracedValue, composite, ops


def matrices(name: str, x: TracedValue, axis: int = -2) -> TracedValue:
    """Move the axis of the matrix rows to the last but one. axis: where the rows are."""
    if x.ndim < 2 or not -x.ndim <= axis < x.ndim or axis % x.ndim == x.ndim - 1:
        raise ShapeError(f"{name}: axis={axis} cannot hold the rows of the matrices of an array {x.shape}: it must be one "
                         f"of its axes but the last.")
    axis %= x.ndim
    return x if axis == x.ndim - 2 else ops.SwapAxis(x, dim1=axis, dim2=x.ndim - 2)


def product(name: str, a: TracedValue, b: TracedValue, transpose_a: bool, transpose_b: bool) -> TracedValue:
    """Multiply each matrix of a by that of b. Raises ShapeError if their sizes do not fit."""
    inner = a.shape[-2 if transpose_a else -1], b.shape[-1 if transpose_b else -2]
    if a.shape[:-2] != b.shape[:-2] or inner[0] != inner[1]:
        raise ShapeError(f"{name}: the matrices of A {a.shape} and B {b.shape} do not multiply with transpose_a={transpose_a}, "
                         f"transpose_b={transpose_b}: leading axes must be equal, and the inner sizes {inner[0]} and {inner[1]}.")
    batch = math.prod(a.shape[:-2])
    y = ops.batch_dot(a.reshape((batch, *a.shape[-2:])), b.reshape((batch, *b.shape[-2:])), transpose_a=transpose_a,
                      transpose_b=transpose_b)
    return y.reshape((*a.shape[:-2], *y.shape[-2:]))


def scaled(x: TracedValue, by: float) -> TracedValue:
    """Return x · by."""
    return x if by == 1 else x * by


@composite("_linalg_gemm", aliases=("linalg_gemm",))
def gemm(A: TracedValue, B: TracedValue, C: TracedValue, *, transpose_a: bool = False, transpose_b: bool = False,
         alpha: float = 1.0, beta: float = 1.0, axis: int = -2) -> TracedValue:
    """alpha · A B + beta · C for each matrix; A, B transposed if asked.

    A, B, C: [..., m, k], [..., k, n], [..., m, n] with equal leading axes. axis: where the rows are, if not last but one.
    """
    a, b, c = (matrices("linalg_gemm", x, axis) for x in (A, B, C))
    y = product("linalg_gemm", a, b, transpose_a, transpose_b)
    if y.shape != c.shape:
        raise ShapeError(f"linalg_gemm: the products are {y.shape}, C is {c.shape}.")
    return matrices("linalg_gemm", scaled(y, alpha) + scaled(c, beta), axis)


@composite("_linalg_gemm2", aliases=("linalg_gemm2",))
def gemm2(A: TracedValue, B: TracedValue, *, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0,
          axis: int = -2) -> TracedValue:
    """alpha · A B for each matrix; A, B transposed if asked.

    A, B: [..., m, k], [..., k, n] with equal leading axes. axis: where the rows are, if not last but one.
    """
    a, b = (matrices("linalg_gemm2", x, axis) for x in (A, B))
    return matrices("linalg_gemm2", scaled(product("linalg_gemm2", a, b, transpose_a, transpose_b), alpha), axis)


@composite("_linalg_syrk", aliases=("linalg_syrk",))
def syrk(A: TracedValue, *, transpose: bool = False, alpha: float = 1.0) -> TracedValue:
    """alpha · A Aᵀ of each matrix, or alpha · Aᵀ A with transpose. A: [..., m, n]."""
    a = matrices("linalg_syrk", A)
    return scaled(product("linalg_syrk", a, a, transpose, not transpose), alpha)


@composite("_linalg_trmm", aliases=("linalg_trmm",))
def trmm(A: TracedValue, B: TracedValue, *, transpose: bool = False, rightside: bool = False, lower: bool = True,
         alpha: float = 1.0) -> TracedValue:
    """alpha · T B for each matrix, or alpha · B T with rightside; T is the triangle of A (lower or upper), or its transpose.

    A: [..., n, n]; only that triangle is read. B: [..., n, m], or [..., m, n] with rightside.
    """
    a, b = matrices("linalg_trmm", A), matrices("linalg_trmm", B)
    t = ops.linalg_maketrian(ops.linalg_extracttrian(a, lower=lower), lower=lower)
    y = product("linalg_trmm", b, t, False, transpose) if rightside else product("linalg_trmm", t, b, transpose, False)
    return scaled(y, alpha)


@composite("_linalg_sumlogdiag", aliases=("linalg_sumlogdiag",))
def sumlogdiag(A: TracedValue) -> TracedValue:
    """The sum of the logarithms of the diagonal of each matrix. A: [..., n, n]. Returns: [...], or (1,) for one matrix."""
    return ops.sum(ops.log(ops.linalg_extractdiag(A)), axis=(-1,))
