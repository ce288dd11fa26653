"""Optimizer updates. Each is declared as one kernel that returns the new weight, then the new states.

lr, wd and rescale_grad are run-time scalars, so a schedule needs no new kernels. The formulas are those of MXNet 1.x:
rescale the gradient, clip it to ±clip_gradient if that is positive, then add wd·weight.
"""

from __future__ import annotations

from ...declare.simple_op import Array, Scalar, simple_op
from ...ir.lang import maximum, minimum, sign, sqrt
from .mixed_precision import declare_mixed


def rescaled(grad: Array, rescale_grad: Scalar, bound: float, lr: Scalar) -> Array:
    """Return lr times the rescaled and clipped gradient; one product per element without clipping."""
    return lr * clipped(rescale_grad * grad, bound) if bound > 0 else (lr * rescale_grad) * grad


def clipped(g: Array, bound: float) -> Array:
    """Clip g to ±bound if that is positive."""
    return maximum(minimum(g, bound), -bound) if bound > 0 else g


@simple_op(differentiable=False)
def sgd_update(weight: Array, grad: Array, *, lr: Scalar, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0,
               clip_gradient: float = -1.0, lazy_update: bool = True) -> Array:
    """weight - lr (g + wd weight), g the rescaled and clipped gradient."""
    return (1 - lr * wd) * weight - rescaled(grad, rescale_grad, clip_gradient, lr)


@simple_op(differentiable=False, states=("mom",))
def sgd_mom_update(weight: Array, grad: Array, mom: Array, *, lr: Scalar, momentum: Scalar = 0.0, wd: Scalar = 0.0,
                   rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0, lazy_update: bool = True):
    """mom ← momentum mom - lr (g + wd weight); weight + mom. Source: Polyak 1964."""
    mom = momentum * mom - lr * wd * weight - rescaled(grad, rescale_grad, clip_gradient, lr)
    return weight + mom, mom


@simple_op(differentiable=False, states=("mom",))
def nag_mom_update(weight: Array, grad: Array, mom: Array, *, lr: Scalar, momentum: Scalar = 0.0, wd: Scalar = 0.0,
                   rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """mom ← momentum mom - lr (g + wd weight); weight + momentum mom - lr (g + wd weight). Source: Nesterov 1983.

    mom contains wd times the new weight, because MXNet updates in place.
    """
    g = clipped(rescale_grad * grad, clip_gradient)
    mom = momentum * mom - lr * g
    moved = weight + momentum * (mom - lr * wd * weight) - lr * (g + wd * weight)
    return moved, mom - lr * wd * moved


@simple_op(differentiable=False, states=("mean", "var"))
def adam_update(weight: Array, grad: Array, mean: Array, var: Array, *, lr: Scalar, beta1: Scalar = 0.9, beta2: Scalar = 0.999,
                epsilon: Scalar = 1e-8, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0,
                lazy_update: bool = True):
    """mean ← β₁ mean + (1-β₁) g; var ← β₂ var + (1-β₂) g²; weight - lr mean / (√var + ε), g with wd weight added.

    Source: Kingma and Ba 2015, arXiv:1412.6980; lr includes the bias correction.
    """
    g = clipped(rescale_grad * grad + wd * weight, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    return weight - lr * mean / (sqrt(var) + epsilon), mean, var


@simple_op(differentiable=False)
def signsgd_update(weight: Array, grad: Array, *, lr: Scalar, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0,
                   clip_gradient: float = -1.0) -> Array:
    """(1 - lr wd) weight - lr sign(grad). rescale_grad and clip_gradient have no effect."""
    return (1 - lr * wd) * weight - lr * sign(grad)


for _rule in (sgd_update, sgd_mom_update, nag_mom_update):
    declare_mixed(_rule, f"mp_{_rule.name}")
