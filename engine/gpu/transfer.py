"""Copies between the host and GPUs, through pinned memory, and from GPU to GPU.

They follow the work that `cuda.py`'s streams have been given. Source and target are tensors of `cuda.py`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...errors import EngineError
from . import cuda

#: Large arrays pass through pinned memory in pieces of so many bytes, so many at a time.
_PIECE, _STAGED = 32 << 20, 2
_SMALL = 1 << 16  # bytes of an array that goes through memory of `_staging`
_staging: list[Any] = []  # pinned memory for small arrays that nobody uses now


def to_host(tensor: Any, writer: tuple[Any, Any] | None = None) -> np.ndarray:
    """Return the values on the host: new memory, copied to through pinned memory, or the memory itself when interpreted.

    writer: the (stream, moment) at which the values are complete, if the calling function's stream does not wait for it anyway.
    Waits, without the GIL, for the copy, which follows that moment and the earlier work of the calling function's stream.
    """
    if not tensor.is_cuda:
        if writer is not None:
            cuda.wait(writer[1])
        return cuda.as_numpy(tensor)
    values = np.empty(tuple(tensor.shape), next(n for n, t in cuda.torch_dtypes().items() if t == tensor.dtype))
    flat, device = values.reshape(-1), tensor.reshape(-1)
    if 0 < values.nbytes <= _SMALL:
        return _small_to_host(device, values, writer)
    arriving: deque[tuple[Any, Any, slice]] = deque()

    def take() -> None:
        event, staged, where = arriving.popleft()
        cuda.wait(event)
        flat[where] = cuda.as_numpy(staged)

    with _reading(tensor.device.index, writer) as (s, name):
        for where in _pieces(values):
            staged = cuda.pinned(device[where].shape, device.dtype)
            staged.copy_(device[where], non_blocking=True)
            arriving.append((cuda.record(s, name), staged, where))
            if len(arriving) == _STAGED:
                take()
        while arriving:
            take()
    return values


def _small_to_host(device: Any, values: np.ndarray, writer: tuple[Any, Any] | None) -> np.ndarray:
    """Read a small array through pinned memory that is kept: to have torch find some takes longer than the copy."""
    try:
        staging = _staging.pop()
    except IndexError:
        staging = cuda.pinned(_SMALL, cuda.torch_dtypes()[np.dtype("uint8")])
    part = staging[:values.nbytes]
    with _reading(device.device.index, writer) as (s, name):
        part.view(device.dtype).copy_(device, non_blocking=True)
        event = cuda.record(s, name)
    cuda.wait(event)
    values.reshape(-1).view(np.uint8)[...] = cuda.as_numpy(part)
    if len(_staging) < _STAGED:
        _staging.append(staging)
    return values


@contextlib.contextmanager
def _reading(device_id: int, writer: tuple[Any, Any] | None) -> Iterator[tuple[Any, str]]:
    """`with _reading(i, writer) as (s, name)`: enqueue copies from device i on stream s, behind the writer called name.

    Outside of functions, s is the writer's own stream if only small work was enqueued behind it, for which no event is needed;
    else the copy stream. The caller waits for the copies.
    """
    stream_of, moment = writer or (None, None)
    name = getattr(moment, "name", "")
    if cuda.calling_stream() is not None:
        with cuda.on_device(device_id) as s:
            if moment is not None and s is not stream_of:
                cuda.stream_waits(s, moment)
            yield s, name
        return
    s = stream_of
    if s is None or s.device_index != device_id or not isinstance(moment, cuda.Tail) or moment.event is not None:
        s = cuda.stream(device_id, "copy")
        if moment is not None:
            cuda.stream_waits(s, moment)
    with cuda.run_on(s):
        yield s, name


def _pieces(values: np.ndarray) -> Iterator[slice]:
    """The slices of a flat array, one after another."""
    step = max(1, _PIECE // values.itemsize)
    return (slice(i, i + step) for i in range(0, values.size, step))


def from_host(tensor: Any, values: np.ndarray) -> None:
    """Write host values of the same shape and dtype into tensor. The caller may change values afterwards, as they are copied."""
    if tuple(values.shape) != tuple(tensor.shape):
        raise EngineError(f"cuda.from_host: shapes differ: tensor {tuple(tensor.shape)}, values {values.shape}.")
    if not tensor.is_cuda:
        np.copyto(cuda.as_numpy(tensor), values, casting="no")
        return
    flat, device = np.ascontiguousarray(values).reshape(-1), tensor.view(-1)
    leaving: deque[Any] = deque()
    with cuda.on_device(tensor.device.index) as s:
        tensor.record_stream(s)
        if flat.nbytes > _SMALL and not s.computes and cuda.torch_dtypes()[flat.dtype] == tensor.dtype and _is_pinned(flat):
            device.view(cuda.torch_dtypes()[np.dtype("uint8")]).copy_(cuda.wrap(flat.view(np.uint8)), non_blocking=True)
            cuda.wait(s.record_event())  # the device reads it itself; a thread that launches would not have the time
            return
        for where in _pieces(values):
            if len(leaving) == _STAGED:
                cuda.wait(leaving.popleft())  # its memory is free for another piece
            staged = cuda.pinned(device[where].shape, device.dtype)
            np.copyto(cuda.as_numpy(staged), flat[where], casting="no")
            device[where].copy_(staged, non_blocking=True)
            leaving.append(s.record_event())


def _is_pinned(flat: np.ndarray) -> bool:
    return flat.flags.writeable and cuda.wrap(flat.view(np.uint8)).is_pinned()  # torch warns of read-only arrays


def copy(dst: Any, src: Any) -> None:
    """Copy the bytes of a contiguous tensor to another of the same dtype, on the calling function's stream.

    From another device they go directly, on that device's copy stream, between what the function has enqueued and what it
    enqueues later.
    """
    own = cuda.own_stream(dst.device.index) if dst.is_cuda else None
    peer = src.device.index if dst.is_cuda and src.device.index != dst.device.index else None
    with cuda.torch_on(own), contextlib.nullcontext() if peer is None else cuda.on_device(peer):
        dst.copy_(src.view(dst.shape), non_blocking=True)
