"""Unison: many small keys as one. Workers of one program push the same keys together, so their frames have the same records.

Such frames are held until every member's is there; then their contributions are added up as one array. Nothing else may happen
to the keys meanwhile: whatever else comes, the shard first takes back what is held (`release`) and deals with it key by key, as
if it had come just then. Holding a frame tells nobody anything, so nobody can tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import FrameError
from ..protocol.rounds import Rounds
from ..wire.frame import DTYPES, INLINE, NOTHING, TWO_BITS, WANT, Frame, Op, encode
from ..wire.shared_memory import Views
from .values import Name, Value, Values, add_up

_FEWEST = 4  # records of a frame: fewer are dealt with one by one, which is faster then
_MOST_PLANS = 4 << 20  # bytes of what is remembered
_KEY, _DTYPE, _ROUND, _SEGMENT, _AT, _REPLY_SEGMENT, _REPLY_AT = slice(0, 2), 2, 4, 6, 7, 8, 9  # columns of a frame's table
_REPLY = [_REPLY_SEGMENT, _REPLY_AT]
_VARIES = [_ROUND, _SEGMENT, _AT, *_REPLY]


class _Plan(NamedTuple):
    """What is the same each time these keys come. starts: bytes of each before it. table: records with what varies left out."""

    names: list[Name]
    values: list[Value]
    starts: np.ndarray
    nbytes: int
    dtype: np.dtype
    table: np.ndarray


class _Held(NamedTuple):
    """A frame, its contributions side by side, and where the values go: shared memory side by side; None for the payload."""

    frame: Frame
    data: np.ndarray
    reply: np.ndarray | None


class Made(NamedTuple):
    """A round of several keys. failed: of which it is not made, its number and why; answers: what to send if all is well."""

    names: list[Name]
    frames: dict[int, Frame]
    failed: dict[Name, tuple[int, str]]
    answers: list[tuple[int, bytes, list[Any]]]


class Unison:
    """The frames that are held, of one shard. views: the shared memory of each rank."""

    def __init__(self, values: Values, rounds: Rounds, views: Mapping[int, Views]):
        self._values, self._rounds, self._views = values, rounds, views
        self._plans: dict[bytes, _Plan | None] = {}
        self._size = 0  # bytes, of the plans' names
        self._scratch = np.empty(0, np.uint8)
        self._held: dict[bytes, dict[int, _Held]] = {}  # by what the records have in common
        self._names: set[Name] = set()  # keys of what is held

    def forget(self) -> None:
        """Keys, members or the optimizer have changed. Nothing may be held."""
        self._plans, self._size = {}, 0

    def release(self) -> list[tuple[int, Frame]]:
        """All that is held, to be dealt with one by one."""
        if not self._held:
            return []
        held = [(rank, h.frame) for by_rank in self._held.values() for rank, h in by_rank.items()]
        self._held, self._names = {}, set()
        return held

    def hold(self, rank: int, frame: Frame) -> Made | bool:
        """Take a PUSH: what was made of it and the others, if it was the last; else whether it is held."""
        if frame.op is not Op.PUSH or frame.flags != WANT or not self._rounds.sync or len(frame.table) < _FEWEST:
            return False
        if rank not in self._rounds.members():
            return False
        common = frame.table.copy()
        common[:, _VARIES] = 0
        kind = common.tobytes()
        try:
            plan = self._plans[kind] if kind in self._plans else self._learn(kind, common)
            held = None if plan is None else self._lay_out(plan, rank, frame)
        except Exception:  # key by key it may go, or it will be said what is wrong
            return False
        if plan is None or held is None:
            return False
        by_rank = self._held.get(kind)
        if by_rank is None:
            if not self._names.isdisjoint(plan.names) or not self._rounds.begins(plan.names, frame.table[:, _ROUND].tolist()):
                return False
            by_rank = self._held[kind] = {}
            self._names.update(plan.names)
        elif rank in by_rank or any((h.frame.table[:, _ROUND] != frame.table[:, _ROUND]).any() for h in by_rank.values()):
            return False
        by_rank[rank] = held
        if by_rank.keys() != self._rounds.members():
            return True
        try:
            total = self._sum([by_rank[r].data for r in sorted(by_rank)], all(h.reply is not None for h in by_rank.values()))
        except Exception:
            del by_rank[rank]
            return False
        del self._held[kind]
        self._names.difference_update(plan.names)
        return self._make(plan, by_rank, total)

    def _learn(self, kind: bytes, common: np.ndarray) -> _Plan | None:
        """None unless each record is a whole part of a different key, all of one dtype."""
        if self._size > _MOST_PLANS:
            self.forget()
        plan = self._plans[kind] = self._plan(common)
        self._size += len(kind)
        return plan

    def _plan(self, common: np.ndarray) -> _Plan | None:
        names = [(key, part) for key, part in common[:, _KEY].tolist()]
        code = int(common[0, _DTYPE])
        if code == TWO_BITS or len(set(names)) < len(names) or not all(n in self._values for n in names):
            return None
        values = [self._values[n] for n in names]
        sizes = [len(v.flat) for v in values]
        table = np.array([(*n, code, size, 0, 0, 0, 0, 0, 0) for n, size in zip(names, sizes)])
        if not np.array_equal(common, table) or any(v.code != code or not v.filled for v in values) or not all(sizes):
            return None
        ends = np.cumsum(sizes) * DTYPES[code].itemsize
        return _Plan(names, values, np.concatenate(([0], ends[:-1])), int(ends[-1]), DTYPES[code], table)

    def _lay_out(self, plan: _Plan, rank: int, frame: Frame) -> _Held | None:
        """None unless the contributions lie side by side, and so do the places of the answer."""
        table = frame.table
        try:
            data = self._side_by_side(plan, rank, table[:, _SEGMENT], table[:, _AT])
            reply = self._side_by_side(plan, rank, table[:, _REPLY_SEGMENT], table[:, _REPLY_AT])
        except (FrameError, KeyError):
            return None
        if data is None and len(frame.payload) == plan.nbytes:
            data = np.frombuffer(frame.payload, plan.dtype)
        elif data is not None and len(frame.payload) == 0 and data.ctypes.data % plan.dtype.itemsize == 0:
            data = data.view(plan.dtype)
        else:
            return None
        return _Held(frame, data, reply)

    def _side_by_side(self, plan: _Plan, rank: int, segments: np.ndarray, at: np.ndarray) -> np.ndarray | None:
        """That range of a rank's shared memory; None for the payload. Raises FrameError if it is neither."""
        segment, first = int(segments[0]), int(at[0])
        if (segments != segment).any() or (segment != INLINE and (segment < 0 or (at - first != plan.starts).any())):
            raise FrameError("frame: the bytes do not lie side by side")
        return None if segment == INLINE else self._views[rank].bytes(segment, first, plan.nbytes)

    def _make(self, plan: _Plan, by_rank: dict[int, _Held], total: np.ndarray) -> Made:
        """Update by the sum of what all ranks gave, and write the answers."""
        failed: dict[Name, tuple[int, str]] = {}
        self._rounds.make(plan.names)
        bounds = (*(plan.starts // total.itemsize).tolist(), len(total))
        for name, value, (start, stop) in zip(plan.names, plan.values, itertools.pairwise(bounds)):
            try:
                value.update((total[start:stop],))
            except Exception as e:
                failed[name] = self._rounds.version(name), f"the update failed: {type(e).__name__}: {e}"
        try:
            answers = [] if failed else self._answers(plan, by_rank, total)
        except Exception:
            answers = []  # key by key it may go, or it will be said what is wrong
        return Made(plan.names, {r: h.frame for r, h in by_rank.items()}, failed, answers)

    def _answers(self, plan: _Plan, by_rank: dict[int, _Held], total: np.ndarray) -> list[tuple[int, bytes, list[Any]]]:
        if self._values.updates:
            total = np.concatenate([v.flat for v in plan.values])
        table = plan.table.copy()
        table[:, _ROUND] = next(iter(by_rank.values())).frame.table[:, _ROUND]
        table[:, _AT] = [max(v.durable, 0) for v in plan.values]
        raw = total.view(np.uint8)
        answers = []
        for rank in sorted(by_rank):
            reply = by_rank[rank].reply
            if reply is not None:
                reply[:] = raw
            payload = raw.data if reply is None else b""
            table[:, _SEGMENT] = INLINE if reply is None else NOTHING
            table[:, _REPLY] = by_rank[rank].frame.table[:, _REPLY]
            answers.append((rank, encode(Op.ANSWER, table, len(payload)), [payload]))
        return answers

    def _sum(self, contributions: Sequence[np.ndarray], brief: bool) -> np.ndarray:
        """brief: nobody looks at it when the next one is made."""
        first, *rest = contributions
        if not rest:
            return first
        if not brief:
            total = np.empty_like(first)
        else:
            if len(self._scratch) < first.nbytes:
                self._scratch = np.empty(first.nbytes, np.uint8)
            total = self._scratch[:first.nbytes].view(first.dtype)
        add_up(contributions, total)
        return total
