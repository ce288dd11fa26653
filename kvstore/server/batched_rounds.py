"""Batched rounds: one sum for many small keys. Workers that run one program push the same keys together, in equal frames.

Such frames are held until those of all members have arrived; then their contributions are added up as one array. If anything else
arrives first, the server takes the held frames back (`release`) and handles them key by key, as if they had just come. A held
frame is not acknowledged, so holding it is not observable.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import FrameError
from ..array_ops import sum_into
from ..protocol.rounds import Acknowledge, Action, Reject, Rounds
from ..wire.frame import DTYPES, INLINE, NOTHING, WANT_VALUE, FrameType, WireFrame, encode
from ..wire.shared_memory import SegmentViews
from .values import Name, StoredValue, StoredValues

_FEWEST = 4  # records of a frame: a smaller frame is faster key by key
_MOST_LAYOUTS = 64  # that are kept, of up to 0.6 MB each
_NAME, _DTYPE, _ROUND, _SEGMENT, _AT, _REPLY_SEGMENT, _REPLY_AT = slice(0, 2), 2, 4, 5, 6, 7, 8  # columns of a frame's table
_REPLY = [_REPLY_SEGMENT, _REPLY_AT]
_VARIES = [_ROUND, _SEGMENT, _AT, *_REPLY]  # differs between frames with the same keys


class _BatchLayout(NamedTuple):
    """The properties that all frames with the same keys share.

    starts:  byte offset of each key's data.
    table:   the records, with 0 in the columns that vary.
    """

    names: list[Name]
    values: list[StoredValue]
    starts: np.ndarray
    nbytes: int
    dtype: np.dtype
    table: np.ndarray


class _HeldFrame(NamedTuple):
    """A frame, its contributions as one array, and the shared memory for all values; None: values go in the payload."""

    frame: WireFrame
    data: np.ndarray
    reply: np.ndarray | None


class AppliedBatch(NamedTuple):
    """A round of several keys: the answers (rank, head, payload), or the actions if those must be made key by key."""

    names: list[Name]
    answers: list[tuple[int, bytes, list[Any]]]
    actions: list[Action]


class BatchedRounds:
    """The held frames of one server. views: the shared memory of each rank."""

    def __init__(self, values: StoredValues, rounds: Rounds, views: Mapping[int, SegmentViews]):
        self._values, self._rounds, self._views = values, rounds, views
        self._layouts: dict[bytes, _BatchLayout | None] = {}
        self._scratch = np.empty(0, np.uint8)
        self._held: dict[bytes, dict[int, _HeldFrame]] = {}  # by the common part of the records
        self._names: set[Name] = set()  # of the held frames

    def forget(self) -> None:
        """Drop the cached layouts, because keys, members or the optimizer have changed. No frame may be held."""
        self._layouts.clear()

    def release(self) -> list[tuple[int, WireFrame]]:
        """Return all held frames, to be handled one by one."""
        if not self._held:
            return []
        held = [(rank, h.frame) for by_rank in self._held.values() for rank, h in by_rank.items()]
        self._held, self._names = {}, set()
        return held

    def add(self, rank: int, frame: WireFrame) -> tuple[bool, AppliedBatch | None]:
        """Take a frame of a rank. Returns whether it was taken, and the batch that is complete with it."""
        if (frame.type is not FrameType.PUSH or frame.flags != WANT_VALUE or not self._rounds.sync or len(frame.table) < _FEWEST
                or rank not in self._rounds.members):
            return False, None
        common = frame.table.copy()
        common[:, _VARIES] = 0
        kind, rounds = common.tobytes(), frame.table[:, _ROUND]
        try:
            layout = self._layouts[kind] if kind in self._layouts else self._add_layout(kind, common)
            held = None if layout is None else self._as_one_array(layout, rank, frame)
        except Exception:  # handled key by key, which also reports the error
            return False, None
        if layout is None or held is None:
            return False, None
        by_rank = self._held.get(kind, {})
        if rank in by_rank or any((h.frame.table[:, _ROUND] != rounds).any() for h in by_rank.values()):
            return False, None
        if not by_rank:
            if not self._names.isdisjoint(layout.names) or not self._rounds.can_batch(layout.names, rounds.tolist()):
                return False, None
            self._held[kind] = by_rank
            self._names.update(layout.names)
        by_rank[rank] = held
        if by_rank.keys() != self._rounds.members.keys():
            return True, None
        try:
            total = self._sum([by_rank[r].data for r in sorted(by_rank)], all(h.reply is not None for h in by_rank.values()))
        except Exception:
            del by_rank[rank]
            return False, None
        del self._held[kind]
        self._names.difference_update(layout.names)
        return True, self._apply(layout, by_rank, total)

    def _add_layout(self, kind: bytes, common: np.ndarray) -> _BatchLayout | None:
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        layout = self._layouts[kind] = self._make_layout(common)
        return layout

    def _make_layout(self, common: np.ndarray) -> _BatchLayout | None:
        """Return the layout of frames with these records, or None unless each is a whole slice of a distinct key of one dtype."""
        names = [(key, index) for key, index in common[:, _NAME].tolist()]
        code = int(common[0, _DTYPE])
        if code >= len(DTYPES) or len(set(names)) < len(names) or not all(n in self._values for n in names):
            return None
        values = [self._values[n] for n in names]
        sizes = [len(v.flat) for v in values]
        table = np.array([(*n, code, size, 0, 0, 0, 0, 0) for n, size in zip(names, sizes)])
        if not np.array_equal(common, table) or any(v.code != code or not v.filled for v in values) or not all(sizes):
            return None
        ends = np.cumsum(sizes) * DTYPES[code].itemsize
        return _BatchLayout(names, values, np.concatenate(([0], ends[:-1])), int(ends[-1]), DTYPES[code], table)

    def _as_one_array(self, layout: _BatchLayout, rank: int, frame: WireFrame) -> _HeldFrame | None:
        """Return the frame with its data, or None if the payload does not fit. Raises errors as `_contiguous` does."""
        table = frame.table
        data = self._contiguous(layout, rank, table[:, _SEGMENT], table[:, _AT])
        reply = self._contiguous(layout, rank, table[:, _REPLY_SEGMENT], table[:, _REPLY_AT])
        if data is None and len(frame.payload) == layout.nbytes:
            data = np.frombuffer(frame.payload, layout.dtype)
        elif data is not None and len(frame.payload) == 0 and data.ctypes.data % layout.dtype.itemsize == 0:
            data = data.view(layout.dtype)
        else:
            return None
        return _HeldFrame(frame, data, reply)

    def _contiguous(self, layout: _BatchLayout, rank: int, segments: np.ndarray, at: np.ndarray) -> np.ndarray | None:
        """Return the range of a rank's shared memory, or None for the payload.

        Raises FrameError if it is not contiguous, KeyError if the rank shares no memory.
        """
        segment, first = int(segments[0]), int(at[0])
        if (segments != segment).any() or (segment != INLINE and (segment < 0 or (at - first != layout.starts).any())):
            raise FrameError("frame: the data of the records is not contiguous")
        return None if segment == INLINE else self._views[rank].bytes(segment, first, layout.nbytes)

    def _apply(self, layout: _BatchLayout, by_rank: dict[int, _HeldFrame], total: np.ndarray) -> AppliedBatch:
        """Update every key with its part of the sum over all ranks."""
        failed: dict[Name, str] = {}
        bounds = (*(layout.starts // total.itemsize).tolist(), len(total))
        for name, value, (start, stop) in zip(layout.names, layout.values, itertools.pairwise(bounds)):
            self._rounds[name].version += 1
            try:
                value.update((total[start:stop],))
            except Exception as e:
                failed[name] = f"the update failed: {type(e).__name__}: {e}"
                self._rounds[name].version -= 1
        if not failed:
            try:
                return AppliedBatch(layout.names, self._answers(layout, by_rank, total), [])
            except Exception:
                pass  # the server answers key by key, which also reports the error
        return AppliedBatch(layout.names, [], [
            Reject(rank, r.name, r.round, failed[r.name]) if r.name in failed else
            Acknowledge(rank, r.name, r.round, (r.reply_segment, r.reply_at))
            for rank, held in by_rank.items() for r in held.frame.records])

    def _answers(self, layout: _BatchLayout, by_rank: dict[int, _HeldFrame], total: np.ndarray
                 ) -> list[tuple[int, bytes, list[Any]]]:
        if self._values.has_optimizer:
            total = np.concatenate([v.flat for v in layout.values])
        table = layout.table.copy()
        table[:, _ROUND] = next(iter(by_rank.values())).frame.table[:, _ROUND]
        table[:, _AT] = [max(v.durable, 0) for v in layout.values]
        raw = total.view(np.uint8)
        answers = []
        for rank in sorted(by_rank):
            reply = by_rank[rank].reply
            if reply is not None:
                reply[:] = raw
            payload = raw.data if reply is None else b""
            table[:, _SEGMENT] = INLINE if reply is None else NOTHING
            table[:, _REPLY] = by_rank[rank].frame.table[:, _REPLY]
            answers.append((rank, encode(FrameType.ANSWER, table, len(payload)), [payload]))
        return answers

    def _sum(self, contributions: Sequence[np.ndarray], temporary: bool) -> np.ndarray:
        """Return the sum. temporary: it is not used after the next call, so that its memory can be used again."""
        first = contributions[0]
        if len(contributions) == 1:
            return first
        if not temporary:
            total = np.empty_like(first)
        else:
            if len(self._scratch) < first.nbytes:
                self._scratch = np.empty(first.nbytes, np.uint8)
            total = self._scratch[:first.nbytes].view(first.dtype)
        sum_into(total, contributions)
        return total
