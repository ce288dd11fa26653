"""Optimizer updates with a learning rate per element: RMSProp, Ftrl, FTML, LAMB, AdamW and AdaGrad; and Signum.

As in update.py, bodies return the new weight, then the new states. Some clip the gradient alone, others the gradient plus
wd · weight, as MXNet 1.x does: its trained models depend on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dtype import float32
from ...declare.simple_op import Array, Scalar, SimpleOp, simple_op
from ...ir.expr import Expr, as_expr, param
from ...ir.lang import maximum, minimum, power, sign, sqrt, where
from ...op import Dtypes, Shapes, register
from ...params import Params
from .update import clipped


@simple_op(differentiable=False, states=("mom",))
def signum_update(weight: Array, grad: Array, mom: Array, *, lr: Scalar, momentum: Scalar = 0.0, wd: Scalar = 0.0,
                  rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0, wd_lh: Scalar = 0.0):
    """mom ← momentum mom - (1 - momentum) (g + wd weight); (1 - lr wd_lh) weight + lr sign(mom).

    Source: Bernstein et al. 2018, arXiv:1802.04434; wd_lh: Loshchilov, Hutter 2017.
    """
    g = clipped(rescale_grad * grad, clip_gradient) + wd * weight
    mom = momentum * mom - (1 - momentum) * g
    return (1 - lr * wd_lh) * weight + lr * sign(mom), mom


@simple_op(differentiable=False, states=("n",))
def rmsprop_update(weight: Array, grad: Array, n: Array, *, lr: Scalar, gamma1: Scalar = 0.95, epsilon: Scalar = 1e-8,
                   wd: Scalar = 0.0, rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0, clip_weights: float = -1.0):
    """n ← γ₁ n + (1 - γ₁) g²; weight - lr g / √(n + ε), g with wd weight added before it is clipped.

    Source: Tieleman, Hinton 2012, lecture 6.5.
    """
    g = clipped(rescale_grad * grad + wd * weight, clip_gradient)
    n = gamma1 * n + (1 - gamma1) * g * g
    return clipped(weight - lr * g / sqrt(n + epsilon), clip_weights), n


@simple_op(differentiable=False, states=("n", "g", "delta"))
def rmspropalex_update(weight: Array, grad: Array, n: Array, g: Array, delta: Array, *, lr: Scalar, gamma1: Scalar = 0.95,
                       gamma2: Scalar = 0.9, epsilon: Scalar = 1e-8, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0,
                       clip_gradient: float = -1.0, clip_weights: float = -1.0):
    """RMSProp about the mean gradient, with momentum: delta ← γ₂ delta - lr grad / √(n - g² + ε); weight + delta.

    Source: Graves 2013, arXiv:1308.0850, equations 38 to 45.
    """
    slope = clipped(rescale_grad * grad + wd * weight, clip_gradient)
    n = gamma1 * n + (1 - gamma1) * slope * slope
    g = gamma1 * g + (1 - gamma1) * slope
    delta = gamma2 * delta - lr * slope / sqrt(n - g * g + epsilon)
    return clipped(weight + delta, clip_weights), n, g, delta


@simple_op(differentiable=False, states=("z", "n"))
def ftrl_update(weight: Array, grad: Array, z: Array, n: Array, *, lr: Scalar, lamda1: Scalar = 0.01, beta: Scalar = 1.0,
                wd: Scalar = 0.0, rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """Follow the regularized leader, per coordinate; weights whose |z| is at most lamda1 are 0.

    Source: McMahan et al. 2013, "Ad click prediction: a view from the trenches".
    """
    g = clipped(rescale_grad * grad, clip_gradient)
    more = n + g * g
    z = z + g - (sqrt(more) - sqrt(n)) * weight / lr
    w = (sign(z) * lamda1 - z) / ((beta + sqrt(more)) / lr + wd)
    return where(abs(z) > lamda1, w, 0), z, more


@simple_op(differentiable=False, states=("d", "v", "z"))
def ftml_update(weight: Array, grad: Array, d: Array, v: Array, z: Array, *, lr: Scalar, t: Scalar, beta1: Scalar = 0.6,
                beta2: Scalar = 0.999, epsilon: Scalar = 1e-8, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0,
                clip_grad: float = -1.0):
    """Follow the moving leader. t: the update count, from 1. Source: Zheng, Kwok 2017, ICML."""
    g = clipped(rescale_grad * grad + wd * weight, clip_grad)
    v = beta2 * v + (1 - beta2) * g * g
    now = (1 - power(beta1, t)) / lr * (sqrt(v / (1 - power(beta2, t))) + epsilon)
    z = beta1 * z + (1 - beta1) * g - (now - beta1 * d) * weight
    return -z / now, now, v, z


@simple_op(name="_sparse_adagrad_update", aliases=("adagrad_update",), differentiable=False, states=("history",))
def adagrad_update(weight: Array, grad: Array, history: Array, *, lr: Scalar, epsilon: Scalar = 1e-7, wd: Scalar = 0.0,
                   rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """history ← history + g²; weight - lr (g / √(history + ε) + wd weight), on dense arrays.

    Source: Duchi, Hazan, Singer 2011.
    """
    g = clipped(rescale_grad * grad, clip_gradient)
    history = history + g * g
    return weight - lr * (g / sqrt(history + epsilon) + wd * weight), history


# ---- LAMB ------------------------------------------------------------------------------------------------------------
def _lamb_direction(weight: Any, grad: Any, mean: Any, var: Any, *, t: Any, wd: Any, beta1: Any, beta2: Any, epsilon: Any,
                    bias_correction: bool, rescale_grad: Any, clip_gradient: float) -> tuple[Any, Any, Any]:
    g = clipped(rescale_grad * grad, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    m, v = (mean / (1 - power(beta1, t)), var / (1 - power(beta2, t))) if bias_correction else (mean, var)
    return m / (sqrt(v) + epsilon) + wd * weight, mean, var


@simple_op(differentiable=False, states=("mean", "var"))
def lamb_update_phase1(weight: Array, grad: Array, mean: Array, var: Array, *, t: Scalar, wd: Scalar, beta1: Scalar = 0.9,
                       beta2: Scalar = 0.999, epsilon: Scalar = 1e-6, bias_correction: bool = True,
                       rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """The direction of LAMB, Adam's with wd weight added. t: the update count, from 1. Source: You et al. 2019,
    arXiv:1904.00962."""
    return _lamb_direction(weight, grad, mean, var, t=t, wd=wd, beta1=beta1, beta2=beta2, epsilon=epsilon,
                           bias_correction=bias_correction, rescale_grad=rescale_grad, clip_gradient=clip_gradient)


def _lamb_step(weight: Any, g: Any, r1: Any, r2: Any, lr: Any, lower_bound: float, upper_bound: float) -> Any:
    r1 = maximum(r1, lower_bound) if lower_bound >= 0 else r1
    r1 = minimum(r1, upper_bound) if upper_bound >= 0 else r1
    return weight - lr * where((r1 == 0) | (r2 == 0), 1, r1 / r2) * g


@simple_op(differentiable=False, broadcast=True)
def lamb_update_phase2(weight: Array, g: Array, r1: Array, r2: Array, *, lr: Scalar, lower_bound: float = -1.0,
                       upper_bound: float = -1.0) -> Array:
    """weight - lr r1/r2 g: r1 [1] is the norm of the weight, clipped to the bounds that are not negative, r2 [1] that of g.
    If either is 0, their ratio is 1."""
    return _lamb_step(weight, g, r1, r2, lr, lower_bound, upper_bound)


class FloatResult(SimpleOp):
    """An update whose first result is float32 for every dtype of the weight."""

    def infer_dtype(self, p: Params, inputs: Dtypes, outputs: Dtypes | None = None) -> tuple[Dtypes, Dtypes]:
        return super().infer_dtype(p, inputs, None)[0], [float32]

    def result_dtype(self, p: Params, dtypes: Sequence[np.dtype]) -> np.dtype:
        return float32


def _mp_lamb_update_phase1(weight: Array, grad: Array, mean: Array, var: Array, weight32: Array, *, t: Scalar, wd: Scalar,
                           beta1: Scalar = 0.9, beta2: Scalar = 0.999, epsilon: Scalar = 1e-6, bias_correction: bool = True,
                           rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """lamb_update_phase1 with the float32 copy of a half-precision weight. Returns: float32."""
    found = _lamb_direction(weight32, grad, mean, var, t=t, wd=wd, beta1=beta1, beta2=beta2, epsilon=epsilon,
                            bias_correction=bias_correction, rescale_grad=rescale_grad, clip_gradient=clip_gradient)
    return *found, weight32


mp_lamb_update_phase1 = register(FloatResult(_mp_lamb_update_phase1, name="mp_lamb_update_phase1", differentiable=False,
                                             states=("mean", "var", "weight32"), free=("mean", "var", "weight32")))


class Rated(SimpleOp):
    """An update with inputs of one element (r1, r2, rescale_grad); the states have the shape of the weight."""

    singles: tuple[str, ...] = ()

    def infer_shape(self, p: Params, inputs: Shapes, outputs: Shapes | None = None) -> tuple[Shapes, Shapes]:
        single = [n in self.singles for n in self.input_names]
        (*rest,), outs = super().infer_shape(p, [s for s, one in zip(inputs, single) if not one], outputs)
        found = iter(rest)
        return [(1,) if one else next(found) for one in single], outs

    def states(self, p: Params) -> tuple[tuple[int, int], ...]:
        at = [self.input_names.index(n) for n in self._states if n not in self.singles]
        return tuple((1 + i, where_) for i, where_ in enumerate(at))

    def trace(self, p: Params, inputs: Sequence[Expr]) -> tuple[Expr, ...]:
        values = {d.name: param(d.name) if d.kind == "scalar" else p[d.name] for d in self.params}
        return tuple(as_expr(r) for r in self.body(*inputs, **values))


def _rated(body: Any, name: str, states: Sequence[str], free: Sequence[str], singles: Sequence[str]) -> Rated:
    op = Rated(body, name=name, differentiable=False, states=states, free=free)
    op.singles = tuple(singles)
    register(op)
    return op


def _mp_lamb_update_phase2(weight: Array, g: Array, r1: Array, r2: Array, weight32: Array, *, lr: Scalar,
                           lower_bound: float = -1.0, upper_bound: float = -1.0):
    """lamb_update_phase2 with the float32 copy of a half-precision weight."""
    w = _lamb_step(weight32, g, r1, r2, lr, lower_bound, upper_bound)
    return w, w


mp_lamb_update_phase2 = _rated(_mp_lamb_update_phase2, "mp_lamb_update_phase2", ("weight32",), ("g", "r1", "r2", "weight32"),
                               ("r1", "r2"))


# ---- AdamW -----------------------------------------------------------------------------------------------------------
def _adamw(weight: Any, grad: Any, mean: Any, var: Any, rescale_grad: Any, *, lr: Any, eta: Any, beta1: Any, beta2: Any,
           epsilon: Any, wd: Any, clip_gradient: float) -> tuple[Any, Any, Any]:
    g = clipped(rescale_grad * grad, clip_gradient)
    usable = (abs(rescale_grad) < float("inf")) & (rescale_grad != 0)  # false for NaN
    new_mean = beta1 * mean + (1 - beta1) * g
    new_var = beta2 * var + (1 - beta2) * g * g
    step = eta * (lr * new_mean / (sqrt(new_var) + epsilon) + wd * weight)
    return where(usable, weight - step, weight), where(usable, new_mean, mean), where(usable, new_var, var)


def _adamw_update(weight: Array, grad: Array, mean: Array, var: Array, rescale_grad: Array, *, lr: Scalar, eta: Scalar,
                  beta1: Scalar = 0.9, beta2: Scalar = 0.999, epsilon: Scalar = 1e-8, wd: Scalar = 0.0,
                  clip_gradient: float = -1.0):
    """weight - eta (lr mean / (√var + ε) + wd weight), mean and var as in adam_update. rescale_grad: [1]; the update is skipped
    if it is 0, infinite or NaN. Source: Loshchilov, Hutter 2017, arXiv:1711.05101."""
    return _adamw(weight, grad, mean, var, rescale_grad, lr=lr, eta=eta, beta1=beta1, beta2=beta2, epsilon=epsilon, wd=wd,
                  clip_gradient=clip_gradient)


def _mp_adamw_update(weight: Array, grad: Array, mean: Array, var: Array, weight32: Array, rescale_grad: Array, *, lr: Scalar,
                     eta: Scalar, beta1: Scalar = 0.9, beta2: Scalar = 0.999, epsilon: Scalar = 1e-8, wd: Scalar = 0.0,
                     clip_gradient: float = -1.0):
    """_adamw_update with the float32 copy of a half-precision weight."""
    w, mean, var = _adamw(weight32, grad, mean, var, rescale_grad, lr=lr, eta=eta, beta1=beta1, beta2=beta2,
                          epsilon=epsilon, wd=wd, clip_gradient=clip_gradient)
    return w, mean, var, w


_rated(_adamw_update, "_adamw_update", ("mean", "var", "rescale_grad"), ("rescale_grad",), ("rescale_grad",))
_rated(_mp_adamw_update, "_mp_adamw_update", ("mean", "var", "weight32", "rescale_grad"),
       ("mean", "var", "weight32", "rescale_grad"), ("rescale_grad",))


@simple_op(differentiable=False)
def multi_lars(lrs: Array, weights_sum_sq: Array, grads_sum_sq: Array, wds: Array, *, eta: float, eps: float,
               rescale_grad: float = 1.0) -> Array:
    """lr eta |w| / (|rescale_grad g| + wd |w| + eps) for each layer, lr if |w| or |g| is 0. Inputs: one element per layer.

    Source: You, Gitman, Ginsburg 2017, arXiv:1708.03888.
    """
    w = sqrt(weights_sum_sq)
    rate = lrs * eta * w / (sqrt(grads_sum_sq) * rescale_grad + wds * w + eps)
    return where((weights_sum_sq > 0) & (grads_sum_sq > 0), rate, lrs)
