"""Outgoing: the frames that a server sends to workers: acknowledgements with values, rejections, and other answers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, cast

from ...errors import MXNetError
from ..protocol.rounds import Acknowledge, Rounds
from ..wire.frame import CHUNK, INLINE, MOST_RECORDS, NOTHING, FrameType, Record, encode, pack
from .incoming import Incoming
from .values import Name, StoredValues

Out = tuple[int, bytes, list[Any]]  # rank, head, payload in pieces of bytes
_log = logging.getLogger(__name__)


class Outgoing:
    """The frames that have not been taken yet.

    gone:        {rank: why} of the members that are away.
    generation:  of the members, as the coordinator counts.
    """

    def __init__(self, values: StoredValues, rounds: Rounds, incoming: Incoming):
        self.gone: dict[int, str] = {}
        self.generation = 0
        self._values, self._rounds, self._incoming = values, rounds, incoming
        self._acknowledged: dict[int, list[Record]] = {}
        self._frames: list[Out] = []

    def add(self, frames: Iterable[Out]) -> None:
        """Send frames that are encoded."""
        self._frames += frames

    def send(self, rank: int, type: FrameType, records: Sequence[Record], payload: Any, seq: int) -> None:
        self._frames.append((rank, encode(type, records, len(payload), seq=seq), [payload]))

    def acknowledge(self, a: Acknowledge) -> None:
        """Send the value of a round to where the worker wants it. Acknowledgements that are taken together share frames."""
        (key, index), (segment, at) = cast(Name, a.key), a.reply or (NOTHING, 0)
        record = Record(key, index, 0, 0, a.round, reply_segment=segment, reply_at=at)
        self._acknowledged.setdefault(a.rank, []).append(record)

    def reject(self, rank: int, records: Iterable[Record], text: str, dead: tuple[int, ...] = (), seq: int = 0,
               applied: bool = False) -> None:
        """Answer with REJECTED. applied: the contribution was applied all the same, and only its value cannot be sent."""
        gone = {str(r): self.gone[r] for r in dead}
        body = pack({"text": text, "gone": gone, "generation": self.generation, "made": applied})
        self.send(rank, FrameType.REJECTED, [r._replace(segment=NOTHING, at=0) for r in records], body, seq)

    def take(self) -> list[Out]:
        for rank, records in self._acknowledged.items():
            self.send_values(rank, records, 0)
        self._acknowledged.clear()
        frames, self._frames = self._frames, []
        return frames

    def send_values(self, rank: int, records: Iterable[Record], seq: int) -> None:
        """Answer records with values. Small values share frames of up to CHUNK."""
        batch: list[Record] = []
        pieces: list[Any] = []
        nbytes = 0

        def send_batch() -> None:
            nonlocal batch, pieces, nbytes
            if batch:
                self._frames.append((rank, encode(FrameType.ANSWER, batch, nbytes, seq=seq), pieces))
            batch, pieces, nbytes = [], [], 0

        for r in records:
            try:
                answer, data = self._value_for(rank, r)
            except Exception as e:
                self.reject(rank, [r], f"the value cannot be sent: {describe(e)}", seq=seq, applied=not seq)
                continue
            if nbytes + len(data) > CHUNK or len(batch) >= MOST_RECORDS:
                send_batch()
            batch.append(answer)
            if answer.segment == INLINE:
                pieces.append(data)
                nbytes += len(data)
        send_batch()

    def _value_for(self, rank: int, r: Record) -> tuple[Record, Any]:
        """Return a value as a record with its bytes: in shared memory if the worker named a place."""
        value = self._values[r.name]
        if r.reply_segment >= 0:
            self._incoming.place(rank, r.reply_segment, r.reply_at, len(value.raw))[:] = value.raw
        return r._replace(dtype=value.code, n=len(value.flat), at=self.last_durable(value.name, rank),
                          round=r.round or self._rounds.last_applied(value.name, rank),
                          segment=INLINE if r.reply_segment == INLINE else NOTHING), (
            value.raw.data if r.reply_segment == INLINE else b"")

    def last_durable(self, name: Name, rank: int) -> int:
        """Return the last round of a key that is on disk. Async: the last contribution of rank."""
        value = self._values[name]
        return max(value.durable, 0) if self._rounds.sync else value.saved.get(rank, 0)


def describe(e: Exception, with_class: bool = False) -> str:
    """Return the text of an error for a worker. Errors that no code raises on purpose are also logged."""
    if not isinstance(e, MXNetError):
        _log.error("kvstore: unexpected error in a server", exc_info=e)
    return str(e) if isinstance(e, MXNetError) and not with_class else f"{type(e).__name__}: {e}"
