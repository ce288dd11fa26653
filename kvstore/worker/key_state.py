"""A key of a distributed store in this worker, its copy of the value and its round; and the memory of what is sent."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...context import cpu
from ...engine import Var
from ...engine.memory import storage
from ...errors import RoundMadeError
from ...integers import cdiv
from ...ndarray import NDArray, RowSparseNDArray, empty, zeros
from ...ndarray.core.chunk import Chunk, layout_of
from ..array_ops import queue
from ..protocol.row_sparse import row_size
from ..wire.compression import TwoBit, packed_bytes
from ..wire.frame import CODES, INLINE, NOTHING, ROWS, TWO_BITS, FrameType, Place, Record
from ..wire.shared_memory import SMALLEST
from .requests import Push, Request

if TYPE_CHECKING:
    from .client import Client


_INLINE: Place = INLINE, 0


class KeyState:
    """A key. Its methods that return requests are called by engine functions, or while none about the key runs.

    value:   the copy; its engine variable orders everything about the key.
    place:   of the copy, in shared memory or INLINE.
    slices:  (server, start, stop) of each.
    round:   the last round that this worker has contributed to.
    fresh:   the copy is up to date, or will be when the pushed functions have completed.
    pushed:  async: variable of the pushes. If a push fails, later pulls fail with its error.
    """

    def __init__(self, value: NDArray, place: Place):
        self.value, self.place = value, place
        self.id = -1
        self.slices: Sequence[tuple[int, int, int]] = ()
        self.round, self.fresh, self.pushed = 0, False, Var()
        self._called = 0  # the round of the last call of push, if no earlier one fails
        self._residual: NDArray | None = None  # of the compression

    def next_round(self) -> int:
        """Count a call of push, and return the round that it will contribute to if no earlier call fails."""
        var = self.value.chunk.var
        settled = var.held >= 0 and var.queue is None  # every earlier call has succeeded or failed
        self._called = (self.round if settled else self._called) + 1
        return self._called

    # ---- requests ---------------------------------------------------------------------------------------------------------
    def initial_values(self) -> list[Request]:
        requests = []
        for i, (server, start, stop) in enumerate(self.slices):
            data, place = _part(self.value, self.place, start, stop)
            record = Record(self.id, i, CODES[data.dtype], len(data), 0, *place, NOTHING)
            requests.append(Request(FrameType.INITIALIZE, server, record, data.view(np.uint8).data if place == _INLINE else b""))
        return requests

    def pulls(self, wanted: bool = True) -> list[Request]:
        """Return the requests for the value, which goes to the copy if it is wanted."""
        requests = []
        for i, (server, start, stop) in enumerate(self.slices):
            out, place = _part(self.value, self.place, start, stop) if wanted else (None, (NOTHING, 0))
            requests.append(Request(FrameType.PULL, server, Record(self.id, i, 0, 0, self.round, NOTHING, 0, *place), out=out))
        return requests

    def pulls_of_rows(self, out: NDArray, indices: np.ndarray) -> list[Request]:
        """Return the requests for rows of the value, which go to out [n, ...]. indices [n]: ascending."""
        flat, width = out.device_array().reshape(-1), row_size(self.value.shape)
        return [Request(FrameType.PULL_ROWS, server, Record(self.id, i, 0, 0, self.round), (indices[a:b] - first).tobytes(),
                        flat[a * width:b * width])
                for i, server, first, a, b in self._rows_of_slices(indices) if a < b]

    def pushes(self, total: NDArray, codes: NDArray | None, place: Place, two_bit: TwoBit | None) -> list[Push]:
        """Return the contributions to the next round: total, or its 2-bit form if there are codes. place: of total."""
        self.round += 1
        done, pushes, at = functools.partial(note_end, self, self.round), [], 0
        for i, (server, start, stop) in enumerate(self.slices):
            (data, data_place), (out, reply) = _part(total, place, start, stop), _part(self.value, self.place, start, stop)
            code = CODES[data.dtype]
            if codes is not None and two_bit is not None:
                data, at = codes.device_array()[at:at + packed_bytes(stop - start)], at + packed_bytes(stop - start)
                code, data_place = TWO_BITS, (INLINE, int(np.float32(two_bit.threshold).view(np.int32)))
            record = Record(self.id, i, code, stop - start, self.round, *data_place, *reply)
            pushes.append(Push(server, record, data, out, done))
        return pushes

    def pushes_of_rows(self, total: RowSparseNDArray) -> list[Push]:
        """Return the contributions to the next round, of which each server gets the rows of its slice."""
        self.round += 1
        done, pushes = functools.partial(note_end, self, self.round), []
        flat, width = total.data.device_array().reshape(-1), row_size(self.value.shape)
        for i, server, first, a, b in self._rows_of_slices(total.rows):
            data = np.concatenate([part.view(np.uint8) for part in (total.rows[a:b] - first, flat[a * width:b * width])])
            pushes.append(Push(server, Record(self.id, i, ROWS, len(data), self.round, INLINE, 0, NOTHING), data, done=done))
        return pushes

    def _rows_of_slices(self, rows: np.ndarray) -> list[tuple[int, int, int, int, int]]:
        """Return (index, server, first row, a, b) of each slice, which holds rows[a:b]."""
        width = row_size(self.value.shape)
        return [(i, server, start // width, *np.searchsorted(rows, (start // width, stop // width)).tolist())
                for i, (server, start, stop) in enumerate(self.slices)]

    def compress(self, total: NDArray, two_bit: TwoBit, priority: int) -> NDArray:
        """Return the 2-bit form of total, slice by slice, computed by an engine function."""
        if self._residual is None:
            self._residual = zeros(total.shape, ctx=cpu())
        residual, ranges = self._residual, [(start, stop) for _, start, stop in self.slices]
        codes = empty((sum(packed_bytes(b - a) for a, b in ranges),), ctx=cpu(), dtype="uint8")

        def run(_: Any) -> None:
            grad, rest, out = total.device_array().reshape(-1), residual.device_array().reshape(-1), codes.device_array()
            at = 0
            for a, b in ranges:
                size = packed_bytes(b - a)
                two_bit.compress(grad[a:b], rest[a:b], out[at:at + size])
                at += size

        queue("kvstore.compress", run, [total], [codes, residual], priority)
        return codes


def note_end(key: Any, n: int, error: BaseException | None) -> None:
    """Update the state of a key when a contribution to its round n has ended."""
    if getattr(error, "made", False):  # the round was applied; only RoundMadeError leaves the copy up to date
        key.fresh = key.fresh and isinstance(error, RoundMadeError)
    elif error is not None and key.round == n:
        key.round = n - 1  # it was not applied: the next push is for this round


def _part(whole: NDArray, place: Place, start: int, stop: int) -> tuple[np.ndarray, Place]:
    """Return elements of an array at a place, and their own place."""
    flat = whole.device_array().reshape(-1)
    return flat[start:stop], place if place == _INLINE else (place[0], place[1] + start * flat.itemsize)


class SendBuffer:
    """New arrays with the shapes and dtypes of others, in one block: shared memory, if it is large and the servers can read it.

    places:    the place of each, in shared memory or INLINE.
    separate:  each array has an engine variable of its own; otherwise they share one.
    """

    def __init__(self, client: Client, like: Sequence[NDArray], separate: bool = False):
        layouts = [layout_of(tuple(a.shape), np.dtype(a.dtype), cpu()) for a in like]
        align = max(layout.dtype.itemsize for layout in layouts)  # arrays of one dtype have no gaps between them
        starts = list(itertools.accumulate((cdiv(layout.nbytes, align) * align for layout in layouts), initial=0))
        nbytes = max(starts.pop() if len(starts) > 1 else 0, 1)
        self._slot = client.pool.take(nbytes) if client.pool is not None and nbytes >= SMALLEST and client.shared else None
        self.places: list[Place] = [_INLINE if self._slot is None else (self._slot.segment, at) for at in starts]
        if separate:
            self.arrays = [NDArray(layout, chunk=self._chunk(at, layout.nbytes)) for at, layout in zip(starts, layouts)]
        else:
            chunk = self._chunk(0, nbytes)
            self.arrays = [NDArray(layout, chunk=chunk, offset=at) for at, layout in zip(starts, layouts)]

    def _chunk(self, at: int, nbytes: int) -> Chunk:
        if self._slot is None:
            return Chunk.new(max(nbytes, 1), cpu())
        return Chunk(storage.Block(self._slot.view[at:at + nbytes], nbytes, cpu()), Var(), cpu())
