"""`mx.kv.create`: creates the store of a given type."""

from __future__ import annotations

from .. import environment
from ..errors import ParameterError, nearest
from .base import REGISTERED, KVStore
from .local import LocalKVStore

#: MXNet's names for stores of one process with values on the host, and with values on the device.
LOCAL = ("local", "local_update_cpu", "local_allreduce_cpu")
DEVICE = ("device", "local_allreduce_device", "nccl")
#: Names of stores of several processes, and the type that each stands for.
DIST = {"dist_sync": "dist_sync", "dist": "dist_sync", "dist_async": "dist_async", "dist_device_sync": "dist_device_sync",
        "dist_sync_device": "dist_device_sync", "dist_device_async": "dist_async", "p3": "dist_sync"}


def create(name: str = "local") -> KVStore:
    """Return a new key-value store of the type name.

    "local" sums on the host, "device" on the device that pushes. "dist_sync" (also "dist"), "dist_device_sync" and "dist_async"
    share values between the processes of the job that `tritium launch` started (TRITIUM_KV_JOB). Without one, they start a job of
    this process and one server. Classes registered with `KVStoreBase.register` are found by their names.

    Raises ParameterError for an unknown name.
    """
    if not isinstance(name, str):
        raise ParameterError(f"kv.create: the type must be a string, not {name!r}. Try 'local' or 'device'.")
    kind = name.lower()
    if kind in LOCAL:
        return LocalKVStore("local")
    if kind in DEVICE:
        return LocalKVStore("device")
    if kind in REGISTERED:
        return REGISTERED[kind]()
    if kind not in DIST:
        close = nearest(kind, (*LOCAL, *DEVICE, *DIST, *REGISTERED))
        raise ParameterError(f"kv.create: unknown store type {name!r}.{close} "
                             f"Known: {', '.join(('local', 'device', *DIST, *REGISTERED))}.")
    from .worker.dist import DistKVStore  # it imports much that a store of one process does not need

    return DistKVStore(DIST[kind], environment.KV_JOB.get() or None, rank=environment.KV_RANK.get())
