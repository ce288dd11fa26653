"""Apply gradients to weights: on each device, with gradients summed by a key-value store, or by the store itself.

`choose_sync` picks one of three classes when `Module.init_optimizer` runs. The four functions after it have MXNet's names and
arguments; `mx.model` exports them to scripts with a training loop of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .. import environment
from ..atomic_file import read_file, write_atomic
from ..errors import FileError, ParameterError
from ..kvstore import KVStore, create
from ..ndarray import NDArray

Arrays = Sequence[Sequence[Any]]  # one entry per parameter: its array on each device


class DeviceUpdate:
    """Update each device's weights by its own gradients. The updater's key of parameter i on device k of n is i · n + k.

    A parameter whose gradients are None keeps its value, here and in the other two classes.
    """

    def __init__(self, updater: Any):
        self.updater = updater

    def push_pull(self, grads: Arrays, weights: Arrays) -> None:
        learned = _learned(grads)
        n = len(weights[0]) if learned else 0
        for k in range(n):
            self.updater([i * n + k for i in learned], [grads[i][k] for i in learned], [weights[i][k] for i in learned])

    def save_optimizer_states(self, fname: str) -> None:
        write_atomic(fname, self.updater.get_states())

    def load_optimizer_states(self, fname: str) -> None:
        try:
            data = read_file(fname)
        except OSError as e:
            raise FileError(f"Module.load_optimizer_states: {fname}: cannot be read: {e.strerror}.") from e
        self.updater.set_states(data, str(fname))


class SummedUpdate(DeviceUpdate):
    """Sum the gradients of all devices and workers in a store, then update each device's weights by the sums."""

    def __init__(self, updater: Any, kvstore: Any, param_names: Sequence[str]):
        super().__init__(updater)
        self.kvstore, self.param_names = kvstore, param_names

    def push_pull(self, grads: Arrays, weights: Arrays) -> None:
        _exchange(self.kvstore, self.param_names, grads, grads)
        super().push_pull(grads, weights)


class StoreUpdate:
    """Push the gradients to a store that runs the optimizer, then pull the new weights."""

    def __init__(self, kvstore: Any, param_names: Sequence[str]):
        self.kvstore, self.param_names = kvstore, param_names

    def push_pull(self, grads: Arrays, weights: Arrays) -> None:
        _exchange(self.kvstore, self.param_names, grads, weights)

    def save_optimizer_states(self, fname: str) -> None:
        self.kvstore.save_optimizer_states(fname)

    def load_optimizer_states(self, fname: str) -> None:
        self.kvstore.load_optimizer_states(fname)


ParamSync = DeviceUpdate | StoreUpdate


def _learned(grads: Arrays) -> list[int]:
    """Indices of the parameters that have gradients."""
    return [i for i, g in enumerate(grads) if g[0] is not None]


def _exchange(kvstore: Any, param_names: Sequence[str], grads: Arrays, targets: Arrays) -> None:
    """Push the gradients, then pull into targets: one call each for all parameters."""
    learned = _learned(grads)
    if not stores_keys(kvstore):
        for i in learned:
            kvstore.pushpull(param_names[i], list(grads[i]), out=list(targets[i]), priority=-i)
    elif learned:
        names = [param_names[i] for i in learned]
        kvstore.push(names, [list(grads[i]) for i in learned])
        kvstore.pull(names, [list(targets[i]) for i in learned])


def stores_keys(kvstore: Any) -> bool:
    """Return False for a user's store that has `broadcast` and `pushpull` only, which MXNet's KVStoreBase asks for."""
    return getattr(type(kvstore), "push", None) is not KVStore.push


def choose_sync(kvstore: Any, update_on_kvstore: bool, optimizer: Any, param_names: Sequence[str], param_arrays: Arrays,
                arg_params: Mapping[str, NDArray]) -> ParamSync:
    """Return the ParamSync for a store (or None) and an optimizer. Creates the store's keys."""
    if kvstore is None:
        return DeviceUpdate(optimizer.create_updater())
    if update_on_kvstore:
        kvstore.set_optimizer(optimizer)
    initialize_kvstore(kvstore, param_arrays, arg_params, param_names, update_on_kvstore)
    if update_on_kvstore:
        return StoreUpdate(kvstore, param_names)
    return SummedUpdate(optimizer.create_updater(), kvstore, param_names)


# ---- for training loops of users, under MXNet's names -----------------------------------------------------------------
def create_kvstore(kvstore: Any, num_device: int, arg_params: Mapping[str, NDArray]) -> tuple[KVStore | None, bool]:
    """Return (store or None, True if the store runs the optimizer). kvstore: a store, the name of a type, or None.

    As in MXNet, the name of a local type gives None for a single device. A "local" store does not run the optimizer if an
    array has more than 16 Mi elements; no store does if MXNET_UPDATE_ON_KVSTORE=0.
    """
    on_store = environment.UPDATE_ON_KVSTORE.get()
    if kvstore is None:
        return None, False
    if isinstance(kvstore, KVStore):
        return kvstore, on_store and kvstore.is_capable(KVStore.OPTIMIZER)
    if not isinstance(kvstore, str):
        raise ParameterError(f"kvstore: {kvstore!r} is neither a KVStore, nor the name of a type, nor None.")
    if num_device == 1 and not kvstore.startswith("dist"):
        return None, False
    if kvstore == "local" and max((math.prod(p.shape) for p in arg_params.values()), default=0) > 1 << 24:
        on_store = False
    store = create(kvstore)
    return store, on_store and store.is_capable(KVStore.OPTIMIZER)


def initialize_kvstore(kvstore: KVStore, param_arrays: Arrays, arg_params: Mapping[str, NDArray], param_names: Sequence[str],
                       update_on_kvstore: bool) -> None:
    """Create a key for every parameter. If the store updates them, copy its values to the devices."""
    for i, (name, on_devices) in enumerate(zip(param_names, param_arrays)):
        if not stores_keys(kvstore):
            kvstore.broadcast(name, arg_params[name], out=list(on_devices), priority=-i)
            continue
        kvstore.init(name, arg_params[name])
        if update_on_kvstore:
            kvstore.pull(name, on_devices, priority=-i)


def update_params_on_kvstore(param_arrays: Arrays, grad_arrays: Arrays, kvstore: KVStore, param_names: Sequence[str]) -> None:
    """Push every gradient to a store that runs the optimizer, and pull every new weight."""
    StoreUpdate(kvstore, param_names).push_pull(grad_arrays, param_arrays)


def update_params(param_arrays: Arrays, grad_arrays: Arrays, updater: Any, num_device: int, kvstore: KVStore | None = None,
                  param_names: Sequence[str] | None = None) -> None:
    """Sum every gradient in the store, if there is one, then call the updater once for each of num_device devices."""
    names = param_names or [str(i) for i in range(len(param_arrays))]
    sync = DeviceUpdate(updater) if kvstore is None else SummedUpdate(updater, kvstore, names)
    sync.push_pull(grad_arrays, param_arrays)
