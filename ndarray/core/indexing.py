"""a[key] and a[key] = value. A contiguous part is a view on the same memory; any other part is a copy.

Basic keys are integers, slices, None and ...; indexing with them is asynchronous. Advanced keys contain arrays of indices
or a boolean mask; indexing with them waits for their values. An index that leaves no axis gives shape (1,), as in MXNet;
with `np_shape` it gives ().
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from ...dtype import cast_copy
from ...errors import MXNetError, ShapeError, describe
from ...kernels.op import builtin
from ...kernels.ops.tensor.reshape import reshape_codes
from ...np_shape import no_axes
from ..autograd.tape import CallNode, is_taped, record_call, state, written
from ..dispatch.arguments import call_op
from ..dispatch.copy import as_element, assign, copy_to, filled, pick
from . import advanced
from .array_core import ArrayCore, allocate
from .chunk import Chunk, layout_of

if TYPE_CHECKING:
    from .ndarray import NDArray

_ALL = slice(None)


def _write_recorded(a: Any, key: Any, value: Any) -> None:
    """Set a[:] = value and record it. Raises MXNetError for a part of a, whose derivative would be lost."""
    if type(key) is not slice or key != _ALL:
        raise MXNetError(f"a[key] = value: value {describe(value)} is part of a recorded computation, and a part of "
                         f"{describe(a)} cannot pass its derivative on. Put parts together with concat, stack or where.")
    if value.shape != a.shape:
        value = value.broadcast_to(a.shape)
    if value.dtype != a.dtype:
        value = value.astype(a.dtype)
    call_op(builtin("_copy"), (value,), {"out": a})


class Indexing(ArrayCore):
    """Indexing, views and reshape, for NDArray."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> NDArray:
        shape = self.layout.shape
        if type(key) is int and shape:
            n = shape[0]
            if not -n <= key < n:
                raise IndexError(f"index {key} is out of bounds for axis 0 with size {n}")
            inner = shape[1:]
            step = self.layout.nbytes // n
            return _view(self, (key + n if key < 0 else key) * step, inner or no_axes(), key)
        if type(key) is slice and key.step in (None, 1) and shape:
            start, stop, _ = key.indices(shape[0])
            count = max(stop - start, 0)
            step = self.layout.nbytes // shape[0] if shape[0] else 0
            return _view(self, start * step if count else 0, (count, *shape[1:]), key)
        full = _normal(key)
        if full is None:
            return advanced.take(self, key)
        key = _expand(full, len(shape))
        part = _part(self, key)
        layout = self.layout.of(part.shape or no_axes())
        if part.flags.c_contiguous:
            return _view(self, _distance(part) if part.size else 0, layout.shape, key)
        out = allocate(layout)
        pick(self, key, out)
        return record_call(self, out, "slice", _into_zeros(self, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        taped = state.recording and isinstance(value, ArrayCore) and is_taped(value, "a[key] = value")
        whole = type(key) is slice and key == _ALL
        written(self, "a[key] = value", whole=whole)  # after the check of value, which may share the memory
        if taped:
            _write_recorded(self, key, value)
            return
        if whole and self.layout.shape:
            key, part_shape = (Ellipsis,), self.layout.shape
        else:
            full = _normal(key)
            if full is None:
                advanced.put(self, key, value)
                return
            key = _expand(full, len(self.layout.shape))
            part_shape = _part(self, key).shape
        if isinstance(value, bool | int | float | np.number):
            assign(self, key, as_element(value, self.layout))
            return
        if isinstance(value, ArrayCore):
            if value.ctx != self.ctx or value.layout.dtype != self.layout.dtype:
                moved = allocate(layout_of(value.shape, self.layout.dtype, self.ctx))
                copy_to(value, moved)
                value = moved
        else:
            value = cast_copy(np.array(value), self.layout.dtype)
        value_shape: tuple[int, ...] = value.shape
        while len(value_shape) > len(part_shape) and value_shape[0] == 1:
            value_shape = value_shape[1:]
        if not advanced.fits(value_shape, part_shape):
            raise ShapeError(f"a[key] = value: value {describe(value)} does not fit {part_shape}, a part of "
                             f"{describe(self)}.")
        if value_shape != value.shape:
            value = reshape_view(value, value_shape) if isinstance(value, ArrayCore) else value.reshape(value_shape)
        assign(self, key, value)

    def reshape(self, *shape: int | Sequence[int], reverse: bool = False, **given: Any) -> NDArray:
        """Return an array on the same memory with another shape.

        shape:    sizes, or MXNet's codes: 0 copies a size, -1 infers it, -2 takes the rest, -3 merges two axes, -4 splits one.
        reverse:  read the codes from the right.
        Raises:   ShapeError.
        """
        codes: Any = given.pop("shape", None)
        if given:
            raise TypeError(f"reshape: unknown argument {next(iter(given))!r}. It takes shape and reverse.")
        if codes is None:
            codes = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if isinstance(codes, (int, np.integer)):
            codes = (int(codes),)
        new = reshape_codes("reshape", self.layout.shape, codes, reverse)
        if math.prod(new) != self.layout.size:
            raise ShapeError(f"reshape: {self.layout.shape} does not reshape to {tuple(codes)}: {self.layout.size} elements do "
                             f"not fill {new}. Choose sizes whose product is {self.layout.size}.")
        return reshape_view(self, new)

    def _at(self, idx: int) -> NDArray:
        """Return self[idx], as MXNet's method of this name."""
        return self[int(idx)]

    def _slice(self, start: int, stop: int) -> NDArray:
        """Return self[start:stop], as MXNet's method of this name."""
        return self[slice(start, stop)]

    def _sync_copyfrom(self, source_array: ArrayLike) -> None:
        """Write source_array, of this array's shape, into this array, as MXNet's method of this name."""
        values = np.asarray(source_array, self.layout.dtype)
        if values.shape != self.layout.shape:
            raise ShapeError(f"_sync_copyfrom: the source has the shape {values.shape}, and the array is {describe(self)}. "
                             f"Give values of the same shape.")
        self[:] = values

    def slice_assign(self, rhs: ArrayCore | ArrayLike, begin: Sequence[int | None], end: Sequence[int | None],
                     step: Sequence[int | None] | None = None) -> Self:
        """Set self[begin:end:step] = rhs, and return self."""
        steps = step or [None] * len(begin)
        self[tuple(slice(b, e, s) for b, e, s in zip(begin, end, steps))] = rhs
        return self

    def slice_assign_scalar(self, value: float, begin: Sequence[int | None], end: Sequence[int | None],
                            step: Sequence[int | None] | None = None) -> Self:
        """Set self[begin:end:step] = value, and return self."""
        return self.slice_assign(value, begin, end, step)


def reshape_view(a: ArrayCore, shape: tuple[int, ...]) -> NDArray:
    """Return an array on a's memory with another shape of the same size; recorded."""
    out = a.array_class(a.layout.of(shape), None, _memory(a), a.offset)
    if state.recording and a._grad_edge is not None:
        before = a.layout.shape
        return record_call(a, out, "reshape", lambda dy: reshape_view(dy, before))
    return out


# ---- views ----------------------------------------------------------------------------------------------------------
def _view(a: Any, distance: int, shape: tuple[int, ...], key: Any) -> NDArray:
    out = a.array_class(a.layout.of(shape), None, _memory(a), a.offset + distance)
    if state.recording and a._grad_edge is not None:
        return record_call(a, out, "slice", _into_zeros(a, key))
    return out


def _memory(a: Any) -> Chunk:
    """Return the chunk for a view of a. Views taken without recording do not see recorded overwrites."""
    chunk = a.chunk
    return chunk.twin() if chunk.overwrites and not state.recording else chunk


def copy_recorded(a: ArrayCore, out: NDArray, name: str) -> NDArray:
    """Copy a to the new array out, across contexts and dtypes, and return out; the derivative flows back to a."""
    node = copy_over(a, out, name)
    if node is not None:
        out._grad_edge = node, 0
    return out


def copy_over(a: ArrayCore, out: ArrayCore, name: str) -> CallNode | None:
    """Copy a to out, of equal size, across contexts and dtypes. Return the node through which the derivative flows to a."""
    taped = state.recording and is_taped(a, name)
    written(out, name)
    copy_to(a, out)
    before = a.layout

    def backward(dys: list[Any]) -> list[Any]:
        dx = dys[0] if dys[0].shape == before.shape else reshape_view(dys[0], before.shape)
        return [dx.as_in_context(before.ctx).astype(before.dtype, copy=False)]

    return CallNode(name, [a._grad_edge], [out.layout], backward) if taped else None


def _into_zeros(a: Any, key: Any) -> Callable[[Any], Any]:
    """Return the derivative of a[key]: a function that puts dy into an array of zeros."""
    layout = a.layout

    def backward(dy: Any) -> Any:
        dx = filled(layout, 0)
        part = layout_of(_part(dx, key).shape, layout.dtype, layout.ctx)
        assign(dx, key if isinstance(key, tuple) else (key,), dy.array_class(part, None, dy.chunk, dy.offset))
        return record_call(dy, dx, "spread", lambda ddx: ddx[key])

    return backward


def _part(a: Any, key: Any) -> np.ndarray:
    """Return a[key] of a NumPy array with the strides of a, for its shape and place; its bytes are never read."""
    itemsize = a.layout.dtype.itemsize
    strides, n = [], itemsize
    for d in reversed(a.layout.shape):
        strides.append(n)
        n *= d
    array = np.lib.stride_tricks.as_strided(np.empty(1, f"V{itemsize}"), a.layout.shape, strides[::-1])
    key = key if isinstance(key, tuple) else (key,)
    return array[key if Ellipsis in key else (*key, Ellipsis)]  # with ..., one element is a view too


def _distance(part: np.ndarray) -> int:
    """Return the bytes from the beginning of the array to the part that `_part` returned."""
    base: Any = part
    while base.base is not None:
        base = base.base
    origin = base.__array_interface__["data"][0]
    return part.__array_interface__["data"][0] - origin


# ---- keys -----------------------------------------------------------------------------------------------------------
def _normal(key: Any) -> tuple | None:
    """Return key as a tuple of basic items; None if it is an advanced key."""
    items = key if isinstance(key, tuple) else (key,)
    out: list[Any] = []
    for k in items:
        if isinstance(k, (bool, np.bool_)):
            return None
        if isinstance(k, (int, np.integer)):
            out.append(int(k))
        elif k is None or k is Ellipsis:
            out.append(k)
        elif isinstance(k, slice):
            out.append(slice(*(None if e is None else int(e) for e in (k.start, k.stop, k.step))))
        else:
            return None
    return tuple(out)


def _expand(key: tuple, ndim: int) -> tuple:
    """Return key with ... replaced by full slices."""
    used = sum(1 for k in key if k is not None and k is not Ellipsis)
    if used > ndim:
        raise IndexError(f"too many indices for an array of {ndim} axes: {used} given")
    if key.count(Ellipsis) > 1:
        raise IndexError("an index can only have one ...")
    at = key.index(Ellipsis) if Ellipsis in key else len(key)
    return (*key[:at], *[slice(None)] * (ndim - used), *key[at + 1:])
