"""2-bit gradients: 16 values in 32 bits. The quantization error is added to the next gradient.

A value is sent as +threshold (bits 11), -threshold (10) or 0 (00). The first of four values takes the two highest bits of a byte.
The layout is MXNet's. Source: the design of MXNet's gradient compression; Seide et al. 2014, "1-Bit Stochastic Gradient
Descent and its Application to Data-Parallel Distributed Training of Speech DNNs".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ParameterError
from ...integers import cdiv

_SHIFTS = np.array([6, 4, 2, 0], np.uint8)


def packed_bytes(n: int) -> int:
    return cdiv(n, 16) * 4


class TwoBit:
    """The 2-bit code. threshold: a positive number. A larger value is sent over several steps."""

    def __init__(self, threshold: float):
        self.threshold = float(threshold)

    def compress(self, grad: np.ndarray, residual: np.ndarray, out: np.ndarray) -> None:
        """Write the codes of residual + grad, both [n] float32, to out [4 · ceil(n / 16)] uint8, and the error to residual."""
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
        """Return the n float32 values of packed, uint8."""
        codes = ((packed[:, None] >> _SHIFTS) & 3).reshape(-1)[:n]
        table = np.array([0, 0, -self.threshold, self.threshold], np.float32)
        return table[codes]


def read_parameters(parameters: Any) -> TwoBit | None:
    """Return the code for {"type": "2bit", "threshold": 0.5}, or None for {"type": "none"}. Raises ParameterError otherwise."""
    caller = "KVStore.set_gradient_compression"
    if not isinstance(parameters, dict) or parameters.get("type") not in ("2bit", "none"):
        raise ParameterError(f'{caller}: {parameters!r} is not {{"type": "2bit", "threshold": 0.5}} or {{"type": "none"}}.')
    unknown = parameters.keys() - {"type", "threshold"}
    if unknown:
        raise ParameterError(f"{caller}: unknown settings: {', '.join(map(str, sorted(unknown)))}. Known: type, threshold.")
    if parameters["type"] == "none":
        return None
    try:
        threshold = float(parameters.get("threshold", 0.5))
    except (TypeError, ValueError):
        threshold = 0.0
    if not 0 < threshold < float("inf"):
        raise ParameterError(f"{caller}: threshold={parameters.get('threshold')!r} must be a positive number.")
    return TwoBit(threshold)
