"""Loops in index formulas: sums, products, extremes and general folds over a counter k = 0, 1, … n - 1, in that order.

n is an int or a traced integer, and may differ from element to element. A body is traced, not run: it gets k as a traced
integer. What does not depend on k is computed once, even where n is 0, so that its indices must be within bounds then too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .expr import Expr, as_expr, cast, const, identity, prim
from .indexed import body_dtype, first_extreme, loop


def fold(n: Any, start: Any, step: Callable[..., Any]) -> Any:
    """Return what start becomes by step(k, value), for k = 0, 1, … n - 1.

    start:  a number, a traced value, or a tuple of them; then step gets and returns as many values.
    The dtypes of the values are the widest that start and step give.
    """
    several = isinstance(start, tuple)
    found = loop(n, start if several else (start,), step)
    return found if several else found[0]


def sum(n: Any, body: Callable[[Expr], Any]) -> Expr:
    """Return Σ body(k) in body's dtype: half precision adds in float32, truth counts in int32. 0 for n = 0."""
    dtype = body_dtype(n, body)
    return loop(n, (const(0, dtype),), lambda k, a: prim("add", a, cast(as_expr(body(k)), dtype)))[0]


def prod(n: Any, body: Callable[[Expr], Any]) -> Expr:
    """Return the product of body(k). 1 for n = 0."""
    dtype = body_dtype(n, body)
    return loop(n, (const(1, dtype),), lambda k, a: prim("mul", a, cast(as_expr(body(k)), dtype)))[0]


def max(n: Any, body: Callable[[Expr], Any]) -> Expr:
    """Return the largest body(k); NaN if one is. For n = 0 -inf, or the least integer."""
    return _extreme(n, body, "maximum")


def min(n: Any, body: Callable[[Expr], Any]) -> Expr:
    """Return the smallest body(k); NaN if one is. For n = 0 inf, or the largest integer."""
    return _extreme(n, body, "minimum")


def _extreme(n: Any, body: Callable[[Expr], Any], kind: str) -> Expr:
    dtype = body_dtype(n, body)
    first = const(identity(kind, dtype), dtype)
    return loop(n, (first,), lambda k, a: prim(kind, a, cast(as_expr(body(k)), dtype)))[0]


def argmax(n: Any, body: Callable[[Expr], Any]) -> Expr:
    """Return the first k with the largest body(k), or with NaN if there is one; int64. 0 for n = 0."""
    return first_extreme(n, body, "gt")


def argmin(n: Any, body: Callable[[Expr], Any]) -> Expr:
    """Return the first k with the smallest body(k), or with NaN if there is one; int64. 0 for n = 0."""
    return first_extreme(n, body, "lt")
