"""Metrics of classification: accuracy, top-k, F1, correlation of classes, cross-entropy and its relatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ParameterError, ShapeError
from .base import EvalMetric, _host, register, registry

Names = Sequence[str] | None


@registry.alias("acc")
class Accuracy(EvalMetric):
    """The share of right classes. A prediction is scores, the classes along `axis`, or the class itself."""

    def __init__(self, axis: int = 1, name: str = "accuracy", output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names, axis=axis)
        self.axis = axis

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        for label, pred in zip(labels, preds):
            label, pred = _host(label), self.as_host(pred)
            if pred.shape != label.shape:
                pred = pred.argmax(axis=self.axis)
            said, truth = _classes(pred), _classes(label)
            _same_count(self, truth, said)
            self.add(int((said == truth).sum()), len(truth))


@registry.alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """The share of labels among the k highest scores. Predictions: [n, classes]."""

    def __init__(self, top_k: int = 1, name: str = "top_k_accuracy", output_names: Names = None,
                 label_names: Names = None):
        if top_k < 1:
            raise ParameterError(f"TopKAccuracy: top_k={top_k} must be at least 1.")
        super().__init__(name, output_names, label_names, top_k=top_k)
        self.top_k = top_k
        self.name = f"{name}_{top_k}"

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        for label, pred in zip(labels, preds):
            truth, pred = _classes(_host(label)), self.as_host(pred)
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
        config = super().get_config()
        config["name"] = self.name.removesuffix(f"_{self.top_k}")
        return config


class BinaryMetric(EvalMetric):
    """Base of scores made of the four counts of a yes-or-no prediction.

    average:  "macro" is the mean of the updates' scores, "micro" the score of all counts together.
    """

    def __init__(self, name: str, output_names: Names, label_names: Names, average: str):
        if average not in ("macro", "micro"):
            raise ParameterError(f"{name}: average={average!r} is not one of macro, micro.")
        self.average = average
        super().__init__(name, output_names, label_names, **({} if average == "macro" else {"average": average}))

    def score(self, tp: float, fp: float, tn: float, fn: float) -> float:
        """The score of true and false positives and negatives."""
        raise NotImplementedError

    def reset(self) -> None:
        self._all = np.zeros(4)
        super().reset()

    def reset_local(self) -> None:
        self._local = np.zeros(4)
        super().reset_local()

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        counts, seen = np.zeros(4), 0
        for label, pred in zip(labels, preds):
            truth, pred = _classes(_host(label)), self.as_host(pred)
            if pred.ndim != 2 or pred.shape[1] > 2 or (truth.size and (truth.min() < 0 or truth.max() > 1)):
                raise ParameterError(f"{self.name}: only two classes can be scored: predictions {pred.shape}, "
                                     f"labels {sorted(set(truth.tolist()))[:5]}. Give scores [n, 2] and labels 0 or 1.")
            _same_count(self, truth, pred)
            yes, true = pred.argmax(axis=1) == 1, truth == 1
            counts += [(yes & true).sum(), (yes & ~true).sum(), (~yes & ~true).sum(), (~yes & true).sum()]
            seen += len(truth)
        self._local += counts
        self._all += counts
        if self.average == "macro":
            self.add(self.score(*counts), 1)
        else:
            self.add(0.0, seen)

    def get(self) -> tuple[str, float]:
        if self.average == "micro" and self.num_inst:
            return self.name, self.score(*self._local)
        return super().get()

    def get_global(self) -> tuple[str, float]:
        if self.average == "micro" and self.global_num_inst:
            return self.name, self.score(*self._all)
        return super().get_global()


@register
class F1(BinaryMetric):
    """2 · precision · recall / (precision + recall); 0 where that is 0/0."""

    def __init__(self, name: str = "f1", output_names: Names = None, label_names: Names = None,
                 average: str = "macro"):
        super().__init__(name, output_names, label_names, average)

    def score(self, tp: float, fp: float, tn: float, fn: float) -> float:
        return 2 * tp / (2 * tp + fp + fn) if tp else 0.0


@register
class MCC(BinaryMetric):
    """Matthews' correlation, in [-1, 1]. A sum of zero in its denominator counts as one."""

    def __init__(self, name: str = "mcc", output_names: Names = None, label_names: Names = None,
                 average: str = "macro"):
        super().__init__(name, output_names, label_names, average)

    def score(self, tp: float, fp: float, tn: float, fn: float) -> float:
        below = math.prod(t for t in (tp + fp, tp + fn, tn + fp, tn + fn) if t)
        return (tp * tn - fp * fn) / math.sqrt(below)


@register
class PCC(EvalMetric):
    """Matthews' correlation for any number of classes, from the confusion matrix of everything since the reset.

    Source: Gorodkin 2004, doi:10.1016/j.compbiolchem.2004.09.006.
    """

    def __init__(self, name: str = "pcc", output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names)

    def reset(self) -> None:
        self._all = np.zeros((0, 0))
        super().reset()

    def reset_local(self) -> None:
        self._local = np.zeros((0, 0))
        super().reset_local()

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        for label, pred in zip(labels, preds):
            truth, pred = _classes(_host(label)), self.as_host(pred)
            _same_count(self, truth, pred)
            said = pred.argmax(axis=1)
            self._local, self._all = (_tally(m, said, truth) for m in (self._local, self._all))
            self.add(0.0, len(truth))

    def get(self) -> tuple[str, float]:
        return self.name, _correlation(self._local) if self.num_inst else math.nan

    def get_global(self) -> tuple[str, float]:
        return self.name, _correlation(self._all) if self.global_num_inst else math.nan


class Picked(EvalMetric):
    """Base of the mean negative logarithm of the probability that a prediction [n, classes] gives the label."""

    def __init__(self, eps: float, name: str, output_names: Names, label_names: Names):
        super().__init__(name, output_names, label_names, eps=eps)
        self.eps = eps

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        for label, pred in zip(labels, preds):
            truth, pred = _classes(_host(label)), self.as_host(pred)
            _same_count(self, truth, pred)
            prob = _pick_rows(self, pred, truth)
            self.add(float(-np.log(prob.astype(np.float64) + self.eps).sum()), len(truth))


@registry.alias("ce")
class CrossEntropy(Picked):
    """-log(p[label] + eps), the mean over instances."""

    def __init__(self, eps: float = 1e-12, name: str = "cross-entropy", output_names: Names = None,
                 label_names: Names = None):
        super().__init__(eps, name, output_names, label_names)


@registry.alias("nll_loss")
class NegativeLogLikelihood(Picked):
    """-log(p[label] + eps), the mean over instances; cross-entropy under its other name."""

    def __init__(self, eps: float = 1e-12, name: str = "nll-loss", output_names: Names = None,
                 label_names: Names = None):
        super().__init__(eps, name, output_names, label_names)


@register
class Perplexity(EvalMetric):
    """exp of the mean of -log p[label], over the labels that are not `ignore_label`.

    axis:  where a prediction has its classes. Labels have the remaining axes.
    """

    def __init__(self, ignore_label: int | None = None, axis: int = -1, name: str = "perplexity",
                 output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names, ignore_label=ignore_label)
        self.ignore_label = ignore_label
        self.axis = axis

    def count(self, labels: list[Any], preds: list[Any]) -> None:
        for label, pred in zip(labels, preds):
            truth, pred = _classes(_host(label)), self.as_host(pred)
            rows = np.moveaxis(pred, self.axis, -1).reshape(-1, pred.shape[self.axis])
            _same_count(self, truth, rows)
            if self.ignore_label is not None:
                kept = truth != self.ignore_label
                truth, rows = truth[kept], rows[kept]
            prob = _pick_rows(self, rows, truth).astype(np.float64)
            self.add(float(-np.log(np.maximum(prob, 1e-10)).sum()), len(truth))

    def value(self, total: float, count: int) -> float:
        return math.exp(total / count)


def _classes(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1).astype(np.int64)


def _same_count(metric: EvalMetric, truth: np.ndarray, said: np.ndarray) -> None:
    if len(truth) != len(said):
        raise ShapeError(f"{metric.name}: labels and predictions differ in number: {len(truth)} labels, "
                         f"{len(said)} predictions. Is the label's axis the classes' axis?")


def _pick_rows(metric: EvalMetric, pred: np.ndarray, truth: np.ndarray) -> np.ndarray:
    pred = pred.reshape(len(pred), -1)
    if truth.size and not 0 <= truth.min() <= truth.max() < pred.shape[1]:
        raise ParameterError(f"{metric.name}: a label is no class: labels {truth.min()}..{truth.max()}, "
                             f"{pred.shape[1]} classes.")
    return pred[np.arange(len(truth)), truth]


def _tally(matrix: np.ndarray, said: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """matrix, grown if it must, with one more at every [said, truth]."""
    n = max(len(matrix), int(said.max(initial=-1)) + 1, int(truth.max(initial=-1)) + 1)
    grown = np.zeros((n, n))
    grown[: len(matrix), : len(matrix)] = matrix
    np.add.at(grown, (said, truth), 1)
    return grown


def _correlation(matrix: np.ndarray) -> float:
    n, x, y = matrix.sum(), matrix.sum(axis=1), matrix.sum(axis=0)
    below = math.sqrt((x * (n - x)).sum() * (y * (n - y)).sum())
    return float((matrix.diagonal() * n - x * y).sum() / below) if below else math.nan
