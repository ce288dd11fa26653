"""mx.sym.random: nodes that draw random numbers. Parameters that are symbols give `shape` numbers for each of their elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numpy.typing import DTypeLike

from ...errors import GraphError
from ...kernels import op as ops
from ...kernels.op import ShapeLike
from .symbol import Symbol, create

Value = float | Symbol  # a parameter of a distribution


def _draw(kind: str, shape: ShapeLike | None, dtype: DTypeLike, params: dict[str, Value], more: dict[str, Any]) -> Symbol:
    """Make a node of one distribution; shape and dtype become parameters if they are given."""
    given = {k: v for k, v in (("shape", shape), ("dtype", dtype)) if v is not None and v != "None"}
    symbols = [v for v in params.values() if isinstance(v, Symbol)]
    if symbols and len(symbols) < len(params):
        raise GraphError(f"random.{kind}: {', '.join(params)} must be all symbols or all numbers.")
    if symbols:
        return create(ops.builtin(f"_sample_{kind}"), symbols, {**given, **more})
    return create(ops.builtin(f"_random_{kind}"), (), {**params, **given, **more})


def uniform(low: Value = 0, high: Value = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Uniform in [low, high)."""
    return _draw("uniform", shape, dtype, {"low": low, "high": high}, kwargs)


def normal(loc: Value = 0, scale: Value = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Normal with mean loc and standard deviation scale."""
    return _draw("normal", shape, dtype, {"loc": loc, "scale": scale}, kwargs)


def randn(*shape: int, loc: Value = 0, scale: Value = 1, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Normal, with the shape given as arguments."""
    return normal(loc, scale, shape or None, dtype, **kwargs)


def exponential(scale: Value = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Exponential with mean scale."""
    return _draw("exponential", shape, dtype, {"lam": 1.0 / scale}, kwargs)


def gamma(alpha: Value = 1, beta: Value = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Gamma with shape alpha and scale beta; mean alpha · beta."""
    return _draw("gamma", shape, dtype, {"alpha": alpha, "beta": beta}, kwargs)


def poisson(lam: Value = 1, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Poisson with mean lam."""
    return _draw("poisson", shape, dtype, {"lam": lam}, kwargs)


def negative_binomial(k: Value = 1, p: Value = 1, shape: ShapeLike | None = None,
                      dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Failures before the k-th success, each with probability p."""
    return _draw("negative_binomial", shape, dtype, {"k": k, "p": p}, kwargs)


def generalized_negative_binomial(mu: Value = 1, alpha: Value = 1, shape: ShapeLike | None = None,
                                  dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Negative binomial with mean mu and dispersion alpha."""
    return _draw("generalized_negative_binomial", shape, dtype, {"mu": mu, "alpha": alpha}, kwargs)


def randint(low: int, high: int, shape: ShapeLike | None = None, dtype: DTypeLike = None, **kwargs: Any) -> Symbol:
    """Integers in [low, high)."""
    return _draw("randint", shape, dtype, {"low": low, "high": high}, kwargs)


def multinomial(data: Symbol, shape: ShapeLike | None = None, get_prob: bool = True,
                dtype: DTypeLike = "int32", **kwargs: Any) -> Symbol:
    """Positions drawn with the probabilities along data's last axis; with get_prob also their log probabilities."""
    given = {"get_prob": get_prob, "dtype": dtype, **({} if shape is None else {"shape": shape}), **kwargs}
    return create(ops.builtin("_sample_multinomial"), (data,), given)


def rand_zipfian(true_classes: Symbol, num_sampled: int, range_max: int) -> tuple[Symbol, Symbol, Symbol]:
    """num_sampled classes below range_max with P(k) = log((k + 2) / (k + 1)) / log(range_max + 1), as mx.nd.contrib's.

    Returns: the classes, int64; the expected count of each of true_classes among them; the expected count of each class drawn.
    """
    log_range = math.log(range_max + 1)
    draws = uniform(0, log_range, shape=(num_sampled,), dtype="float64")
    sampled = create(ops.builtin("expm1"), (draws,), {}).astype("int64") % range_max

    def expected(classes: Symbol) -> Symbol:
        k = classes.astype("float64")
        return ((k + 2) / (k + 1)).log() * (num_sampled / log_range)

    return sampled, expected(true_classes), expected(sampled)


#: The functions of mx.sym.random that are more than an operator.
DISTRIBUTIONS: dict[str, Callable[..., Symbol]] = {
    f.__name__: f for f in (uniform, normal, randn, exponential, gamma, poisson, negative_binomial,
                            generalized_negative_binomial, randint, multinomial)}
