"""LRN: local response normalisation across neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import ParameterError, ShapeError
from ....integers import cdiv
from ...declare.operator_property import OperatorProperty, Shapes, assign, gpu_module, math_dtype
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Req, Reqs, Shape, Specs
from . import c_lrn

PIECE = 1 << 16  # elements of the samples that are computed together


@register_operator("LRN")
class LRN(OperatorProperty):
    """x · (knorm + alpha / nsize · Σ x²)^-beta, with the sum over nsize neighbouring channels.

    data: [n, c, ...]; nsize is odd. Source: Krizhevsky, Sutskever, Hinton 2012, section 3.3.
    """

    alpha: float = 1e-4
    beta: float = 0.75
    knorm: float = 2.0
    nsize: int
    backward_reads = ("dy0", "x0")

    def validate(self) -> None:
        if self.nsize < 1 or self.nsize % 2 == 0:
            raise ParameterError(f"{self.name}: nsize={self.nsize} must be odd and at least 1.")

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        found = super().infer_shape(in_shape, out_shape)
        x = found[0][0]
        if x is not None and len(x) < 2:
            raise ShapeError(f"{self.name}: data {x} needs a batch and channels.")
        return found

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows, req = _rows(outs[0].shape), reqs[0]
        if target == "gpu":
            lrn, p = gpu_module("nn.triton_lrn"), self
            return lambda run, inputs, outputs: lrn.forward(run, rows, p, inputs[0], outputs[0], add=req == Req.ADD)
        if c_lrn.in_c(rows, outs[0].dtype, self.beta):
            return c_lrn.kernel("forward", rows, self.nsize, req == Req.ADD, self.knorm, self.alpha / self.nsize)
        dtype, some = math_dtype(outs[0].dtype), _samples(rows)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            x, y = inputs[0].reshape(rows), outputs[0].reshape(rows)

            def samples(i: int) -> None:
                here = slice(i * some, (i + 1) * some)
                v = x[here].astype(dtype, copy=False)
                assign(y[here], req, v * self._power(self._scale(v)))

            run.parallel(samples, cdiv(rows[0], some))

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        rows, req = _rows(outs[0].shape), reqs[0]
        if target == "gpu":
            lrn, p = gpu_module("nn.triton_lrn"), self
            return lambda run, inputs, outputs: lrn.backward(run, rows, p, *inputs, outputs[0], add=req == Req.ADD)
        factor = 2 * self.alpha * self.beta / self.nsize
        if c_lrn.in_c(rows, outs[0].dtype, self.beta):
            return c_lrn.kernel("backward", rows, self.nsize, req == Req.ADD, self.knorm, self.alpha / self.nsize, factor)
        dtype, some = math_dtype(outs[0].dtype), _samples(rows)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            dy, x, dx = (a.reshape(rows) for a in (*inputs, *outputs))

            def samples(i: int) -> None:
                here = slice(i * some, (i + 1) * some)
                v, g = x[here].astype(dtype, copy=False), dy[here].astype(dtype, copy=False)
                scale = self._scale(v)
                power = self._power(scale)
                around = _window_sum(g * v * power / scale, self.nsize)
                assign(dx[here], req, g * power - dtype.type(factor) * v * around)

            run.parallel(samples, cdiv(rows[0], some))

        return kernel

    def _scale(self, x: np.ndarray) -> np.ndarray:
        return x.dtype.type(self.knorm) + x.dtype.type(self.alpha / self.nsize) * _window_sum(x * x, self.nsize)

    def _power(self, scale: np.ndarray) -> np.ndarray:
        """Return scale ** -beta. That of 3/4, which the source has, is two roots: they take a fifth of the time."""
        if self.beta != 0.75:
            return scale ** scale.dtype.type(-self.beta)
        root = np.sqrt(scale)
        return 1 / (root * np.sqrt(root))


def _rows(shape: Shape) -> tuple[int, int, int]:
    return shape[0], shape[1], math.prod(shape[2:])


def _samples(rows: tuple[int, int, int]) -> int:
    """Return how many samples a thread computes at a time: with fewer elements NumPy's calls take longer than the arithmetic."""
    return max(1, PIECE // max(1, rows[1] * rows[2]))


def _window_sum(x: np.ndarray, size: int) -> np.ndarray:
    """Sum x [n, c, positions] over the channels within size // 2 of each one, in a fixed order."""
    total, c = x.copy(), x.shape[1]
    for d in range(1, min(size // 2, c - 1) + 1):
        total[:, d:] += x[:, :-d]
        total[:, :-d] += x[:, d:]
    return total
