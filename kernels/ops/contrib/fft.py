"""contrib.fft, contrib.ifft: the discrete Fourier transform along the last axis. NumPy computes, on the host.

A complex number is stored as two neighbouring elements, real part first, as in MXNet. So the last axis of a complex array is
twice as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....errors import ShapeError
from ...declare.host_op import HostOp
from ...declare.operator_property import KnownShapes, Shapes
from ...declare.property_op import register_operator


def _pairs(z: Any) -> np.ndarray:
    """Store complex z [..., d] as [..., 2 d]: real part, imaginary part, ..."""
    return np.stack([z.real, z.imag], -1).reshape(*z.shape[:-1], 2 * z.shape[-1])


def _complex(x: np.ndarray) -> Any:
    return x[..., 0::2] + 1j * x[..., 1::2]


class Transform(HostOp):
    """A transform along the last axis. compute_size is accepted and ignored: all rows are transformed at once."""

    compute_size: int = 128
    backward_reads = ("dy",)


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

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        x = in_shape[0]
        if x[-1] % 2:
            raise ShapeError(f"{self.name}: the last axis of data {x} must hold pairs: a real and an imaginary part.")
        return [(*x[:-1], x[-1] // 2)]

    def compute(self, *arrays: np.ndarray) -> np.ndarray:
        return np.fft.ifft(_complex(arrays[0]), norm="forward").real

    def derivative(self, dy: list[np.ndarray], x: list[np.ndarray], y: list[np.ndarray]) -> np.ndarray:
        return _pairs(np.fft.fft(dy[0]))
