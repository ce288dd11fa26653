"""Metrics of regression: errors, correlation, and the mean of a loss."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ShapeError
from .base import AveragedMetric, EvalMetric, Names, check_label_shapes, register, registry


class BatchError(EvalMetric):
    """Base: the mean over updates of an error. Labels and predictions with one axis are columns [n, 1].

    Other shapes are broadcast, with a warning. Raises ShapeError where that is not possible.
    error:  a function of label minus prediction that returns the error of a batch.
    """

    error: Callable[[np.ndarray], float]

    def count_pair(self, label: np.ndarray, pred: np.ndarray) -> None:
        label, pred = (x.reshape(-1, 1) if x.ndim == 1 else x for x in (label, pred))
        if label.shape != pred.shape:
            text = f"{self.name}: labels and predictions differ in shape: labels {label.shape}, predictions {pred.shape}"
            try:
                np.broadcast_shapes(label.shape, pred.shape)
            except ValueError:
                raise ShapeError(f"{text}.") from None
            warnings.warn(f"{text}. They are broadcast, as in MXNet.", stacklevel=2)
        self.add(self.error(label.astype(np.float64) - pred.astype(np.float64)), 1)


@register
class MAE(BatchError):
    """The mean over updates of the mean absolute error."""

    default_name = "mae"
    @staticmethod
    def error(difference: np.ndarray) -> float:
        """Return the mean of the absolute differences of a batch."""
        return float(np.abs(difference).mean())


@register
class MSE(BatchError):
    """The mean over updates of the mean squared error."""

    default_name = "mse"
    @staticmethod
    def error(difference: np.ndarray) -> float:
        """Return the mean of the squared differences of a batch."""
        return float(np.square(difference).mean())


@register
class RMSE(BatchError):
    """The mean over updates of the root mean squared error."""

    default_name = "rmse"
    @staticmethod
    def error(difference: np.ndarray) -> float:
        """Return the root of the mean squared difference of a batch."""
        return math.sqrt(np.square(difference).mean())


@registry.alias("pearsonr")
class PearsonCorrelation(AveragedMetric):
    """Pearson's correlation of labels and predictions.

    With "micro", `get` covers the samples since the last `reset_local`, and `get_global` is 0 after the first update: MXNet
    1.9.1 has no such sums for the epoch, and returns 0 too.
    """

    default_name = "pearsonr"
    get_global = EvalMetric.get_global

    def empty(self) -> _Moments:
        return _Moments()

    def score(self, statistics: _Moments) -> float:
        return statistics.correlation()

    def reset_micro(self) -> None:
        """Forget the samples since the last reset, as `reset_local` does."""
        self.reset_local()

    def count_pair(self, label: np.ndarray, pred: np.ndarray) -> None:
        check_label_shapes(label, pred, shape=True)
        moments = (self._local if self.pooled else _Moments()).add(label, pred)
        self.add(0.0 if self.pooled else moments.correlation(), 1)


@register
class Loss(EvalMetric):
    """The mean of all elements of the outputs. Labels are ignored."""

    default_name = "loss"

    def __init__(self, name: str | None = None, output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, _: Any, preds: Any) -> None:  # MXNet's name for labels that are ignored
        super().update(_, preds)

    def check(self, labels: Any, preds: Any) -> tuple[Any, Any]:
        return (), preds if isinstance(preds, (list, tuple)) else [preds]

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        for pred in preds:
            host = self.as_host(pred)
            self.add(float(host.sum(dtype=np.float64)), host.size)


@register
class Torch(Loss):
    """Loss, under the name of MXNet's Torch plugin."""

    default_name = "torch"


@register
class Caffe(Loss):
    """Loss, under the name of MXNet's Caffe plugin."""

    default_name = "caffe"


class _Moments:
    """Count, means and central second moments of pairs, merged batch by batch without cancellation.

    Source: Chan, Golub and LeVeque 1983, doi:10.1080/00031305.1983.10483115.
    """

    def __init__(self) -> None:
        self.n = 0
        self.mean = np.zeros(2)
        self.second = np.zeros((2, 2))

    def add(self, x: np.ndarray, y: np.ndarray) -> _Moments:
        pair = np.stack([x.reshape(-1), y.reshape(-1)]).astype(np.float64)
        m = pair.shape[1]
        mean = pair.mean(axis=1)
        centred = pair - mean[:, None]
        shift = mean - self.mean
        total = self.n + m
        self.second += centred @ centred.T + np.outer(shift, shift) * (self.n * m / total)
        self.mean += shift * (m / total)
        self.n = total
        return self

    def correlation(self) -> float:
        below = math.sqrt(self.second[0, 0] * self.second[1, 1])
        return float(self.second[0, 1] / below) if below else math.nan
