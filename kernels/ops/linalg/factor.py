"""linalg_potrf, potri, trsm, gelqf, syevd, inverse, det, slogdet: factors, inverses and determinants of matrices.

Matrices are the last two axes. NumPy calls LAPACK on the host; arrays on a GPU are copied there and back.
Derivatives: Seeger, Hetzel, Dai, Lawrence 2017, Auto-differentiating linear algebra, arXiv:1710.08717.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from ....errors import DTypeError, OperatorError, ShapeError
from ...declare.host_op import HostOp
from ...declare.operator_property import Dtypes, KnownShapes, Shapes
from ...declare.property_op import register_operator
from ...op import Shape

T = TypeVar("T")


def _t(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2)


def _symmetric(x: np.ndarray) -> np.ndarray:
    """Return the symmetric matrix with the lower triangle of x."""
    return np.tril(x) + _t(np.tril(x, -1))


class Factor(HostOp):
    """Base class of operators on square matrices A [..., n, n]."""

    argument_names = ("A",)
    output_names = ("output",)
    backward_reads = ("dy", "y")

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        self.square(in_shape[0])
        return [in_shape[0]]

    def square(self, x: Shape) -> None:
        """Check that the matrices are square."""
        if len(x) < 2 or x[-1] != x[-2]:
            raise ShapeError(f"{self.name}: A {x} must end in two equal axes, the matrix.")

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes] | None:
        for name, d in zip(self.argument_names, in_type):
            if d is not None and d.kind not in "fV":
                raise DTypeError(f"{self.name}: {name} is {d}. It must hold floats. Convert it with astype.")
        return None

    def lapack(self, call: Callable[..., T], *arrays: np.ndarray) -> T:
        """Return call(*arrays). Raises OperatorError if LAPACK reports a failure."""
        try:
            return call(*arrays)
        except np.linalg.LinAlgError as e:
            raise OperatorError(f"{self.name}: {str(e).rstrip('.').lower()}: A {arrays[0].shape}.") from None


class Triangular(Factor):
    """Base class of operators that read one triangle of A, the lower or the upper one."""

    lower: bool = True

    def turned(self, x: np.ndarray) -> np.ndarray:
        """Return x, transposed if the triangle is the upper one."""
        return x if self.lower else _t(x)


@register_operator("_linalg_potrf", aliases=("linalg_potrf",))
class Potrf(Triangular):
    """The lower triangular L with A = L Lᵀ (Cholesky), or with lower=False the upper triangular U with A = Uᵀ U.

    A: [..., n, n], symmetric and positive definite; only that triangle is read.
    """

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return self.turned(self.lapack(np.linalg.cholesky, self.turned(arrays[0])))

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        low, slope = self.turned(y[0]), self.turned(dy[0])
        inverse = np.linalg.inv(low)
        return 0.5 * _t(inverse) @ _symmetric(_t(low) @ slope) @ inverse


@register_operator("_linalg_potri", aliases=("linalg_potri",))
class Potri(Triangular):
    """(A Aᵀ)⁻¹ for a lower triangular A, or with lower=False (Aᵀ A)⁻¹ for an upper triangular one.

    A: [..., n, n], the result of potrf. So this returns the inverse of the argument of potrf.
    """

    backward_reads = ("dy", "x", "y")

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        inverse = self.lapack(np.linalg.inv, np.tril(self.turned(arrays[0])))
        return _t(inverse) @ inverse

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        return -self.turned(np.tril(y[0] @ (dy[0] + _t(dy[0])) @ _t(np.linalg.inv(np.tril(self.turned(x[0]))))))


@register_operator("_linalg_trsm", aliases=("linalg_trsm",))
class Trsm(Factor):
    """The X with T X = alpha · B, or X T = alpha · B with rightside; T is the triangle of A (lower or upper), or its transpose.

    A: [..., n, n]; only that triangle is read. B: [..., n, m], or [..., m, n] with rightside. Returns: the shape of B.
    """

    transpose: bool = False
    rightside: bool = False
    lower: bool = True
    alpha: float = 1.0
    argument_names = ("A", "B")
    backward_reads = ("dy0", "x0", "y0")

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        a, b = in_shape
        self.square(a)
        if len(b) != len(a) or a[:-2] != b[:-2] or b[-1 if self.rightside else -2] != a[-1]:
            raise ShapeError(f"{self.name}: A {a} and B {b} do not fit with rightside={self.rightside}: leading axes must be "
                             f"equal, and B's {'columns' if self.rightside else 'rows'} as many as A's.")
        return [b]

    def _solve(self, a: np.ndarray, b: np.ndarray, transpose: bool) -> np.ndarray:
        t = np.tril(a) if self.lower else np.triu(a)
        t = _t(t) if transpose != self.rightside else t
        return _t(self.lapack(np.linalg.solve, t, _t(b))) if self.rightside else self.lapack(np.linalg.solve, t, b)

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return self._solve(arrays[0], self.alpha * arrays[1], self.transpose)

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        db = self._solve(x[0], dy[0], not self.transpose)
        left, right = (y[0], db) if self.rightside else (db, y[0])
        da = _t(left) @ right if self.rightside else left @ _t(right)
        da = _t(da) if self.transpose else da
        return -(np.tril(da) if self.lower else np.triu(da)), self.alpha * db


@register_operator("_linalg_gelqf", aliases=("linalg_gelqf",))
class Gelqf(Factor):
    """A = L Q: Q has orthonormal rows, L is lower triangular. A: [..., m, n], m ≤ n, of full rank.

    Returns: Q [..., m, n], L [..., m, m].
    """

    output_names = ("output0", "output1")

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        a = in_shape[0]
        if len(a) < 2 or a[-2] > a[-1]:
            raise ShapeError(f"{self.name}: A {a} must end in matrices with at least as many columns as rows.")
        return [a, (*a[:-1], a[-2])]

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        q, r = np.linalg.qr(_t(arrays[0]))
        return _t(q), _t(r)

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        q, low = y
        m = _t(low) @ dy[1] - dy[0] @ _t(q)
        return self.lapack(np.linalg.solve, _t(low), dy[0] + _symmetric(m) @ q)


@register_operator("_linalg_syevd", aliases=("linalg_syevd",))
class Syevd(Factor):
    """A = Uᵀ diag(λ) U: the rows of U are eigenvectors, λ ascends. A: [..., n, n], symmetric; its lower triangle is read.

    Returns: U [..., n, n], λ [..., n]. The largest element of each row of U, by absolute value, is positive.
    """

    output_names = ("output0", "output1")

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        self.square(in_shape[0])
        return [in_shape[0], in_shape[0][:-1]]

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        values, vectors = self.lapack(np.linalg.eigh, arrays[0])
        u = _t(vectors)
        largest = np.take_along_axis(u, np.argmax(np.abs(u), axis=-1)[..., None], axis=-1)
        return np.copysign(1, largest).astype(u.dtype) * u, values

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        u, values = y
        gap = values[..., :, None] - values[..., None, :]
        tiny = 1e-20 if gap.dtype == np.float32 else 1e-100
        size = np.maximum(np.abs(gap), tiny)
        weight = np.where(np.eye(gap.shape[-1], dtype=bool), 0, 0.5 / np.copysign(size, gap))
        inner = weight * (dy[0] @ _t(u))
        inner = inner + _t(inner)
        n = np.arange(gap.shape[-1])
        inner[..., n, n] += dy[1]
        return _t(u) @ inner @ u


@register_operator("_linalg_inverse", aliases=("linalg_inverse",))
class Inverse(Factor):
    """The inverse of each matrix. A: [..., n, n]."""

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return self.lapack(np.linalg.inv, arrays[0])

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        return -_t(y[0]) @ dy[0] @ _t(y[0])


class Determined(Factor):
    """Base class of operators that return one number for each matrix."""

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        self.square(in_shape[0])
        return [in_shape[0][:-2] or (1,)] * len(self.output_names)

    def by_inverse(self, dy: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Return dy · A⁻ᵀ, zero where A is singular."""
        return np.reshape(dy, (*a.shape[:-2], 1, 1)) * _t(self.lapack(np.linalg.inv, a))


@register_operator("_linalg_det", aliases=("linalg_det",))
class Det(Determined):
    """The determinant of each matrix. A: [..., n, n]. Returns: [...], or (1,) for one matrix."""

    output_names = ("output0",)
    backward_reads = ("dy", "x", "y")

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return np.atleast_1d(np.linalg.det(arrays[0]))

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        return self.by_inverse(dy[0] * y[0], x[0])


@register_operator("_linalg_slogdet", aliases=("linalg_slogdet",))
class Slogdet(Determined):
    """The sign of each matrix's determinant, and the logarithm of its absolute value (sign 0 and -inf for a singular one).

    A: [..., n, n]. Returns: two arrays [...], or (1,) for one matrix. Only the logarithm has a derivative.
    """

    output_names = ("output0", "output1")
    backward_reads = ("dy1", "x0")

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(map(np.atleast_1d, np.linalg.slogdet(arrays[0])))

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        return self.by_inverse(dy[1], x[0])
