"""`mx.model`: checkpoints, FeedForward, what batch callbacks are handed, and how parameters meet a key-value store."""

from __future__ import annotations

from ..checkpoint import BatchEndParam, last_checkpoint, load_checkpoint, load_params, save_checkpoint
from ..checkpoint import create_kvstore as _create_kvstore  # these four: as MXNet's own training loops import them
from ..checkpoint import initialize_kvstore as _initialize_kvstore
from ..checkpoint import update_params_on_kvstore as _update_params_on_kvstore
from ..module.feedforward import FeedForward
from .executor_manager import _update_params

__all__ = ["BatchEndParam", "FeedForward", "_create_kvstore", "_initialize_kvstore", "_update_params",
           "_update_params_on_kvstore", "last_checkpoint", "load_checkpoint", "load_params", "save_checkpoint"]
