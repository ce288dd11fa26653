"""Updates that MXNet composes of several operators, each declared as one kernel. Their names begin with _: `mx.optimizer`
uses them.

As in update.py, bodies return the new weight, then the new states. Updates that need the norm of a whole array
(`_lamb_update`, `_lars_update`, `_lbsgd_update`) reduce over the last axis, so the caller passes arrays as [1, n].
"""

from __future__ import annotations

from typing import Any

from ...declare.simple_op import Array, Scalar, simple_op
from ...ir.lang import maximum, minimum, row_sum, sqrt, where
from .mixed_precision import declare_mixed
from .update import clipped


def _norm(x: Any) -> Any:
    return sqrt(row_sum(x * x))


@simple_op(differentiable=False, states=("acc_g", "acc_delta"))
def _adadelta_update(weight: Array, grad: Array, acc_g: Array, acc_delta: Array, *, lr: Scalar = 1.0, rho: Scalar = 0.9,
                     epsilon: Scalar = 1e-5, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """acc_g ← mean of g²; δ = √((acc_delta + ε) / (acc_g + ε)) g; acc_delta ← mean of δ²; weight - δ - wd weight.

    lr is accepted and ignored, as in MXNet. Source: Zeiler 2012, arXiv:1212.5701.
    """
    g = clipped(rescale_grad * grad, clip_gradient)
    acc_g = rho * acc_g + (1 - rho) * g * g
    delta = sqrt(acc_delta + epsilon) / sqrt(acc_g + epsilon) * g
    acc_delta = rho * acc_delta + (1 - rho) * delta * delta
    return weight - delta - wd * weight, acc_g, acc_delta


@simple_op(differentiable=False, states=("mean", "largest"))
def _adamax_update(weight: Array, grad: Array, mean: Array, largest: Array, *, lr: Scalar, beta1: Scalar = 0.9,
                   beta2: Scalar = 0.999, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """mean ← β₁ mean + (1-β₁) g; largest ← max(β₂ largest, |g|); weight - lr mean / largest.

    lr includes the bias correction. Where largest is 0, the weight does not change.
    Source: Kingma and Ba 2015, arXiv:1412.6980, § 7.1.
    """
    g = clipped(rescale_grad * grad + wd * weight, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    largest = maximum(beta2 * largest, abs(g))
    return weight - where(largest > 0, lr * mean / largest, 0.0), mean, largest


@simple_op(differentiable=False, states=("mean", "var"))
def _nadam_update(weight: Array, grad: Array, mean: Array, var: Array, *, lr: Scalar, beta1: Scalar = 0.9,
                  beta2: Scalar = 0.999, epsilon: Scalar = 1e-8, by_grad: Scalar = 1.0, by_mean: Scalar = 1.0,
                  by_var: Scalar = 1.0, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """weight - lr (by_grad g + by_mean mean) / (√(by_var var) + ε): the by_ factors hold the momentum schedule.

    Source: Dozat 2016, "Incorporating Nesterov Momentum into Adam".
    """
    g = clipped(rescale_grad * grad + wd * weight, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    return weight - lr * (by_grad * g + by_mean * mean) / (sqrt(by_var * var) + epsilon), mean, var


@simple_op(differentiable=False)
def _sgld_update(weight: Array, grad: Array, noise: Array, *, lr: Scalar, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0,
                 clip_gradient: float = -1.0) -> Array:
    """weight - lr/2 (g + wd weight) + √lr noise, noise being standard normal. Source: Welling and Teh 2011."""
    g = clipped(rescale_grad * grad, clip_gradient)
    return weight - lr / 2 * (g + wd * weight) + sqrt(lr) * noise


@simple_op(differentiable=False, states=("previous",))
def _dcasgd_update(weight: Array, grad: Array, previous: Array, *, lr: Scalar, lamda: Scalar = 0.04, wd: Scalar = 0.0,
                   rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """weight - lr (g + wd weight + λ g² (weight - previous)), and previous ← weight. Source: Zheng et al. 2017."""
    g = clipped(rescale_grad * grad, clip_gradient)
    return weight - lr * (g + wd * weight + lamda * g * g * (weight - previous)), weight


@simple_op(differentiable=False, states=("mom", "previous"))
def _dcasgd_mom_update(weight: Array, grad: Array, mom: Array, previous: Array, *, lr: Scalar, momentum: Scalar = 0.0,
                       lamda: Scalar = 0.04, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """_dcasgd_update with momentum."""
    g = clipped(rescale_grad * grad, clip_gradient)
    mom = momentum * mom - lr * (g + wd * weight + lamda * g * g * (weight - previous))
    return weight + mom, mom, weight


# ---- updates with the norm of an array -------------------------------------------------------------------------------
@simple_op(differentiable=False, states=("mean", "var"))
def _lamb_update(weight: Array, grad: Array, mean: Array, var: Array, *, lr: Scalar, beta1: Scalar = 0.9,
                 beta2: Scalar = 0.999, epsilon: Scalar = 1e-6, by_mean: Scalar = 1.0, by_var: Scalar = 1.0,
                 wd: Scalar = 0.0, rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0, lower_bound: float = -1.0,
                 upper_bound: float = -1.0):
    """d = by_mean mean / (√(by_var var) + ε) + wd weight; weight - lr ‖weight‖ / ‖d‖ d, ‖weight‖ clipped to the bounds.

    The arrays are [1, n]. If a norm is 0, the ratio is 1. Source: You et al. 2020, arXiv:1904.00962.
    """
    g = clipped(rescale_grad * grad, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    d = by_mean * mean / (sqrt(by_var * var) + epsilon) + wd * weight
    length, step = _norm(weight), _norm(d)
    if lower_bound > 0:
        length = maximum(length, lower_bound)
    if upper_bound > 0:
        length = minimum(length, upper_bound)
    ratio = where(length * step > 0, length / step, 1.0)
    return weight - lr * ratio * d, mean, var


declare_mixed(_lamb_update, "_mp_lamb_update")


@simple_op(differentiable=False, states=("mom",))
def _lars_update(weight: Array, grad: Array, mom: Array, *, lr: Scalar, momentum: Scalar = 0.0, eta: Scalar = 0.001,
                 epsilon: Scalar = 0.0, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """sgd_mom_update with lr times η ‖weight‖ / (‖g‖ + wd ‖weight‖ + ε), g before clipping; times 1 if a norm is 0.

    The arrays are [1, n]. Source: You et al. 2017, arXiv:1708.03888.
    """
    length, slope = _norm(weight), _norm(rescale_grad * grad)
    rate = lr * where(length * slope > 0, eta * length / (slope + wd * length + epsilon), 1.0)
    g = clipped(rescale_grad * grad, clip_gradient)
    mom = momentum * mom - rate * wd * weight - rate * g
    return weight + mom, mom


@simple_op(differentiable=False, states=("mom",))
def _lbsgd_update(weight: Array, grad: Array, mom: Array, *, lr: Scalar, momentum: Scalar = 0.0, wd: Scalar = 0.0,
                  rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """sgd_mom_update with lr times √(‖weight‖² / (‖grad‖² + wd ‖weight‖²)), clipped to 0.01 … 100. Arrays are [1, n]."""
    length = row_sum(weight * weight)
    factor = sqrt(length / (row_sum(grad * grad) + wd * length + 1e-18))
    rate = lr * minimum(maximum(factor, 0.01), 100.0)
    g = clipped(rescale_grad * grad, clip_gradient)
    mom = momentum * mom - rate * wd * weight - rate * g
    return weight + mom, mom
