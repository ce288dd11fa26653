"""Metrics of regression: errors, correlation, and the mean of a loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ParameterError, ShapeError
from .base import EvalMetric, Names, _host, check_label_shapes, register, registry


class BatchError(EvalMetric):
    """Base: the mean over updates of an error. Labels and predictions with one axis are columns [n, 1]."""

    def error(self, difference: np.ndarray) -> float:
        """Return the error of a batch, from label minus prediction."""
        raise NotImplementedError

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        for label, pred in zip(labels, preds):
            label, pred = _host(label), self.as_host(pred)
            label, pred = (x.reshape(-1, 1) if x.ndim == 1 else x for x in (label, pred))
            if label.shape != pred.shape:
                raise ShapeError(f"{self.name}: labels and predictions differ in shape: labels {label.shape}, "
                                 f"predictions {pred.shape}.")
            self.add(self.error(label.astype(np.float64) - pred.astype(np.float64)), 1)


@register
class MAE(BatchError):
    """The mean over updates of the mean absolute error."""

    default_name = "mae"

    def error(self, difference: np.ndarray) -> float:
        return float(np.abs(difference).mean())


@register
class MSE(BatchError):
    """The mean over updates of the mean squared error."""

    default_name = "mse"

    def error(self, difference: np.ndarray) -> float:
        return float(np.square(difference).mean())


@register
class RMSE(BatchError):
    """The mean over updates of the root mean squared error."""

    default_name = "rmse"

    def error(self, difference: np.ndarray) -> float:
        return math.sqrt(np.square(difference).mean())


@registry.alias("pearsonr")
class PearsonCorrelation(EvalMetric):
    """Pearson's correlation of labels and predictions.

    average:  "macro" is the mean of the correlations of the updates, "micro" the correlation of all samples.

    With "micro", `get` covers the samples since the last `reset_local`, and `get_global` is 0 after the first update: MXNet
    1.9.1 has no such sums for the epoch, and returns 0 too.
    """

    def __init__(self, name: str = "pearsonr", output_names: Names = None, label_names: Names = None, average: str = "macro"):
        if average not in ("macro", "micro"):
            raise ParameterError(f"PearsonCorrelation: average={average!r} is not one of macro, micro.")
        self.average = average
        super().__init__(name, output_names, label_names, **({} if average == "macro" else {"average": average}))

    def reset_local(self) -> None:
        self._local = _Moments()
        super().reset_local()

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        for label, pred in zip(labels, preds):
            label, pred = _host(label), self.as_host(pred)
            check_label_shapes(label, pred, shape=True)
            if self.average == "macro":
                self.add(_Moments().add(label, pred).correlation(), 1)
            else:
                self._local.add(label, pred)
                self.add(0.0, 1)

    def get(self) -> tuple[str, float]:
        if self.average == "micro" and self.num_inst:
            return self.name, self._local.correlation()
        return super().get()


@register
class Loss(EvalMetric):
    """The mean of all elements of the outputs. Labels are ignored."""

    default_name = "loss"

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
