"""Event handlers: what an Estimator calls at the begin and end of training, of epochs and of batches.

A handler is a class derived from those of its events. `batch_end` and `epoch_end` stop training by returning True. Handlers with
a lower `priority` are called first; without one it is 0.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ....errors import ParameterError
from ....train.metric import Loss
from .events import BatchBegin, BatchEnd, EpochBegin, EpochEnd, EventHandler, TrainBegin, TrainEnd
from .events import _check_event_handlers as _check_event_handlers
from .monitor_handler import CheckpointHandler, EarlyStoppingHandler
from .utils import _check_metrics

__all__ = ["BatchBegin", "BatchEnd", "CheckpointHandler", "EarlyStoppingHandler", "EpochBegin", "EpochEnd", "EventHandler",
           "GradientUpdateHandler", "LoggingHandler", "MetricHandler", "StoppingHandler", "TrainBegin", "TrainEnd",
           "ValidationHandler"]


class StoppingHandler(TrainBegin, BatchEnd, EpochEnd):
    """Stops training after max_epoch epochs or max_batch batches; `fit` sets both."""

    def __init__(self, max_epoch: int | None = None, max_batch: int | None = None):
        self.max_epoch, self.max_batch = max_epoch, max_batch
        self.current_batch = self.current_epoch = 0
        self.stop_training = False

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.max_epoch, self.max_batch = estimator.max_epoch, estimator.max_batch
        self.current_batch = self.current_epoch = 0
        self.stop_training = False

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        self.current_batch += 1
        if self.current_batch == self.max_batch:
            self.stop_training = True
        return self.stop_training

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        self.current_epoch += 1
        if self.current_epoch == self.max_epoch:
            self.stop_training = True
        return self.stop_training


class MetricHandler(EpochBegin, BatchEnd):
    """Updates metrics with predictions, or with losses if they are metric.Loss. They begin anew with each epoch."""

    def __init__(self, metrics: Any, priority: float = -1000):
        self.metrics = _check_metrics(metrics)
        self.priority = priority

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        for metric in self.metrics:
            metric.reset()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        for metric in self.metrics:
            if isinstance(metric, Loss):
                metric.update(0, kwargs["loss"])
            else:
                metric.update(kwargs["label"], kwargs["pred"])


class ValidationHandler(TrainBegin, BatchEnd, EpochEnd):
    """Calls eval_fn(val_data=..., batch_axis=..., event_handlers=...), such as estimator.evaluate.

    epoch_period, batch_period:  after how many epochs or batches; None: not.
    """

    def __init__(self, val_data: Any, eval_fn: Callable[..., Any], epoch_period: int | None = 1, batch_period: int | None = None,
                 priority: float = -1000, event_handlers: Any = None):
        self.val_data, self.eval_fn = val_data, eval_fn
        self.epoch_period, self.batch_period = epoch_period, batch_period
        self.current_batch = self.current_epoch = 0
        self.priority, self.event_handlers = priority, event_handlers

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch = self.current_epoch = 0

    def _evaluate(self, estimator: Any, period: int | None, done: int) -> None:
        if period and done % period == 0:
            self.eval_fn(val_data=self.val_data, batch_axis=estimator.batch_axis, event_handlers=self.event_handlers)

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_batch += 1
        self._evaluate(estimator, self.batch_period, self.current_batch)

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch += 1
        self._evaluate(estimator, self.epoch_period, self.current_epoch)


class LoggingHandler(TrainBegin, TrainEnd, EpochBegin, EpochEnd, BatchBegin, BatchEnd):
    """Logs metrics and times to estimator.logger.

    log_interval:  "epoch", or a number of batches after which the metrics are logged too.
    """

    def __init__(self, log_interval: int | str = "epoch", metrics: Any = None, priority: float = np.inf):
        if not isinstance(log_interval, int) and log_interval != "epoch":
            raise ParameterError(f"LoggingHandler: log_interval={log_interval!r} must be 'epoch' or a number of batches.")
        self.metrics = _check_metrics(metrics)
        self.priority, self.log_interval = priority, log_interval
        self.batch_index = self.current_epoch = self.processed_samples = 0
        self.log_interval_time = self.train_start = self.epoch_start = self.batch_start = 0.0

    def _values(self) -> str:
        return ", ".join(f"{name}: {value:.4f}" for name, value in (metric.get() for metric in self.metrics))

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.train_start = time.time()
        trainer = estimator.trainer
        estimator.logger.info("Training begin: using optimizer %s with current learning rate %.4f ",
                              type(trainer.optimizer).__name__, trainer.learning_rate)
        if estimator.max_epoch:
            estimator.logger.info("Train for %d epochs.", estimator.max_epoch)
        else:
            estimator.logger.info("Train for %d batches.", estimator.max_batch)
        self.batch_index = self.current_epoch = self.processed_samples = 0
        self.log_interval_time = 0.0

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        text = f"Train finished using total {int(time.time() - self.train_start)}s with {self.current_epoch} epochs. "
        estimator.logger.info((text + self._values()).rstrip(", "))

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(self.log_interval, int):
            self.batch_start = time.time()

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(self.log_interval, int):
            self.log_interval_time += time.time() - self.batch_start
            self.processed_samples += kwargs["batch"][0].shape[0]
            if self.batch_index % self.log_interval == 0:
                estimator.logger.info(
                    f"[Epoch {self.current_epoch}][Batch {self.batch_index}][Samples {self.processed_samples}] "
                    f"time/interval: {self.log_interval_time:.3f}s {self._values()}")
                self.log_interval_time = 0.0
        self.batch_index += 1

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.epoch_start = time.time()
        if any("training" in metric.name for metric in self.metrics):
            estimator.logger.info("[Epoch %d] Begin, current learning rate: %.4f", self.current_epoch,
                                  estimator.trainer.learning_rate)
        else:
            estimator.logger.info("Validation Begin")

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        text = f"[Epoch {self.current_epoch}] Finished in {time.time() - self.epoch_start:.3f}s, "
        estimator.logger.info((text + self._values()).rstrip(", "))
        self.current_epoch += 1
        self.batch_index = 0


class GradientUpdateHandler(BatchEnd):
    """Updates the weights after each batch. One of lower priority can change the gradients before."""

    def __init__(self, priority: float = -2000):
        self.priority = priority

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        loss = kwargs["loss"]
        estimator.trainer.step(sum(one.shape[0] for one in (loss if isinstance(loss, list) else [loss])))
