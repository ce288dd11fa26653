"""KVStore: shared values by key. Pushes are summed over devices and merged by an updater; pulls copy the value out."""

from .base import KVStore, KVStoreBase
from .create import create
from .local import LocalKVStore

__all__ = ["KVStore", "KVStoreBase", "LocalKVStore", "create"]
