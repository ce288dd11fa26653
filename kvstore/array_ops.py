"""The two things a store does to arrays, as engine functions with a priority: copy one, and add several up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import engine
from ..context import Context
from ..errors import ShapeError
from ..ndarray import NDArray, empty
from ..ndarray.dispatch.copy import host, store_host

_INLINE = 16384  # bytes written: handing less to another thread costs more than doing it
_BLOCK = 1 << 18  # elements: of a sum of several arrays, so many are finished at a time, while they are in the cache


def copy(src: NDArray, dst: NDArray, priority: int = 0) -> None:
    """dst = src, on whatever contexts they are; the shapes and dtypes are equal."""
    same_gpu = dst.context.is_gpu and src.context == dst.context

    def run(_: Any) -> None:
        if same_gpu:
            dst.device_array()[...] = src.device_array()
        else:
            _put(src, dst)

    queue("kvstore.copy", run, [src], [dst], priority)


def _put(src: NDArray, dst: NDArray) -> None:
    """Inside an engine function: dst = src, of one shape and dtype, by way of the host."""
    if dst.layout.target == "cpu":
        np.copyto(dst.device_array(), host(src))
    else:
        store_host(dst, host(src))


def add_up(arrays: Sequence[NDArray], dst: NDArray, priority: int = 0, brief: bool = False) -> None:
    """dst = arrays[0] + arrays[1] + ..., added from left to right. dst shares memory with none of them. brief: as in `queue`.

    One pass on the host where dst is there; on a GPU the additions are operators, which run on dst's stream.
    """
    if dst.context.is_gpu:
        copy(arrays[0], dst, priority)
        for a in arrays[1:]:
            dst += a.as_in_context(dst.context)
        return

    queue("kvstore.add_up", lambda _: _add(arrays, dst), arrays, [dst], priority, brief)


def copy_rows(src: NDArray, rows: NDArray, dst: NDArray, priority: int = 0) -> None:
    """dst = the rows of src that `rows` numbers, and 0 elsewhere."""
    def run(_: Any) -> None:
        numbers, values = host(rows).reshape(-1).astype(np.int64), host(src)
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < values.shape[0]:
            raise ShapeError(f"KVStore.row_sparse_pull: row numbers from {numbers.min()} to {numbers.max()}; the value has "
                             f"{values.shape[0]} rows.")
        found = np.zeros_like(values)
        found[numbers] = values[numbers]
        store_host(dst, found)

    queue("kvstore.row_sparse_pull", run, [src, rows], [dst], priority)


def copy_all(pairs: Sequence[tuple[NDArray, NDArray]], priority: int = 0, brief: bool = False) -> None:
    """dst = src for every (src, dst): an engine function for each context that is written to, or one for all if done at once.

    brief:  as in `queue`.
    """
    groups: dict[Context | None, list[tuple[NDArray, NDArray]]] = {}
    if _at_once([a for pair in pairs for a in pair], [dst for _, dst in pairs], brief):
        groups[None] = list(pairs)
    else:
        for src, dst in pairs:
            groups.setdefault(dst.context, []).append((src, dst))
    for group in groups.values():
        if group[0][1].context.is_gpu:
            for src, dst in group:
                copy(src, dst, priority)
            continue

        def run(_: Any, group: Sequence[tuple[NDArray, NDArray]] = group) -> None:
            for src, dst in group:
                _put(src, dst)

        queue("kvstore.copy", run, [s for s, _ in group], [d for _, d in group], priority, brief)


def add_up_all(sums: Sequence[tuple[Sequence[NDArray], NDArray]], priority: int = 0) -> list[NDArray]:
    """The sum of each list of arrays, on the context of the array beside it, which is not changed.

    A lone array that is there already is itself. On the host, all of them are one engine function.
    """
    found: list[NDArray] = []
    todo: list[tuple[Sequence[NDArray], NDArray]] = []
    for arrays, place in sums:
        if len(arrays) == 1 and arrays[0].context == place.context:
            found.append(arrays[0])
            continue
        total = empty(arrays[0].shape, ctx=place.context, dtype=arrays[0].dtype)
        found.append(total)
        if place.context.is_gpu:
            add_up(arrays, total, priority)
        else:
            todo.append((arrays, total))
    if todo:
        add_up_each(todo, priority)
    return found


def _add(arrays: Sequence[NDArray], total: NDArray) -> None:
    out = total.device_array()
    if len(arrays) == 1:
        np.copyto(out, host(arrays[0]))
        return
    with np.errstate(all="ignore"):  # an overflow shows as inf, as it does in every other addition
        first, second, *rest = [host(a) for a in arrays]
        if not rest or out.size <= _BLOCK:
            np.add(first, second, out=out)
            for a in rest:
                np.add(out, a, out=out)
            return
        flat = [a.reshape(-1) for a in (out, first, second, *rest)]
        for at in range(0, out.size, _BLOCK):
            into, first, second, *rest = [a[at:at + _BLOCK] for a in flat]
            np.add(first, second, out=into)
            for a in rest:
                np.add(into, a, out=into)


def add_up_each(sums: Sequence[tuple[Sequence[NDArray], NDArray]], priority: int = 0) -> None:
    """total = the sum of its list of arrays, for every (arrays, total) on the host: one engine function."""
    def run(_: Any) -> None:
        for arrays, total in sums:
            _add(arrays, total)

    queue("kvstore.add_up", run, [a for arrays, _ in sums for a in arrays], [t for _, t in sums], priority)


def queue(name: str, run: Any, reads: Sequence[NDArray], writes: Sequence[NDArray], priority: int, brief: bool = False) -> None:
    """Push run(run_context), which reads and writes these arrays. What is small and need not wait is done at once.

    brief:  it is of little work, however large.
    """
    const, mutable = _vars(reads, writes)
    prop = "inline" if _at_once((*reads, *writes), writes, brief) else None
    engine.current().push_sync(run, writes[0].context, const, mutable, prop=prop, priority=priority, name=name)


def _at_once(arrays: Sequence[NDArray], writes: Sequence[NDArray], brief: bool) -> bool:
    return (brief or sum([a.layout.nbytes for a in writes]) <= _INLINE) and all(a.layout.target == "cpu" for a in arrays)


def queue_async(name: str, run: Any, reads: Sequence[NDArray], writes: Sequence[NDArray], priority: int, *,
                const: Sequence[Any] = (), mutable: Sequence[Any] = ()) -> None:
    """Push run(run_context, on_complete), which hands work on that reads and writes these arrays, and these variables.

    It only hands on, so it runs in the pushing thread if nothing has to be waited for.
    """
    read, written = _vars(reads, writes)
    engine.current().push_async(run, writes[0].context, [*read, *const], [*written, *mutable], prop="inline",
                                priority=priority, name=name)


def _vars(reads: Sequence[NDArray], writes: Sequence[NDArray]) -> tuple[list[Any], list[Any]]:
    mutable = list(dict.fromkeys(a.chunk.var for a in writes))
    return [v for v in dict.fromkeys(a.chunk.var for a in reads) if v not in mutable], mutable
