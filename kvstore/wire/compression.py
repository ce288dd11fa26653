"""2-bit gradients: 16 values in 32 bits, and what was left out is added to the next gradient.

A value is sent as +threshold (bits 11), -threshold (10) or nothing (00); the first of four values is the highest pair of bits of
a byte. The layout is MXNet's. Source: the design of MXNet's gradient compression; Seide et al. 2014, "1-Bit Stochastic Gradient
Descent and its Application to Data-Parallel Distributed Training of Speech DNNs".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ParameterError
from ...integers import cdiv

_SHIFTS = np.array([6, 4, 2, 0], np.uint8)


def packed_bytes(n: int) -> int:
    """Bytes that n values take."""
    return cdiv(n, 16) * 4


class TwoBit:
    """threshold: a positive number; what is beyond it in one step is sent over several."""

    def __init__(self, threshold: float):
        self.threshold = float(threshold)

    def compress(self, grad: np.ndarray, residual: np.ndarray, out: np.ndarray) -> None:
        """out [4 · ceil(n / 16)] uint8 = the codes of residual + grad, both [n] float32; residual keeps what they leave out."""
        t = np.float32(self.threshold)
        with np.errstate(all="ignore"):
            residual += grad
        codes = np.zeros(len(out) * 4, np.uint8)
        plus, minus = residual >= t, residual <= -t
        codes[:len(grad)][plus] = 3
        codes[:len(grad)][minus] = 2
        residual[plus] -= t
        residual[minus] += t
        out[:] = np.bitwise_or.reduce(codes.reshape(-1, 4) << _SHIFTS, axis=1)

    def expand(self, packed: np.ndarray, n: int) -> np.ndarray:
        """The n float32 values of packed, uint8."""
        codes = ((packed[:, None] >> _SHIFTS) & 3).reshape(-1)[:n]
        table = np.array([0, 0, -self.threshold, self.threshold], np.float32)
        return table[codes]


def read_parameters(parameters: Any) -> TwoBit | None:
    """What `set_gradient_compression` takes: {"type": "2bit", "threshold": 0.5}; {"type": "none"} is None."""
    what = "KVStore.set_gradient_compression"
    if not isinstance(parameters, dict) or parameters.get("type") not in ("2bit", "none"):
        raise ParameterError(f'{what}: {parameters!r} is not {{"type": "2bit", "threshold": 0.5}} or {{"type": "none"}}.')
    unknown = parameters.keys() - {"type", "threshold"}
    if unknown:
        raise ParameterError(f"{what}: unknown settings: {', '.join(map(str, sorted(unknown)))}. Known: type, threshold.")
    if parameters["type"] == "none":
        return None
    try:
        threshold = float(parameters.get("threshold", 0.5))
    except (TypeError, ValueError):
        threshold = 0.0
    if not 0 < threshold < float("inf"):
        raise ParameterError(f"{what}: threshold={parameters.get('threshold')!r} must be a positive number.")
    return TwoBit(threshold)
