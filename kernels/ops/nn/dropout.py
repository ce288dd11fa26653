"""Dropout: set random elements to zero in training and scale up the others, which keeps the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ....errors import ParameterError
from ....integers import cdiv
from ...declare.operator_property import RANDOM, OperatorProperty, Shapes, gpu_module
from ...declare.property_op import register_operator
from ...declare.traced import printed
from ...ir.expr import load
from ...ir.lang import where
from ...kernel import KernelFunction, Run
from ...op import Expression, Req, Reqs, Spec, Specs
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
        threshold = min(round(self.p * 2**32), 2**32) if active else -1
        apply = self._applied([ins[0], outs[1]], outs[0], reqs[0], target)
        fill = gpu_module("random.triton_random").mask if target == "gpu" else _fill_mask

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] = (0, 0)) -> None:
            fill(run, outputs[1], *random, threshold)
            apply(run, [inputs[0], outputs[1]], outputs[:1])

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        return self._applied(ins, outs[0], reqs[0], target)

    def _applied(self, ins: Specs, out: Spec, req: Req, target: str) -> KernelFunction:
        """Return the kernel (x, mask) -> x · factor where the mask keeps x, else 0."""
        x, mask = (load(i, s.dtype) for i, s in enumerate(ins))
        kept = where(mask == PASSED, x, where(mask == KEPT, x * self.factor, 0))
        return printed(Expression((kept,)), ins, [out], [req], target, self.name)


def _fill_mask(run: Run, mask: np.ndarray, seed: int, offset: int, threshold: int) -> None:
    """Fill the mask with KEPT where a word is at least threshold, else DROPPED; with PASSED for a negative threshold."""
    flat = mask.reshape(-1)
    if threshold < 0:
        flat.fill(PASSED)
        return

    def piece(i: int) -> None:
        part = flat[i * _CHUNK:(i + 1) * _CHUNK]
        part[...] = words(seed, offset + i * _CHUNK, part.size) >= np.uint64(threshold)

    run.parallel(piece, cdiv(flat.size, _CHUNK))
