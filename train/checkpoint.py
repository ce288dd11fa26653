"""Checkpoints: a symbol and its parameters in two files. And BatchEndParam, the argument of batch callbacks."""

from __future__ import annotations

import logging
import os
import re
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

from ..errors import FileError
from ..graph.symbol import symbol as sym
from ..ndarray import NDArray, load, save

#: The argument of batch callbacks: epoch, index of the batch in it, the metric so far, and the local variables of `fit`.
BatchEndParam = namedtuple("BatchEndParam", ["epoch", "nbatch", "eval_metric", "locals"])


def save_checkpoint(prefix: str, epoch: int, symbol: Any, arg_params: Mapping[str, NDArray],
                    aux_params: Mapping[str, NDArray], remove_amp_cast: bool = True) -> None:
    """Write PREFIX-symbol.json (unless symbol is None) and PREFIX-0000.params, where 0000 is the epoch.

    Each file is replaced atomically: a reader sees the old file or the new one.
    """
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json")
    save_params(params_file(prefix, epoch), arg_params, aux_params)
    logging.info('Saved checkpoint to "%s"', params_file(prefix, epoch))


def load_checkpoint(prefix: str, epoch: int) -> tuple[Any, dict[str, NDArray], dict[str, NDArray]]:
    """Return (symbol, arg_params, aux_params) of a checkpoint. Raises FileError."""
    name = f"{prefix}-symbol.json"
    try:
        symbol = sym.load(name)
    except OSError as e:
        raise FileError(f"load_checkpoint: {name}: cannot be read: {e.strerror}.") from e
    return symbol, *load_params(prefix, epoch)


def load_params(prefix: str, epoch: int) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """Return (arg_params, aux_params) of PREFIX-0000.params. Raises FileError."""
    return split_params(params_file(prefix, epoch))


def last_checkpoint(prefix: str) -> int | None:
    """Return the largest epoch for which PREFIX-0000.params exists, or None."""
    folder, name = os.path.split(prefix)
    files = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    matches = (re.fullmatch(rf"{re.escape(name)}-(\d{{4,}})\.params", f) for f in files)
    return max((int(m[1]) for m in matches if m), default=None)


def params_file(prefix: str, epoch: int) -> str:
    """Return the name of a checkpoint's parameter file."""
    return f"{prefix}-{epoch:04d}.params"


def save_params(fname: str, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray]) -> None:
    """Write a parameter file: the arrays under their names, with `arg:` or `aux:` in front."""
    save(fname, {f"arg:{k}": v for k, v in arg_params.items()} | {f"aux:{k}": v for k, v in aux_params.items()})


def split_params(fname: str) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
    """Return (arg_params, aux_params) of a parameter file, whose names begin with `arg:` or `aux:`. Raises FileError."""
    try:
        named = load(fname)
    except OSError as e:
        raise FileError(f"load_params: {fname}: cannot be read: {e.strerror}.") from e
    if not isinstance(named, dict):
        raise FileError(f"load_params: {fname}: its arrays have no names, so it is not a checkpoint. Use mx.nd.load.")
    params: dict[str, dict[str, NDArray]] = {"arg": {}, "aux": {}}
    for name, value in named.items():
        kind, colon, rest = name.partition(":")
        if not colon or kind not in params:
            raise FileError(f"load_params: {fname}: the name {name!r} begins with neither arg: nor aux:, so it is "
                            f"not a checkpoint of a Module. Use mx.nd.load.")
        params[kind][rest] = value
    return params["arg"], params["aux"]
