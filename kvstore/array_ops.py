"""The array operations of a store, as engine functions with a priority: copies and sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import engine
from ..errors import ShapeError
from ..ndarray import NDArray, empty
from ..ndarray.dispatch.copy import host, move, store_host

_INLINE_BYTES = 16384  # written bytes: passing less to another thread costs more than the work itself
_BLOCK = 1 << 18  # elements: sums of several arrays are computed block by block, so that a block stays in the cache


def copy(src: NDArray, dst: NDArray, priority: int = 0) -> None:
    """Copy src to dst, on any contexts. Shapes and dtypes are equal."""
    copy_all([(src, dst)], priority)


def copy_rows(src: NDArray, rows: NDArray, dst: NDArray, priority: int = 0) -> None:
    """Copy the rows of src with the indices in `rows` to dst, and write 0 to its other rows."""
    def run(_: Any) -> None:
        indices, values = host(rows).reshape(-1).astype(np.int64), host(src)
        check_row_indices(indices, values.shape[0])
        result = np.zeros_like(values)
        result[indices] = values[indices]
        store_host(dst, result)

    queue("kvstore.row_sparse_pull", run, [src, rows], [dst], priority)


def check_row_indices(indices: np.ndarray, rows: int) -> None:
    """Raise ShapeError unless all indices are rows of a value with so many rows."""
    if len(indices) and not 0 <= indices.min() <= indices.max() < rows:
        raise ShapeError(f"KVStore.row_sparse_pull: row indices from {indices.min()} to {indices.max()}; the value has {rows} "
                         f"rows.")


def copy_all(pairs: Sequence[tuple[NDArray, NDArray]], priority: int = 0, inline: bool = False) -> None:
    """Copy src to dst for every (src, dst): one engine function for each array on a GPU and each other context, or one for all.

    inline:  as in `queue`.
    """
    together = _runs_inline([a for pair in pairs for a in pair], [dst for _, dst in pairs], inline)
    groups: dict[Any, list[tuple[NDArray, NDArray]]] = {}
    for i, (src, dst) in enumerate(pairs):
        place = None if together else i if dst.context.is_gpu else dst.context
        groups.setdefault(place, []).append((src, dst))
    for group in groups.values():

        def run(_: Any, group: Sequence[tuple[NDArray, NDArray]] = group) -> None:
            for src, dst in group:
                move(src, dst)

        queue("kvstore.copy", run, [s for s, _ in group], [d for _, d in group], priority, inline)


def add_up_all(sums: Sequence[tuple[Sequence[NDArray], NDArray]], priority: int = 0) -> list[NDArray]:
    """Return the sum of each list of arrays, on the context of the array beside it, which is not changed.

    A single array on that context is returned itself.
    """
    totals = [arrays[0] if len(arrays) == 1 and arrays[0].context == place.context else
              empty(arrays[0].shape, ctx=place.context, dtype=arrays[0].dtype) for arrays, place in sums]
    add_up([(arrays, total) for (arrays, _), total in zip(sums, totals) if total is not arrays[0]], priority)
    return totals


def add_up(sums: Sequence[tuple[Sequence[NDArray], NDArray]], priority: int = 0, inline: bool = False) -> None:
    """Write arrays[0] + arrays[1] + ..., added from left to right, to dst, for every (arrays, dst) that share no memory.

    On the host all sums are one engine function; on a GPU the additions are operators on dst's stream. inline: as in `queue`.
    """
    on_host = [(arrays, dst) for arrays, dst in sums if not dst.context.is_gpu]
    for arrays, dst in sums:
        if dst.context.is_gpu:
            copy(arrays[0], dst, priority)
            for a in arrays[1:]:
                dst += a.as_in_context(dst.context)
    if not on_host:
        return

    def run(_: Any) -> None:
        for arrays, total in on_host:
            _add(arrays, total)

    queue("kvstore.add_up", run, [a for arrays, _ in on_host for a in arrays], [t for _, t in on_host], priority, inline)


def _add(arrays: Sequence[NDArray], total: NDArray) -> None:
    out, terms = total.device_array(), [host(a) for a in arrays]
    if len(terms) <= 2 or out.size <= _BLOCK:
        sum_into(out, terms)
        return
    flat = [a.reshape(-1) for a in (out, *terms)]
    for at in range(0, out.size, _BLOCK):
        into, *blocks = [a[at:at + _BLOCK] for a in flat]
        sum_into(into, blocks)


def sum_into(out: np.ndarray, terms: Sequence[np.ndarray]) -> None:
    """Write the sum of terms, added from first to last, to out."""
    if len(terms) == 1:
        np.copyto(out, terms[0])
        return
    first, second, *rest = terms
    with np.errstate(all="ignore"):  # an overflow shows as inf, as it does in every other addition
        np.add(first, second, out=out)
        for term in rest:
            np.add(out, term, out=out)


def queue(name: str, run: Any, reads: Sequence[NDArray], writes: Sequence[NDArray], priority: int, inline: bool = False) -> None:
    """Push run(run_context), which reads and writes these arrays. A small task that need not wait runs inline.

    inline:  the work is small for arrays of any size.
    """
    const, mutable = _vars(reads, writes)
    prop = "inline" if _runs_inline((*reads, *writes), writes, inline) else None
    engine.current().push_sync(run, writes[0].context, const, mutable, prop=prop, priority=priority, name=name)


def _runs_inline(arrays: Sequence[NDArray], writes: Sequence[NDArray], inline: bool) -> bool:
    return (inline or sum([a.layout.nbytes for a in writes]) <= _INLINE_BYTES) and all(a.layout.target == "cpu" for a in arrays)


def queue_async(name: str, run: Any, reads: Sequence[NDArray], writes: Sequence[NDArray], priority: int, *,
                const: Sequence[Any] = (), mutable: Sequence[Any] = ()) -> None:
    """Push run(run_context, on_complete), which starts work on these arrays and variables. It runs inline if nothing blocks
    it."""
    read, written = _vars(reads, writes)
    engine.current().push_async(run, writes[0].context, [*read, *const], [*written, *mutable], prop="inline",
                                priority=priority, name=name)


def _vars(reads: Sequence[NDArray], writes: Sequence[NDArray]) -> tuple[list[Any], list[Any]]:
    mutable = list(dict.fromkeys(a.chunk.var for a in writes))
    return [v for v in dict.fromkeys(a.chunk.var for a in reads) if v not in mutable], mutable
