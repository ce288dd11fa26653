"""Callbacks that `fit` and `score` call after batches and epochs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..errors import ParameterError
from ..progress import Progress
from ..show import Shown
from .checkpoint import BatchEndParam, save_checkpoint


class Speedometer(Shown):
    """Log samples per second and the metric every `frequent` batches.

    batch_size:  samples in a batch.
    auto_reset:  the metric of a line covers the batches since the last line, not since the beginning of the epoch.
    """

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True,
                 clock: Callable[[], float] = time.perf_counter):
        if frequent < 1:
            raise ParameterError(f"Speedometer: frequent={frequent} must be at least 1 batch.")
        self.batch_size, self.frequent, self.auto_reset, self._clock = batch_size, int(frequent), auto_reset, clock
        self.init, self.tic, self.last_count = False, 0.0, 0

    def __call__(self, param: BatchEndParam) -> None:
        count = param.nbatch
        if self.last_count > count:
            self.init = False
        self.last_count = count
        if not self.init:
            self.init, self.tic = True, self._clock()
            return
        if count % self.frequent:
            return
        text, values = "Epoch[%d] Batch [%d-%d]\tSpeed: %.2f samples/sec", []
        start = count - self.frequent
        if param.eval_metric is None:
            text, start = "Iter[%d] Batch [%d]\tSpeed: %.2f samples/sec", None
        else:
            for name, value in param.eval_metric.get_name_value():  # this waits for the batches
                text += "\t%s=%f"
                values += [name, value]
            if self.auto_reset:
                param.eval_metric.reset_local()
            else:
                start = 0  # the metric covers all batches of the epoch
        seconds = self._clock() - self.tic
        speed = self.frequent * self.batch_size / seconds if seconds > 0 else math.inf
        logging.info(text, param.epoch, *([] if start is None else [start]), count, speed, *values)
        self.tic = self._clock()


class ProgressBar(Shown):
    """Show how many batches of an epoch are done, with the metric: a bar in a terminal or notebook, plain lines in a pipe.

    total:   batches in an epoch; None if unknown, then the first epoch counts them.
    length:  MXNet's width of the bar. Here it is as wide as the terminal.
    """

    def __init__(self, total: int | None = None, length: int = 80, *, clock: Callable[[], float] = time.monotonic):
        self.bar_len, self.total, self._clock = length, total, clock
        self._bar: Progress | None = None
        self._epoch = -1
        self._began = 0.0

    def __call__(self, param: BatchEndParam) -> None:
        bar = self._bar
        if bar is None or param.epoch != self._epoch:
            bar = self.begin(param.epoch)
        bar.reach(param.nbatch + 1, note=lambda: _metrics(param.eval_metric.get_name_value() if param.eval_metric else ()))
        if self.total is not None and param.nbatch + 1 >= self.total:
            self.close()

    def begin(self, epoch: int) -> Progress:
        """Open the bar of an epoch, counted from 0."""
        self.close()
        self._epoch, self._began = epoch, self._clock()
        self._bar = Progress(self.total, f"Epoch {epoch + 1}", "batch", clock=self._clock)
        return self._bar

    def end(self, batches: int, values: Iterable[tuple[str, Any]]) -> None:
        """Close the bar of an epoch and print its line. values: names and values of metrics."""
        seconds = self._clock() - self._began
        self.close()
        self.total = batches
        speed = f"{batches / seconds:,.1f} batches/s" if seconds > 0 else ""
        print(f"Epoch {self._epoch + 1}  {_metrics(values)}  {speed}  {seconds:.2f} s", flush=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _metrics(values: Iterable[tuple[str, Any]]) -> str:
    return "  ".join(f"{name} {value:.4f}" for name, value in values)


class LogValidationMetricsCallback(Shown):
    """Log the metric after a validation; an `eval_end_callback`."""

    def __call__(self, param: BatchEndParam) -> None:
        if param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            logging.info("Epoch[%d] Validation-%s=%f", param.epoch, name, value)


def log_train_metric(period: int, auto_reset: bool = False) -> Callable[[BatchEndParam], None]:
    """Return a batch callback that logs the metric every `period` batches."""

    def callback(param: BatchEndParam) -> None:
        if param.nbatch % period == 0 and param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value)
            if auto_reset:
                param.eval_metric.reset_local()

    return callback


def do_checkpoint(prefix: str, period: int = 1) -> Callable[..., None]:
    """Return an epoch callback that writes PREFIX-symbol.json and PREFIX-0001.params after every `period`th epoch."""
    return every_epochs(period, partial(save_checkpoint, prefix))


def module_checkpoint(mod: Any, prefix: str, period: int = 1, save_optimizer_states: bool = False) -> Callable[..., None]:
    """Return an epoch callback like do_checkpoint, which can also write the states of the optimizer."""
    return every_epochs(period, lambda epoch, *_: mod.save_checkpoint(prefix, epoch, save_optimizer_states))


def every_epochs(period: int, save: Callable[..., None]) -> Callable[..., None]:
    """Return an epoch callback that calls save(epoch, symbol, arg_params, aux_params) every `period` epochs, counted from 1."""
    period = max(1, int(period))

    def callback(epoch: int, symbol: Any = None, arg_params: Any = None, aux_params: Any = None) -> None:
        if (epoch + 1) % period == 0:
            save(epoch + 1, symbol, arg_params, aux_params)

    return callback
