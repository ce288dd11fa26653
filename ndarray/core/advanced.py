"""a[key] and a[key] = value where key holds arrays of indices or a boolean mask, by NumPy's rules.

On the CPU NumPy does it. On a GPU the key becomes a list of flat indices, which kernels compute (a mask by counting its elements
in a scan); then rows are gathered or scattered. Both wait for the key's values: they decide about errors, and about the shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...dtype import cast_copy
from ...errors import ShapeError, describe
from ...kernels.declare.operator_property import gpu_module
from ...kernels.gpu import copy as copies
from ...kernels.ir.strided import layout as strided
from ...np_shape import no_axes
from ..autograd.tape import record_call
from ..dispatch.copy import allocate_like_host, copy_to, host, push, store_host
from .arithmetic import is_mask, is_number
from .array_core import ArrayCore, allocate
from .chunk import layout_of

if TYPE_CHECKING:
    from .ndarray import NDArray

_INT64 = np.dtype(np.int64)
Shape = tuple[int, ...]


def take(a: Any, key: Any) -> NDArray:
    """Return a[key]. The derivatives of an element that is taken several times add up. Raises IndexError."""
    spots = _spots(a.shape, a.ctx, key) if a.layout.target == "gpu" else _on_host(a.shape, key)
    return _taken(a, spots)


def put(a: Any, key: Any, value: Any) -> None:
    """Set a[key] = value; of several values for one element the last stays. Raises IndexError, ShapeError."""
    spots = _spots(a.shape, a.ctx, key) if a.layout.target == "gpu" else _on_host(a.shape, key)
    if not isinstance(value, ArrayCore):
        value = allocate_like_host(cast_copy(np.array(value if not is_number(value) else [value]), a.layout.dtype), a.ctx)
    elif value.layout.dtype != a.layout.dtype or value.ctx != a.ctx:
        given, value = value, allocate(layout_of(value.shape, a.layout.dtype, a.ctx))
        copy_to(given, value)
    if not fits(value.shape, spots.shape or (1,)):
        raise ShapeError(f"a[key] = value: value {describe(value)} does not fit {spots.shape}, a part of {describe(a)}.")
    push("assign", a.ctx, lambda rc: spots.assign(rc, a, value), (value, *spots.reads), a)


def fits(value: Shape, part: Shape) -> bool:
    """Return True if an array of shape value can be assigned to a part."""
    return len(value) <= len(part) and all(v in (1, p) for v, p in zip(value[::-1], part[::-1]))


def marked(mask: ArrayCore) -> NDArray | None:
    """Return the flat indices, int64, of the elements of a mask on a GPU that are not 0; None if one is neither 0 nor 1.

    Waits for the mask.
    """
    n, ctx = mask.size, mask.ctx
    if not n:
        return allocate(layout_of((0,), _INT64, ctx))
    module = gpu_module("tensor.triton_index")
    ends = allocate(layout_of((2, module.blocks_of(n)[0]), _INT64, ctx))
    push("count", ctx, lambda rc: module.count(rc, mask.device_array(), n, ends.device_array()), (mask,), ends)
    total, other = ends.asnumpy()[:, -1].tolist()
    if other:
        return None
    places = allocate(layout_of((total,), _INT64, ctx))
    if total:
        push("positions", ctx, lambda rc: module.positions(
            rc, mask.device_array(), n, ends.device_array(), places.device_array()), (mask, ends), places)
    return places


# ---- one key on one shape --------------------------------------------------------------------------------------------
class _OnHost:
    """A key whose arrays are NumPy's. shape: of a[key]."""

    reads: tuple[ArrayCore, ...] = ()

    def __init__(self, of: Shape, key: Any):
        self.key = key
        self.shape: Shape = np.broadcast_to(np.zeros((), np.bool_), of)[key].shape

    def gather(self, rc: Any, a: ArrayCore, out: ArrayCore) -> None:
        store_host(out, host(a)[self.key].reshape(out.shape))

    def scatter_add(self, rc: Any, dy: ArrayCore, dx: ArrayCore) -> None:
        sums = np.zeros(dx.shape, dx.layout.dtype)
        np.add.at(sums, self.key, host(dy).reshape(self.shape))
        store_host(dx, sums)

    def assign(self, rc: Any, a: ArrayCore, value: ArrayCore) -> None:
        new = np.array(host(value))
        a.device_array()[self.key] = new.reshape(self.shape) if new.size == 1 and not self.shape else new


def _on_host(of: Shape, key: Any) -> _OnHost:
    return _OnHost(of, tuple(map(_host_item, key)) if isinstance(key, tuple) else _host_item(key))


def _host_item(k: Any) -> Any:
    """Return an array as one of NumPy, of integers (floats are truncated, as in MXNet) or as a boolean mask."""
    if isinstance(k, ArrayCore):
        mask, k = is_mask(k), k.asnumpy()
        if mask and ((k == 0) | (k == 1)).all():  # it may have been written since it was compared
            k = k.astype(np.bool_)
    elif isinstance(k, (list, tuple, range)):
        k = np.asarray(k, dtype=None if len(k) else _INT64)
    if isinstance(k, np.ndarray) and k.dtype != np.bool_:
        k = k.astype(_INT64)
    return k


@dataclass(frozen=True)
class _OnDevice:
    """A key as flat indices: a[key] is a [outer, n, inner] at the indices `at` [count], in the given shape.

    distinct: no index is in `at` twice.
    """

    shape: Shape
    lines: tuple[int, int, int]
    at: ArrayCore
    distinct: bool

    @property
    def reads(self) -> tuple[ArrayCore, ...]:
        return (self.at,)

    def gather(self, rc: Any, a: ArrayCore, out: ArrayCore) -> None:
        if out.size:
            gpu_module("tensor.triton_pick").take(rc, self.lines, self.at.size, a.device_array(), self.at.device_array(),
                                                  out.device_array(), wrap=False, add=False)

    def scatter_add(self, rc: Any, dy: ArrayCore, dx: ArrayCore) -> None:
        if not self.distinct:
            gpu_module("tensor.triton_take").put(rc, self.lines, self.at.size, dy.device_array(), self.at.device_array(),
                                                 dx.device_array(), wrap=False, add=False)
            return
        copies.fill(rc, dx.device_array(), 0)
        self._put(rc, dy.device_array(), dx.device_array())

    def assign(self, rc: Any, a: ArrayCore, value: ArrayCore) -> None:
        shape = self.shape or (1,)
        if not math.prod(shape):
            return
        new = value.device_array()
        if value.shape != shape or value.chunk.block is a.chunk.block:
            new = rc.workspace(shape, a.layout.dtype)
            copies.plan(strided(value.shape, lambda v: np.broadcast_to(v, shape)), strided(shape))(rc, value.device_array(), new)
        self._put(rc, new, a.device_array())

    def _put(self, rc: Any, x: Any, y: Any) -> None:
        outer, n, inner = self.lines
        lines = outer, n, self.at.size, 1, inner
        if not math.prod(lines):
            return
        if self.distinct:
            pick = gpu_module("tensor.triton_pick").pick
            pick(rc, lines, x, self.at.device_array(), y, "clip", add=False, put=True, shared=True)
        else:
            gpu_module("tensor.triton_index").put_last(rc, lines, x, self.at.device_array(), y)


def _taken(a: Any, spots: _OnHost | _OnDevice) -> NDArray:
    out = allocate(a.layout.of(spots.shape or no_axes()))
    push("take", a.ctx, lambda rc: spots.gather(rc, a, out), (a, *spots.reads), out)
    layout = a.layout

    def backward(dy: Any) -> Any:
        dx = allocate(layout)
        push("scatter", dx.ctx, lambda rc: spots.scatter_add(rc, dy, dx), (dy, *spots.reads), dx)
        return record_call(dy, dx, "scatter", lambda ddx: _taken(ddx, spots))

    return record_call(a, out, "take", backward)


# ---- flat indices ----------------------------------------------------------------------------------------------------
class _Mask(NamedTuple):
    """A mask by the flat indices of what it selects."""

    shape: Shape
    places: Any


@dataclass
class _Item:
    """One item of a key.

    axis:   the first that it indexes. size: of that axis; of a mask, of all its axes together; 1 for a new axis.
    index:  a range for a slice or a new axis; else integers, of the host or of the device.
    kind:   "new", "slice", "index" or "mask".
    """

    axis: int
    size: int
    index: Any
    kind: str

    @property
    def whole(self) -> bool:
        return self.kind == "slice" and self.index == range(self.size)

    @property
    def is_array(self) -> bool:
        return self.kind in ("index", "mask")

    def check(self, low: int, high: int) -> None:
        """Raise IndexError unless the indices low to high are in bounds."""
        if low < -self.size or high >= self.size:
            wrong = low if low < -self.size else high
            raise IndexError(f"index {wrong} is out of bounds for axis {self.axis} with size {self.size}")


def _spots(of: Shape, ctx: Any, key: Any) -> _OnDevice:
    """Return key on an array of shape `of` as flat indices on ctx, a GPU."""
    items = _items(of, ctx, key)
    arrays = [i for i, item in enumerate(items) if item.is_array]
    together = arrays[-1] - arrays[0] == len(arrays) - 1  # else the axes of the indices come first
    index_shape = np.broadcast_shapes(*(items[i].index.shape for i in arrays))
    lead = next(i for i, item in enumerate(items) if not item.whole) if together else 0
    trail = next(i for i, item in enumerate(items[::-1]) if not item.whole)
    middle = items[lead:len(items) - trail]
    begin = arrays[0] - lead if together else 0  # of the axes of the indices among those of the middle
    others = [item for item in middle if not item.is_array]
    before = sum(not item.is_array for item in middle[:begin])
    sizes = [len(item.index) for item in others]
    shape = (*sizes[:before], *index_shape, *sizes[before:])
    terms, axis, stride = [], len(others), 1
    for item in reversed(middle):
        if item.is_array:
            terms.append((item, stride, (*item.index.shape, *[1] * (len(others) - before))))
        else:
            axis -= 1
            at = axis if axis < before else axis + len(index_shape)
            if item.kind == "slice":
                terms.append((item, stride, tuple(len(item.index) if i == at else 1 for i in range(len(shape)))))
        stride *= item.size
    first, last = ([len(item.index) for item in part] for part in (items[:lead], items[len(items) - trail:]))
    distinct = all(item.kind != "index" or item.index.ndim == 0 for item in items) and sum(i.kind == "mask" for i in items) < 2
    return _OnDevice((*first, *shape, *last), (math.prod(first), stride, math.prod(last)), _flat(terms, shape, ctx), distinct)


def _items(of: Shape, ctx: Any, key: Any) -> list[_Item]:
    """Return the items of a key, one or more for every axis of an array of shape `of`. Raises IndexError."""
    given = [_given(k, ctx) for k in (key if isinstance(key, tuple) else (key,))]
    if sum(k is Ellipsis for k in given) > 1:
        raise IndexError("an index can only have one ...")
    covered = [0 if k is None or k is Ellipsis else len(k.shape) if isinstance(k, _Mask) else 1 for k in given]
    if sum(covered) > len(of):
        raise IndexError(f"too many indices for an array of {len(of)} axes: {sum(covered)} given")
    at = next((i for i, k in enumerate(given) if k is Ellipsis), len(given))
    given[at:at + 1] = [slice(None)] * (len(of) - sum(covered))
    items: list[_Item] = []
    axis = 0
    for k in given:
        if isinstance(k, _Mask):
            for i, (have, want) in enumerate(zip(k.shape, of[axis:])):
                if have != want:
                    raise IndexError(f"boolean index did not match indexed array along axis {axis + i}; size of axis is {want} "
                                     f"but size of corresponding boolean axis is {have}")
            items.append(_Item(axis, math.prod(k.shape), k.places, "mask"))
            axis += len(k.shape)
        elif k is None:
            items.append(_Item(axis, 1, range(1), "new"))
        else:
            slices = isinstance(k, slice)
            items.append(_Item(axis, of[axis], range(of[axis])[k] if slices else k, "slice" if slices else "index"))
            axis += 1
    return items


def _given(k: Any, ctx: Any) -> Any:
    """Return one item of a key: None, ..., a slice, indices of the host or of ctx, or a _Mask."""
    if isinstance(k, ArrayCore) and k.layout.target == "gpu":
        if k.ctx != ctx:
            given, k = k, allocate(layout_of(k.shape, k.layout.dtype, ctx, k.layout.mask))
            copy_to(given, k)
        places = marked(k) if is_mask(k) else None
        return k if places is None else _Mask(k.shape, places)
    k = np.array(k) if isinstance(k, (bool, np.bool_)) else _host_item(k)
    if isinstance(k, np.ndarray) and k.dtype == np.bool_:
        return _Mask(k.shape, np.flatnonzero(k))
    return np.array(k) if isinstance(k, (int, np.integer)) else k


def _flat(terms: Sequence[tuple[_Item, int, Shape]], shape: Shape, ctx: Any) -> ArrayCore:
    """Return the sums of indices times strides, int64 [elements of shape], on ctx.

    terms: (item, stride, the shape in which its index broadcasts to shape). Raises IndexError.
    """
    if len(terms) == 1 and terms[0][0].kind == "mask" and terms[0][1] == 1 and isinstance(terms[0][0].index, ArrayCore):
        return terms[0][0].index
    total, on_device = np.zeros((), _INT64), []
    for item, stride, aligned in terms:
        if isinstance(item.index, ArrayCore):
            on_device.append((item, stride, aligned))
            continue
        at = np.asarray(item.index, _INT64)
        if at.size:
            item.check(int(at.min()), int(at.max()))
        total = total + np.where(at < 0, at + item.size, at).reshape(aligned) * stride
    n = math.prod(shape)
    if not on_device or not n:
        return allocate_like_host(np.broadcast_to(total, shape).reshape(n), ctx)
    module = gpu_module("tensor.triton_index")
    both = allocate(layout_of((n + 2 * len(on_device),), _INT64, ctx))
    flat, reach = both[:n], both[n:]

    def run(rc: Any) -> None:
        if total.ndim:
            rc.from_host(flat.device_array(), np.ascontiguousarray(np.broadcast_to(total, shape)).reshape(n))
        else:
            copies.fill(rc, flat.device_array(), int(total))
        copies.fill(rc, reach.device_array(), 0)
        for i, (item, stride, aligned) in enumerate(on_device):
            index = rc.workspace(shape, _INT64)
            seen = strided(item.index.shape, lambda a, s=aligned: np.broadcast_to(a.reshape(s), shape))
            copies.plan(seen, strided(shape))(rc, item.index.device_array(), index)
            module.add(rc, index, flat.device_array(), reach.device_array()[2 * i:2 * i + 2], n, item.size, stride)

    push("index", ctx, run, tuple(item.index for item, _, _ in on_device), both)
    for (item, _, _), bounds in zip(on_device, reach.asnumpy().reshape(-1, 2).tolist()):
        item.check(*bounds)
    return flat
