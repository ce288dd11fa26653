"""contrib.fft, contrib.ifft: the discrete Fourier transform along the last axis.

A complex number is stored as two neighbouring elements, real part first, as in MXNet. So the last axis of a complex array is
twice as long. On a CPU NumPy computes. On a GPU index formulas do: the transform of d = r · d' elements is made of r of d'
elements (Stockham's order, which needs no exchange of elements), and that of a length with a great prime factor is a
convolution, by transforms of a power of two (Bluestein 1970, A linear filtering approach to the computation of the discrete
Fourier transform).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from ....dtype import is_float
from ....errors import ShapeError
from ....integers import next_power_of_2
from ...declare.index_kernel import index_kernel
from ...declare.numpy_op import NumpyOp
from ...declare.operator_property import KnownShapes, Shapes, math_dtype
from ...declare.property_op import register_operator
from ...ir import lang
from ...kernel import Kernel, KernelFunction
from ...op import Req, Reqs, Shape, Spec, Specs

LARGEST_RADIX = 16  # of several prime factors together
LARGEST_PRIME = 512  # above it, a convolution takes less work


def _pairs(z: Any) -> np.ndarray:
    """Store complex z [..., d] as [..., 2 d]: real part, imaginary part, ..."""
    return np.stack([z.real, z.imag], -1).reshape(*z.shape[:-1], 2 * z.shape[-1])


def _complex(x: np.ndarray) -> Any:
    return x[..., 0::2] + 1j * x[..., 1::2]


# ---- on a GPU ----------------------------------------------------------------------------------------------------------
def radices(d: int) -> list[int]:
    """Return factors of d in the order of their stages: prime factors, multiplied up to LARGEST_RADIX."""
    primes, p = [], 2
    while d > 1:
        p = p if p * p <= d else d
        if d % p:
            p += 1
        else:
            primes.append(p)
            d //= p
    found: list[int] = []
    for p in reversed(primes):
        if found and found[-1] * p <= LARGEST_RADIX:
            found[-1] *= p
        else:
            found.append(p)
    return found or [1]


def _turned(at: Any, turns: Any, sign: int) -> Any:
    """Return element (c, ., part) of a table: what part of a number adds to part c of its product with exp(2πi sign · turns)."""
    c, _, part = at
    angle = turns * (2 * math.pi)
    across = lang.where(c > part, lang.sin(angle), -lang.sin(angle))
    return lang.where(c == part, lang.cos(angle), across * sign)


def _roots(sign: int) -> Callable[..., Any]:
    """The table of exp(2πi sign · j / d), [2, d, 2]."""
    return lambda at: _turned(at, at[1].astype("float64") / at.shape[1].astype("float64"), sign)


def _chirp(sign: int) -> Callable[..., Any]:
    """The table of exp(πi sign · j² / d), [2, d, 2]."""

    def body(at: Any) -> Any:
        j, whole = at[1], 2 * at.shape[1]
        return _turned(at, (j * j % whole).astype("float64") / whole.astype("float64"), sign)

    return body


def _times(x: Any, at: tuple[Any, ...], table: Any, c: Any, j: Any, inside: Any = True) -> Any:
    """Return part c of number `at` of x (real, or with a last axis of two parts) times entry j of a table."""
    if x.ndim == len(at):
        return x.at(*at, inside=inside) * table[c, j, 0]
    return x.at(*at, 0, inside=inside) * table[c, j, 0] + x.at(*at, 1, inside=inside) * table[c, j, 1]


def _stage(at: Any, x: Any, table: Any) -> Any:
    """One stage: x [rows, l, d / l] or [rows, l, d / l, 2] holds transforms of length l, the result those of length l r."""
    row, k, n, *c = at
    length, rest = x.shape[1], at.shape[2]

    def term(q: Any) -> Any:
        return _times(x, (row, k % length, q * rest + n), table, c[0] if c else 0, q * k * rest % (at.shape[1] * rest))

    return lang.sum(at.shape[1] // length, term)


def _led(at: Any, x: Any, chirp: Any) -> Any:
    """x times the chirp, and zeros up to a power of two."""
    row, n, c = at
    return _times(x, (row, n), chirp, c, lang.minimum(n, x.shape[1] - 1), inside=n < x.shape[1])


def _filter(at: Any, chirp: Any) -> Any:
    """The conjugate of the chirp, forwards and backwards from its first element."""
    _, n, c = at
    far = lang.minimum(n, at.shape[1] - n)
    return chirp.at(0, lang.minimum(far, chirp.shape[1] - 1), c, inside=far < chirp.shape[1])


def _product(at: Any, x: Any, y: Any) -> Any:
    row, n, c = at
    return x[row, n, 0] * y[0, n, c] + lang.where(c == 0, -1, 1) * x[row, n, 1] * y[0, n, 1 - c]


def _ended(at: Any, x: Any, chirp: Any) -> Any:
    """x times the chirp, by the length of the transforms. x: [rows, a power of two, 2]."""
    row, k, *c = at
    return _times(x, (row, k), chirp, c[0] if c else 0, k) / x.shape[1].astype(x.dtype.name)


class _Steps:
    """Index formulas that run one after the other; each result but the last is scratch."""

    def __init__(self, name: str, wide: np.dtype):
        self.name, self.wide = name, wide
        self.calls: list[tuple[Kernel, tuple[int, ...], Shape]] = []
        self.specs: list[Spec] = []

    def given(self, shape: Shape, dtype: np.dtype) -> int:
        """Return the number of an array that each run is given."""
        self.specs.append(Spec(shape, dtype))
        return len(self.specs) - 1

    def add(self, body: Callable[..., Any], ins: Sequence[int], shape: Shape, views: Sequence[Shape] | None = None,
            out: Spec | None = None, req: Req = Req.WRITE) -> int:
        """Append body on arrays of these numbers. Return the number of its result. out: of the last."""
        made = Spec(shape, self.wide) if out is None else out
        kernel = index_kernel(body, [self.specs[i] for i in ins], [made], [req], "gpu", self.name, views=views, results=[shape])
        self.calls.append((kernel, tuple(ins), made.shape))
        self.specs.append(made)
        return len(self.specs) - 1

    def transform(self, x: int, view: Shape, sign: int, out: Spec | None = None, req: Req = Req.WRITE, real: bool = False) -> int:
        """Append the stages for x, viewed as [rows, d], of real numbers, or as [rows, d, 2]. out: of the last; real: its real
        part only."""
        rows, d, *parts = view
        table = self.add(_roots(sign), [], (2, d, 2))
        length, factors = 1, radices(d)
        for i, r in enumerate(factors):
            last = i + 1 == len(factors)
            view = (rows, length, d // length, *parts)
            length, parts = length * r, [] if last and real else [2]
            x = self.add(_stage, [x, table], (rows, length, d // length, *parts), [view, (2, d, 2)], out if last else None,
                         req if last else Req.WRITE)
        return x

    def kernel(self) -> KernelFunction:
        """Return the kernel of one input and one output."""

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            values = list(inputs)
            for i, (call, ins, shape) in enumerate(self.calls):
                y = outputs[0] if i + 1 == len(self.calls) else run.workspace(shape, self.wide)
                call(run, [values[n] for n in ins], [y])
                values.append(y)

        return kernel


def _gpu_kernel(name: str, ins: Specs, outs: Specs, reqs: Reqs, forward: bool) -> KernelFunction:
    """Return the kernel of real to complex numbers (forward), or of complex ones to real parts with the other sign."""
    d = (ins if forward else outs)[0].shape[-1]
    rows, sign = math.prod((ins if forward else outs)[0].shape[:-1]), -1 if forward else 1
    steps = _Steps(name, math_dtype(outs[0].dtype) if is_float(outs[0].dtype) else np.dtype(np.float64))
    x, view = steps.given(ins[0].shape, ins[0].dtype), (rows, d) if forward else (rows, d, 2)
    if max(radices(d)) <= LARGEST_PRIME:
        steps.transform(x, view, sign, outs[0], reqs[0], real=not forward)
        return steps.kernel()
    m = next_power_of_2(2 * d - 1)
    chirp = steps.add(_chirp(sign), [], (2, d, 2))
    response = steps.transform(steps.add(_filter, [chirp], (1, m, 2)), (1, m, 2), -1)
    made = steps.transform(steps.add(_led, [x, chirp], (rows, m, 2), [view, (2, d, 2)]), (rows, m, 2), -1)
    made = steps.add(_product, [made, response], (rows, m, 2), [(rows, m, 2), (1, m, 2)])
    made = steps.transform(made, (rows, m, 2), 1)
    steps.add(_ended, [made, chirp], (rows, d, 2) if forward else (rows, d), [(rows, m, 2), (2, d, 2)], outs[0], reqs[0])
    return steps.kernel()


# ---- the operators -------------------------------------------------------------------------------------------------------
class Transform(NumpyOp):
    """A transform along the last axis. compute_size is accepted and ignored: all rows are transformed at once."""

    compute_size: int = 128
    backward_reads = ("dy",)
    forwards: ClassVar[bool] = True

    def gpu_forward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        return _gpu_kernel(self.name, ins, outs, reqs, self.forwards)

    def gpu_backward(self, ins: Specs, outs: Specs, reqs: Reqs) -> KernelFunction:
        return _gpu_kernel(self.name, ins, outs, reqs, not self.forwards)


@register_operator("_contrib_fft", aliases=("fft",))
class Fft(Transform):
    """Σ data[k] exp(-2πi jk/d) for each j. data: [..., d], real. Returns: [..., 2 d], complex."""

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        return [(*x[:-1], 2 * x[-1])]

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return _pairs(np.fft.fft(arrays[0]))

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        return np.fft.ifft(_complex(dy[0]), norm="forward").real


@register_operator("_contrib_ifft", aliases=("ifft",))
class Ifft(Transform):
    """The real part of Σ data[k] exp(2πi jk/d) for each j; divide by d for the inverse of fft.

    data: [..., 2 d], complex. Returns: [..., d].
    """

    forwards: ClassVar[bool] = False

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        if x[-1] % 2:
            raise ShapeError(f"{self.name}: the last axis of data {x} must hold pairs: a real and an imaginary part.")
        return [(*x[:-1], x[-1] // 2)]

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return np.fft.ifft(_complex(arrays[0]), norm="forward").real

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        return _pairs(np.fft.fft(dy[0]))
