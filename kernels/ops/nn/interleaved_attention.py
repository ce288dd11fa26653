"""interleaved_matmul_*, div_sqrt_dim: the products of multi-head attention, on interleaved projections.

Self-attention: the input holds queries, keys and values of each head, [time, batch, heads · 3 · depth]. Encoder-decoder: one
input holds the queries, another the keys and values. Scores are [batch · heads, queries, keys].
Source: Vaswani et al. 2017, arXiv:1706.03762.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from ....errors import ShapeError
from ...declare.composite import TracedValue, composite, ops
from ...declare.property_op import register_operator
from ...op import Shape
from .attention import AttentionLike
from .attention_layout import Use, interleaved, mask_shape


def _check(name: str, shape: Shape, heads: int, kinds: int) -> None:
    """Raise ShapeError unless shape is [time, batch, heads · kinds · depth]."""
    if len(shape) != 3 or heads < 1 or shape[2] % (heads * kinds):
        raise ShapeError(f"{name}: {shape} must be [time, batch, heads · {kinds} · depth] with heads={heads}.")


def _heads(name: str, x: TracedValue, heads: int, kinds: int) -> list[TracedValue]:
    """Split [time, batch, heads · kinds · depth] into `kinds` arrays [batch · heads, time, depth]."""
    _check(name, x.shape, heads, kinds)
    time, batch, width = x.shape
    depth = width // heads // kinds
    parts = x.reshape((time, batch * heads, kinds, depth))
    found = []
    for i in range(kinds):
        one = ops.slice_axis(parts, axis=2, begin=i, end=i + 1) if kinds > 1 else parts
        found.append(ops.transpose(one.reshape((time, batch * heads, depth)), axes=(1, 0, 2)))
    return found


def _together(x: TracedValue, heads: int) -> TracedValue:
    """Transpose [batch · heads, time, depth] to [time, batch, heads · depth]."""
    rows, time, depth = x.shape
    return ops.transpose(x, axes=(1, 0, 2)).reshape((time, rows // heads, heads * depth))


def _scores(q: TracedValue, k: TracedValue) -> TracedValue:
    return ops.batch_dot(q / math.sqrt(q.shape[2]), k, transpose_b=True)


@composite("_contrib_interleaved_matmul_selfatt_qk")
def selfatt_qk(queries_keys_values: TracedValue, *, heads: int) -> TracedValue:
    """q kᵀ / √depth of each head: [batch · heads, time, time]."""
    q, k, _ = _heads("interleaved_matmul_selfatt_qk", queries_keys_values, heads, 3)
    return _scores(q, k)


@composite("_contrib_interleaved_matmul_selfatt_valatt")
def selfatt_valatt(queries_keys_values: TracedValue, attention: TracedValue, *, heads: int) -> TracedValue:
    """attention [batch · heads, time, time] times the values: [time, batch, heads · depth]."""
    *_, v = _heads("interleaved_matmul_selfatt_valatt", queries_keys_values, heads, 3)
    return _together(ops.batch_dot(attention, v), heads)


@composite("_contrib_interleaved_matmul_encdec_qk")
def encdec_qk(queries: TracedValue, keys_values: TracedValue, *, heads: int) -> TracedValue:
    """q kᵀ / √depth of each head, with separate queries: [batch · heads, queries, keys]."""
    (q,), (k, _) = _heads("interleaved_matmul_encdec_qk", queries, heads, 1), _heads(
        "interleaved_matmul_encdec_qk", keys_values, heads, 2)
    return _scores(q, k)


@composite("_contrib_interleaved_matmul_encdec_valatt")
def encdec_valatt(keys_values: TracedValue, attention: TracedValue, *, heads: int) -> TracedValue:
    """attention [batch · heads, queries, keys] times the values: [queries, batch, heads · depth]."""
    _, v = _heads("interleaved_matmul_encdec_valatt", keys_values, heads, 2)
    return _together(ops.batch_dot(attention, v), heads)


class InterleavedAttention(AttentionLike):
    """Base class: attention whose operands lie interleaved, and whose result does: [queries, batch, heads · depth]."""

    heads: int
    kinds: ClassVar[tuple[int, ...]] = ()  # of operands in each argument

    def use(self, shapes: Sequence[Shape]) -> Use:
        for shape, kinds in zip(shapes, self.kinds):
            _check(self.name, shape, self.heads, kinds)
        query, key, value = [interleaved(i, kind, kinds, shapes[i], self.heads)
                             for i, kinds in enumerate(self.kinds) for kind in range(kinds)]
        batch, heads, queries, depth = query.shape
        if (batch, depth) != (key.shape[0], key.shape[3]):
            raise ShapeError(f"{self.name}: queries {shapes[0]} and keys_values {shapes[1]} must agree on the batch and the "
                             f"depth.")
        mask = mask_shape(self.name, shapes[-1], (batch * heads, queries, key.shape[2])) if self.use_mask else None
        output = interleaved(0, 0, 1, (queries, batch, heads * depth), heads)
        scale = 1 / math.sqrt(max(depth, 1)) if self.scale is None else self.scale
        return Use(query, key, value, output, mask, self.causal, scale)

    def result(self, use: Use) -> Shape:
        batch, heads, queries, depth = use.output.shape
        return queries, batch, heads * depth


@register_operator("_attention_selfatt")
class SelfAttention(InterleavedAttention):
    """interleaved_matmul_selfatt_valatt of the softmax of interleaved_matmul_selfatt_qk, as one operator."""

    kinds = (3,)
    operand_names = ("queries_keys_values",)


@register_operator("_attention_encdec")
class EncoderDecoderAttention(InterleavedAttention):
    """interleaved_matmul_encdec_valatt of the softmax of interleaved_matmul_encdec_qk, as one operator."""

    kinds = (1, 2)
    operand_names = ("queries", "keys_values")


@composite("_contrib_div_sqrt_dim")
def div_sqrt_dim(data: TracedValue) -> TracedValue:
    """data / √(the size of its last axis)."""
    if not data.ndim:
        raise ShapeError("div_sqrt_dim: data has no axes. It needs at least one.")
    return data / math.sqrt(max(data.shape[-1], 1))
