"""Optimizer updates with a learning rate per element: RMSProp, Ftrl, FTML, LAMB, AdamW and AdaGrad; and Signum.

As in update.py, bodies return the new weight, then the new states. Some clip the gradient alone, others the gradient plus
wd · weight, as MXNet 1.x does: its trained models depend on that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....errors import ShapeError
from ...declare.operator_property import OperatorProperty, Shapes
from ...declare.property_op import register_operator
from ...declare.row_kernel import row_kernel
from ...declare.simple_op import Array, Scalar, simple_op
from ...ir.lang import maximum, minimum, power, sign, sqrt, where
from ...kernel import KernelFunction
from ...op import Req, Reqs, Specs, is_known, merge_shapes, register
from .mixed_precision import Direction, Rated, declare_mixed
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
def ftml_update(weight: Array, grad: Array, d: Array, v: Array, z: Array, *, lr: Scalar, beta1: Scalar = 0.6,
                beta2: Scalar = 0.999, epsilon: Scalar = 1e-8, t: Scalar, wd: Scalar = 0.0, rescale_grad: Scalar = 1.0,
                clip_grad: float = -1.0):
    """Follow the moving leader. t: the update count, from 1. Source: Zheng, Kwok 2017, ICML."""
    g = clipped(rescale_grad * grad + wd * weight, clip_grad)
    v = beta2 * v + (1 - beta2) * g * g
    now = (1 - power(beta1, t)) / lr * (sqrt(v / (1 - power(beta2, t))) + epsilon)
    z = beta1 * z + (1 - beta1) * g - (now - beta1 * d) * weight
    return -z / now, now, v, z


@simple_op(name="_sparse_adagrad_update", aliases=("adagrad_update", "_adagrad_update"), differentiable=False,
           states=("history",))
def adagrad_update(weight: Array, grad: Array, history: Array, *, lr: Scalar, epsilon: Scalar = 1e-7, wd: Scalar = 0.0,
                   rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """history ← history + g²; weight - lr (g / √(history + ε) + wd weight), on dense arrays.

    Source: Duchi, Hazan, Singer 2011.
    """
    g = clipped(rescale_grad * grad, clip_gradient)
    history = history + g * g
    return weight - lr * (g / sqrt(history + epsilon) + wd * weight), history


# ---- LAMB ------------------------------------------------------------------------------------------------------------
@simple_op(differentiable=False, states=("mean", "var"))
def lamb_update_phase1(weight: Array, grad: Array, mean: Array, var: Array, *, beta1: Scalar = 0.9,
                       beta2: Scalar = 0.999, epsilon: Scalar = 1e-6, t: Scalar, bias_correction: bool = True, wd: Scalar,
                       rescale_grad: Scalar = 1.0, clip_gradient: float = -1.0):
    """The direction of LAMB, Adam's with wd weight added. t: the update count, from 1. Source: You et al. 2019,
    arXiv:1904.00962."""
    g = clipped(rescale_grad * grad, clip_gradient)
    mean = beta1 * mean + (1 - beta1) * g
    var = beta2 * var + (1 - beta2) * g * g
    m, v = (mean / (1 - power(beta1, t)), var / (1 - power(beta2, t))) if bias_correction else (mean, var)
    return m / (sqrt(v) + epsilon) + wd * weight, mean, var


declare_mixed(lamb_update_phase1, "mp_lamb_update_phase1", kind=Direction)


@simple_op(differentiable=False, broadcast=True)
def lamb_update_phase2(weight: Array, g: Array, r1: Array, r2: Array, *, lr: Scalar, lower_bound: float = -1.0,
                       upper_bound: float = -1.0) -> Array:
    """weight - lr r1/r2 g: r1 [1] is the norm of the weight, clipped to lower_bound and upper_bound where
    they are not negative, r2 [1] that of g.
    If either is 0, their ratio is 1."""
    r1 = maximum(r1, lower_bound) if lower_bound >= 0 else r1
    r1 = minimum(r1, upper_bound) if upper_bound >= 0 else r1
    return weight - lr * where((r1 == 0) | (r2 == 0), 1, r1 / r2) * g


declare_mixed(lamb_update_phase2, "mp_lamb_update_phase2", kind=Rated)


# ---- AdamW -----------------------------------------------------------------------------------------------------------
def _adamw_update(weight: Array, grad: Array, mean: Array, var: Array, rescale_grad: Array, *, lr: Scalar,
                  beta1: Scalar = 0.9, beta2: Scalar = 0.999, epsilon: Scalar = 1e-8, wd: Scalar = 0.0, eta: Scalar,
                  clip_gradient: float = -1.0):
    """weight - eta (lr mean / (√var + ε) + wd weight), mean and var as in adam_update. rescale_grad: [1]; the update is skipped
    if it is 0, infinite or NaN. Source: Loshchilov, Hutter 2017, arXiv:1711.05101."""
    g = clipped(rescale_grad * grad, clip_gradient)
    usable = (abs(rescale_grad) < float("inf")) & (rescale_grad != 0)  # false for NaN
    new_mean = beta1 * mean + (1 - beta1) * g
    new_var = beta2 * var + (1 - beta2) * g * g
    step = eta * (lr * new_mean / (sqrt(new_var) + epsilon) + wd * weight)
    return where(usable, weight - step, weight), where(usable, new_mean, mean), where(usable, new_var, var)


_adamw = Rated(_adamw_update, differentiable=False, states=("mean", "var", "rescale_grad"), free=("rescale_grad",))
register(_adamw)
declare_mixed(_adamw, "_mp_adamw_update", "rescale_grad", kind=Rated)


@simple_op(differentiable=False)
def multi_lars(lrs: Array, weights_sum_sq: Array, grads_sum_sq: Array, wds: Array, *, eta: float, eps: float,
               rescale_grad: float = 1.0) -> Array:
    """lr eta |w| / (|rescale_grad g| + wd |w| + eps) for each layer, lr if |w| or |g| is 0. Inputs: one element per layer.

    Source: You, Gitman, Ginsburg 2017, arXiv:1708.03888.
    """
    w = sqrt(weights_sum_sq)
    rate = lrs * eta * w / (sqrt(grads_sum_sq) * rescale_grad + wds * w + eps)
    return where((weights_sum_sq > 0) & (grads_sum_sq > 0), rate, lrs)


@register_operator("_contrib_group_adagrad_update", aliases=("group_adagrad_update",))
class GroupAdagrad(OperatorProperty):
    """Adagrad with one history value per row: history ← history + mean of g² over the row; weight - lr g / √(history + ε).

    weight, grad: [n, ...]; history: [n, 1, ...] or [n], one number per row, changed in place. Returns: the new weight.
    """

    lr: float
    rescale_grad: float = 1.0
    clip_gradient: float = -1.0
    epsilon: float = 1e-5
    argument_names = ("weight", "grad")
    state_names = ("history",)
    gradient_arguments = ()

    def infer_shape(self, in_shape: Shapes, out_shape: Shapes) -> tuple[Shapes, Shapes, Shapes]:
        x = merge_shapes(self.name, "weight and grad", in_shape[0], in_shape[1])
        if x is not None and is_known(x) and not x:
            raise ShapeError(f"{self.name}: weight {x} has no rows.")
        return [x, x], [x], [None if x is None else (x[0], *(1,) * (len(x) - 1))]

    def forward_kernel(self, ins: Specs, outs: Specs, reqs: Reqs, target: str, train: bool) -> KernelFunction:
        w, g, history = ins
        n = w.shape[0]
        view, row = (n, math.prod(w.shape[1:])), (n, 1)

        def slope(g: Any) -> Any:
            return clipped(self.rescale_grad * g, self.clip_gradient)

        grow = row_kernel(lambda g: slope(g) * slope(g) / max(1, view[1]), [view], [row], row, [g], [history], [Req.ADD], target,
                          f"{self.name}_history")
        step = row_kernel(lambda w, g, h: w - self.lr * slope(g) / sqrt(h + self.epsilon), [view, view, row], [view], view,
                          [w, g, history], outs, reqs, target, self.name)

        def kernel(run: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
            grow(run, [inputs[1]], [inputs[2]])
            step(run, inputs, outputs)

        return kernel
