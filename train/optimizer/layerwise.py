"""Optimizers for large batches: the learning rate of a layer depends on the norm of its weights."""

from __future__ import annotations

import math
from typing import Any

from ...errors import check_choice
from ...ndarray import NDArray, zeros_like
from .base import Index, MomentumOptimizer, Optimizer, register
from .update import ParamUpdate


@register
class LAMB(Optimizer):
    """The step of Adam, scaled to the norm of each layer's weights.

    lower_bound, upper_bound:  clip that norm; None does not.
    Source: You et al. 2019, arXiv:1904.00962.
    """

    elementwise = False
    num_states = 2

    def __init__(self, learning_rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-6,
                 lower_bound: float | None = None, upper_bound: float | None = None, bias_correction: bool = True, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.lower_bound, self.upper_bound, self.bias_correction = lower_bound, upper_bound, bias_correction

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        settings = self._common(index)
        if self.bias_correction:
            t = self._index_update_count[index]
            settings |= {"by_mean": 1 / (1 - self.beta1**t), "by_var": 1 / (1 - self.beta2**t)}
        return ParamUpdate("_lamb_update", weight, grad, state, flat=True, beta1=self.beta1, beta2=self.beta2,
                    epsilon=self.epsilon, lower_bound=self.lower_bound or -1.0, upper_bound=self.upper_bound or -1.0,
                    **settings)


@register
class LARS(MomentumOptimizer):
    """SGD with momentum; the learning rate of a layer is scaled by eta · ‖w‖ / (‖g‖ + wd ‖w‖ + eps).

    Biases, gammas and betas are updated by plain SGD.
    momentum_correction:  when the learning rate changes, scale the momentum by the same factor.
    Source: You et al. 2017, arXiv:1708.03888.
    """

    elementwise = False

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, eta: float = 0.001, eps: float = 0,
                 momentum_correction: bool = True, **kwargs: Any):
        super().__init__(momentum, **kwargs)
        self.lazy_update, self.eta, self.eps, self.momentum_correction = lazy_update, eta, eps, momentum_correction
        self.last_lr: float | None = None
        self.cur_lr: float | None = None
        self._last_update = -1

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate:
        settings = self._common(index)
        if self.num_update != self._last_update:  # once for all parameters of an update
            self._last_update = self.num_update
            lr = self.learning_rate
            self.last_lr, self.cur_lr = lr if self.cur_lr is None else self.cur_lr, lr
        momentum = self.momentum
        if self.momentum_correction and self.last_lr:
            assert self.cur_lr is not None
            momentum *= self.cur_lr / self.last_lr
        plain = str(self.idx2name.get(index, index)).endswith(("gamma", "beta", "bias"))
        if plain:
            return self.momentum_step(weight, grad, state, momentum, settings)
        if state is None:  # the operator needs an array, but does not read it when momentum is 0
            state, momentum = zeros_like(weight), 0.0
        return ParamUpdate("_lars_update", weight, grad, (state,), flat=True, momentum=momentum, eta=self.eta, epsilon=self.eps,
                    **settings)


@register
class LBSGD(MomentumOptimizer):
    """SGD with momentum that sums `batch_scale` gradients before each step, with a warm-up of the learning rate.

    warmup_strategy:  "linear", "power2", "sqrt": the rate rises from lr to batch_scale · lr over warmup_epochs of
                      updates_per_epoch updates; "lars": it depends on the norms of weights and gradient.
    """

    elementwise = False
    master_first = True

    def __init__(self, momentum: float = 0.0, multi_precision: bool = False, warmup_strategy: str = "linear",
                 warmup_epochs: int = 5, batch_scale: int = 1, updates_per_epoch: int = 32, begin_epoch: int = 0,
                 num_epochs: int = 60, **kwargs: Any):
        super().__init__(momentum, multi_precision=multi_precision, **kwargs)
        check_choice("LBSGD", "warmup_strategy", warmup_strategy, ("linear", "power2", "sqrt", "lars"))
        self.warmup_strategy, self.warmup_epochs, self.batch_scale = warmup_strategy, warmup_epochs, batch_scale
        self.updates_per_epoch, self.num_epochs = updates_per_epoch, num_epochs
        self.init_updates = begin_epoch * updates_per_epoch
        self._sums: dict[Any, NDArray] = {}
        self._counts: dict[Any, int] = {}

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return the momentum or None. Under multi_precision, for a 16-bit weight: (that, float32 copy), which `update` takes."""
        if not self.has_master_weight(weight):
            return super().create_state(index, weight)
        master = weight.astype("float32")
        return super().create_state(index, master), master

    def step(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> ParamUpdate | None:
        if isinstance(state, tuple):
            step = self.step(index, state[1], grad, state[0])
            return None if step is None else step.with_master_weight(weight)
        rate = self._get_lr(index)  # of the update before, where a scheduler sets it: MXNet counts this one later
        settings = self._common(index)
        settings["lr"] = rate
        count = self._counts[index] = self._counts.get(index, self.init_updates) + 1
        if self.batch_scale > 1:
            total = self._sums.get(index)
            if total is None:
                self._sums[index] = total = grad.copy()
            else:
                total += grad
            if count % self.batch_scale:
                return None
            grad = self._sums.pop(index) / self.batch_scale
        if self.warmup_strategy == "lars":
            state = zeros_like(weight) if state is None else state
            return ParamUpdate("_lbsgd_update", weight, grad, (state,), flat=True, momentum=self.momentum, **settings)
        settings["lr"] *= self._warmup_factor(count)
        return self.momentum_step(weight, grad, state, self.momentum, settings)

    def _warmup_factor(self, count: int) -> float:
        total = self.warmup_epochs * self.updates_per_epoch
        if count >= total or total <= 1:
            return float(self.batch_scale) if count >= total else 1.0
        t = count / total
        t = {"linear": t, "power2": t * t, "sqrt": math.sqrt(t)}[self.warmup_strategy]
        return 1.0 + (self.batch_scale - 1) * t
