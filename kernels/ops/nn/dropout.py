"""Dropout: set random elements to zero in training and scale up the others, which keeps the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ....errors import ParameterError
from ....integers import cdiv
from ...declare.operator_property import RANDOM, OperatorProperty, Shapes, assign, gpu_module, math_dtype
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Req, Reqs, Specs
from ...philox import words
from ..tensor.reshape import check_axis

_CHUNK = 1 << 16  # numbers per piece
DROPPED, KEPT, PASSED = 0, 1, 2  # values of the mask; PASSED: dropout was off


@register_operator("Dropout")
class Dropout(OperatorProperty):
    """In training (with mode "always", at inference too) each element becomes 0 with probability p, else x / (1 - p).

    axes: axes along which all elements share one random draw.
    The mask is kept for backward, one byte per draw.
    """

    backward_form: ClassVar[str] = "diagonal"

    p: float = 0.5
    mode: Literal["training", "always"] = "training"
    axes: tuple = ()
    output_names = ("output", "mask")
    resources = (RANDOM,)
    backward_reads = ("dy0", "y1")
    visible_outputs = 1
    forward_inplace = ((0, 0),)
    backward_inplace = (("dy0", 0),)
    output_dtypes = (None, np.dtype(np.uint8))

    def validate(self) -> None:
        if not 0 <= self.p <= 1:
            raise ParameterError(f"{self.name}: p={self.p} must be a probability: 0 <= p <= 1.")

    def is_identity_at_inference(self) -> bool:
        return self.mode == "training" or self.p == 0

    def num_random(self, outs: Specs) -> int:
        return outs[1].size if self.p > 0 else 0

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        (x,), (y,), _ = super().infer_shape(in_shape, out_shape[:1])
        if x is None:
            return [x], [y, None], []
        shared = {check_axis(self.name, a, len(x)) for a in self.axes}
        return [x], [x, tuple(1 if i in shared else d for i, d in enumerate(x))], []

    @property
    def factor(self) -> float:
        """Return the factor of kept elements."""
        return 1 / (1 - self.p) if self.p < 1 else 0.0

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        active = self.p > 0 and (train or self.mode == "always")
        threshold, factor, n, req = min(round(self.p * 2**32), 2**32), self.factor, outs[1].size, reqs[0]
        if target == "gpu":
            module, shapes = gpu_module("random.triton_random"), (outs[0].shape, outs[1].shape)

            def kernel_gpu(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] = (0, 0)) -> None:
                module.mask(run, outputs[1], *random, threshold if active else -1)
                module.apply_mask(run, shapes, inputs[0], outputs[1], outputs[0], factor, req)

            return kernel_gpu

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] = (0, 0)) -> None:
            flat, (seed, offset) = outputs[1].reshape(-1), random
            if not active:
                flat.fill(PASSED)
            else:
                def piece(i: int) -> None:
                    part = flat[i * _CHUNK:(i + 1) * _CHUNK]
                    part[...] = words(seed, offset + i * _CHUNK, part.size) >= np.uint64(threshold)

                run.parallel(piece, cdiv(n, _CHUNK))
            _masked(inputs[0], outputs[1], outputs[0], factor, req, active)

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        factor, req = self.factor, reqs[0]
        if target == "gpu":
            module, shapes = gpu_module("random.triton_random"), (outs[0].shape, ins[1].shape)
            return lambda run, inputs, outputs: module.apply_mask(run, shapes, *inputs, outputs[0], factor, req)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            mask = inputs[1]
            active = not mask.size or mask.flat[0] != PASSED
            _masked(inputs[0], mask, outputs[0], factor, req, active)

        return kernel


def _masked(x: np.ndarray, mask: np.ndarray, y: np.ndarray, factor: float, req: Req, active: bool) -> None:
    """Compute y = (or +=) x · factor where the mask keeps x, else 0."""
    if active and req != Req.NULL:
        dtype = math_dtype(x.dtype)
        assign(y, req, np.where(mask, x * dtype.type(factor), dtype.type(0)))
    else:
        assign(y, req, x)
