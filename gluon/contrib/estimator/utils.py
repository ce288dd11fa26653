"""Checks of metrics, which the estimator and its handlers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....errors import DTypeError, ParameterError
from ....train.metric import Accuracy, CompositeEvalMetric, EvalMetric
from ...loss import SoftmaxCrossEntropyLoss


def _check_metrics(metrics: Any) -> list[EvalMetric]:
    """Return metrics as a list: of one metric, of the parts of a composite, or of None."""
    if isinstance(metrics, CompositeEvalMetric):
        return [m for metric in metrics.metrics for m in _check_metrics(metric)]
    if isinstance(metrics, EvalMetric):
        return [metrics]
    for metric in metrics or []:
        if not isinstance(metric, EvalMetric):
            raise DTypeError(f"Estimator: {metric!r} is not a metric. Give an EvalMetric or a list of them.")
    return metrics or []


def _check_handler_metric_ref(handler: Any, known_metrics: Sequence[EvalMetric]) -> None:
    """Raise ParameterError if a handler refers to a metric that the estimator does not update."""
    for name in dir(handler):
        if "metric" in name:
            found = getattr(handler, name)
            for metric in found if isinstance(found, list) else [found]:
                if isinstance(metric, EvalMetric) and not any(metric is known for known in known_metrics):
                    raise ParameterError(f"{type(handler).__name__}: {metric} is not one of the estimator's metrics, so it would "
                                         f"not be updated. Take it from estimator.train_metrics or estimator.val_metrics.")


def _suggest_metric_for_loss(loss: Any) -> EvalMetric | None:
    return Accuracy() if isinstance(loss, SoftmaxCrossEntropyLoss) else None
