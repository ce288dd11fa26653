"""Engine functions that only move bytes: copies between contexts, dtypes and shapes, fills, and assignment to a part."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import engine
from ...dtype import cast_copy, cast_into, to_integer
from ...engine.gpu import cuda
from ...errors import ShapeError, describe
from ...kernels.op import Req, Spec, builtin, compiled
from ..core.array_core import ArrayCore, allocate
from ..core.chunk import Layout, layout

_INLINE = 16384  # bytes: what is smaller is done at once, if nothing has to be waited for


def push(name: str, ctx: Any, fn: Any, reads: tuple[ArrayCore, ...], writes: ArrayCore) -> None:
    """Queue fn(run) behind everything that touches its arrays; an array that is written is not read as well."""
    var = writes._chunk.var
    const = list(dict.fromkeys(a._chunk.var for a in reads if a._chunk.var is not var))
    small = writes._layout.target == "cpu" and all(
        a._layout.target == "cpu" and a._layout.nbytes <= _INLINE for a in (writes, *reads))
    engine.current().push_sync(fn, ctx, const, [var], prop="inline" if small else None, name=name)


def host(a: ArrayCore) -> np.ndarray:
    """Inside an engine function: a's values on the host; the memory itself where the host can read it."""
    device = a._device()
    return cuda.to_host(device) if a._layout.target == "gpu" else device


def store_host(dst: ArrayCore, values: np.ndarray) -> None:
    """Inside an engine function, or before anyone else knows dst: write host values, cast, all of dst."""
    if dst._layout.target == "cpu":
        with np.errstate(all="ignore"):  # beyond a float's range is infinite
            cast_into(dst._device(), values)
        return
    values = cast_copy(np.broadcast_to(values, dst.shape), dst._layout.dtype)
    with cuda.on_device(dst.ctx.device_id):  # also where its memory is taken, if nobody else knows it
        cuda.from_host(dst._device(), values)


def copy_to(src: ArrayCore, dst: ArrayCore) -> None:
    """dst = src, across contexts and dtypes; equal numbers of elements."""
    if src.size != dst.size:
        raise ShapeError(f"copyto: sizes differ: from {describe(src)}, to {describe(dst)}.")

    same_gpu = src._layout.target == "gpu" and src.ctx == dst.ctx
    cast = None
    if same_gpu and src._layout.dtype != dst._layout.dtype:
        op = builtin("Cast")
        cast = compiled(op, op.parse({"dtype": dst._layout.dtype}), (Spec(dst.shape, src._layout.dtype),), (dst._layout.spec,),
                        (Req.WRITE,), "gpu")

    def run(rc: Any) -> None:
        if cast is not None:
            cast(rc, [src._device().reshape(dst.shape)], [dst._device()])
        elif same_gpu:
            dst._device()[...] = src._device().reshape(dst.shape)
        else:
            store_host(dst, host(src).reshape(dst.shape))

    push("copy", dst.ctx, run, (src,), dst)


def fill(dst: ArrayCore, value: Any) -> None:
    """Every element of dst = value."""
    value = as_element(value, dst._layout)

    def run(_: Any) -> None:
        dst._device()[...] = value

    push("fill", dst.ctx, run, (), dst)


def as_element(value: Any, what: Layout) -> Any:
    """A number as an element takes it: as a whole number of an integer type, as `dtype.to_integer` makes it."""
    value = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    dtype = what.dtype
    if dtype.kind in "iu":
        value = to_integer(value, dtype)
    if what.target == "gpu":
        return value
    with np.errstate(all="ignore"):  # beyond a float's range is infinite
        return dtype.type(value)


def assign(dst: ArrayCore, key: Any, value: Any) -> None:
    """dst[key] = value for a basic key; value a number, a host array of dst's dtype, or an array on dst's context."""
    reads = (value,) if isinstance(value, ArrayCore) else ()
    shared = bool(reads) and value._chunk.block is dst._chunk.block

    def run(_: Any) -> None:
        if dst._layout.target == "cpu":
            with np.errstate(all="ignore"):
                dst._device()[key] = value._device() if reads else value
            return
        part, flips = _torch_part(dst._device(), key)
        if reads:
            new = value._device()
            new = new.clone() if shared else new
        elif isinstance(value, np.ndarray):
            new = allocate_like_host(value, dst.ctx)._device()
        else:
            part[...] = value
            return
        part[...] = new.expand(part.shape).flip(flips) if flips else new

    push("assign", dst.ctx, run, reads, dst)


def pick(src: ArrayCore, key: Any, dst: ArrayCore) -> None:
    """dst = src[key] for a basic key, on one context."""

    def run(_: Any) -> None:
        if src._layout.target == "cpu":
            dst._device()[...] = src._device()[key].reshape(dst.shape)
            return
        part, flips = _torch_part(src._device(), key)
        dst._device()[...] = (part.flip(flips) if flips else part).reshape(dst.shape)

    push("slice", dst.ctx, run, (src,), dst)


def allocate_like_host(values: np.ndarray, ctx: Any) -> Any:
    """A fresh array on ctx with the host's values."""
    fresh = allocate(layout(values.shape, values.dtype, ctx))
    store_host(fresh, values)
    return fresh


def _torch_part(tensor: Any, key: tuple) -> tuple[Any, list[int]]:
    """tensor[key] with negative steps, which torch lacks, turned round; and the result's axes to flip."""
    forward, flips, axis, out = [], [], 0, 0
    for k in key:
        if isinstance(k, slice):
            start, stop, step = k.indices(tensor.shape[axis])
            n = len(range(start, stop, step))
            if step < 0:
                k = slice(start + (n - 1) * step, start + 1, -step) if n else slice(0, 0)
                flips.append(out)
            axis, out = axis + 1, out + 1
        elif k is None:
            out += 1
        else:
            axis += 1
        forward.append(k)
    return tensor[tuple(forward)], flips
