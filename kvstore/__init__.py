"""KVStore: shared values by key. Pushes are summed over devices and merged by an updater; pulls copy the value out."""

from .kvstore import KVStore, create
from .local import LocalKVStore

__all__ = ["KVStore", "LocalKVStore", "create"]
