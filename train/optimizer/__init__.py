"""`mx.optimizer`: every optimizer, and `create`, which finds one by its name. Here stand those of plain descent.

Their formulas are operators (`mx.nd.sgd_update` and so on); the classes hold the settings, the states and the rates.
"""

from __future__ import annotations

from typing import Any

from ...errors import ParameterError
from ...ndarray import NDArray
from ...ndarray.functions.random import normal
from .adaptive import FTML, AdaDelta, AdaGrad, Adam, Adamax, Ftrl, Nadam, RMSProp
from .base import Index, Optimizer, Updater, create, get_updater, register, zeros_like
from .layerwise import LAMB, LARS, LBSGD
from .update import ParamUpdate

__all__ = [
    "DCASGD", "FTML", "LAMB", "LARS", "LBSGD", "NAG", "SGD", "SGLD", "AdaDelta", "AdaGrad", "Adam", "Adamax", "Ftrl",
    "Nadam", "Optimizer", "RMSProp", "Signum", "Test", "Updater", "ccSGD", "create", "get_updater", "register",
]


@register
class SGD(Optimizer):
    """Stochastic gradient descent: m = momentum · m - lr · (g + wd · w); w = w + m, with g rescaled, then clipped.

    momentum:     0 keeps no state.
    lazy_update:  accepted; it concerns sparse gradients only.
    """

    master_first = False

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lazy_update = lazy_update

    def create_state(self, index: Index, weight: NDArray) -> NDArray | None:
        return zeros_like(weight) if self.momentum else None

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        if state is None:
            return ParamUpdate("sgd_update", weight, grad, **self._common(index))
        return ParamUpdate("sgd_mom_update", weight, grad, (state,), momentum=self.momentum, **self._common(index))


@register
class ccSGD(SGD):  # MXNet's name for it
    """SGD under an older name."""


@register
class NAG(Optimizer):
    """Nesterov's accelerated gradient: g = g + wd · w; m = momentum · m - lr · g; w = w + momentum · m - lr · g.

    Source: Sutskever et al. 2013, proceedings.mlr.press/v28/sutskever13.
    """

    master_first = False

    def __init__(self, momentum: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum

    def create_state(self, index: Index, weight: NDArray) -> NDArray | None:
        return zeros_like(weight) if self.momentum else None

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        if state is None:
            return ParamUpdate("sgd_update", weight, grad, **self._common(index))
        return ParamUpdate("nag_mom_update", weight, grad, (state,), momentum=self.momentum, **self._common(index))


@register
class Signum(Optimizer):
    """Descent by the sign of the gradient, or of its running mean: w = (1 - lr · wd_lh) · w - lr · sign(m).

    wd_lh:  weight decay that is not part of the gradient. Source: Bernstein et al. 2018, arXiv:1802.04434.
    """

    def __init__(self, learning_rate: float = 0.01, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum = momentum
        self.wd_lh = wd_lh

    def create_state(self, index: Index, weight: NDArray) -> NDArray | None:
        return zeros_like(weight) if self.momentum else None

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        if state is None:
            return ParamUpdate("signsgd_update", weight, grad, **self._common(index))
        return ParamUpdate("signum_update", weight, grad, (state,), momentum=self.momentum, wd_lh=self.wd_lh,
                    **self._common(index))


@register
class SGLD(Optimizer):
    """Langevin dynamics: half a step of descent, and normal noise of variance lr. It draws from a posterior.

    Source: Welling and Teh 2011, "Bayesian Learning via Stochastic Gradient Langevin Dynamics".
    """

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        noise = normal(0.0, 1.0, shape=weight.shape, ctx=weight.context, dtype=weight.dtype)
        return ParamUpdate("_sgld_update", weight, grad, inputs=(noise,), **self._common(index))


@register
class DCASGD(Optimizer):
    """Descent that makes up for stale gradients: to g is added lamda · g² · (w - w before).

    Source: Zheng et al. 2017, arXiv:1609.08326. (MXNet 1.9.1's own fails at its first update.)
    """

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lamda = lamda

    def create_state(self, index: Index, weight: NDArray) -> tuple[NDArray | None, NDArray]:
        return (zeros_like(weight) if self.momentum else None), weight.copy()

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        mom, previous = state
        if mom is None:
            return ParamUpdate("_dcasgd_update", weight, grad, (previous,), lamda=self.lamda, **self._common(index))
        return ParamUpdate("_dcasgd_mom_update", weight, grad, (mom, previous), momentum=self.momentum, lamda=self.lamda,
                    **self._common(index))


@register
class Test(Optimizer):
    """Adds the rescaled gradient to the weight and keeps a copy of it: for tests of stores and files."""

    __test__ = False  # no test class of pytest's

    def create_state(self, index: Index, weight: NDArray) -> NDArray:
        return zeros_like(weight)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        if state is None:
            raise ParameterError("Test.update: the state is missing. Make it with create_state.")
        weight += grad * self.rescale_grad
        state[:] = weight
