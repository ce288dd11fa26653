"""`mx.kv.create`: the store of a given type."""

from __future__ import annotations

from ..errors import MXNetError, ParameterError, nearest
from .base import KVStore
from .local import LocalKVStore

#: MXNet's names for stores inside one process, and whether each keeps its values on the device.
LOCAL = ("local", "local_update_cpu", "local_allreduce_cpu")
DEVICE = ("device", "local_allreduce_device", "nccl")


def create(name: str = "local") -> KVStore:
    """The key-value store called name: "local" sums on the host, "device" on the device that pushes.

    Raises ParameterError for an unknown name, MXNetError for the stores across machines (dist_*), which are not built.
    """
    if not isinstance(name, str):
        raise ParameterError(f"kv.create: the type must be a string, not {name!r}. Try 'local' or 'device'.")
    kind = name.lower()
    if kind in LOCAL:
        return LocalKVStore("local")
    if kind in DEVICE:
        return LocalKVStore("device")
    if kind.startswith("dist") or kind == "p3":
        raise MXNetError(f"kv.create: {name!r} shares values between machines; it will come with "
                         f'pip install "tritium[dist]" and is not built yet. Within one machine use "local" or "device".')
    raise ParameterError(f"kv.create: there is no store of type {name!r}.{nearest(kind, (*LOCAL, *DEVICE))} "
                         f"Known: local, device.")
