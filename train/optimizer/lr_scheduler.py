"""Learning-rate schedules: a number of updates in, a learning rate out.

Each starts with an optional warm-up: `warmup_steps` updates that rise in a line from `warmup_begin_lr` to `base_lr`,
or stay at `warmup_begin_lr` (`warmup_mode="constant"`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import pairwise

from ...errors import ParameterError


class LRScheduler:
    """Base: `scheduler(num_update)` gives the learning rate of that update, counted from 1.

    base_lr:  the rate at the end of the warm-up. An optimizer that was given a `learning_rate` replaces it (`rebase`).
    """

    def __init__(self, base_lr: float = 0.01, warmup_steps: int = 0, warmup_begin_lr: float = 0,
                 warmup_mode: str = "linear"):
        name = type(self).__name__
        if not isinstance(warmup_steps, int) or warmup_steps < 0:
            raise ParameterError(f"{name}: warmup_steps={warmup_steps!r} is not a whole number of updates >= 0.")
        if warmup_begin_lr > base_lr:
            raise ParameterError(f"{name}: the warm-up would fall: warmup_begin_lr={warmup_begin_lr}, "
                                 f"base_lr={base_lr}. Give a warmup_begin_lr of at most base_lr.")
        if warmup_mode not in ("linear", "constant"):
            raise ParameterError(f"{name}: warmup_mode={warmup_mode!r} is not one of linear, constant.")
        self.warmup_steps = warmup_steps
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_mode = warmup_mode
        self.rebase(base_lr)

    def rebase(self, lr: float) -> None:
        """Take lr as base_lr, everywhere the schedule uses it."""
        self.base_lr = lr
        self.base_lr_orig = lr
        self.warmup_final_lr = lr

    def get_warmup_lr(self, num_update: int) -> float:
        """The rate of an update inside the warm-up."""
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        rise = self.warmup_final_lr - self.warmup_begin_lr
        return self.warmup_begin_lr + rise * num_update / self.warmup_steps

    def __call__(self, num_update: int) -> float:
        """The rate of update num_update. Asked in rising order, as training does."""
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        return self.after_warmup(num_update)

    def after_warmup(self, num_update: int) -> float:
        """The rate of an update after the warm-up; what a schedule of one's own overrides."""
        raise NotImplementedError(f"{type(self).__name__}.after_warmup")


class FactorScheduler(LRScheduler):
    """Every `step` updates the rate is multiplied by `factor`; it never falls below `stop_factor_lr`."""

    def __init__(self, step: int, factor: float = 1, stop_factor_lr: float = 1e-8, base_lr: float = 0.01,
                 warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear"):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if step < 1:
            raise ParameterError(f"FactorScheduler: step={step} must be at least 1 update.")
        _falls("FactorScheduler", factor)
        self.step = step
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr
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
    """After each of the updates in `step` the rate is multiplied by `factor`."""

    def __init__(self, step: Sequence[int], factor: float = 1, base_lr: float = 0.01, warmup_steps: int = 0,
                 warmup_begin_lr: float = 0, warmup_mode: str = "linear"):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        step = list(step)
        if not step or step[0] < 1 or any(b <= a for a, b in pairwise(step)):
            raise ParameterError(f"MultiFactorScheduler: step={step} must be rising numbers of updates, each >= 1.")
        _falls("MultiFactorScheduler", factor)
        self.step = step
        self.factor = factor
        self.cur_step_ind = 0
        self.count = 0

    def after_warmup(self, num_update: int) -> float:
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
            logging.info("Update[%d]: Change learning rate to %.5e", num_update, self.base_lr)
        return self.base_lr


class PolyScheduler(LRScheduler):
    """From base_lr to final_lr along (1 - t)^pwr, where t goes from 0 at the end of the warm-up to 1 at max_update."""

    def __init__(self, max_update: int, base_lr: float = 0.01, pwr: float = 2, final_lr: float = 0,
                 warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear"):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        _length("PolyScheduler", max_update, warmup_steps)
        self.power = pwr
        self.final_lr = final_lr
        self.max_update = max_update
        self.max_steps = max_update - warmup_steps

    def after_warmup(self, num_update: int) -> float:
        left = max(0.0, 1 - (num_update - self.warmup_steps) / self.max_steps)
        self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * left**self.power
        return self.base_lr


class CosineScheduler(LRScheduler):
    """From base_lr to final_lr along half a cosine, which ends at max_update."""

    def __init__(self, max_update: int, base_lr: float = 0.01, final_lr: float = 0, warmup_steps: int = 0,
                 warmup_begin_lr: float = 0, warmup_mode: str = "linear"):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        _length("CosineScheduler", max_update, warmup_steps)
        self.final_lr = final_lr
        self.max_update = max_update
        self.max_steps = max_update - warmup_steps

    def after_warmup(self, num_update: int) -> float:
        t = min(1.0, (num_update - self.warmup_steps) / self.max_steps)
        self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * (1 + math.cos(math.pi * t)) / 2
        return self.base_lr


def _falls(name: str, factor: float) -> None:
    if factor > 1:
        raise ParameterError(f"{name}: factor={factor} would raise the learning rate. Give a factor of at most 1.")


def _length(name: str, max_update: int, warmup_steps: int) -> None:
    if not isinstance(max_update, int) or max_update < 1:
        raise ParameterError(f"{name}: max_update={max_update!r} is not a number of updates >= 1.")
    if max_update <= warmup_steps:
        raise ParameterError(f"{name}: the warm-up takes all of the updates: max_update={max_update}, "
                             f"warmup_steps={warmup_steps}.")
