"""Optimizers that adapt the step of each element to its past gradients."""

from __future__ import annotations

import math
from typing import Any

from ...errors import ParameterError
from ...ndarray import NDArray, zeros, zeros_like
from .base import Index, Optimizer, register
from .update import ParamUpdate


@register
class Adam(Optimizer):
    """Adam: the running mean of the gradient over the root of that of its square, both corrected for their start at 0.

    Source: Kingma and Ba 2014, arXiv:1412.6980.
    """

    num_states = 2

    def __init__(self, learning_rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
                 lazy_update: bool = True, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1, self.beta2, self.epsilon, self.lazy_update = beta1, beta2, epsilon, lazy_update

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        common = self._common(index)
        t = self._index_update_count[index]
        common["lr"] *= math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)
        return ParamUpdate("adam_update", weight, grad, state, beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon, **common)


@register
class AdaGrad(Optimizer):
    """AdaGrad: divide by the root of the sum of squared gradients and eps.

    Source: Duchi et al. 2011, jmlr.org/papers/v12/duchi11a.
    """

    lazy_update = True
    num_states = 1

    def __init__(self, eps: float = 1e-7, **kwargs: Any):
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        return ParamUpdate("_adagrad_update", weight, grad, (state,), epsilon=self.float_stable_eps, **self._common(index))


@register
class GroupAdaGrad(Optimizer):
    """AdaGrad with one sum of squared gradients for each row of a matrix: the mean over the row. No weight decay.

    Raises ParameterError for a parameter that is not a matrix, or that has weight decay.
    """

    def __init__(self, eps: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def create_state(self, index: Index, weight: NDArray) -> NDArray:
        if weight.ndim != 2:
            raise ParameterError(f"GroupAdaGrad: parameter {index!r} {weight.shape} is not a matrix. Use AdaGrad for it.")
        return zeros((weight.shape[0], 1), weight.context, weight.dtype)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._update_count(index)
        if self._get_wd(index):
            raise ParameterError(f"GroupAdaGrad: parameter {index!r} has weight decay, which is not available. Use wd=0.")
        slope = grad * self.rescale_grad
        if self.clip_gradient is not None:
            slope = slope.clip(-self.clip_gradient, self.clip_gradient)
        state += slope.square().mean(axis=1, keepdims=True)
        weight -= self._get_lr(index) * slope / (state + self.float_stable_eps).sqrt()


@register
class AdaDelta(Optimizer):
    """AdaDelta: scale the gradient by the root mean square of recent steps over that of recent gradients. No learning rate.

    Source: Zeiler 2012, arXiv:1212.5701.
    """

    num_states = 2

    def __init__(self, rho: float = 0.90, epsilon: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.rho, self.epsilon = rho, epsilon

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        return ParamUpdate("_adadelta_update", weight, grad, state, rho=self.rho, epsilon=self.epsilon, **self._common(index))


@register
class RMSProp(Optimizer):
    """RMSProp: divide the gradient by the root of the running mean of its square.

    gamma1:        decay of the running means, near 1 for long memory.
    centered:      use the variance instead of the mean square, and a momentum gamma2 (Graves 2013, arXiv:1308.0850).
    clip_weights:  clip the weights to ± this value.
    """

    def __init__(self, learning_rate: float = 0.001, gamma1: float = 0.9, gamma2: float = 0.9, epsilon: float = 1e-8,
                 centered: bool = False, clip_weights: float | None = None, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1, self.gamma2, self.epsilon = gamma1, gamma2, epsilon
        self.centered, self.clip_weights = centered, clip_weights

    def create_state(self, index: Index, weight: NDArray) -> tuple[NDArray, ...]:
        return tuple(zeros_like(weight) for _ in range(3 if self.centered else 1))

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        settings = {**self._common(index), "gamma1": self.gamma1, "epsilon": self.epsilon,
                    "clip_weights": -1.0 if self.clip_weights is None else self.clip_weights}
        if not self.centered:
            return ParamUpdate("rmsprop_update", weight, grad, state, **settings)
        return ParamUpdate("rmspropalex_update", weight, grad, state, gamma2=self.gamma2, **settings)


@register
class Adamax(Optimizer):
    """Adam with a decaying maximum of the gradient's size instead of the running mean of its square.

    Source: Kingma and Ba 2014, arXiv:1412.6980, section 7.1.
    """

    num_states = 2

    def __init__(self, learning_rate: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1, self.beta2 = beta1, beta2

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        common = self._common(index)
        common["lr"] /= 1 - self.beta1 ** self._index_update_count[index]
        return ParamUpdate("_adamax_update", weight, grad, state, beta1=self.beta1, beta2=self.beta2, **common)


@register
class Nadam(Optimizer):
    """Adam with Nesterov's momentum, which rises by a schedule. As in MXNet, all parameters advance the same schedule.

    Source: Dozat 2016, "Incorporating Nesterov Momentum into Adam".
    """

    num_states = 2

    def __init__(self, learning_rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
                 schedule_decay: float = 0.004, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1, self.beta2, self.epsilon, self.schedule_decay = beta1, beta2, epsilon, schedule_decay
        self.m_schedule = 1.0

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        common = self._common(index)
        t = self._index_update_count[index]
        momentum, following = (self.beta1 * (1 - 0.5 * 0.96 ** (k * self.schedule_decay)) for k in (t, t + 1))
        self.m_schedule *= momentum
        return ParamUpdate("_nadam_update", weight, grad, state, beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon,
                    by_grad=(1 - momentum) / (1 - self.m_schedule), by_mean=following / (1 - self.m_schedule * following),
                    by_var=1 / (1 - self.beta2**t), **common)


@register
class Ftrl(Optimizer):
    """Follow the regularized leader. A weight is exactly 0 while the sum of its gradients is below lamda1.

    Source: McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches".
    """

    lazy_update = True
    num_states = 2

    def __init__(self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.lamda1, self.beta, self.lr = lamda1, beta, learning_rate

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        return ParamUpdate("ftrl_update", weight, grad, state, lamda1=self.lamda1, beta=self.beta, **self._common(index))


@register
class FTML(Optimizer):
    """Follow the moving leader: FTRL with Adam's running means.

    Source: Zheng and Kwok 2017, proceedings.mlr.press/v70/zheng17a.
    """

    num_states = 3

    def __init__(self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any):
        super().__init__(**kwargs)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        settings = self._common(index)
        settings["clip_grad"] = settings.pop("clip_gradient")
        return ParamUpdate("ftml_update", weight, grad, state, beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon,
                    t=self._index_update_count[index], **settings)
