"""Reductions: sum, mean, product, extremes, norms. The body is per element; `combine` reduces it along the axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...declare.composite import TracedValue, ops, vjp_rule
from ...declare.reduction import reduction
from ...declare.simple_op import Array
from ...ir import lang
from ...ir.lang import where


@reduction(name="sum", aliases=("sum_axis",), combine="add")
def sum_(data: Array) -> Array:
    """Σ data along axis.

    axis: axes to reduce; None or (): all axes, which gives shape (1,). keepdims: keep them with size 1.
    exclude: reduce the axes that are not named. Half precision is summed in float32 and rounded once.
    """
    return data


@sum_.gradient
def _(dy):
    return dy


@reduction(combine="add", finish=lambda total, count: lang.quotient(total, count) if lang.is_whole(total) else total / count)
def mean(data: Array) -> Array:
    """The mean of data along axis. Integers are summed in 64 bits and the mean is truncated. Parameters as in sum."""
    return lang.widest(data)


@mean.gradient
def _(dy, *, count):
    return dy / count


@vjp_rule("sum", "mean")
def _(op: Any, p: Any, dy: TracedValue, x: TracedValue) -> Sequence[TracedValue]:
    kept = op.kept(p, x.shape)
    dx = ops.broadcast_to(dy.reshape(kept), shape=x.shape)
    return [dx if op is sum_ else dx / (math.prod(x.shape) / max(math.prod(kept), 1))]


@reduction(combine="add")
def nansum(data: Array) -> Array:
    """Σ data along axis, with NaN taken as 0. Parameters as in sum."""
    return where(data == data, data, 0)


@nansum.gradient
def _(dy, data):
    return where(data == data, dy, 0)


@reduction(name="_square_sum", combine="add")
def square_sum(data: Array) -> Array:
    """Σ data² along axis. Parameters as in sum."""
    return data * data


@square_sum.gradient
def _(dy, data):
    return 2 * data * dy


@reduction(combine="mul")
def prod(data: Array) -> Array:
    """Π data along axis. Parameters as in sum."""
    return data


@prod.gradient
def _(dy, data, y):
    return dy * y / data


@reduction(combine="mul")
def nanprod(data: Array) -> Array:
    """Π data along axis, with NaN taken as 1. Parameters as in sum."""
    return where(data == data, data, 1)


@nanprod.gradient
def _(dy, data, y):
    return where(data == data, dy * y / data, 0)


@reduction(name="max", aliases=("max_axis",), combine="maximum")
def max_(data: Array) -> Array:
    """The largest of data along axis. Parameters as in sum. Every element equal to it gets the whole derivative."""
    return data


@reduction(name="min", aliases=("min_axis",), combine="minimum")
def min_(data: Array) -> Array:
    """The smallest of data along axis. Parameters as in sum. Every element equal to it gets the whole derivative."""
    return data


@max_.gradient
@min_.gradient
def _(dy, data, y):
    return where(data == y, dy, 0)
