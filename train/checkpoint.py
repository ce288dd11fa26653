"""`mx.model`: checkpoints on disk, what callbacks are handed, and how parameters meet a key-value store."""

from __future__ import annotations

import logging
import math
import os
import re
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any

from .. import kvstore as kv
from ..errors import FileError, ParameterError
from ..graph.symbol import symbol as sym
from ..ndarray import NDArray, load, save

#: What batch callbacks get: the epoch, the batch's number from 0, the metric so far, and the caller's variables.
BatchEndParam = namedtuple("BatchEndParam", ["epoch", "nbatch", "eval_metric", "locals"])


def save_checkpoint(prefix: str, epoch: int, symbol: Any, arg_params: Mapping[str, NDArray],
                    aux_params: Mapping[str, NDArray], remove_amp_cast: bool = True) -> None:
    """Write PREFIX-symbol.json (unless symbol is None) and PREFIX-0000.params, 0000 being the epoch.

    Each file is written whole or not at all, so a reader never sees half of one.
    """
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json")
    named = {f"arg:{k}": v for k, v in arg_params.items()} | {f"aux:{k}": v for k, v in aux_params.items()}
    save(params_file(prefix, epoch), named)
    logging.info('Saved checkpoint to "%s"', params_file(prefix, epoch))


def load_checkpoint(prefix: str, epoch: int) -> tuple[Any, dict[str, NDArray], dict[str, NDArray]]:
    """(symbol, arg_params, aux_params) of a checkpoint. Raises FileError that names the file and what is wrong."""
    name = f"{prefix}-symbol.json"
    try:
        symbol = sym.load(name)
    except OSError as e:
        raise FileError(f"load_checkpoint: {name}: cannot be read: {e.strerror}.") from e
    return symbol, *load_params(prefix, epoch)


def load_params(prefix: str, epoch: int) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """(arg_params, aux_params) of PREFIX-0000.params."""
    return split_params(params_file(prefix, epoch))


def last_checkpoint(prefix: str) -> int | None:
    """The greatest epoch of which there is a PREFIX-0000.params; None if there is none."""
    folder, name = os.path.split(prefix)
    found = [re.fullmatch(rf"{re.escape(name)}-(\d{{4,}})\.params", f) for f in os.listdir(folder or ".")] if os.path.isdir(
        folder or ".") else []
    return max((int(m[1]) for m in found if m), default=None)


def params_file(prefix: str, epoch: int) -> str:
    """The name of a checkpoint's parameter file."""
    return f"{prefix}-{epoch:04d}.params"


def split_params(fname: str) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """(arg_params, aux_params) of a parameter file, by the `arg:` and `aux:` in front of its names."""
    try:
        named = load(fname)
    except OSError as e:
        raise FileError(f"load_params: {fname}: cannot be read: {e.strerror}.") from e
    if not isinstance(named, dict):
        raise FileError(f"load_params: {fname}: its arrays have no names, so it is no checkpoint. Use mx.nd.load.")
    found: dict[str, dict[str, NDArray]] = {"arg": {}, "aux": {}}
    for name, value in named.items():
        kind, colon, rest = name.partition(":")
        if not colon or kind not in found:
            raise FileError(f"load_params: {fname}: the name {name!r} begins with neither arg: nor aux:, so it is "
                            f"no checkpoint of a Module. Use mx.nd.load.")
        found[kind][rest] = value
    return found["arg"], found["aux"]


# ---- parameters and the key-value store ----------------------------------------------------------------------------
def create_kvstore(kvstore: Any, num_device: int, arg_params: Mapping[str, NDArray]) -> tuple[kv.KVStore | None, bool]:
    """(the store or None, whether it runs the optimizer), from a store, a type's name or None.

    A name with a single device gives None, as in MXNet: there is nothing to share. Arrays of more than 16 Mi elements
    are updated on their devices and not in a "local" store; MXNET_UPDATE_ON_KVSTORE=0 says so for all.
    """
    on_store = os.environ.get("MXNET_UPDATE_ON_KVSTORE", "1") != "0"
    if kvstore is None:
        return None, False
    if isinstance(kvstore, kv.KVStore):
        return kvstore, on_store
    if not isinstance(kvstore, str):
        raise ParameterError(f"kvstore: {kvstore!r} is neither a KVStore nor the name of a type nor None.")
    if num_device == 1 and not kvstore.startswith("dist"):
        return None, False
    if kvstore == "local" and max((math.prod(p.shape) for p in arg_params.values()), default=0) > 1 << 24:
        on_store = False
    return kv.create(kvstore), on_store


def initialize_kvstore(kvstore: kv.KVStore, param_arrays: Sequence[Sequence[NDArray]],
                       arg_params: Mapping[str, NDArray], param_names: Sequence[str], update_on_kvstore: bool) -> None:
    """Make a key of every parameter; where the store updates them, the devices begin with its copies."""
    for i, (name, on_devices) in enumerate(zip(param_names, param_arrays)):
        kvstore.init(name, arg_params[name])
        if update_on_kvstore:
            kvstore.pull(name, on_devices, priority=-i)


def update_params_on_kvstore(param_arrays: Sequence[Sequence[NDArray]], grad_arrays: Sequence[Sequence[Any]],
                             kvstore: kv.KVStore, param_names: Sequence[str]) -> None:
    """Push every gradient, pull every new weight: all of them in one call of each."""
    learned = [(n, list(w), list(g)) for n, w, g in zip(param_names, param_arrays, grad_arrays) if g[0] is not None]
    if not learned:
        return
    names, weights, grads = (list(part) for part in zip(*learned))
    kvstore.push(names, grads)
    kvstore.pull(names, weights)


def update_params(param_arrays: Sequence[Sequence[NDArray]], grad_arrays: Sequence[Sequence[Any]], updater: Any,
                  kvstore: kv.KVStore | None, param_names: Sequence[str]) -> None:
    """Sum every gradient over devices (if there is a store), then update the weights: one update for each device.

    The updater's key of parameter i on device k of n is i · n + k.
    """
    learned = [(i, w, g) for i, (w, g) in enumerate(zip(param_arrays, grad_arrays)) if g[0] is not None]
    if kvstore is not None and learned:
        names, grads = [param_names[i] for i, _, _ in learned], [list(g) for _, _, g in learned]
        kvstore.push(names, grads)
        kvstore.pull(names, grads)
    for k in range(len(param_arrays[0]) if learned else 0):
        updater([i * len(w) + k for i, w, _ in learned], [g[k] for _, _, g in learned], [w[k] for _, w, _ in learned])
