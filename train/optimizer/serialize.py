"""Optimizers as data: a registered name and numbers, so that servers can update weights without running foreign code.

`from_spec` is the inverse of `to_spec`. `join_states` merges the states of the slices of weights into one state file, and
`split_states` is its inverse. KVStore gets all four through kvstore/server/optimizer_codec.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import MXNetError, ShapeError
from . import lr_scheduler, states
from .base import Index, Optimizer, registry

Shape = tuple[int, ...]

_NUMBERS = (int, float, bool, str)
_MAPS = ("lr_mult", "wd_mult", "idx2name")
_SKIPPED = ("sym_info", "param_dict", "lr_scheduler", "_index_update_count", *_MAPS)
_SCHEDULERS = {c.__name__: c for c in vars(lr_scheduler).values()
               if isinstance(c, type) and issubclass(c, lr_scheduler.LRScheduler)}


def to_spec(optimizer: Any) -> dict[str, Any]:
    """An optimizer as JSON values. Raises MXNetError for one that is not registered, or holds more than numbers."""
    name = type(optimizer).__name__.lower()
    if not isinstance(optimizer, Optimizer) or registry._classes.get(name) is not type(optimizer):
        raise MXNetError(f"set_optimizer: {type(optimizer).__name__} is no registered optimizer, so servers cannot make it. "
                         f"Register it with mx.optimizer.register, in a module that TRITIUM_KV_OPTIMIZERS names where servers "
                         f"start.")
    settings: dict[str, Any] = {}
    for key, value in vars(optimizer).items():
        if key in _SKIPPED or key.startswith("_"):
            continue
        value = value.item() if isinstance(value, np.generic) else value
        if value is not None and not isinstance(value, _NUMBERS):
            raise MXNetError(f"set_optimizer: {type(optimizer).__name__}.{key} is a {type(value).__name__}; only numbers and "
                             f"text travel to servers.")
        settings[key] = value
    scheduler = None
    if optimizer.lr_scheduler is not None:
        scheduler = _describe_scheduler(optimizer.lr_scheduler)
    return {"name": name, "settings": settings, "scheduler": scheduler, "elementwise": optimizer.elementwise,
            **{m: [[k, v] for k, v in getattr(optimizer, m).items()] for m in _MAPS}}


def _describe_scheduler(scheduler: Any) -> dict[str, Any]:
    name = type(scheduler).__name__
    fields = vars(scheduler)
    plain = all(isinstance(v, _NUMBERS) or v is None or (isinstance(v, list) and all(isinstance(n, (int, float)) for n in v))
                for v in fields.values())
    if _SCHEDULERS.get(name) is not type(scheduler) or not plain:
        raise MXNetError(f"set_optimizer: the schedule {name} is not one of {', '.join(sorted(_SCHEDULERS))}, so servers cannot "
                         f"make it. Use one of these, or set kvstore=None.")
    return {"name": name, "fields": dict(fields)}


def from_spec(described: Mapping[str, Any]) -> Optimizer:
    """The optimizer that `to_spec` was given. Raises MXNetError, ParameterError for what cannot be one."""
    optimizer = registry.find(str(described["name"]))()
    own = vars(optimizer)
    for key, value in dict(described["settings"]).items():
        if key not in own or key.startswith("_") or not (value is None or isinstance(value, _NUMBERS)):
            raise MXNetError(f"set_optimizer: {described['name']} has no setting {key!r}.")
        setattr(optimizer, key, value)
    for name in _MAPS:
        setattr(optimizer, name, {k: v for k, v in described[name] if isinstance(k, (int, str)) and isinstance(v, _NUMBERS)})
    scheduler = described.get("scheduler")
    if scheduler is not None:
        cls = _SCHEDULERS.get(str(scheduler["name"]))
        if cls is None:
            raise MXNetError(f"set_optimizer: there is no schedule {scheduler['name']!r}.")
        made = object.__new__(cls)
        vars(made).update(scheduler["fields"])
        optimizer.lr_scheduler = made
    return optimizer


def join_states(keys: Sequence[tuple[Index, Shape, Sequence[tuple[int, int, bytes]]]]) -> bytes:
    """One state file, as `Updater.get_states` writes it, of the states of parts: keys [(key, shape, [(start, stop, states)])]."""
    trees: dict[Index, Any] = {}
    extra: dict[str, Any] = {}
    counts: dict[Index, int] = {}
    for key, shape, parts in keys:
        found = [states.load(blob) for _, _, blob in parts]
        for _, e in found:
            extra = {**e, "num_update": max(int(e["num_update"]), int(extra.get("num_update", 0)))}
            counts.update(dict(e["counts"]))
        if all(key in t for t, _ in found):
            trees[key] = found[0][0][key] if len(found) == 1 else _glue([t[key] for t, _ in found], shape)
    return states.dump(trees, {**extra, "counts": list(counts.items())})


def _glue(trees: Sequence[Any], shape: Shape) -> Any:
    first = trees[0]
    if first is None:
        return None
    if isinstance(first, tuple):
        return tuple(_glue(t, shape) for t in zip(*trees))
    return np.concatenate([t.reshape(-1) for t in trees]).reshape(shape)


def split_states(data: bytes, source: str, keys: Sequence[tuple[Index, Shape, Sequence[tuple[int, int, Shape]]]]
                 ) -> dict[tuple[Index, int], bytes]:
    """Cut a state file into slices: {(key, start): states}. keys: [(key, shape, [(start, stop, shape of the slice)])].

    Raises FileError for a damaged file.
    """
    trees, extra = states.load(data, source)
    counts = dict(extra.get("counts", ()))
    made = {}
    for key, shape, parts in keys:
        if key not in trees and key not in counts:
            continue
        own = {**extra, "counts": [[key, counts[key]]] if key in counts else [], "num_update": counts.get(key, 0)}
        for start, stop, part in parts:
            whole = len(parts) == 1
            made[key, start] = states.dump({key: trees[key] if whole else _cut(trees[key], shape, start, stop, part)}
                                           if key in trees else {}, own)
    return made


def _cut(tree: Any, shape: Shape, start: int, stop: int, part: Shape) -> Any:
    if tree is None:
        return None
    if isinstance(tree, tuple):
        return tuple(_cut(t, shape, start, stop, part) for t in tree)
    if tree.size != math.prod(shape):
        raise ShapeError(f"load_optimizer_states: a state of shape {tree.shape} does not belong to a weight of shape {shape}.")
    return tree.reshape(-1)[start:stop].reshape(part)

