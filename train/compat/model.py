"""`mx.model`: checkpoints, FeedForward, the argument of batch callbacks, and parameters in a key-value store."""

from __future__ import annotations

from ...kvstore import KVStore, create
from ..checkpoint import BatchEndParam, last_checkpoint, load_checkpoint, load_params, save_checkpoint
from ..kvstore_sync import create_kvstore as _create_kvstore  # MXNet's training loops import these four
from ..kvstore_sync import initialize_kvstore as _initialize_kvstore
from ..kvstore_sync import update_params as _update_params
from ..kvstore_sync import update_params_on_kvstore as _update_params_on_kvstore
from ..module.feedforward import FeedForward


def _create_sparse_kvstore(kvstore: KVStore | str) -> tuple[KVStore, bool]:
    """Return (store, True) for a store or the name of a type. A store that holds row-sparse weights runs the optimizer, too."""
    return (kvstore if isinstance(kvstore, KVStore) else create(kvstore)), True


__all__ = ["BatchEndParam", "FeedForward", "_create_kvstore", "_create_sparse_kvstore", "_initialize_kvstore", "_update_params",
           "_update_params_on_kvstore", "last_checkpoint", "load_checkpoint", "load_params", "save_checkpoint"]
