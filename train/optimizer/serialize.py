"""Optimizers as data: a registered name and numbers, so that servers can update weights without running foreign code.

`from_spec` is the inverse of `to_spec`. `join_states` merges the states of the slices of weights into one state file, and
`split_states` is its inverse. KVStore gets all four through kvstore/server/optimizer_codec.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...errors import MXNetError, ShapeError
from . import lr_scheduler, states
from .base import Index, Optimizer, registry

Shape = tuple[int, ...]

_NUMBERS = (int, float, bool, str)
_MAPPINGS = ("lr_mult", "wd_mult", "idx2name")
_SKIPPED = ("sym_info", "param_dict", "lr_scheduler", "_index_update_count", *_MAPPINGS)
_SCHEDULERS = {n: c for n, c in vars(lr_scheduler).items()
               if isinstance(c, type) and issubclass(c, lr_scheduler.LRScheduler) and not n.startswith("_")}


def to_spec(optimizer: Any) -> dict[str, Any]:
    """Return an optimizer as JSON values. Raises MXNetError if it is not registered, or has settings of other types."""
    name = type(optimizer).__name__.lower()
    if not isinstance(optimizer, Optimizer) or registry.classes.get(name) is not type(optimizer):
        raise MXNetError(f"set_optimizer: {type(optimizer).__name__} is not a registered optimizer, so servers cannot create it. "
                         f"Register it with mx.optimizer.register, in a module that TRITIUM_KV_OPTIMIZERS names where servers "
                         f"start.")
    settings: dict[str, Any] = {}
    for key, value in vars(optimizer).items():
        if key in _SKIPPED or key.startswith("_"):
            continue
        value = value.item() if isinstance(value, np.generic) else value
        if value is not None and not isinstance(value, _NUMBERS):
            raise MXNetError(f"set_optimizer: {type(optimizer).__name__}.{key} is a {type(value).__name__}. Only numbers and "
                             f"strings can be sent to servers.")
        settings[key] = value
    scheduler = None if optimizer.lr_scheduler is None else _scheduler_to_spec(optimizer.lr_scheduler)
    return {"name": name, "settings": settings, "scheduler": scheduler, "elementwise": optimizer.elementwise,
            **{m: [[k, v] for k, v in getattr(optimizer, m).items()] for m in _MAPPINGS}}


def _scheduler_to_spec(scheduler: Any) -> dict[str, Any]:
    name = type(scheduler).__name__
    fields = vars(scheduler)
    plain = all(isinstance(v, _NUMBERS) or v is None or (isinstance(v, list) and all(isinstance(n, (int, float)) for n in v))
                for v in fields.values())
    if _SCHEDULERS.get(name) is not type(scheduler) or not plain:
        raise MXNetError(f"set_optimizer: the scheduler {name} is not one of {', '.join(sorted(_SCHEDULERS))}, so servers cannot "
                         f"create it. Use one of these, or set kvstore=None.")
    return {"name": name, "fields": dict(fields)}


def from_spec(spec: Mapping[str, Any]) -> Optimizer:
    """Return the optimizer of a spec of `to_spec`. Raises MXNetError or ParameterError for any other spec."""
    optimizer = registry.find(str(spec["name"]))()
    for key, value in dict(spec["settings"]).items():
        if key not in vars(optimizer) or key.startswith("_") or not (value is None or isinstance(value, _NUMBERS)):
            raise MXNetError(f"set_optimizer: {spec['name']} has no setting {key!r}.")
        setattr(optimizer, key, value)
    for name in _MAPPINGS:
        setattr(optimizer, name, {k: v for k, v in spec[name] if isinstance(k, (int, str)) and isinstance(v, _NUMBERS)})
    scheduler = spec.get("scheduler")
    if scheduler is not None:
        cls = _SCHEDULERS.get(str(scheduler["name"]))
        if cls is None:
            raise MXNetError(f"set_optimizer: no scheduler is called {scheduler['name']!r}.")
        optimizer.lr_scheduler = object.__new__(cls)
        vars(optimizer.lr_scheduler).update(scheduler["fields"])
    return optimizer


def join_states(keys: Sequence[tuple[Index, Shape, Sequence[tuple[int, int, bytes]]]]) -> bytes:
    """Return one state file, as of `Updater.get_states`, from slices: keys are [(key, shape, [(start, stop, states)])]."""
    trees: dict[Index, Any] = {}
    extra: dict[str, Any] = {}
    counts: dict[Index, int] = {}
    for key, shape, slices in keys:
        loaded = [states.load(blob) for _, _, blob in slices]
        for _, e in loaded:
            extra = {**e, "num_update": max(int(e["num_update"]), int(extra.get("num_update", 0)))}
            counts.update(dict(e["counts"]))
        if all(key in t for t, _ in loaded):
            slices_of_key = [t[key] for t, _ in loaded]
            trees[key] = slices_of_key[0] if len(loaded) == 1 else states.map_tree(partial(_concatenate, shape), *slices_of_key)
    return states.dump(trees, {**extra, "counts": list(counts.items())})


def _concatenate(shape: Shape, *slices: np.ndarray) -> np.ndarray:
    return np.concatenate([s.reshape(-1) for s in slices]).reshape(shape)


def split_states(data: bytes, source: str, keys: Sequence[tuple[Index, Shape, Sequence[tuple[int, int, Shape]]]]
                 ) -> dict[tuple[Index, int], bytes]:
    """Cut a state file into slices: {(key, start): states}. keys: [(key, shape, [(start, stop, shape of the slice)])].

    Raises FileError for a damaged file.
    """
    trees, extra = states.load(data, source)
    counts = dict(extra.get("counts", ()))
    pieces = {}
    for key, shape, slices in keys:
        if key not in trees and key not in counts:
            continue
        own = {**extra, "counts": [[key, counts[key]]] if key in counts else [], "num_update": counts.get(key, 0)}
        for start, stop, part in slices:
            tree = {key: trees[key]} if key in trees else {}
            if tree and len(slices) > 1:
                tree[key] = states.map_tree(partial(_slice, shape, start, stop, part), tree[key])
            pieces[key, start] = states.dump(tree, own)
    return pieces


def _slice(shape: Shape, start: int, stop: int, part: Shape, state: np.ndarray) -> np.ndarray:
    if state.size != math.prod(shape):
        raise ShapeError(f"load_optimizer_states: a state of shape {state.shape} does not belong to a weight of shape {shape}.")
    return state.reshape(-1)[start:stop].reshape(part)
