"""Metrics of classification: accuracy, top-k, F1, correlation, cross-entropy and perplexity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import ParameterError, ShapeError
from .base import AveragedMetric, EvalMetric, Names, PooledMetric, _host, register, registry


@registry.alias("acc")
class Accuracy(EvalMetric):
    """The share of correct classes. Predictions are scores with the classes along `axis`, or class indices."""

    def __init__(self, axis: int = 1, name: str = "accuracy", output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names, axis=axis)
        self.axis = axis

    def count_pair(self, label: np.ndarray, pred: np.ndarray) -> None:
        predicted, truth = _classes(pred if pred.shape == label.shape else pred.argmax(axis=self.axis)), _classes(label)
        _same_count(self, truth, predicted)
        self.add(int((predicted == truth).sum()), len(truth))


@registry.alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """The share of labels among the k highest scores. Predictions are scores [n, classes]."""

    def __init__(self, top_k: int = 1, name: str = "top_k_accuracy", output_names: Names = None, label_names: Names = None):
        if top_k < 1:
            raise ParameterError(f"TopKAccuracy: top_k={top_k} must be at least 1.")
        super().__init__(name, output_names, label_names, top_k=top_k)
        self.top_k = top_k
        self.name = f"{name}_{top_k}"

    def count_pair(self, label: np.ndarray, pred: np.ndarray) -> None:
        truth = _classes(label)
        if pred.ndim == 1:
            hits = _classes(pred) == truth
        elif pred.ndim == 2:
            _same_count(self, truth, pred)
            k = min(self.top_k, pred.shape[1])
            hits = (np.argpartition(pred, -k, axis=1)[:, -k:] == truth[:, None]).any(axis=1)
        else:
            raise ShapeError(f"{self.name}: predictions must be [n, classes]: {pred.shape}.")
        self.add(int(hits.sum()), len(truth))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "name": self.name.removesuffix(f"_{self.top_k}")}


class BinaryMetric(AveragedMetric):
    """Base of scores computed from the true and false positives and negatives of two classes."""

    def empty(self) -> np.ndarray:
        return np.zeros(4)  # true positives, false positives, true negatives, false negatives

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        counts, samples = np.zeros(4), 0
        for label, pred in zip(labels, preds):
            truth, pred = _classes(_host(label)), self.as_host(pred)
            found = set(truth.tolist())
            if pred.ndim != 2 or len(found) > 2:
                raise ParameterError(f"{self.name}: only two classes can be scored: predictions {pred.shape}, "
                                     f"labels {sorted(found)[:5]}. Give scores [n, 2] and labels 0 or 1.")
            _same_count(self, truth, pred)
            positive, true = pred.argmax(axis=1) == 1, truth == 1
            counts += [(p & t).sum() for p, t in ((positive, true), (positive, ~true), (~positive, ~true), (~positive, true))]
            samples += len(truth)
        self._local += counts
        self._all += counts
        if self.pooled:
            self.add(0.0, samples)
        else:
            self.add(self.score(counts), 1)


@register
class F1(BinaryMetric):
    """2 · precision · recall / (precision + recall), or 0 for 0/0."""

    default_name = "f1"

    def score(self, statistics: np.ndarray) -> float:
        tp, fp, _, fn = statistics
        return float(2 * tp / (2 * tp + fp + fn)) if tp else 0.0


@register
class MCC(BinaryMetric):
    """Matthews' correlation, in [-1, 1]. Sums of 0 in its denominator are replaced by 1."""

    default_name = "mcc"

    def score(self, statistics: np.ndarray) -> float:
        tp, fp, tn, fn = statistics
        below = math.prod(t for t in (tp + fp, tp + fn, tn + fp, tn + fn) if t)
        return float(tp * tn - fp * fn) / math.sqrt(below)


@register
class PCC(PooledMetric):
    """Matthews' correlation for any number of classes, from the confusion matrix of all samples since the reset.

    Predictions are scores [n, classes], or class indices.

    Source: Gorodkin 2004, doi:10.1016/j.compbiolchem.2004.09.006.
    """

    default_name = "pcc"

    def __init__(self, name: str = "pcc", output_names: Names = None, label_names: Names = None, has_global_stats: bool = True):
        super().__init__(name, output_names, label_names, has_global_stats=has_global_stats)

    def empty(self) -> np.ndarray:
        return np.zeros((0, 0))

    def count_pair(self, label: np.ndarray, pred: np.ndarray) -> None:
        truth, predicted = _classes(label), _classes(pred if pred.shape == label.shape else pred.argmax(axis=1))
        _same_count(self, truth, predicted)
        self._local, self._all = (_add_to_confusion(m, predicted, truth) for m in (self._local, self._all))
        self.add(0.0, len(truth))

    def score(self, statistics: np.ndarray) -> float:
        n, x, y = statistics.sum(), statistics.sum(axis=1), statistics.sum(axis=0)
        below = math.sqrt((x * (n - x)).sum() * (y * (n - y)).sum())
        return float((statistics.diagonal() * n - x * y).sum() / below) if below else math.nan


@registry.alias("ce")
class CrossEntropy(EvalMetric):
    """The mean of -log(p[label] + eps). Predictions are probabilities p [n, classes]."""

    default_name = "cross-entropy"

    def __init__(self, eps: float = 1e-12, name: str | None = None, output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names, eps=eps)
        self.eps = eps

    def count_pair(self, label: np.ndarray, pred: np.ndarray) -> None:
        truth = _classes(label)
        _same_count(self, truth, pred)
        self.add(float(-np.log(_pick_rows(self, pred, truth) + self.eps).sum()), len(truth))


@registry.alias("nll_loss")
class NegativeLogLikelihood(CrossEntropy):
    """Cross-entropy, under its other name."""

    default_name = "nll-loss"


@register
class Perplexity(EvalMetric):
    """exp of the mean of -log p[label], over all labels except `ignore_label`. Labels out of range count as the nearest class.

    axis:  the axis of the classes in a prediction. Labels have the other axes.
    """

    def __init__(self, ignore_label: int | None = None, axis: int = -1, name: str = "perplexity",
                 output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names, ignore_label=ignore_label)
        self.ignore_label = ignore_label
        self.axis = axis

    def count_pair(self, label: np.ndarray, pred: np.ndarray) -> None:
        truth = _classes(label)
        rows = np.moveaxis(pred, self.axis, -1).reshape(-1, pred.shape[self.axis])
        _same_count(self, truth, rows)
        if self.ignore_label is not None:
            kept = truth != self.ignore_label
            truth, rows = truth[kept], rows[kept]
        truth = truth.clip(0, rows.shape[1] - 1)  # as MXNet's operator pick does
        self.add(float(-np.log(np.maximum(_pick_rows(self, rows, truth), 1e-10)).sum()), len(truth))

    def value(self, total: float, count: int) -> float:
        return math.exp(total / count)


def _classes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).astype(np.int64)


def _same_count(metric: EvalMetric, truth: np.ndarray, predicted: np.ndarray) -> None:
    if len(truth) != len(predicted):
        raise ShapeError(f"{metric.name}: labels and predictions differ in number: {len(truth)} labels, "
                         f"{len(predicted)} predictions. Is axis the axis of the classes?")


def _pick_rows(metric: EvalMetric, pred: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return pred[i, truth[i]] for every row, float64[n]."""
    pred = pred.reshape(len(pred), -1)
    if truth.size and not 0 <= truth.min() <= truth.max() < pred.shape[1]:
        raise ParameterError(f"{metric.name}: a label is out of range: labels {truth.min()}..{truth.max()}, "
                             f"{pred.shape[1]} classes.")
    return pred[np.arange(len(truth)), truth].astype(np.float64)


def _add_to_confusion(matrix: np.ndarray, predicted: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return a confusion matrix with 1 added at every [predicted, truth], enlarged for new classes."""
    n = max(len(matrix), int(predicted.max(initial=-1)) + 1, int(truth.max(initial=-1)) + 1)
    result = np.zeros((n, n))
    result[: len(matrix), : len(matrix)] = matrix
    np.add.at(result, (predicted, truth), 1)
    return result
