"""Estimator: trains and validates a network, with handlers for everything else."""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from typing import Any

from ....context import Context, cpu, gpu
from ....engine import num_gpus
from ....errors import BlockError, ContextError, DTypeError, MXNetError, ParameterError
from ....show import Shown
from ....train.metric import EvalMetric
from ....train.metric import Loss as LossMetric
from ...data import DataLoader
from ...loss import Loss
from ...trainer import Trainer
from .batch_processor import BatchProcessor
from .event_handler import GradientUpdateHandler, LoggingHandler, MetricHandler, StoppingHandler, ValidationHandler
from .events import BatchBegin, BatchEnd, EpochBegin, EpochEnd, TrainBegin, TrainEnd, _check_event_handlers
from .utils import _check_handler_metric_ref, _check_metrics, _suggest_metric_for_loss

__all__ = ["Estimator"]


class Estimator(Shown):
    """Trains `net` with `loss`.

        est = Estimator(net, gluon.loss.SoftmaxCrossEntropyLoss(), trainer=trainer)
        est.fit(train_loader, val_data=val_loader, epochs=3)

    train_metrics, val_metrics:  metrics; by default the loss, and the accuracy if the loss is SoftmaxCrossEntropyLoss. Their
                      names get the prefix "training " or "validation ".
    initializer:      for parameters that are not initialized.
    trainer:          by default SGD with learning rate 0.001.
    context:          one context or a list; by default gpu(0) if there is one, else cpu().
    val_net, val_loss:  for validation, if others than net and loss.
    batch_processor:  computes a batch, see BatchProcessor.

    logger:  gets all messages; it writes them to standard output.
    """

    logger: logging.Logger
    max_epoch: int | None = None
    max_batch: int | None = None
    batch_axis = 0

    def __init__(self, net: Any, loss: Loss, train_metrics: Any = None, val_metrics: Any = None, initializer: Any = None,
                 trainer: Trainer | None = None, context: Context | list[Context] | None = None, val_net: Any = None,
                 val_loss: Loss | None = None, batch_processor: Any = None):
        self.net, self.loss = net, self._check_loss(loss)
        self._train_metrics, self._val_metrics = _check_metrics(train_metrics), _check_metrics(val_metrics)
        self._add_default_training_metrics()
        self._add_validation_metrics()
        self.val_loss = self.loss if val_loss is None else self._check_loss(val_loss)
        self.val_net = net if val_net is None else val_net
        self.logger = logging.Logger(name="Estimator", level=logging.INFO)
        self.logger.addHandler(logging.StreamHandler(sys.stdout))
        self.context = self._check_context(context)
        self._initialize(initializer)
        self.trainer = self._check_trainer(trainer)
        self.batch_processor = self._check_batch_processor(batch_processor)

    # ---- checks -----------------------------------------------------------------------------------------------------------
    def _check_loss(self, loss: Any) -> Loss:
        if not isinstance(loss, Loss):
            raise DTypeError(f"Estimator: loss {loss!r} is not a gluon.loss.Loss.")
        return loss

    def _check_context(self, context: Any) -> list[Context]:
        if not context:
            if num_gpus() > 1:
                warnings.warn("Estimator: only gpu(0) is used. Give context=[mx.gpu(0), mx.gpu(1), ...] to use more.",
                              stacklevel=3)
            return [gpu(0)] if num_gpus() else [cpu()]
        contexts = [context] if isinstance(context, Context) else context
        if not isinstance(contexts, list) or not all(isinstance(c, Context) for c in contexts):
            raise DTypeError(f"Estimator: context={context!r} is neither a Context nor a list of them. Give mx.cpu() or "
                             f"[mx.gpu(0), mx.gpu(1)].")
        for ctx in contexts:
            if ctx.is_gpu and ctx.device_id >= num_gpus():
                raise ContextError(f"Estimator: {ctx} is not available: {num_gpus()} GPUs here.")
        return contexts

    def _check_batch_processor(self, batch_processor: Any) -> Any:
        if batch_processor is None:
            return BatchProcessor()
        for method in ("fit_batch", "evaluate_batch"):
            if not callable(getattr(batch_processor, method, None)):
                raise DTypeError(f"Estimator: batch_processor {batch_processor!r} has no {method}. Derive it from"
                                 f" BatchProcessor.")
        return batch_processor

    def _check_trainer(self, trainer: Any) -> Trainer:
        if not trainer:
            warnings.warn("Estimator: no trainer is given. SGD with learning rate 0.001 is used.", stacklevel=3)
            return Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.001})
        if not isinstance(trainer, Trainer):
            raise DTypeError(f"Estimator: trainer {trainer!r} is not a gluon.Trainer.")
        return trainer

    def _check_data(self, name: str, data: Any) -> None:
        if not isinstance(data, DataLoader):
            raise DTypeError(f"Estimator.{name}: the data is a {type(data).__name__}. Give a gluon.data.DataLoader.")

    def _is_initialized(self) -> bool:
        try:
            for param in self.net.collect_params().values():
                param.list_ctx()
        except MXNetError:
            return False
        return True

    def _initialize(self, initializer: Any) -> None:
        if not self._is_initialized():
            self.net.initialize(init=initializer, ctx=self.context)
        elif initializer:
            warnings.warn("Estimator: the network is initialized already, so initializer is not used. "
                          "net.initialize(init=..., force_reinit=True) initializes it again.", stacklevel=3)

    # ---- metrics ----------------------------------------------------------------------------------------------------------
    def _add_default_training_metrics(self) -> None:
        if not self._train_metrics:
            suggested = _suggest_metric_for_loss(self.loss)
            self._train_metrics = [suggested] if suggested else []
            self._train_metrics.append(LossMetric(self.loss.name.rstrip("1234567890")))
        for metric in self._train_metrics:
            metric.name = f"training {metric.name}"

    def _add_validation_metrics(self) -> None:
        if not self._val_metrics:
            self._val_metrics = [copy.deepcopy(metric) for metric in self._train_metrics]
        for metric in self._val_metrics:
            known = "training" in metric.name
            metric.name = metric.name.replace("training", "validation") if known else f"validation {metric.name}"

    @property
    def train_metrics(self) -> list[EvalMetric]:
        """The metrics of training."""
        return self._train_metrics

    @property
    def val_metrics(self) -> list[EvalMetric]:
        """The metrics of validation."""
        return self._val_metrics

    def _get_data_and_label(self, batch: Any, ctx: list[Context], batch_axis: int = 0) -> tuple[list[Any], list[Any]]:
        return self.batch_processor._get_data_and_label(batch, ctx, batch_axis)

    # ---- running ----------------------------------------------------------------------------------------------------------
    def evaluate(self, val_data: DataLoader, batch_axis: int = 0, event_handlers: Any = None) -> None:
        """Update val_metrics with one pass over val_data.

        event_handlers: called as in fit; a MetricHandler and a LoggingHandler are added unless given.
        """
        self._check_data("evaluate", val_data)
        for metric in self.val_metrics:
            metric.reset()
        _, epoch_begin, batch_begin, batch_end, epoch_end, _ = self._categorize_handlers(
            self._prepare_default_validation_handlers(event_handlers))
        for handler in epoch_begin:
            handler.epoch_begin(self)
        for batch in val_data:
            for handler in batch_begin:
                handler.batch_begin(self, batch=batch)
            _, label, pred, loss = self.batch_processor.evaluate_batch(self, batch, batch_axis)
            for handler in batch_end:
                handler.batch_end(self, batch=batch, pred=pred, label=label, loss=loss)
        for handler in epoch_end:
            handler.epoch_end(self)

    def fit(self, train_data: DataLoader, val_data: DataLoader | None = None, epochs: int | None = None,
            event_handlers: Any = None, batches: int | None = None, batch_axis: int = 0) -> None:
        """Train for a number of epochs or of batches; one of the two is given.

        val_data:        validate after each epoch.
        event_handlers:  one or a list. StoppingHandler is added, and GradientUpdateHandler, MetricHandler, ValidationHandler and
                         LoggingHandler unless given.
        batch_axis:      the axis of the samples, which are divided over the contexts.
        """
        self._check_data("fit", train_data)
        if (not epochs) == (not batches):
            raise ParameterError(f"Estimator.fit: epochs={epochs}, batches={batches}. Give one of the two.")
        self.max_epoch, self.max_batch, self.batch_axis = epochs, batches, batch_axis
        train_begin, epoch_begin, batch_begin, batch_end, epoch_end, train_end = self._categorize_handlers(
            self._prepare_default_handlers(val_data, event_handlers))
        for handler in train_begin:
            handler.train_begin(self)
        stop = False
        while not stop:
            for handler in epoch_begin:
                handler.epoch_begin(self)
            seen = 0
            for batch in train_data:
                seen += 1
                for handler in batch_begin:
                    handler.batch_begin(self, batch=batch)
                _, label, pred, loss = self.batch_processor.fit_batch(self, batch, batch_axis)
                ends = [handler.batch_end(self, batch=batch, pred=pred, label=label, loss=loss) for handler in batch_end]
                if any(ends):
                    break
            if not seen and not epochs:
                raise BlockError("Estimator.fit: train_data has no batches. Check its length and its last_batch.")
            ends = [handler.epoch_end(self) for handler in epoch_end]
            stop = any(ends)
        for handler in train_end:
            handler.train_end(self)

    def _prepare_default_handlers(self, val_data: Any, event_handlers: Any) -> list[Any]:
        given = _check_event_handlers(event_handlers)

        def lacks(kind: type) -> bool:
            return not any(isinstance(handler, kind) for handler in given)

        added: list[Any] = [StoppingHandler(self.max_epoch, self.max_batch)]
        if lacks(GradientUpdateHandler):
            added.append(GradientUpdateHandler())
        if lacks(MetricHandler):
            added.append(MetricHandler(metrics=self.train_metrics))
        if val_data and lacks(ValidationHandler):
            added.append(ValidationHandler(val_data=val_data, eval_fn=self.evaluate))
        if lacks(LoggingHandler):
            added.append(LoggingHandler(metrics=self.train_metrics))
        return self._in_order(given, added, [*self.train_metrics, *self.val_metrics])

    def _prepare_default_validation_handlers(self, event_handlers: Any) -> list[Any]:
        given = _check_event_handlers(event_handlers)
        added = [kind(metrics=self.val_metrics) for kind in (MetricHandler, LoggingHandler)
                 if not any(isinstance(handler, kind) for handler in given)]
        return self._in_order(given, added, self.val_metrics)

    def _in_order(self, given: list[Any], added: list[Any], known: list[EvalMetric]) -> list[Any]:
        if given and added:
            for handler in given:
                _check_handler_metric_ref(handler, known)
        return sorted([*given, *added], key=lambda handler: getattr(handler, "priority", 0))

    def _categorize_handlers(self, event_handlers: list[Any]) -> tuple[list[Any], ...]:
        """Return the handlers of each kind of event, in the order train, epoch, batch begin; batch, epoch, train end."""
        return tuple([handler for handler in event_handlers if isinstance(handler, kind)]
                     for kind in (TrainBegin, EpochBegin, BatchBegin, BatchEnd, EpochEnd, TrainEnd))
