"""`mx.misc`: the learning-rate scheduler of MXNet's first scripts. New scripts use `mx.lr_scheduler`."""

from __future__ import annotations

import logging

from ...errors import ParameterError

__all__ = ["FactorScheduler", "LearningRateScheduler"]


class LearningRateScheduler:
    """Base: `scheduler(iteration)` returns the learning rate. An optimizer sets base_lr."""

    base_lr = 0.01

    def __call__(self, iteration: int) -> float:
        raise NotImplementedError(f"{type(self).__name__}.__call__")


class FactorScheduler(LearningRateScheduler):
    """Multiply base_lr by factor every `step` iterations, and log each change."""

    def __init__(self, step: int, factor: float = 0.1):
        if step < 1 or factor >= 1:
            raise ParameterError(f"misc.FactorScheduler: step={step} must be at least 1 and factor={factor} below 1.")
        self.step, self.factor = step, factor
        self._last: float | None = None

    def __call__(self, iteration: int) -> float:
        rate = self.base_lr * self.factor ** (iteration // self.step)
        if self._last is not None and rate != self._last:
            logging.info("At Iteration [%d]: Switch to new learning rate %.5f", iteration, rate)
        self._last = rate
        return rate
