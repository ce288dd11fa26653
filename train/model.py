"""`mx.model`: checkpoints, FeedForward, and what batch callbacks are handed."""

from __future__ import annotations

from .checkpoint import BatchEndParam, load_checkpoint, load_params, save_checkpoint
from .feedforward import FeedForward

__all__ = ["BatchEndParam", "FeedForward", "load_checkpoint", "load_params", "save_checkpoint"]
