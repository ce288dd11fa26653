"""Engine functions that move bytes: copies between contexts, dtypes and shapes, fills, and assignment to a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import memmove
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import engine
from ...context import Context
from ...dtype import cast_copy, cast_into, to_integer
from ...engine import RunContext
from ...engine.gpu import cuda, transfer
from ...engine.memory import storage
from ...errors import ShapeError, describe
from ...kernels.cpu.c_template import address
from ...kernels.gpu import copy as kernels
from ...kernels.ir.strided import Strided
from ...kernels.ir.strided import layout as strided
from ...kernels.op import Req, Spec, builtin, compiled
from ...kernels.ops.tensor.data_movement import fill as fill_array
from ..core.array_core import ArrayCore, allocate
from ..core.chunk import Layout, layout_of
from .plan import INLINE_BYTES

if TYPE_CHECKING:
    from ..core.ndarray import NDArray

COPIED = 1 << 18  # bytes of an array that is copied whole, below which that takes less time than waking another thread
FILLED = 1 << 20  # the same of an array that is filled


def push(name: str, ctx: Context, fn: Callable[[RunContext], object], reads: tuple[ArrayCore, ...], writes: ArrayCore,
         inline_bytes: int = INLINE_BYTES) -> None:
    """Queue fn(run) behind all tasks that use its arrays. The written array may also be among those read.

    inline_bytes:  of each array, up to which this thread may run it if nothing else is in flight.
    What brings values of the host to a GPU has a worker and a stream of its own there.
    """
    var = writes.chunk.var
    const = list(dict.fromkeys(a.chunk.var for a in reads if a.chunk.var is not var))
    on, arrays = engine.current(), (writes, *reads)
    limit = inline_bytes if on.is_idle() else INLINE_BYTES
    small = all(a.layout.target == "cpu" and a.layout.nbytes <= limit for a in arrays)
    uploads = ctx.is_gpu and any(a.layout.target == "cpu" for a in reads)
    on.push_sync(fn, ctx, const, [var], prop="inline" if small else "copy" if uploads else None, name=name)


def host(a: ArrayCore) -> np.ndarray:
    """Return a's values on the host, without a copy if a is there. For engine functions."""
    device = a.device_array()
    return transfer.to_host(device) if a.layout.target == "gpu" else device


def store_host(dst: ArrayCore, values: np.ndarray) -> None:
    """Write host values, cast to its dtype, to all of dst. For engine functions, or while dst is not used elsewhere."""
    if dst.layout.target == "cpu":
        if values.dtype == dst.layout.dtype:
            whole = dst._view is None and values.shape == dst.layout.shape and values.flags.c_contiguous
            if whole and storage.access_checker is None and (at := dst.address()):
                memmove(at, address(values), dst.layout.nbytes)  # so that it need not become an array of NumPy's
            else:
                dst.device_array()[...] = values
            return
        with np.errstate(all="ignore"):  # beyond a float's range is infinite
            cast_into(dst.device_array(), values)
        return
    if values.dtype != dst.layout.dtype or values.shape != dst.shape:
        values = cast_copy(np.broadcast_to(values, dst.shape), dst.layout.dtype)
    with cuda.on_device(dst.ctx.device_id):  # memory of a new array is allocated here
        transfer.from_host(dst.device_array(), values)


def move(src: ArrayCore, dst: ArrayCore) -> None:
    """Write dst = src, of equal size, across contexts and dtypes. For engine functions of dst's context."""
    if src.layout.target != dst.layout.target or src.layout.dtype != dst.layout.dtype:
        store_host(dst, host(src).reshape(dst.shape))
    elif dst.layout.target == "gpu":
        transfer.copy(dst.device_array(), src.device_array())
    else:
        dst.device_array()[...] = src.device_array().reshape(dst.shape)


def copy_to(src: ArrayCore, dst: ArrayCore) -> None:
    """Queue dst = src, of equal size, across contexts and dtypes. Between GPUs it is cast on the source's."""
    if src.size != dst.size:
        raise ShapeError(f"copyto: sizes differ: from {describe(src)}, to {describe(dst)}.")
    run: Callable[[Any], None] = lambda rc: move(src, dst)
    if src.layout.target == dst.layout.target == "gpu" and src.layout.dtype != dst.layout.dtype:
        if src.ctx != dst.ctx:
            there = allocate(layout_of(dst.shape, dst.layout.dtype, src.ctx))
            copy_to(src, there)
            copy_to(there, dst)
            return
        op = builtin("Cast")
        cast = compiled(op, op.parse({"dtype": dst.layout.dtype}), (Spec(dst.shape, src.layout.dtype),), (dst.layout.spec,),
                        (Req.WRITE,), "gpu")
        run = lambda rc: cast(rc, [src.device_array().reshape(dst.shape)], [dst.device_array()])
    push("copy", dst.ctx, run, (src,), dst, COPIED)


def copy_all(name: str, pairs: Sequence[tuple[ArrayCore, ArrayCore]]) -> None:
    """Queue dst = src for every (src, dst) of equal layouts on one context, as one task."""
    if not pairs:
        return
    ctx = pairs[0][1].ctx
    mutable = list(dict.fromkeys([dst.chunk.var for _, dst in pairs]))
    const = [v for v in dict.fromkeys([src.chunk.var for src, _ in pairs]) if v not in mutable]
    put = transfer.copy if ctx.is_gpu else np.copyto

    def run(rc: Any) -> None:
        for src, dst in pairs:
            put(dst.device_array(), src.device_array())

    on = engine.current()
    limit = COPIED if on.is_idle() else INLINE_BYTES
    inline = not ctx.is_gpu and sum([dst.layout.nbytes for _, dst in pairs]) <= limit
    on.push_sync(run, ctx, const, mutable, prop="inline" if inline else None, name=name)


def fill(dst: ArrayCore, value: float | np.generic | np.ndarray) -> None:
    """Queue dst[...] = value."""
    element = as_element(value, dst.layout)
    push("fill", dst.ctx, lambda rc: fill_array(rc, dst.device_array(), element), (), dst, FILLED)


def filled(layout: Layout, value: float) -> NDArray:
    """Return a new array with every element value."""
    array = allocate(layout)
    if array._view is not None:  # tiny, and no task knows of it yet
        array._view.fill(as_element(value, layout))
    else:
        fill(array, value)
    return array


def as_element(value: float | np.generic | np.ndarray, layout: Layout) -> np.generic:
    """Return a number as an element of this layout: for an integer dtype as `dtype.to_integer` converts it."""
    number: Any = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    dtype = layout.dtype
    if dtype.kind in "iu":
        return dtype.type(to_integer(number, dtype))
    if number == 0 or 1e-4 < abs(number) < 1e4:  # within the range of every dtype: errstate takes some microseconds
        return dtype.type(number)
    with np.errstate(all="ignore"):  # beyond a float's range is infinite
        return dtype.type(number)


def assign(dst: ArrayCore, key: tuple, value: float | np.generic | np.ndarray | ArrayCore) -> None:
    """Queue dst[key] = value for a basic key. value: a number, a host array of dst's dtype, or an array on dst's context."""
    source = value if isinstance(value, ArrayCore) else None
    shared = source is not None and source.chunk.block is dst.chunk.block

    def run(rc: Any) -> None:
        if dst.layout.target == "cpu":
            with np.errstate(all="ignore"):
                dst.device_array()[key] = value if source is None else source.device_array()
            return
        array, part = dst.device_array(), _part(dst.shape, key)
        if isinstance(value, ArrayCore):
            new, shape = value.device_array(), value.shape
            if shared:
                new = rc.workspace(shape, dst.layout.dtype)
                transfer.copy(new, value.device_array())
        elif isinstance(value, np.ndarray):
            new, shape = rc.workspace(value.shape, value.dtype), value.shape
            rc.from_host(new, value)
        else:
            kernels.fill(rc, array, value, part)
            return
        kernels.plan(strided(shape, lambda a: np.broadcast_to(a, part.shape)), part)(rc, new, array)

    push("assign", dst.ctx, run, () if source is None else (source,), dst)


def pick(src: ArrayCore, key: tuple, dst: ArrayCore) -> None:
    """Queue dst = src[key] for a basic key, on one context."""

    def run(rc: Any) -> None:
        if src.layout.target == "cpu":
            dst.device_array()[...] = src.device_array()[key].reshape(dst.shape)
            return
        part = _part(src.shape, key)
        kernels.plan(part, strided(part.shape))(rc, src.device_array(), dst.device_array())

    push("slice", dst.ctx, run, (src,), dst)


def allocate_like_host(values: np.ndarray, ctx: Context) -> NDArray:
    """Return a new array on ctx with the host's values."""
    array = allocate(layout_of(values.shape, values.dtype, ctx))
    store_host(array, values)
    return array


def _part(shape: tuple[int, ...], key: tuple) -> Strided:
    """Return the view a[key] of an array of this shape, for a basic key."""
    key = key if Ellipsis in key else (*key, Ellipsis)  # with ..., one element is a view too
    return strided(shape, lambda a: a[key])
