"""Combine: a user's function that folds two values into one, as add or maximum do.

    @reduction(combine=lambda a, b: logaddexp(a, b), identity=-math.inf)
    def log_sum(x):
        return x
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtype import float32, float64, is_half
from ...errors import OperatorError
from .expr import CAST, CONST, LOAD, Expr, as_expr, cast, load, resolve_weak_dtype, topological, typed
from .primitives import PRIMITIVES

COMBINES = ("add", "mul", "maximum", "minimum")


@dataclass(frozen=True)
class Combine:
    """An associative and commutative function of two traced values, and the value that changes no other."""

    function: Callable[[Any, Any], Any]
    identity: float

    def root(self, dtype: np.dtype) -> Expr:
        """Return the function as an expression of loads 0 and 1, in dtype."""
        dtype = float32 if is_half(dtype) else dtype
        made = as_expr(self.function(load(0, dtype), load(1, dtype)))
        return cast(made, dtype) if made.dtype is not None else resolve_weak_dtype(made, dtype)

    def on_arrays(self, dtype: np.dtype) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return the function of two NumPy arrays of dtype."""
        order = topological([self.root(dtype)])

        def combined(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            values: dict[int, Any] = {}
            for x in order:
                d, args = typed(x), [values[id(y)] for y in x.args]
                if x.op in (LOAD, CONST):
                    values[id(x)] = (a, b)[x.value] if x.op == LOAD else np.asarray(x.value, d)
                elif x.op == CAST:
                    values[id(x)] = args[0].astype(d)
                elif x.op == "where":
                    values[id(x)] = np.where(*args)
                else:
                    values[id(x)] = np.empty(np.broadcast_shapes(*(v.shape for v in args)), d)
                    PRIMITIVES[x.op].numpy(*args, out=values[id(x)])
            return values[id(order[-1])]

        return combined


def combine_of(op: str, combine: Any, identity: float | None) -> str | Combine:
    """Return how an operator folds: one of COMBINES, or a user's function with its identity.

    Raises: OperatorError for anything else, and where the identity changes a value.
    """
    if isinstance(combine, str) and combine in COMBINES:
        if identity is not None:
            raise OperatorError(f"{op}: combine={combine!r} has an identity already. Leave identity out.")
        return combine
    if not callable(combine):
        raise OperatorError(f"{op}: combine={combine!r} is none of {', '.join(COMBINES)}. Give one of them, or a function of two "
                            f"values with its identity.")
    if identity is None:
        raise OperatorError(f"{op}: combine is a function, and needs identity=: the value that changes no other.")
    made = Combine(combine, identity)
    samples = np.array([identity, 0.25, 1, 3, -2])
    with np.errstate(all="ignore"):
        found = made.on_arrays(float64)(np.full(5, float(identity)), samples)
    wrong = [s for s, f in zip(samples, found) if not (f == s or (f != f and s != identity))]  # NaN: out of its domain
    if wrong:
        raise OperatorError(f"{op}: identity={identity} changes {wrong[0]:g}: combine({identity}, {wrong[0]:g}) is "
                            f"{found[list(samples).index(wrong[0])]:g}. Give the value that changes no other, itself included.")
    return made


def fold(function: Callable[[np.ndarray, np.ndarray], np.ndarray], values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return values folded over axes, which stay with size 1: neighbours first, then the results of neighbours."""
    for axis in axes:
        values = np.moveaxis(values, axis, 0)
        while (n := values.shape[0]) > 1:
            pairs = function(values[0:n // 2 * 2:2], values[1:n // 2 * 2:2])
            values = np.concatenate([pairs, values[n - 1:]]) if n % 2 else pairs
        values = np.moveaxis(values, 0, axis)
    return values
