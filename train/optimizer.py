"""`mx.optimizer`: the optimizers. Their formulas are operators (`mx.nd.sgd_update` and so on), so each update is one
queued kernel; here stand the settings, the states and the rates."""

from __future__ import annotations

import math
from typing import Any

from .. import ndarray as nd
from ..ndarray import NDArray, zeros
from .optimizer_base import Index, Optimizer, Updater, create, get_updater, register

__all__ = ["NAG", "SGD", "Adam", "Optimizer", "Updater", "create", "get_updater", "register"]


@register
class SGD(Optimizer):
    """Stochastic gradient descent: m = momentum · m - lr · (g + wd · w); w = w + m, with g rescaled, then clipped.

    momentum:     0 keeps no state.
    lazy_update:  accepted; it concerns sparse gradients only.
    """

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lazy_update = lazy_update

    def create_state(self, index: Index, weight: NDArray) -> NDArray | None:
        return _like(weight) if self.momentum else None

    def create_state_multi_precision(self, index: Index, weight: NDArray) -> Any:
        if not self.keeps_master(weight):
            return self.create_state(index, weight)
        master = weight.astype("float32")
        return self.create_state(index, master), master

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        if state is None:
            nd.sgd_update(weight, grad, out=weight, **common)
        else:
            nd.sgd_mom_update(weight, grad, state, out=weight, momentum=self.momentum, **common)

    def update_multi_precision(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        if not self.keeps_master(weight):
            self.update(index, weight, grad, state)
            return
        common = self._common(index)
        mom, master = state
        if mom is None:
            nd.mp_sgd_update(weight, grad, master, out=weight, **common)
        else:
            nd.mp_sgd_mom_update(weight, grad, mom, master, out=weight, momentum=self.momentum, **common)


@register
class NAG(Optimizer):
    """Nesterov's accelerated gradient: g = g + wd · w; m = momentum · m - lr · g; w = w + momentum · m - lr · g.

    Source: Sutskever et al. 2013, proceedings.mlr.press/v28/sutskever13.
    """

    def __init__(self, momentum: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum

    def create_state(self, index: Index, weight: NDArray) -> NDArray | None:
        return _like(weight) if self.momentum else None

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        if state is None:
            nd.sgd_update(weight, grad, out=weight, **common)
            return
        nd.nag_mom_update(weight, grad, state, out=weight, momentum=self.momentum, **common)


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
        return _like(weight), _like(weight)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        common = self._common(index)
        t = self._index_update_count[index]
        common["lr"] *= math.sqrt(1 - self.beta2**t) / (1 - self.beta1**t)
        mean, var = state
        nd.adam_update(weight, grad, mean, var, out=weight, beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon,
                       **common)


def _like(weight: NDArray) -> NDArray:
    return zeros(weight.shape, ctx=weight.context, dtype=weight.dtype)
