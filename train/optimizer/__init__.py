"""`mx.optimizer`: all optimizers, and `create`, which makes one from its name. This file defines SGD and its variants.

The formulas are operators (`mx.nd.sgd_update` and so on). The classes hold settings, states and learning rates.
"""

from __future__ import annotations

from typing import Any

from ...errors import ParameterError
from ...ndarray import NDArray
from ...ndarray.functions.random import normal
from .adaptive import FTML, AdaDelta, AdaGrad, Adam, Adamax, Ftrl, GroupAdaGrad, Nadam, RMSProp
from .base import Index, MomentumOptimizer, Optimizer, Updater, create, get_updater, register
from .layerwise import LAMB, LARS, LBSGD
from .update import ParamUpdate

__all__ = [
    "DCASGD", "FTML", "LAMB", "LARS", "LBSGD", "NAG", "SGD", "SGLD", "AdaDelta", "AdaGrad", "Adam", "Adamax", "Ftrl",
    "GroupAdaGrad", "Nadam", "Optimizer", "RMSProp", "Signum", "Test", "Updater", "ccSGD", "create", "get_updater", "register",
]


@register
class SGD(MomentumOptimizer):
    """Stochastic gradient descent: m = momentum · m - lr · (g + wd · w); w = w + m, where g is rescaled, then clipped.

    momentum:     0 keeps no state.
    lazy_update:  a row-sparse gradient only updates its rows.
    """

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any):
        super().__init__(momentum, **kwargs)
        self.lazy_update = lazy_update


@register
class ccSGD(SGD):
    """SGD under an older name of MXNet."""


@register
class NAG(MomentumOptimizer):
    """Nesterov's accelerated gradient: g = g + wd · w; m = momentum · m - lr · g; w = w + momentum · m - lr · g.

    Source: Sutskever et al. 2013, proceedings.mlr.press/v28/sutskever13.
    """

    operators = ("sgd_update", "nag_mom_update")


@register
class Signum(MomentumOptimizer):
    """Descent by the sign of the gradient or of its running mean: w = (1 - lr · wd_lh) · w - lr · sign(m).

    wd_lh:  weight decay outside the gradient. Source: Bernstein et al. 2018, arXiv:1802.04434.
    """

    master_first = True

    def __init__(self, learning_rate: float = 0.01, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any):
        super().__init__(momentum, learning_rate=learning_rate, **kwargs)
        self.wd_lh = wd_lh

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        if state is None:
            return ParamUpdate("signsgd_update", weight, grad, **self._common(index))
        return ParamUpdate("signum_update", weight, grad, (state,), momentum=self.momentum, wd_lh=self.wd_lh,
                    **self._common(index))


@register
class SGLD(Optimizer):
    """Langevin dynamics: half a step of descent plus normal noise of variance lr. The weights are samples of a posterior.

    Source: Welling and Teh 2011, "Bayesian Learning via Stochastic Gradient Langevin Dynamics".
    """

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        noise = normal(0.0, 1.0, shape=weight.shape, ctx=weight.context, dtype=weight.dtype)
        return ParamUpdate("_sgld_update", weight, grad, inputs=(noise,), **self._common(index))


@register
class DCASGD(MomentumOptimizer):
    """Descent that compensates for stale gradients: it adds lamda · g² · (w - previous w) to g.

    Source: Zheng et al. 2017, arXiv:1609.08326. (MXNet 1.9.1's DCASGD fails at its first update.)
    """

    master_first = True

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Any):
        super().__init__(momentum, **kwargs)
        self.lamda = lamda

    def create_state(self, index: Index, weight: NDArray) -> tuple[NDArray | None, NDArray]:
        return super().create_state(index, weight), weight.copy()

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        mom, previous = state
        if mom is None:
            return ParamUpdate("_dcasgd_update", weight, grad, (previous,), lamda=self.lamda, **self._common(index))
        return ParamUpdate("_dcasgd_mom_update", weight, grad, (mom, previous), momentum=self.momentum, lamda=self.lamda,
                    **self._common(index))


@register
class Test(Optimizer):
    """Adds the rescaled gradient to the weight and copies the weight to the state: for tests of stores and files."""

    __test__ = False  # pytest must not collect it
    num_states = 1

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        if state is None:
            raise ParameterError("Test.update: the state is missing. Create it with create_state.")
        weight += grad * self.rescale_grad
        state[:] = weight
