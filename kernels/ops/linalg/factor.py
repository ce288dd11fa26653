"""linalg_potrf, potri, trsm, gelqf, syevd, inverse, det, slogdet: factors, inverses and determinants of matrices.

Matrices are the last two axes. On a CPU NumPy calls LAPACK; on a GPU one program factors one matrix. Derivatives are
products and triangular systems: Seeger, Hetzel, Dai, Lawrence 2017, Auto-differentiating linear algebra, arXiv:1710.08717.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from ....dtype import is_half
from ....errors import DTypeError, OperatorError, ShapeError
from ...declare.composite import Trace, TracedValue, arange, ops, program
from ...declare.host_op import HostOp
from ...declare.numpy_op import NumpyOp, by_kind
from ...declare.operator_property import Dtypes, KnownShapes, Shapes, gpu_module
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Specs

T = TypeVar("T")
#: The bodies of derivatives run on NumPy arrays on a CPU, and on traced values for a GPU.
Matrices = Any


def _t(x: Matrices) -> Matrices:
    """Return each matrix transposed."""
    return np.swapaxes(x, -1, -2) if isinstance(x, np.ndarray) else ops.SwapAxis(x, dim1=x.ndim - 2, dim2=x.ndim - 1)


def _below(x: TracedValue, lower: bool) -> TracedValue:
    """Return 1 in one triangle of matrices like x, 0 in the other."""
    n = x.shape[-1]
    line = arange(x, n)
    compare = ops.broadcast_greater_equal if lower else ops.broadcast_lesser_equal
    one = compare(line.reshape((n, 1)), line.reshape((1, n)))
    return ops.broadcast_to(one.reshape((*[1] * (x.ndim - 2), n, n)), shape=x.shape)


def _half(x: Matrices, lower: bool = True) -> Matrices:
    """Return x with zeros in place of the other triangle."""
    if isinstance(x, np.ndarray):
        return np.tril(x) if lower else np.triu(x)
    return ops.where(_below(x, lower), x, ops.zeros_like(x))


def _symmetric(x: Matrices) -> Matrices:
    """Return the symmetric matrix with the lower triangle of x."""
    if isinstance(x, np.ndarray):
        return np.tril(x) + _t(np.tril(x, -1))
    return ops.where(_below(x, True), x, _t(x))


def _widened(x: TracedValue) -> TracedValue:
    """Return x, in float32 if it is of half precision."""
    return ops.Cast(x, dtype="float32") if is_half(x.dtype) else x


def _batch(shape: Shape) -> tuple[int, int]:
    """Return how many matrices an array holds, and the size of their last axis but one."""
    return math.prod(shape[:-2]), shape[-2]


class Factor(NumpyOp):
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

    def inverse(self, a: Matrices) -> Matrices:
        """Return the inverse of each matrix. Raises OperatorError for a singular one."""
        return self.lapack(np.linalg.inv, a) if isinstance(a, np.ndarray) else ops.linalg_inverse(a)

    def inverse_of_lower(self, a: Matrices) -> Matrices:
        """Return the inverse of each lower triangular matrix."""
        if isinstance(a, np.ndarray):
            return self.lapack(np.linalg.inv, a)
        one = a.trace.call(ops._eye, [], {"N": a.shape[-1], "dtype": a.dtype.name}).reshape((*[1] * (a.ndim - 2), *a.shape[-2:]))
        return ops.linalg_trsm(a, ops.broadcast_to(one, shape=a.shape))


class Solved(Factor):
    """Base class of operators that a GPU computes too. Its derivatives are what `derivative` calls."""

    refuses: ClassVar[str] = ""  # the error for a matrix that a GPU kernel reports

    def launch(self, run: Any, sizes: tuple[int, int], inputs: Sequence[Any], outputs: Sequence[Any], reqs: Reqs) -> Any:
        """Launch the kernels. Return the array that is not zero for each matrix refused, or None."""
        raise NotImplementedError(self.name)

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        shape = ins[0].shape

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            failed = self.launch(run, _batch(shape), inputs, outputs, reqs)
            if failed is not None:
                run.refuse(failed, f"{self.name}: {self.refuses}: A {shape}.")

        return kernel

    def gpu_backward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        return self.called(lambda *arrays: self.derivative(*by_kind(self, arrays)), ins, outs, reqs)

    def called(self, body: Callable[..., Any], ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        """Return the GPU kernel of what body calls."""
        trace = Trace(ins)
        made = body(*map(_widened, trace.inputs))
        made = [ops.Cast(v, dtype=s.dtype.name) if is_half(s.dtype) else v
                for v, s in zip(made if isinstance(made, tuple) else (made,), outs)]
        return program(trace, made, reqs, "gpu", False)


class Triangular(Solved):
    """Base class of operators that read one triangle of A, the lower or the upper one."""

    lower: bool = True

    def turned(self, x: Matrices) -> Matrices:
        """Return x, transposed if the triangle is the upper one."""
        return x if self.lower else _t(x)


@register_operator("_linalg_potrf", aliases=("linalg_potrf",))
class Potrf(Triangular):
    """The lower triangular L with A = L Lᵀ (Cholesky), or with lower=False the upper triangular U with A = Uᵀ U.

    A: [..., n, n], symmetric and positive definite; only that triangle is read.
    """

    refuses: ClassVar[str] = "matrix is not positive definite"

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return self.turned(self.lapack(np.linalg.cholesky, self.turned(arrays[0])))

    def launch(self, run: Any, sizes: tuple[int, int], inputs: Sequence[Any], outputs: Sequence[Any], reqs: Reqs) -> Any:
        return gpu_module("linalg.triton_factor").cholesky(run, sizes, inputs[0], outputs[0], upper=not self.lower,
                                                           add=reqs[0] == Req.ADD)

    def derivative(self, dy: list[Matrices], x: list[Matrices], y: list[Matrices]) -> Matrices:
        low, slope = self.turned(y[0]), self.turned(dy[0])
        inverse = self.inverse_of_lower(low)
        return 0.5 * _t(inverse) @ _symmetric(_t(low) @ slope) @ inverse


@register_operator("_linalg_potri", aliases=("linalg_potri",))
class Potri(Triangular):
    """(A Aᵀ)⁻¹ for a lower triangular A, or with lower=False (Aᵀ A)⁻¹ for an upper triangular one.

    A: [..., n, n], the result of potrf. So this returns the inverse of the argument of potrf.
    A zero on the diagonal of A is an error on a CPU, and gives infinities or NaN on a GPU.
    """

    backward_reads = ("dy", "x", "y")

    def compute(self, *arrays: Matrices) -> Matrices:
        inverse = self.inverse_of_lower(_half(self.turned(arrays[0])))
        return _t(inverse) @ inverse

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        return self.called(self.compute, ins, outs, reqs)

    def derivative(self, dy: list[Matrices], x: list[Matrices], y: list[Matrices]) -> Matrices:
        inverse = self.inverse_of_lower(_half(self.turned(x[0])))
        return -self.turned(_half(y[0] @ (dy[0] + _t(dy[0])) @ _t(inverse)))


@register_operator("_linalg_trsm", aliases=("linalg_trsm",))
class Trsm(Solved):
    """The X with T X = alpha · B, or X T = alpha · B with rightside; T is the triangle of A (lower or upper), or its transpose.

    A: [..., n, n]; only that triangle is read. B: [..., n, m], or [..., m, n] with rightside. Returns: the shape of B.
    A zero on the diagonal of A is an error on a CPU, and gives infinities or NaN on a GPU.
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

    def _solve(self, a: Matrices, b: Matrices, transpose: bool) -> Matrices:
        if not isinstance(a, np.ndarray):
            return ops.linalg_trsm(a, b, transpose=transpose, rightside=self.rightside, lower=self.lower)
        t = _half(a, self.lower)
        t = _t(t) if transpose != self.rightside else t
        return _t(self.lapack(np.linalg.solve, t, _t(b))) if self.rightside else self.lapack(np.linalg.solve, t, b)

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return self._solve(arrays[0], self.alpha * arrays[1], self.transpose)

    def launch(self, run: Any, sizes: tuple[int, int], inputs: Sequence[Any], outputs: Sequence[Any], reqs: Reqs) -> Any:
        a, b = inputs
        gpu_module("linalg.triton_factor").solve(
            run, (*sizes, tuple(b.shape)[-2 if self.rightside else -1]), a, b, outputs[0], self.alpha, lower=self.lower,
            transpose=self.transpose, rightside=self.rightside, add=reqs[0] == Req.ADD)

    def derivative(self, dy: list[Matrices], x: list[Matrices], y: list[Matrices]) -> tuple[Matrices, ...]:
        db = self._solve(x[0], dy[0], not self.transpose)
        left, right = (y[0], db) if self.rightside else (db, y[0])
        da = _t(left) @ right if self.rightside else left @ _t(right)
        da = _t(da) if self.transpose else da
        return -_half(da, self.lower), self.alpha * db


@register_operator("_linalg_gelqf", aliases=("linalg_gelqf",))
class Gelqf(Factor, HostOp):
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
class Syevd(Factor, HostOp):
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
class Inverse(Solved):
    """The inverse of each matrix. A: [..., n, n]."""

    refuses: ClassVar[str] = "singular matrix"

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return self.lapack(np.linalg.inv, arrays[0])

    def launch(self, run: Any, sizes: tuple[int, int], inputs: Sequence[Any], outputs: Sequence[Any], reqs: Reqs) -> Any:
        return gpu_module("linalg.triton_factor").inverse(run, sizes, inputs[0], outputs[0], add=reqs[0] == Req.ADD)

    def derivative(self, dy: list[Matrices], x: list[Matrices], y: list[Matrices]) -> Matrices:
        return -_t(y[0]) @ dy[0] @ _t(y[0])


class Determined(Solved):
    """Base class of operators that return one number for each matrix."""

    numbers: ClassVar[tuple[str, ...]] = ()

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        self.square(in_shape[0])
        return [in_shape[0][:-2] or (1,)] * len(self.output_names)

    def launch(self, run: Any, sizes: tuple[int, int], inputs: Sequence[Any], outputs: Sequence[Any], reqs: Reqs) -> Any:
        gpu_module("linalg.triton_factor").determinants(run, sizes, inputs[0], list(outputs), self.numbers, reqs)

    def by_inverse(self, dy: Matrices, a: Matrices) -> Matrices:
        """Return dy · A⁻ᵀ."""
        return dy.reshape((*a.shape[:-2], 1, 1)) * _t(self.inverse(a))


@register_operator("_linalg_det", aliases=("linalg_det",))
class Det(Determined):
    """The determinant of each matrix. A: [..., n, n]. Returns: [...], or (1,) for one matrix."""

    output_names = ("output0",)
    backward_reads = ("dy", "x", "y")
    numbers: ClassVar[tuple[str, ...]] = ("det",)

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return np.atleast_1d(np.linalg.det(arrays[0]))

    def derivative(self, dy: list[Matrices], x: list[Matrices], y: list[Matrices]) -> Matrices:
        return self.by_inverse(dy[0] * y[0], x[0])


@register_operator("_linalg_slogdet", aliases=("linalg_slogdet",))
class Slogdet(Determined):
    """The sign of each matrix's determinant, and the logarithm of its absolute value (sign 0 and -inf for a singular one).

    A: [..., n, n]. Returns: two arrays [...], or (1,) for one matrix. Only the logarithm has a derivative.
    """

    output_names = ("output0", "output1")
    backward_reads = ("dy1", "x0")
    numbers: ClassVar[tuple[str, ...]] = ("sign", "log")

    def compute(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(map(np.atleast_1d, np.linalg.slogdet(arrays[0])))

    def derivative(self, dy: list[Matrices], x: list[Matrices], y: list[Matrices]) -> Matrices:
        return self.by_inverse(dy[1], x[0])
