"""Order on a GPU. A function there only enqueues, so later work is ordered by events, not by the function's return.

A variable keeps the events of the last function that wrote it on a stream and of those that read it since.
Before a function enqueues, its stream waits for the events of other streams that it must not overtake. On one stream the
order of enqueueing is enough. A function on the CPU waits for the events itself, on its worker, without the GIL.
The same code runs on the interpreted GPU, whose streams only record (`cuda.log`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...fork import lock_free_in_child
from ..deps import Var
from . import cuda


class PendingEvents:
    """GPU work on a variable: (stream, moment) of its last writer, and those of the readers since, one for each stream.

    A moment is an event, or a `cuda.Tail`, which becomes one when somebody waits for it.
    """

    __slots__ = ("readers", "writer")

    def __init__(self, writer: tuple[Any, Any] | None = None) -> None:
        self.writer = writer
        self.readers: dict[int, tuple[Any, Any]] = {}  # by the stream's id: its own hash is slow


_lock = lock_free_in_child()


def before(reads: Sequence[Var], writes: Sequence[Var], stream: Any) -> None:
    """Have stream wait for all that a function, about to enqueue on it, must not overtake; for None, block the calling thread."""
    for event in dict.fromkeys(_of_others(reads, writes, stream)):
        if stream is None:
            cuda.wait(event)
        else:
            cuda.stream_waits(stream, event)
    if stream is None:
        for v in writes:  # written on the host from now on
            v.pending_events = None


def would_block(reads: Sequence[Var], writes: Sequence[Var]) -> bool:
    """Return True if `before` would have a thread wait for a GPU that is not done yet."""
    return not all(map(cuda.is_done, _of_others(reads, writes, None)))


def after(reads: Sequence[Var], writes: Sequence[Var], stream: Any, name: str) -> None:
    """Record an event behind what the function called name has enqueued on stream, for those that follow it."""
    if not reads and not writes:
        return
    event = cuda.record(stream, name)
    _note(reads, writes, (stream, event))


def after_small(reads: Sequence[Var], writes: Sequence[Var], stream: Any, name: str) -> None:
    """As `after`, for work so small that an event of its own would take longer: it shares one with its neighbours."""
    _note(reads, writes, cuda.tail(stream, name).moment)


def _note(reads: Sequence[Var], writes: Sequence[Var], moment: tuple[Any, Any]) -> None:
    """Let what uses these variables from now on follow this moment, (stream, event or tail)."""
    key = id(moment[0])
    for v in reads:
        pending = v.pending_events
        if pending is not None and (pending.writer is moment or pending.readers.get(key) is moment):
            continue  # of one tail
        with _lock:  # readers run concurrently
            if v.pending_events is None:
                v.pending_events = PendingEvents()
            v.pending_events.readers[key] = moment
    for v in writes:
        v.pending_events = PendingEvents(moment)


def record_streams(memory: Any, pending: PendingEvents) -> None:
    """Keep memory, about to be dropped, until the streams that use it have passed what they have enqueued.

    Streams that used it before those in pending were waited for by those.
    """
    for stream, _ in {id(m[0]): m for m in _moments(pending)}.values():
        cuda.used_by(memory, stream)


def only_computed(pending: PendingEvents, device_id: int) -> bool:
    """Return True if no stream but one device's compute stream has used the variable since it was last waited for."""
    return all(stream.computes and stream.device_index == device_id for stream, _ in _moments(pending))


def _moments(pending: PendingEvents) -> list[tuple[Any, Any]]:
    """The last writer and the readers since."""
    readers = list(pending.readers.values()) if pending.readers else []
    return readers if pending.writer is None else [pending.writer, *readers]


def wait_for_writer(var: Var) -> None:
    """Block until the GPU has written var. An interrupt gets through."""
    pending = var.pending_events
    if pending is not None and pending.writer is not None:
        cuda.wait(pending.writer[1])


def _of_others(reads: Sequence[Var], writes: Sequence[Var], stream: Any) -> list[Any]:
    """The events and tails of other streams that a function on stream must not overtake."""
    found: list[Any] = []
    for v in reads:
        pending = v.pending_events
        if pending is not None and pending.writer is not None and pending.writer[0] is not stream:
            found.append(pending.writer[1])
    for v in writes:
        if v.pending_events is not None:
            found += [event for other, event in _moments(v.pending_events) if other is not stream]
    return found
