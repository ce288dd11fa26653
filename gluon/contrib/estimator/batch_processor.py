"""BatchProcessor: the computation of one batch, in training and validation."""

from __future__ import annotations

from typing import Any

from ....context import Context
from ....ndarray import autograd
from ...utils import split_and_load

__all__ = ["BatchProcessor"]

Batch = tuple[list[Any], list[Any], list[Any], list[Any]]  # data, label, prediction and loss, each a list by context


class BatchProcessor:
    """Computes predictions, losses and gradients of a batch. Subclass it for batches that are not (data, label)."""

    def _get_data_and_label(self, batch: Any, ctx: list[Context], batch_axis: int = 0) -> tuple[list[Any], list[Any]]:
        data, label = batch[0], batch[1]
        return (split_and_load(data, ctx_list=ctx, batch_axis=batch_axis),
                split_and_load(label, ctx_list=ctx, batch_axis=batch_axis))

    def evaluate_batch(self, estimator: Any, val_batch: Any, batch_axis: int = 0) -> Batch:
        """Return data, label, predictions of estimator.val_net, and losses, as lists by context."""
        data, label = self._get_data_and_label(val_batch, estimator.context, batch_axis)
        pred = [estimator.val_net(x) for x in data]
        return data, label, pred, [estimator.val_loss(y_hat, y) for y_hat, y in zip(pred, label)]

    def fit_batch(self, estimator: Any, train_batch: Any, batch_axis: int = 0) -> Batch:
        """Compute the gradients too. Return data, label, predictions and losses, as lists by context."""
        data, label = self._get_data_and_label(train_batch, estimator.context, batch_axis)
        with autograd.record():
            pred = [estimator.net(x) for x in data]
            loss = [estimator.loss(y_hat, y) for y_hat, y in zip(pred, label)]
        for one in loss:
            one.backward()
        return data, label, pred, loss
