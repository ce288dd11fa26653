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


class Marks:
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
            v.marks = None


def after(task: Task, stream: Any) -> None:
    """task has enqueued on stream: whoever follows it waits for this moment of the stream."""
    if not task.const_vars and not task.mutable_vars:
        return
    event = cuda.record(stream, task.name)
    with _making:  # readers run side by side
        for v in task.const_vars:
            if v.marks is None:
                v.marks = Marks()
            v.marks.readers[stream] = event
    for v in task.mutable_vars:
        marks = v.marks = Marks()
        marks.writer = (stream, event)


def let_go(memory: Any, marks: Marks | None) -> None:
    """memory, of the var with these marks, is about to be dropped: it is free once the streams that use it are done.

    Who used it earlier than the marks tell was waited for by those they name.
    """
    if marks is not None:
        for stream in {*list(marks.readers), *((marks.writer[0],) if marks.writer is not None else ())}:
            cuda.used_by(memory, stream)


def settle(var: Var) -> None:
    """Block until what was enqueued to write var has been done. An interrupt gets through."""
    marks = var.marks
    if marks is not None and marks.writer is not None:
        cuda.wait(marks.writer[1])


def _earlier(task: Task) -> Iterator[tuple[Any, Any]]:
    for v in task.const_vars:
        if v.marks is not None and v.marks.writer is not None:
            yield v.marks.writer
    for v in task.mutable_vars:
        if v.marks is not None:
            if v.marks.writer is not None:
                yield v.marks.writer
            yield from list(v.marks.readers.items())
