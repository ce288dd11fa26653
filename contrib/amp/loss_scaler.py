"""LossScaler: a factor of the loss that keeps gradients within the range of float16."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ... import ndarray as nd

_CHUNK = 200  # gradients per call of multi_all_finite


class LossScaler:
    """The factor starts at 2¹⁶. It is halved after an overflow, and doubled, to at most 2²⁴, after 2000 steps without one."""

    def __init__(self) -> None:
        self._loss_scale = self._next_loss_scale = 2.0**16
        self._max_loss_scale = 2.0**24
        self._scale_seq_len = 2000
        self._unskipped = 0

    @property
    def loss_scale(self) -> float:
        """The factor of this step."""
        return self._loss_scale

    def has_overflow(self, params: Sequence[Any]) -> bool:
        """Return True if a gradient of these parameters is infinite or NaN. Also choose the factor of the next step; waits."""
        grads = [g for p in params if p.grad_req != "null" for g in p.list_grad()[:1]]
        dense = [g.data if g.stype != "default" else g for g in grads]
        found = [nd.multi_all_finite(*dense[i : i + _CHUNK], num_arrays=len(dense[i : i + _CHUNK]))
                 for i in range(0, len(dense), _CHUNK)]
        overflow = not all(bool(f.asscalar()) for f in found)
        self._loss_scale = self._next_loss_scale
        if overflow:
            self._next_loss_scale, self._unskipped = self._loss_scale / 2, 0
            logging.info("AMP: decreasing loss scale to %f", self._next_loss_scale)
            return True
        self._unskipped += 1
        if self._unskipped == self._scale_seq_len:
            self._next_loss_scale, self._unskipped = min(self._max_loss_scale, self._loss_scale * 2), 0
            logging.info("AMP: increasing loss scale to %f", self._next_loss_scale)
        return False
