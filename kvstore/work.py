"""The two things a store does to arrays, as engine functions with a priority: copy one, and add several up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import engine
from ..ndarray import NDArray
from ..ndarray.move import host, store_host


def copy(src: NDArray, dst: NDArray, priority: int = 0) -> None:
    """dst = src, on whatever contexts they are; the shapes and dtypes are equal."""
    same_gpu = dst.context.is_gpu and src.context == dst.context

    def run(_: Any) -> None:
        if same_gpu:
            dst._device()[...] = src._device()
        else:
            store_host(dst, host(src))

    _push("kvstore.copy", run, [src], dst, priority)


def add_up(arrays: Sequence[NDArray], dst: NDArray, priority: int = 0) -> None:
    """dst = arrays[0] + arrays[1] + ..., added from left to right. dst shares memory with none of them.

    One pass on the host where dst is there; on a GPU the additions are operators, which run on dst's stream.
    """
    if dst.context.is_gpu:
        copy(arrays[0], dst, priority)
        for a in arrays[1:]:
            dst += a.as_in_context(dst.context)
        return

    def run(_: Any) -> None:
        total = dst._device()
        np.copyto(total, host(arrays[0]))
        with np.errstate(all="ignore"):  # an overflow shows as inf, as it does in every other addition
            for a in arrays[1:]:
                np.add(total, host(a), out=total)

    _push("kvstore.add_up", run, arrays, dst, priority)


def _push(name: str, run: Any, reads: Sequence[NDArray], dst: NDArray, priority: int) -> None:
    var = dst._chunk.var
    const = [v for v in dict.fromkeys(a._chunk.var for a in reads) if v is not var]
    engine.current().push_sync(run, dst.context, const, [var], priority=priority, name=name)
