"""Order on a GPU: a function there only enqueues, so what follows it is ordered by events and not by its return.

A var remembers the last function that wrote it on a stream and those that read it since, each as (stream, event).
Before a function enqueues, its stream waits for the events of other streams that it must not overtake; on one stream
the order of enqueueing is order enough. A function on the CPU waits for them itself, on its worker, without the GIL.
The same code runs on the interpreted GPU, whose streams write down what they are told (`cuda.log`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from ..deps import Task, Var
from . import cuda


class PendingEvents:
    """Work under way on a var: (stream, event) of its last writer, and stream -> event of the readers since."""

    __slots__ = ("readers", "writer")

    def __init__(self) -> None:
        self.writer: tuple[Any, Any] | None = None
        self.readers: dict[Any, Any] = {}


_making = threading.RLock()


def forget() -> None:
    """In a forked child the lock may be held by a thread that is not here."""
    global _making
    _making = threading.RLock()


def before(task: Task, stream: Any) -> None:
    """stream waits for all that task, about to enqueue on it, must not overtake; None: the calling thread waits."""
    waited = set()
    for other, event in _earlier(task):
        if other is not stream and event not in waited:
            waited.add(event)
            if stream is None:
                cuda.wait(event)
            else:
                cuda.stream_waits(stream, event)
    if stream is None:
        for v in task.mutable_vars:  # written on the host from now on: nothing is under way
            v.pending_events = None


def after(task: Task, stream: Any) -> None:
    """task has enqueued on stream: whoever follows it waits for this moment of the stream."""
    if not task.const_vars and not task.mutable_vars:
        return
    event = cuda.record(stream, task.name)
    with _making:  # readers run side by side
        for v in task.const_vars:
            if v.pending_events is None:
                v.pending_events = PendingEvents()
            v.pending_events.readers[stream] = event
    for v in task.mutable_vars:
        pending = v.pending_events = PendingEvents()
        pending.writer = (stream, event)


def record_streams(memory: Any, pending: PendingEvents | None) -> None:
    """memory, of the var with these pending, is about to be dropped: it is free once the streams that use it are done.

    Who used it earlier than the pending tell was waited for by those they name.
    """
    if pending is not None:
        for stream in {*list(pending.readers), *((pending.writer[0],) if pending.writer is not None else ())}:
            cuda.used_by(memory, stream)


def settle(var: Var) -> None:
    """Block until what was enqueued to write var has been done. An interrupt gets through."""
    pending = var.pending_events
    if pending is not None and pending.writer is not None:
        cuda.wait(pending.writer[1])


def _earlier(task: Task) -> Iterator[tuple[Any, Any]]:
    for v in task.const_vars:
        if v.pending_events is not None and v.pending_events.writer is not None:
            yield v.pending_events.writer
    for v in task.mutable_vars:
        if v.pending_events is not None:
            if v.pending_events.writer is not None:
                yield v.pending_events.writer
            yield from list(v.pending_events.readers.items())
