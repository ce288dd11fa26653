"""Answers: the frames that a server sends to workers: acknowledgements with values, rejections, and others."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

from ...errors import MXNetError
from ..protocol.rounds import Acknowledge, Rounds
from ..wire.frame import CHUNK, INLINE, MOST_RECORDS, NOTHING, FrameType, Record, encode, pack
from .batches import AT, REPLY_AT, ROUND, Batch, Batches
from .values import StoredValue

Out = tuple[int, bytes, Any]  # rank, head, payload
Wanted = tuple[Batch, int, tuple[int, int]]  # values, their round, and the place where a worker wants them
_log = logging.getLogger(__name__)


class Answers:
    """The frames that have not been taken yet. generation: of the members, as the coordinator counts."""

    def __init__(self, rounds: Rounds, batches: Batches):
        self.generation = 0
        self._rounds, self._batches = rounds, batches
        self._acknowledged: dict[int, list[Wanted]] = {}
        self._frames: list[Out] = []

    def send(self, rank: int, type: FrameType, records: Sequence[Record] | np.ndarray, payload: Any, seq: int) -> None:
        self._frames.append((rank, encode(type, records, len(payload), seq=seq), payload))

    def acknowledge(self, a: Acknowledge) -> None:
        """Send the values of a round to where the worker wants them. Acknowledgements that are taken together share frames."""
        self._acknowledged.setdefault(a.rank, []).append((cast(Batch, a.key), a.round, a.reply or (NOTHING, 0)))

    def reject(self, rank: int, records: Iterable[Record], text: str, dead: tuple[int, ...] = (), seq: int = 0,
               applied: bool = False) -> None:
        """Answer with REJECTED. applied: the contribution was applied all the same, and only its value cannot be sent."""
        gone = {str(r): self._rounds.gone[r] for r in dead}
        body = pack({"text": text, "gone": gone, "generation": self.generation, "made": applied})
        self.send(rank, FrameType.REJECTED, [r._replace(segment=NOTHING, at=0) for r in records], body, seq)

    def take(self) -> list[Out]:
        for rank, wanted in self._acknowledged.items():
            self.send_values(rank, wanted, 0)
        self._acknowledged.clear()
        frames, self._frames = self._frames, []
        return frames

    def send_values(self, rank: int, wanted: Iterable[Wanted], seq: int) -> None:
        """Answer with values. Small ones share frames of up to CHUNK."""
        tables, pieces, count, nbytes = list[np.ndarray](), list[Any](), 0, 0

        def send_some() -> None:
            if tables:
                self.send(rank, FrameType.ANSWER, tables[0] if len(tables) == 1 else np.concatenate(tables),
                          pieces[0] if len(pieces) == 1 else b"".join(pieces), seq)
            tables.clear()
            pieces.clear()

        for batch, round, reply in wanted:
            try:
                table, data = self._values_for(rank, batch, round, *reply)
            except Exception as e:
                self.reject(rank, records(batch, round), f"the value cannot be sent: {describe(e)}", seq=seq, applied=not seq)
                continue
            count, nbytes = count + len(table), nbytes + len(data)
            if nbytes > CHUNK or count > MOST_RECORDS:
                send_some()
                count, nbytes = len(table), len(data)
            tables.append(table)
            pieces += [data] if len(data) else []
        send_some()

    def _values_for(self, rank: int, batch: Batch, round: int, segment: int, at: int) -> tuple[np.ndarray, Any]:
        """Return the records of values, and their bytes, unless the worker wants them in shared memory."""
        data, table = batch.raw, batch.table.copy()
        table[:, ROUND:] = round, INLINE if segment == INLINE else NOTHING, 0, segment, 0
        table[:, AT] = [(v.durable if v.durable > 0 else 0) if self._rounds.sync else v.saved.get(rank, 0) for v in batch.values]
        if segment >= 0:
            self._batches.place(rank, segment, at, batch.nbytes)[:] = data
            table[:, REPLY_AT] = at + batch.starts[:-1]
        if segment != INLINE:
            return table, b""
        # a value alone in a synchronous job does not change until its readers have it and push again
        return table, data.data if self._rounds.sync or len(batch.values) > 1 else data.tobytes()

    def last_durable(self, value: StoredValue, rank: int) -> int:
        """Return the last round of a key that is on disk. Async: the last contribution of rank."""
        return max(value.durable, 0) if self._rounds.sync else value.saved.get(rank, 0)


def records(batch: Batch, round: int) -> list[Record]:
    return [Record(*v.name, 0, 0, round) for v in batch.values]


def describe(e: Exception, with_class: bool = False) -> str:
    """Return the text of an error for a worker. Errors that no code raises on purpose are also logged."""
    if not isinstance(e, MXNetError):
        _log.error("kvstore: unexpected error in a server", exc_info=e)
    return str(e) if isinstance(e, MXNetError) and not with_class else f"{type(e).__name__}: {e}"
