"""Handlers that watch whether a metric improves: EarlyStoppingHandler and CheckpointHandler."""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

import numpy as np

from ....errors import FileError, ParameterError
from ....train.metric import CompositeEvalMetric
from .events import BatchEnd, EpochEnd, TrainBegin, TrainEnd, check_monitor

__all__ = ["CheckpointHandler", "EarlyStoppingHandler"]


def _comparison(name: str, mode: str, monitor: Any) -> Any:
    """Return np.greater or np.less, by which a value of monitor is better. mode: "max", "min", or "auto": by its name."""
    if mode not in ("auto", "min", "max"):
        warnings.warn(f"{name}: mode {mode!r} is not one of 'auto', 'min', 'max'. 'auto' is used.", RuntimeWarning, stacklevel=3)
        mode = "auto"
    if mode != "auto":
        return np.greater if mode == "max" else np.less
    metric = str(monitor.get()[0])
    larger = any(word in metric.lower() for word in ("acc", "f1"))
    warnings.warn(f"{name}: a {'larger' if larger else 'smaller'} {metric} counts as better. Give mode='max' or mode='min' to "
                  f"state it.", stacklevel=3)
    return np.greater if larger else np.less


def _worst(better: Any) -> float:
    return np.inf if better is np.less else -np.inf


def _is_updated(name: str, monitor: Any, value: float) -> bool:
    if np.isnan(value):
        warnings.warn(f"{name}: {monitor.get()[0]} was not updated. Take monitor from estimator.train_metrics or "
                      f"estimator.val_metrics.", RuntimeWarning, stacklevel=3)
        return False
    return True


class EarlyStoppingHandler(TrainBegin, EpochEnd, TrainEnd):
    """Stops training when a metric has not improved for `patience` epochs.

    monitor:    a metric of the estimator.
    min_delta:  how much better counts as better.
    mode:       "max": larger is better; "min"; "auto": by the name, larger for accuracies and F1.
    baseline:   the value to improve on first.
    """

    def __init__(self, monitor: Any, min_delta: float = 0, patience: int = 0, mode: str = "auto",
                 baseline: float | None = None):
        self.monitor = check_monitor("EarlyStoppingHandler", monitor)
        if isinstance(monitor, CompositeEvalMetric):
            raise ParameterError("EarlyStoppingHandler: monitor is a CompositeEvalMetric. Give one of its metrics.")
        self.baseline, self.patience = baseline, patience
        self.monitor_op = _comparison("EarlyStoppingHandler", mode, monitor)
        self.min_delta = min_delta if self.monitor_op is np.greater else -min_delta
        self.best = _worst(self.monitor_op)
        self.wait = self.stopped_epoch = self.current_epoch = 0
        self.stop_training = False

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.wait = self.stopped_epoch = self.current_epoch = 0
        self.stop_training = False
        self.best = _worst(self.monitor_op) if self.baseline is None else self.baseline

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> bool:
        _, value = self.monitor.get()
        if _is_updated("EarlyStoppingHandler", self.monitor, value):
            if self.monitor_op(value - self.min_delta, self.best):
                self.best, self.wait = value, 0
            else:
                self.wait += 1
                if self.wait >= self.patience:
                    self.stopped_epoch, self.stop_training = self.current_epoch, True
        self.current_epoch += 1
        return self.stop_training

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.stopped_epoch > 0:
            estimator.logger.info("[Epoch %d] EarlyStoppingHandler: early stopping due to %s not improving", self.stopped_epoch,
                                  self.monitor.get()[0])


class CheckpointHandler(TrainBegin, BatchEnd, EpochEnd):
    """Saves parameters and the trainer's states, and once the graph if the network is hybridized.

    Files in model_dir: `{model_prefix}-symbol.json`, `{model_prefix}-epoch{n}batch{m}.params` and `.states`.

    monitor, mode:      a metric of the estimator, and how it improves (see EarlyStoppingHandler).
    save_best:          also save `{model_prefix}-best.params` whenever monitor has improved.
    epoch_period, batch_period:  after how many epochs or batches; None: not.
    max_checkpoints:    how many to keep, apart from the best.
    resume_from_checkpoint:  go on from the last checkpoint in model_dir; epochs or batches of `fit` count from the very first.
    verbose:            1: log each save.
    """

    def __init__(self, model_dir: str, model_prefix: str = "model", monitor: Any = None, verbose: int = 0,
                 save_best: bool = False, mode: str = "auto", epoch_period: int | None = 1, batch_period: int | None = None,
                 max_checkpoints: int = 5, resume_from_checkpoint: bool = False):
        os.makedirs(model_dir, exist_ok=True)
        self.model_dir, self.model_prefix, self.monitor, self.verbose = model_dir, model_prefix, monitor, verbose
        self.save_best, self.epoch_period, self.batch_period = save_best, epoch_period, batch_period
        self.max_checkpoints, self.resume_from_checkpoint = max_checkpoints, resume_from_checkpoint
        self.current_batch = self.current_epoch = 0
        self.trained_epoch = self.trained_batch = -1
        self.saved_checkpoints: list[str] = []
        if save_best:
            check_monitor("CheckpointHandler", monitor)
            self.monitor_op = _comparison("CheckpointHandler", mode, monitor)
            self.best = _worst(self.monitor_op)

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch = self.current_batch = 0
        if self.save_best:
            self.best = _worst(self.monitor_op)
        if self.resume_from_checkpoint:
            needed, other = (("batch_period", "epoch_period") if estimator.max_batch else ("epoch_period", "batch_period"))
            if not getattr(self, needed) or getattr(self, other):
                raise ParameterError(f"CheckpointHandler: to resume training that counts {needed.split('_')[0]}s, give {needed} "
                                     f"and set {other} to None.")
            self._resume_from_checkpoint(estimator)

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.current_batch == 0:
            self._save_symbol(estimator)
        if self.batch_period and (self.current_batch + 1) % self.batch_period == 0:
            self._save_checkpoint(estimator)
        self.current_batch += 1

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.epoch_period and (self.current_epoch + 1) % self.epoch_period == 0:
            self._save_checkpoint(estimator)
        self.current_epoch += 1

    def _save_checkpoint(self, estimator: Any) -> None:
        epoch, batch = self.current_epoch, self.current_batch
        if self.resume_from_checkpoint:
            epoch += self.trained_epoch + 1
            batch += self.trained_batch + (0 if estimator.max_epoch else 1)
        prefix = f"{self.model_prefix}-epoch{epoch}batch{batch}"
        self._save_params_and_trainer(estimator, prefix)
        if self.verbose > 0:
            estimator.logger.info("[Epoch %d] CheckpointHandler: trained total %d batches, saving model at %s with prefix: %s",
                                  self.current_epoch, self.current_batch + 1, self.model_dir, prefix)
        if self.save_best:
            self._save_if_best(estimator)

    def _save_if_best(self, estimator: Any) -> None:
        name, value = self.monitor.get()
        if not _is_updated("CheckpointHandler", self.monitor, value):
            return
        prefix, before = f"{self.model_prefix}-best", self.best
        improved = bool(self.monitor_op(value, before))
        if improved:
            self._save_params_and_trainer(estimator, prefix)
            self.best = value
        if self.verbose > 0:
            what = (f"improved from {before:0.5f} to {value:0.5f}, updating best model at {self.model_dir} with prefix: {prefix}"
                    if improved else f"did not improve from {before:0.5f}, skipping updating best model")
            estimator.logger.info(f"[Epoch {self.current_epoch}] CheckpointHandler: {name} {what}")

    def _save_symbol(self, estimator: Any) -> None:
        path = os.path.join(self.model_dir, f"{self.model_prefix}-symbol.json")
        graph = getattr(estimator.net, "_cached_graph", ())
        if graph:
            graph[1].save(path)
        else:
            estimator.logger.info("Model architecture(symbol file) is not saved, please use HybridBlock to construct your model, "
                                  "and call net.hybridize() before passing to Estimator in order to save model architecture as "
                                  "%s.", path)

    def _files(self, prefix: str) -> tuple[str, str]:
        return os.path.join(self.model_dir, f"{prefix}.params"), os.path.join(self.model_dir, f"{prefix}.states")

    def _save_params_and_trainer(self, estimator: Any, file_prefix: str) -> None:
        params, states = self._files(file_prefix)
        estimator.net.save_parameters(params)
        estimator.trainer.save_states(states)
        if file_prefix == f"{self.model_prefix}-best":
            return
        self.saved_checkpoints.append(file_prefix)
        while len(self.saved_checkpoints) > self.max_checkpoints:
            for path in self._files(self.saved_checkpoints.pop(0)):
                if os.path.exists(path):
                    os.remove(path)

    def _found(self) -> list[tuple[int, int]]:
        """Return (epoch, batch) of the checkpoints in the folder, sorted."""
        pattern = re.compile(re.escape(self.model_prefix) + r"-epoch(\d+)batch(\d+)\.params")
        return sorted((int(m[1]), int(m[2])) for m in map(pattern.fullmatch, os.listdir(self.model_dir)) if m)

    def _resume_from_checkpoint(self, estimator: Any) -> None:
        found = self._found()
        kind, most = ("batches", estimator.max_batch) if estimator.max_batch else ("epochs", estimator.max_epoch)
        if not found:
            self.trained_epoch = self.trained_batch = -1
            estimator.logger.info("CheckpointHandler: No checkpoint found, training from scratch for %d %s", most, kind)
            return
        self.trained_epoch, self.trained_batch = found[-1]
        done = self.trained_batch if estimator.max_batch else self.trained_epoch
        if done >= most - 1:
            raise ParameterError(f"CheckpointHandler: the checkpoint in {self.model_dir} has {done + 1} {kind}, fit was asked "
                                 f"for {most}. Give more, or resume_from_checkpoint=False to train from scratch.")
        left = most - done - 1
        if estimator.max_batch:
            estimator.max_batch = left
        else:
            estimator.max_epoch = left
        self.saved_checkpoints = [f"{self.model_prefix}-epoch{epoch}batch{batch}" for epoch, batch in found]
        params, states = self._files(self.saved_checkpoints[-1])
        if not os.path.exists(states):
            raise FileError(f"CheckpointHandler: {params} has no {os.path.basename(states)} beside it. Put it back, or remove "
                            f"the checkpoint.")
        estimator.net.load_parameters(params, ctx=estimator.context)
        estimator.trainer.load_states(states)
        estimator.logger.warning(f"CheckpointHandler: Checkpoint resumed from epoch {self.trained_epoch} batch "
                                 f"{self.trained_batch}, continue to train for {left} {kind} ")
