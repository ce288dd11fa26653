"""random_pdf_*: probability densities of samples; the parameters are arrays. sample: [*parameters, m] or [*parameters].

The parameters broadcast over the trailing axes of sample. is_log: return the logarithm of the density. All have derivatives by
the parameters, and by the samples unless these are integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....errors import ShapeError
from ...declare.composite import TracedValue, composite, ops
from ...declare.simple_op import Float, simple_op
from ...ir.lang import gammaln, log
from ...params import Param

IS_LOG = Param("is_log", "bool", False, doc="the logarithm")


def _spread(name: str, sample: TracedValue, parameter: TracedValue) -> TracedValue:
    shape = parameter.shape
    if sample.shape[:len(shape)] != shape:
        raise ShapeError(f"{name}: sample {sample.shape} must begin with the parameters' shape {shape}.")
    return parameter.reshape((*shape, *(1,) * (sample.ndim - len(shape)))) if sample.ndim > len(shape) else parameter


def _density(name: str, names: tuple[str, ...], says: str, body: Callable[..., Any], integers: bool = False) -> None:
    """Declare random_pdf_<name> and the broadcasting log density that it uses. integers: samples are integers."""
    inner = f"_log_pdf_{name}"
    made = simple_op(body, name=inner, broadcast=True, doc=f"The logarithm of {says}")
    assert made.input_names == ("x", *names)

    def pdf(*arrays: TracedValue, is_log: bool) -> TracedValue:
        sample, *parameters = arrays
        y = getattr(ops, inner)(sample, *(_spread(f"random_pdf_{name}", sample, p) for p in parameters))
        return y if is_log else ops.exp(y)

    pdf.__doc__ = f"{says[0].upper()}{says[1:]}\n\nis_log: return the logarithm. Returns: the shape of sample."
    arguments = ("sample", *names)
    composite(f"_random_pdf_{name}", aliases=(f"random_pdf_{name}",), arguments=lambda p: arguments, params=(IS_LOG,),
              gives=names if integers else None)(pdf)


def _uniform(x: Float, low: Float, high: Float) -> Float:
    return -log(high - low) + 0 * x


def _normal(x: Float, mu: Float, sigma: Float) -> Float:
    z = (x - mu) / sigma
    return -0.5 * z * z - log(sigma) - 0.5 * math.log(2 * math.pi)


def _gamma(x: Float, alpha: Float, beta: Float) -> Float:
    return alpha * log(beta) + (alpha - 1) * log(x) - beta * x - gammaln(alpha)


def _exponential(x: Float, lam: Float) -> Float:
    return log(lam) - lam * x


def _poisson(x: Float, lam: Float) -> Float:
    return x * log(lam) - lam - gammaln(x + 1)


def _negative_binomial(x: Float, k: Float, p: Float) -> Float:
    return gammaln(x + k) - gammaln(x + 1) - gammaln(k) + k * log(p) + x * log(1 - p)


def _generalized(x: Float, mu: Float, alpha: Float) -> Float:
    k = 1 / alpha
    return gammaln(x + k) - gammaln(x + 1) - gammaln(k) - k * log(1 + mu * alpha) + x * (log(mu * alpha) - log(1 + mu * alpha))


_density("uniform", ("low", "high"), "the density of sample, uniform between low and high.", _uniform)
_density("normal", ("mu", "sigma"), "the density of sample, normal with mean mu and standard deviation sigma.", _normal)
_density("gamma", ("alpha", "beta"), "the density of sample, gamma with shape alpha and rate beta.", _gamma)
_density("exponential", ("lam",), "the density of sample, exponential with rate lam.", _exponential)
_density("poisson", ("lam",), "the probability of sample, Poisson with mean lam.", _poisson, integers=True)
_density("negative_binomial", ("k", "p"), "the probability of sample failures before the k-th success of probability p.",
         _negative_binomial, integers=True)
_density("generalized_negative_binomial", ("mu", "alpha"),
         "the probability of sample, negative binomial with mean mu and dispersion alpha.", _generalized, integers=True)


@composite("_random_pdf_dirichlet", aliases=("random_pdf_dirichlet",))
def dirichlet(sample: TracedValue, alpha: TracedValue, *, is_log: bool = False) -> TracedValue:
    """The density of sample, Dirichlet with concentrations alpha, along the last axis.

    alpha: [..., k]; sample: [..., m, k] or [..., k]. is_log: return the logarithm. Returns: sample.shape[:-1].
    """
    if not alpha.ndim or sample.shape[-1:] != alpha.shape[-1:] or sample.shape[:alpha.ndim - 1] != alpha.shape[:-1]:
        raise ShapeError(f"random_pdf_dirichlet: sample {sample.shape} must begin and end as alpha {alpha.shape}.")
    a = alpha.reshape((*alpha.shape[:-1], *(1,) * (sample.ndim - alpha.ndim), alpha.shape[-1]))
    kept = {"axis": (-1,), "keepdims": True}
    y = ops.sum(ops.log(sample) * (a - 1.0), **kept) + ops.gammaln(ops.sum(a, **kept)) - ops.sum(ops.gammaln(a), **kept)
    y = y.reshape(sample.shape[:-1] or (1,))
    return y if is_log else ops.exp(y)
