"""The events of training, as base classes of handlers."""

from __future__ import annotations

from typing import Any

from ....errors import DTypeError
from ....train.metric import EvalMetric


class EventHandler:
    """Base of all handlers."""


class TrainBegin(EventHandler):
    """Has train_begin."""

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Called once, before the first epoch."""


class TrainEnd(EventHandler):
    """Has train_end."""

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Called once, after the last epoch."""


class EpochBegin(EventHandler):
    """Has epoch_begin."""

    def epoch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Called before each epoch."""


class EpochEnd(EventHandler):
    """Has epoch_end."""

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Called after each epoch. Returns True to stop training."""
        return False


class BatchBegin(EventHandler):
    """Has batch_begin."""

    def batch_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Called before each batch, with `batch`."""


class BatchEnd(EventHandler):
    """Has batch_end."""

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Called after each batch, with `batch`, and `pred`, `label`, `loss` as lists by context. Returns True to stop."""
        return False


def _check_event_handlers(handlers: Any) -> list[Any]:
    """Return handlers as a new list."""
    found = [handlers] if isinstance(handlers, EventHandler) else list(handlers or [])
    for handler in found:
        if not isinstance(handler, EventHandler):
            raise DTypeError(f"Estimator: {handler!r} is not an event handler. Give an EventHandler or a list of them.")
    return found


def check_monitor(name: str, monitor: Any) -> EvalMetric:
    """Return monitor, a metric. Raises DTypeError for anything else."""
    if not isinstance(monitor, EvalMetric):
        raise DTypeError(f"{name}: monitor={monitor!r} is not a metric. Take one from estimator.train_metrics or "
                         f"estimator.val_metrics.")
    return monitor
