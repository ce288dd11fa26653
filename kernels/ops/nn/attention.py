"""attention: softmax of scaled products of queries and keys, times values, as one operator that keeps no scores.

Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1; computed as by Dao et al. 2022, arXiv:2205.14135.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ....dtype import is_float
from ....errors import DTypeError, ShapeError
from ...declare.operator_property import Dtypes, KnownShapes, OperatorProperty, Shapes, gpu_module
from ...declare.property_op import register_operator
from ...kernel import KernelFunction
from ...op import Reqs, Shape, Specs
from . import attention_tiles
from .attention_layout import Use, contiguous, mask_shape

_FLOAT64 = np.dtype("float64")


class AttentionLike(OperatorProperty):
    """Base class: attention on operands that lie in some way in the arguments."""

    causal: bool = False
    scale: float | None = None
    use_mask: bool | None = None
    operand_names: ClassVar[tuple[str, ...]] = ()
    optional_names = ("mask",)
    output_names = ("output", "log_sum_exp")
    visible_outputs = 1
    drops_hidden_at_inference = True
    costly = True

    @property
    def argument_names(self) -> tuple[str, ...]:
        return (*self.operand_names, "mask") if self.use_mask else self.operand_names

    @property
    def gradient_arguments(self) -> tuple[int, ...]:
        return tuple(range(len(self.operand_names)))

    def use(self, shapes: Sequence[Shape]) -> Use:
        """Return how the operands lie in arguments of these shapes. Raises ShapeError where they do not fit together."""
        raise NotImplementedError(self.name)

    def result(self, use: Use) -> Shape:
        """Return the shape of the output."""
        raise NotImplementedError(self.name)

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        use = self.use(in_shape)
        return [self.result(use), use.sizes[:3]]

    def infer_type(self, in_type: Dtypes, out_type: Dtypes) -> tuple[Dtypes, Dtypes, Dtypes]:
        n = len(self.operand_names)
        known = [d for d in (*in_type[:n], out_type[0]) if d is not None]
        first = known[0] if known else None
        if any(d != first for d in known) or (first is not None and not is_float(first)):
            raise DTypeError(f"{self.name}: {', '.join(self.operand_names)} have the dtypes {', '.join(map(str, known))}. They "
                             f"must have one floating type. Convert them with astype.")
        sums = None if first is None else _FLOAT64 if first == _FLOAT64 else np.dtype("float32")
        return [*[first] * n, *(d or first for d in in_type[n:])], [first, sums], []

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        use = self.use([s.shape for s in ins])
        if target == "gpu":
            attention = gpu_module("nn.triton_attention")
            return lambda run, inputs, outputs: attention.forward(run, use, inputs, outputs, reqs)
        return attention_tiles.forward(use, reqs)

    def backward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        use = self.use([s.shape for s in ins[1:-2]])
        if target == "gpu":
            attention = gpu_module("nn.triton_attention")
            return lambda run, inputs, outputs: attention.backward(run, use, inputs, outputs, reqs)
        return attention_tiles.backward(use, reqs)


@register_operator("_contrib_attention")
class Attention(AttentionLike):
    """softmax(scale · query keyᵀ + mask) value: scaled dot-product attention.

    query:   [batch, heads, queries, size], or without the axis of heads; key: [batch, heads, keys, size]; value: [batch, heads,
             keys, value size].
    mask:    None, or an array that broadcasts to [batch, heads, queries, keys]. Numbers of a floating type are added to the
             scores; of an integer type or bool, a key takes part where it is not 0. It gets no derivative.
             use_mask: whether there is one; to give it is enough.
    causal:  query i sees the keys 0 to i alone, whatever their number.
    scale:   of the scores; None: 1 / √size.
    Returns: [batch, heads, queries, value size]. A query that sees no key gives 0.
    The scores are computed by tiles, and again in backward: memory is linear in the lengths. Half precision is multiplied in half
    precision on a GPU, and summed in float32.
    """

    operand_names = ("query", "key", "value")

    def use(self, shapes: Sequence[Shape]) -> Use:
        q, k, v = shapes[:3]
        if not len(q) == len(k) == len(v) or len(q) not in (3, 4) or q[:-2] != k[:-2] or k[:-1] != v[:-1] or q[-1] != k[-1]:
            raise ShapeError(f"{self.name}: query {q}, key {k} and value {v} must be [batch, heads, queries, size], [batch, "
                             f"heads, keys, size] and [batch, heads, keys, value size], all three with heads or all without. "
                             f"Repeat the keys and values that several heads share.")
        mask = mask_shape(self.name, shapes[3], (*q[:-1], k[-2])) if self.use_mask else None
        together = mask is None or mask[:-2] == (1,) * (len(q) - 2)
        found = [contiguous(i, s, together) for i, s in enumerate((q, k, v, (*q[:-1], v[-1])))]
        scale = 1 / math.sqrt(max(q[-1], 1)) if self.scale is None else self.scale
        return Use(found[0], found[1], found[2], found[3]._replace(array=0), mask, self.causal, scale)

    def result(self, use: Use) -> Shape:
        raise AssertionError(self.name)

    def output_shapes(self, in_shape: KnownShapes) -> Shapes:
        self.use(in_shape)
        rows = tuple(in_shape[0][:-1])
        return [(*rows, in_shape[2][-1]), rows]
