"""Learning-rate schedulers: functions from the number of an update to its learning rate.

Each may begin with a warm-up of `warmup_steps` updates: linear from `warmup_begin_lr` to `base_lr`, or constant at
`warmup_begin_lr` (`warmup_mode="constant"`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import pairwise

from ...errors import ParameterError, check_choice
from ...show import Shown


class LRScheduler(Shown):
    """Base: `scheduler(num_update)` returns the learning rate of an update, counted from 1.

    base_lr:  the rate after the warm-up. An optimizer with a `learning_rate`, its own or a given one, replaces this attribute.
              The warm-up, PolyScheduler and CosineScheduler keep computing with the rate they were made with.
    """

    def __init__(self, base_lr: float = 0.01, warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear"):
        name = type(self).__name__
        if not isinstance(warmup_steps, int) or warmup_steps < 0:
            raise ParameterError(f"{name}: warmup_steps={warmup_steps!r} is not an integer >= 0.")
        if warmup_begin_lr > base_lr:
            raise ParameterError(f"{name}: the rate would fall during the warm-up: warmup_begin_lr={warmup_begin_lr}, "
                                 f"base_lr={base_lr}. Give a warmup_begin_lr of at most base_lr.")
        check_choice(name, "warmup_mode", warmup_mode, ("linear", "constant"))
        self.warmup_steps = warmup_steps
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_mode = warmup_mode
        self.base_lr = self.base_lr_orig = self.warmup_final_lr = base_lr

    def get_warmup_lr(self, num_update: int) -> float:
        """Return the learning rate of an update of the warm-up."""
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        rise = self.warmup_final_lr - self.warmup_begin_lr
        return self.warmup_begin_lr + rise * num_update / self.warmup_steps

    def __call__(self, num_update: int) -> float:
        """Return the learning rate of an update. Calls must come in rising order of num_update, as in training."""
        return self.get_warmup_lr(num_update) if num_update < self.warmup_steps else self.after_warmup(num_update)

    def after_warmup(self, num_update: int) -> float:
        """Return the learning rate of an update after the warm-up. A subclass implements this."""
        raise NotImplementedError(f"{type(self).__name__}.after_warmup")


class FactorScheduler(LRScheduler):
    """Multiply the rate by `factor` every `step` updates, down to `stop_factor_lr`."""

    def __init__(self, step: int, factor: float = 1, stop_factor_lr: float = 1e-8, base_lr: float = 0.01,
                 warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear"):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if step < 1:
            raise ParameterError(f"FactorScheduler: step={step} must be at least 1 update.")
        _check_factor("FactorScheduler", factor)
        self.step, self.factor, self.stop_factor_lr = step, factor, stop_factor_lr
        self.count = 0

    def after_warmup(self, num_update: int) -> float:
        while num_update > self.count + self.step:
            self.count += self.step
            self.base_lr *= self.factor
            if self.base_lr < self.stop_factor_lr:
                self.base_lr = self.stop_factor_lr
                logging.info("Update[%d]: now learning rate arrived at %.5e, will not change in the future", num_update,
                             self.base_lr)
            else:
                logging.info("Update[%d]: Change learning rate to %.5e", num_update, self.base_lr)
        return self.base_lr


class MultiFactorScheduler(LRScheduler):
    """Multiply the rate by `factor` after each of the updates in `step`."""

    def __init__(self, step: Sequence[int], factor: float = 1, base_lr: float = 0.01, warmup_steps: int = 0,
                 warmup_begin_lr: float = 0, warmup_mode: str = "linear"):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        step = list(step)
        if not step or step[0] < 1 or any(b <= a for a, b in pairwise(step)):
            raise ParameterError(f"MultiFactorScheduler: step={step} must be rising integers, each >= 1.")
        _check_factor("MultiFactorScheduler", factor)
        self.step, self.factor = step, factor
        self.cur_step_ind = self.count = 0

    def after_warmup(self, num_update: int) -> float:
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
            logging.info("Update[%d]: Change learning rate to %.5e", num_update, self.base_lr)
        return self.base_lr


class _FiniteScheduler(LRScheduler):
    """Base of schedulers that go from base_lr at the end of the warm-up to final_lr at max_update."""

    def __init__(self, max_update: int, base_lr: float = 0.01, final_lr: float = 0, warmup_steps: int = 0,
                 warmup_begin_lr: float = 0, warmup_mode: str = "linear"):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        name = type(self).__name__
        if not isinstance(max_update, int) or max_update < 1:
            raise ParameterError(f"{name}: max_update={max_update!r} is not an integer >= 1.")
        self.final_lr, self.max_update, self.max_steps = final_lr, max_update, max_update - warmup_steps

    def share_of_base_lr(self, t: float) -> float:
        """Return the factor, from 1 at t = 0 to 0 at t = 1."""
        raise NotImplementedError

    def after_warmup(self, num_update: int) -> float:
        if num_update <= self.max_update:
            t = (num_update - self.warmup_steps) / self.max_steps if self.max_steps > 0 else 1.0  # the warm-up may fill them all
            self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * self.share_of_base_lr(t)
        return self.base_lr


class PolyScheduler(_FiniteScheduler):
    """Go from base_lr to final_lr along (1 - t)^pwr, where t is 0 at the end of the warm-up and 1 at max_update."""

    def __init__(self, max_update: int, base_lr: float = 0.01, pwr: float = 2, final_lr: float = 0,
                 warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear"):
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.power = pwr

    def share_of_base_lr(self, t: float) -> float:
        return (1 - t) ** self.power


class CosineScheduler(_FiniteScheduler):
    """Go from base_lr to final_lr along half a cosine wave, which ends at max_update."""

    def share_of_base_lr(self, t: float) -> float:
        return (1 + math.cos(math.pi * t)) / 2


def _check_factor(name: str, factor: float) -> None:
    if factor > 1:
        raise ParameterError(f"{name}: factor={factor} would raise the learning rate. Give a factor of at most 1.")
