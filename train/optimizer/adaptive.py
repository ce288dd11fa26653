"""Optimizers that scale each element's step by what its gradients were."""

from __future__ import annotations

import math
from typing import Any

from ...ndarray import NDArray
from .base import Index, Optimizer, register, zeros_like
from .update import ParamUpdate


@register
class Adam(Optimizer):
    """Adam: steps scaled by running means of the gradient and of its square, both corrected for their start at 0.

    Source: Kingma and Ba 2014, arXiv:1412.6980.
    """

    def __init__(self, learning_rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
                 lazy_update: bool = True, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lazy_update = lazy_update

    def create_state(self, index: Index, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        common = self._common(index)
        t = self._index_update_count[index]
        common["lr"] *= math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)
        return ParamUpdate("adam_update", weight, grad, state, beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon, **common)


@register
class AdaGrad(Optimizer):
    """AdaGrad: every element's rate falls with the sum of its squared gradients. eps stands under the root.

    Source: Duchi et al. 2011, jmlr.org/papers/v12/duchi11a.
    """

    lazy_update = True

    def __init__(self, eps: float = 1e-7, **kwargs: Any):
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def create_state(self, index: Index, weight: NDArray) -> NDArray:
        return zeros_like(weight)

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        return ParamUpdate("_adagrad_update", weight, grad, (state,), epsilon=self.float_stable_eps, **self._common(index))


@register
class AdaDelta(Optimizer):
    """AdaDelta: steps as large as the last steps were, per unit of gradient. It has no learning rate.

    Source: Zeiler 2012, arXiv:1212.5701.
    """

    def __init__(self, rho: float = 0.90, epsilon: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.rho = rho
        self.epsilon = epsilon

    def create_state(self, index: Index, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        return ParamUpdate("_adadelta_update", weight, grad, state, rho=self.rho, epsilon=self.epsilon, **self._common(index))


@register
class RMSProp(Optimizer):
    """RMSProp: the gradient over the root of its running square.

    gamma1:        how slowly the running means change.
    centered:      use the variance instead of the square, and a momentum gamma2 (Graves 2013, arXiv:1308.0850).
    clip_weights:  keep the weights within ± this.
    """

    def __init__(self, learning_rate: float = 0.001, gamma1: float = 0.9, gamma2: float = 0.9, epsilon: float = 1e-8,
                 centered: bool = False, clip_weights: float | None = None, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1 = gamma1
        self.gamma2 = gamma2
        self.epsilon = epsilon
        self.centered = centered
        self.clip_weights = clip_weights

    def create_state(self, index: Index, weight: NDArray) -> tuple[NDArray, ...]:
        return tuple(zeros_like(weight) for _ in range(3 if self.centered else 1))

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        settings = self._common(index)
        settings |= {"gamma1": self.gamma1, "epsilon": self.epsilon}
        settings["clip_weights"] = -1.0 if self.clip_weights is None else self.clip_weights
        if not self.centered:
            return ParamUpdate("rmsprop_update", weight, grad, state, **settings)
        return ParamUpdate("rmspropalex_update", weight, grad, state, gamma2=self.gamma2, **settings)


@register
class Adamax(Optimizer):
    """Adam with the largest gradient so far, fading, in place of the running square.

    Source: Kingma and Ba 2014, arXiv:1412.6980, section 7.1.
    """

    def __init__(self, learning_rate: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2

    def create_state(self, index: Index, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        common = self._common(index)
        common["lr"] /= 1 - self.beta1 ** self._index_update_count[index]
        return ParamUpdate("_adamax_update", weight, grad, state, beta1=self.beta1, beta2=self.beta2, **common)


@register
class Nadam(Optimizer):
    """Adam with Nesterov's momentum, which a schedule lets rise. As in MXNet, one schedule goes on for all parameters.

    Source: Dozat 2016, "Incorporating Nesterov Momentum into Adam".
    """

    def __init__(self, learning_rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
                 schedule_decay: float = 0.004, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.schedule_decay = schedule_decay
        self.m_schedule = 1.0

    def create_state(self, index: Index, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        common = self._common(index)
        t = self._index_update_count[index]
        now, then = (self.beta1 * (1 - 0.5 * 0.96 ** (k * self.schedule_decay)) for k in (t, t + 1))
        self.m_schedule *= now
        return ParamUpdate("_nadam_update", weight, grad, state, beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon,
                    by_grad=(1 - now) / (1 - self.m_schedule), by_mean=then / (1 - self.m_schedule * then),
                    by_var=1 / (1 - self.beta2**t), **common)


@register
class Ftrl(Optimizer):
    """Follow the regularized leader: lamda1 makes weights exactly 0 whose gradients do not add up to more.

    Source: McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches".
    """

    lazy_update = True

    def __init__(self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.lamda1 = lamda1
        self.beta = beta
        self.lr = learning_rate

    def create_state(self, index: Index, weight: NDArray) -> tuple[NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight)

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        return ParamUpdate("ftrl_update", weight, grad, state, lamda1=self.lamda1, beta=self.beta, **self._common(index))


@register
class FTML(Optimizer):
    """Follow the moving leader: FTRL with Adam's running means.

    Source: Zheng and Kwok 2017, proceedings.mlr.press/v70/zheng17a.
    """

    def __init__(self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any):
        super().__init__(**kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def create_state(self, index: Index, weight: NDArray) -> tuple[NDArray, NDArray, NDArray]:
        return zeros_like(weight), zeros_like(weight), zeros_like(weight)

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        settings = self._common(index)
        settings["clip_grad"] = settings.pop("clip_gradient")
        return ParamUpdate("ftml_update", weight, grad, state, beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon,
                    t=self._index_update_count[index], **settings)
