"""Dropout: set random elements to zero in training and scale up the others, which keeps the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ....errors import ParameterError
from ...declare.operator_property import RANDOM, OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...ir.expr import cast
from ...ir.lang import bernoulli, logical_not, where
from ...kernel import KernelFunction
from ...op import Req, Reqs, Specs
from ..tensor.reshape import check_axis

UINT8 = np.dtype(np.uint8)
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
    output_dtypes = (None, UINT8)

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
        full, drawn = outs[0].shape, outs[1].shape
        active = self.p > 0 and (train or self.mode == "always")

        def mask() -> Any:
            return where(bernoulli(self.p), DROPPED, KEPT) if active else PASSED

        def both(x: Any) -> Any:
            if not active:
                return x, PASSED
            kept = logical_not(bernoulli(self.p))
            return where(kept, x * self.factor, 0), cast(kept, UINT8)

        if drawn == full:
            return row_kernel(both, [full], [full, full], full, ins, outs, reqs, target, self.name)
        fill = row_kernel(mask, [], [drawn], drawn, [], outs[1:], [Req.WRITE], target, f"{self.name}_mask")
        apply = row_kernel(self._applied, [full, drawn], [full], full, [ins[0], outs[1]], outs[:1], reqs[:1], target, self.name)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any], random: tuple[int, int] = (0, 0)) -> None:
            fill(run, [], outputs[1:], random=random)
            apply(run, [inputs[0], outputs[1]], outputs[:1])

        return kernel

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        full = outs[0].shape
        return row_kernel(self._applied, [full, ins[1].shape], [full], full, ins, outs, reqs, target, f"{self.name}_backward")

    def _applied(self, x: Any, mask: Any) -> Any:
        """x · factor where the mask keeps x, else 0: a body."""
        return where(mask == PASSED, x, where(mask == KEPT, x * self.factor, 0))
