"""Losses: `mx.gluon.loss`. Each call returns one number per item of the batch, except where its docstring says otherwise.

A prediction and its label may have different shapes with equally many elements, unless shapes are given.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import ParameterError, check_choice
from ..train.compat.base import numeric_types
from .block import HybridBlock

__all__ = ["Loss", "L2Loss", "L1Loss", "SigmoidBinaryCrossEntropyLoss", "SigmoidBCELoss", "SoftmaxCrossEntropyLoss",
           "SoftmaxCELoss", "KLDivLoss", "CTCLoss", "HuberLoss", "HingeLoss", "SquaredHingeLoss", "LogisticLoss",
           "TripletLoss", "PoissonNLLLoss", "CosineEmbeddingLoss", "SDMLLoss"]


def _apply_weighting(F: Any, loss: Any, weight: float | None = None, sample_weight: Any = None) -> Any:
    """Return loss · sample_weight · weight.

    weight:         a number, or None for 1.
    sample_weight:  an array that broadcasts to loss, such as [batch, 1] for [batch, classes]; or None for 1.
    """
    if sample_weight is not None:
        loss = F.broadcast_mul(loss, sample_weight)
    if weight is not None:
        if not isinstance(weight, numeric_types):
            raise ParameterError(f"Loss: weight={weight!r}. It must be a number; an array is a sample_weight.")
        loss = loss * weight
    return loss


def _reshape_like(F: Any, x: Any, y: Any) -> Any:
    """Return x in the shape of y."""
    return F.reshape_like(x, y)


def _log_sigmoid_rest(F: Any, x: Any) -> Any:
    """Return log(1 + exp(-|x|)), the part of a logistic loss that neither overflows nor cancels."""
    return F.Activation(-F.abs(x), act_type="softrelu")


class Loss(HybridBlock):
    """The base of all losses.

    weight:      a number to multiply by, or None for 1.
    batch_axis:  the axis of the batch; the others are averaged (or summed, where a loss says so).
    """

    def __init__(self, weight: float | None, batch_axis: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._weight, self._batch_axis = weight, batch_axis

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__}.hybrid_forward")

    def _mean(self, F: Any, loss: Any, sample_weight: Any) -> Any:
        """Return the weighted mean of each item."""
        loss = _apply_weighting(F, loss, self._weight, sample_weight)
        return F.mean(loss, axis=self._batch_axis, exclude=True)


class L2Loss(Loss):
    """½ · weight · mean (label - pred)²."""

    def __init__(self, weight: float = 1.0, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        half = 0.5 if self._weight is None else self._weight / 2
        loss = _apply_weighting(F, F.square(label - pred), half, sample_weight)
        return F.mean(loss, axis=self._batch_axis, exclude=True)


class L1Loss(Loss):
    """mean |label - pred|."""

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        return self._mean(F, F.abs(_reshape_like(F, label, pred) - pred), sample_weight)


class SigmoidBinaryCrossEntropyLoss(Loss):
    """- mean (label · log p · pos_weight + (1 - label) · log(1 - p)), p = sigmoid(pred). label: between 0 and 1.

    from_sigmoid: pred is p already, the output of a sigmoid. Without, the loss is exact at large |pred|.
    pos_weight:   an argument of the call: the weight of positive labels, of a shape that broadcasts to pred, [1, classes].
    """

    def __init__(self, from_sigmoid: bool = False, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_sigmoid = from_sigmoid

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None, pos_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        if self._from_sigmoid:
            positive = F.log(pred + 1e-12) * label
            if pos_weight is not None:
                positive = F.broadcast_mul(positive, pos_weight)
            loss = -(positive + F.log(1.0 - pred + 1e-12) * (1.0 - label))
        elif pos_weight is None:
            loss = F.relu(pred) - pred * label + _log_sigmoid_rest(F, pred)
        else:
            log_weight = 1 + F.broadcast_mul(pos_weight - 1, label)
            loss = pred - pred * label + log_weight * (_log_sigmoid_rest(F, pred) + F.relu(-pred))
        return self._mean(F, loss, sample_weight)


SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss


class SoftmaxCrossEntropyLoss(Loss):
    """- log p[label], or - Σ label · log p: the cross entropy of p = softmax(pred) along `axis`.

    axis:          of the classes.
    sparse_label:  label has an integer class per item, in pred's shape without `axis`; else probabilities, in pred's shape.
    from_logits:   pred is log p already, the output of a log_softmax.
    """

    def __init__(self, axis: int = -1, sparse_label: bool = True, from_logits: bool = False, weight: float | None = None,
                 batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._axis, self._sparse_label, self._from_logits = axis, sparse_label, from_logits

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        log_p = pred if self._from_logits else F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            loss = -F.pick(log_p, label, axis=self._axis, keepdims=True)
        else:
            loss = -F.sum(log_p * _reshape_like(F, label, log_p), axis=self._axis, keepdims=True)
        return self._mean(F, loss, sample_weight)


SoftmaxCELoss = SoftmaxCrossEntropyLoss


class KLDivLoss(Loss):
    """Σ label · (log label - pred): the Kullback-Leibler divergence of label from exp(pred).

    from_logits: pred is a log-probability; else log_softmax along `axis` is taken of it.
    """

    def __init__(self, from_logits: bool = True, axis: int = -1, weight: float | None = None, batch_axis: int = 0,
                 **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits, self._axis = from_logits, axis

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        loss = _apply_weighting(F, label * (F.log(label + 1e-12) - pred), self._weight, sample_weight)
        return F.sum(loss, axis=self._batch_axis, exclude=True)


class CTCLoss(Loss):
    """The connectionist temporal classification loss of a sequence of predictions: - log of the probability of the label.

    layout:        of pred, before softmax: 'NTC' [batch, time, classes] or 'TNC'. The last class is the blank.
    label_layout:  'NT' [batch, length] or 'TN'; classes from 0, padded with -1.
    pred_lengths, label_lengths: arguments of the call, [batch]: lengths of both; None: all of it, and up to the padding.
    """

    def __init__(self, layout: str = "NTC", label_layout: str = "NT", weight: float | None = None, **kwargs: Any) -> None:
        check_choice("CTCLoss", "layout", layout, ("NTC", "TNC"))
        check_choice("CTCLoss", "label_layout", label_layout, ("NT", "TN"))
        self._layout, self._label_layout = layout, label_layout
        super().__init__(weight, label_layout.find("N"), **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, pred_lengths: Any = None, label_lengths: Any = None,
                       sample_weight: Any = None) -> Any:
        if self._layout == "NTC":
            pred = F.swapaxes(pred, 0, 1)
        if self._batch_axis == 1:
            label = F.swapaxes(label, 0, 1)
        loss = F.CTCLoss(pred, label, data_lengths=pred_lengths, label_lengths=label_lengths,
                         use_data_lengths=pred_lengths is not None, use_label_lengths=label_lengths is not None,
                         blank_label="last")
        return _apply_weighting(F, loss, self._weight, sample_weight)


class HuberLoss(Loss):
    """mean of d²/(2 rho) where d = |label - pred| <= rho, and of d - rho/2 elsewhere."""

    def __init__(self, rho: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._rho = rho

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        d = F.abs(_reshape_like(F, label, pred) - pred)
        loss = F.where(d > self._rho, d - 0.5 * self._rho, (0.5 / self._rho) * F.square(d))
        return self._mean(F, loss, sample_weight)


class HingeLoss(Loss):
    """mean max(0, margin - pred · label). label: -1 or 1."""

    def __init__(self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        return self._mean(F, F.relu(self._margin - pred * _reshape_like(F, label, pred)), sample_weight)


class SquaredHingeLoss(Loss):
    """mean max(0, margin - pred · label)². label: -1 or 1."""

    def __init__(self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        return self._mean(F, F.square(F.relu(self._margin - pred * _reshape_like(F, label, pred))), sample_weight)


class LogisticLoss(Loss):
    """mean log(1 + exp(- pred · label)). label: -1 or 1 ('signed'), or 0 or 1 ('binary'), as label_format says."""

    def __init__(self, weight: float | None = None, batch_axis: int = 0, label_format: str = "signed", **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        check_choice("LogisticLoss", "label_format", label_format, ("signed", "binary"))
        self._label_format = label_format

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        if self._label_format == "signed":
            label = (label + 1.0) / 2.0
        return self._mean(F, F.relu(pred) - pred * label + _log_sigmoid_rest(F, pred), sample_weight)


class TripletLoss(Loss):
    """max(0, Σ (positive - pred)² - Σ (negative - pred)² + margin)."""

    def __init__(self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, positive: Any, negative: Any) -> Any:
        near = F.square(_reshape_like(F, positive, pred) - pred)
        far = F.square(_reshape_like(F, negative, pred) - pred)
        loss = F.relu(F.sum(near - far, axis=self._batch_axis, exclude=True) + self._margin)
        return _apply_weighting(F, loss, self._weight, None)


class PoissonNLLLoss(Loss):
    """The negative log-likelihood of counts under Poisson distributions, averaged over all items: one number.

    from_logits:   pred is the logarithm of the expected count: exp(pred) - target · pred; else pred is the expected count:
                   pred - target · log(pred + epsilon), where epsilon is an argument of the call.
    compute_full:  add Stirling's approximation of log(target!), where target > 1.
    """

    def __init__(self, weight: float | None = None, from_logits: bool = True, batch_axis: int = 0, compute_full: bool = False,
                 **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits, self._compute_full = from_logits, compute_full

    def hybrid_forward(self, F: Any, pred: Any, target: Any, sample_weight: Any = None, epsilon: float = 1e-08) -> Any:
        target = _reshape_like(F, target, pred)
        loss = F.exp(pred) - target * pred if self._from_logits else pred - target * F.log(pred + epsilon)
        if self._compute_full:
            stirling = target * F.log(target) - target + 0.5 * F.log(2 * math.pi * target)
            loss = loss + F.where(target > 1, stirling, F.zeros_like(target))  # no 0 · log 0 where the target is 0
        return F.mean(_apply_weighting(F, loss, self._weight, sample_weight))


class CosineEmbeddingLoss(Loss):
    """1 - cosine of input1 and input2 where label is 1; max(0, cosine - margin) where it is -1. Returns [batch, 1].

    label: [batch].
    """

    def __init__(self, weight: float | None = None, batch_axis: int = 0, margin: float = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, input1: Any, input2: Any, label: Any, sample_weight: Any = None) -> Any:
        cosine = self._cosine_similarity(F, _reshape_like(F, input1, input2), input2)
        label = F.reshape(label, shape=(-1, 1))
        loss = (1 - cosine) * (label == 1) + F.relu((label == -1) * (cosine - self._margin))
        return _apply_weighting(F, loss, self._weight, sample_weight)

    def _cosine_similarity(self, F: Any, x: Any, y: Any, axis: int = -1) -> Any:
        norms = [F.reshape(F.norm(a, axis=axis), shape=(-1, 1)) for a in (x, y)]
        return F.reshape(F.sum(x * y, axis=axis), shape=(-1, 1)) / F.maximum(norms[0] * norms[1], 1e-12)


class SDMLLoss(Loss):
    """Smoothed deep metric learning (arXiv:1905.12786): row i of x1 belongs to row i of x2, and to no other row.

    Σ of the divergence of smoothed labels from softmax(- squared distances) of each row of x1 to all rows of x2.
    smoothing_parameter: probability given to all other rows together, below 1.
    x1, x2: [batch, size]; the batch has two rows or more.
    """

    def __init__(self, smoothing_parameter: float = 0.3, weight: float = 1.0, batch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self.kl_loss = KLDivLoss(from_logits=True)
        self.smoothing_parameter = smoothing_parameter

    def hybrid_forward(self, F: Any, x1: Any, x2: Any) -> Any:
        distances = F.sum(F.square(F.broadcast_sub(F.expand_dims(x1, 1), F.expand_dims(x2, 0))), axis=2)
        row = F.contrib.arange_like(x1, axis=0)
        same = F.broadcast_equal(F.expand_dims(row, 1), F.expand_dims(row, 0))
        others = F.broadcast_div(1 - same, F.sum(1 - same, axis=1, keepdims=True))
        labels = same * (1 - self.smoothing_parameter) + others * self.smoothing_parameter
        return self.kl_loss(F.log_softmax(-distances, axis=1), labels)
