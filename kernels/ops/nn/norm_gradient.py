"""_norm_gradient: the derivative of a normalization, composed of operators so that it can be differentiated again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...declare.composite import TracedValue, composite, ops


def differentiable_gradient(norm: Any, read: Mapping[tuple[str, int], Any], fixed: bool) -> list[Any] | None:
    """Return the derivatives of a normalisation by its own mean and variance; None where gamma has another dtype than the data.

    norm:   the property, with `view` and `eps`. read: as in OperatorProperty.differentiable_gradient.
    fixed:  gamma counts as 1 and gets the derivative 0.
    """
    dy, x, gamma = read["dy", 0], read["x", 0], read["x", 1]
    if gamma.dtype != x.dtype:
        return None
    full, kept, row = norm.view(x.shape)
    dx, d_gamma, d_beta = ops._norm_gradient(dy, x, ops.ones_like(gamma) if fixed else gamma, full=full, kept=kept, row=row,
                                             eps=norm.eps)
    return [dx, ops.zeros_like(gamma) if fixed else d_gamma, d_beta]


@composite("_norm_gradient", outputs=("data_grad", "gamma_grad", "beta_grad"))
def norm_gradient(dy: Any, data: Any, gamma: Any, *, full: tuple[int, ...], kept: tuple[int, ...], row: tuple[int, ...],
                  eps: float) -> Any:
    """The derivatives of gamma · (data - mean) / √(var + eps) + beta, by data, gamma and beta.

    full: the shape of data for the formula; kept: full with 1 on the reduced axes; row: the shape of gamma, which
    broadcasts to full.
    """
    axes = tuple(i for i, n in enumerate(kept) if n == 1)
    count = max(1, math.prod(full[i] for i in axes))
    spread = (1,) * (len(full) - len(row)) + tuple(row)
    others = tuple(i for i, n in enumerate(spread) if n == 1)

    def mean(v: TracedValue) -> TracedValue:
        return ops.sum(v, axis=axes, keepdims=True) / count

    def folded(v: TracedValue) -> TracedValue:
        return (ops.sum(v, axis=others, keepdims=True) if others else v).reshape(gamma.shape)

    x, g = data.reshape(full), dy.reshape(full)
    d = x - mean(x)
    std = ops.sqrt(mean(d * d) + eps)
    unit = d / std
    scaled = g * gamma.reshape(spread)
    dx = (scaled - mean(scaled) - unit * mean(scaled * unit)) / std
    return dx.reshape(data.shape), folded(g * unit), folded(g)
