"""`mx.executor_manager`: functions of MXNet's first training loop, which scripts still import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ParameterError
from ...io.iterator import as_batch
from ...ndarray import NDArray
from ..kvstore_sync import update_params as _update_params
from ..module.executor_group import ExecutorGroup as DataParallelExecutorGroup
from ..module.executor_group import _concatenate
from ..module.executor_group import split_batch as _split_input_slice

__all__ = ["DataParallelExecutorGroup", "_check_arguments", "_load_data", "_load_general", "_load_label", "_merge_multi_context",
           "_split_input_slice", "_update_params"]


def _merge_multi_context(outputs: Sequence[Sequence[NDArray]], major_axis: Sequence[int]) -> list[NDArray]:
    """Return each output of the whole batch, from its parts on the contexts. major_axis: the axis of the samples of each."""
    return [_concatenate(list(parts), axis) for parts, axis in zip(outputs, major_axis)]


def _check_arguments(symbol: Any) -> None:
    """Raise ParameterError when two arguments or two auxiliary states of symbol have the same name."""
    for kind, names in (("argument", symbol.list_arguments()), ("auxiliary state", symbol.list_auxiliary_states())):
        repeated = sorted({n for n in names if names.count(n) > 1})
        if repeated:
            raise ParameterError(f"executor_manager: two {kind}s have the name {repeated[0]!r}. Names: {', '.join(names)}.")


def _load_general(data: Sequence[NDArray], targets: Sequence[Any]) -> None:
    """Copy each array into its target: an array, or a list of (slice of the batch, array)."""
    for source, target in zip(data, targets):
        if isinstance(target, NDArray):
            source.copyto(target)
        else:
            for part, array in target:
                source[part].copyto(array)


def _load_data(batch: Any, targets: Sequence[Any]) -> None:
    """Copy a batch's data into its targets."""
    _load_general(batch.data, targets)


def _load_label(batch: Any, targets: Sequence[Any]) -> None:
    """Copy a batch's labels into its targets."""
    _load_general(as_batch(batch).label or (), targets)
