"""interleaved_matmul_*, div_sqrt_dim: the products of multi-head attention, on interleaved projections.

Self-attention: the input holds queries, keys and values of each head, [time, batch, heads · 3 · depth]. Encoder-decoder: one
input holds the queries, another the keys and values. Scores are [batch · heads, queries, keys].
Source: Vaswani et al. 2017, arXiv:1706.03762.
"""

from __future__ import annotations

import math

from ....errors import ShapeError
from ...declare.composite import TracedValue, composite, ops


def _heads(name: str, x: TracedValue, heads: int, kinds: int) -> list[TracedValue]:
    """Split [time, batch, heads · kinds · depth] into `kinds` arrays [batch · heads, time, depth]."""
    if x.ndim != 3 or heads < 1 or x.shape[2] % (heads * kinds):
        raise ShapeError(f"{name}: {x.shape} must be [time, batch, heads · {kinds} · depth] with heads={heads}.")
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


@composite("_contrib_div_sqrt_dim")
def div_sqrt_dim(data: TracedValue) -> TracedValue:
    """data / √(the size of its last axis)."""
    if not data.ndim:
        raise ShapeError("div_sqrt_dim: data has no axes. It needs at least one.")
    return data / math.sqrt(max(data.shape[-1], 1))
