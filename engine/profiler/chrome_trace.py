"""A recording as Chrome's trace-event JSON, which Perfetto opens. Source: the Trace Event Format, Google, 2016."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from ..failure import format_call_site
from .recorder import Recorder
from .timeline import Operation

#: Categories a reader can switch off: what ran, what was pushed and waited for, arrows, memory, what the user marked.
OPERATION, API, ARROW, MEMORY = "operation", "api", "dependency", "memory"
_ARROWS = 4  # per operation: those that held it longest


def document(recorder: Recorder, made: Sequence[Operation], began: int, api: bool) -> dict[str, Any]:
    """The whole file as a dict. began: the perf_counter_ns that is time 0. api: pushes and waits too."""
    events: list[dict[str, Any]] = []
    threads = _Threads(made)
    for o in made:
        arguments: dict[str, Any] = {"index": o.index, "context": str(o.ctx), "waited_us": (o.start - o.pushed) / 1000}
        if o.task.origin is not None:
            arguments["pushed at"] = format_call_site(o.task.origin)
        if o.holders:
            arguments["held by"] = o.holders[0][0].name
        if o.task.failure is not None:
            arguments["failed"] = type(o.task.failure.error).__name__
        events.append(_slice(o.name, OPERATION, threads.of(o.thread), o.start - began, o.end - o.start, arguments))
        if api and o.pusher is not None:
            events.append(_slice(f"push {o.name}", API, threads.of(o.pusher), o.pushed - began, o.queued - o.pushed,
                                 {"index": o.index}))
        for h, _ in o.holders[:_ARROWS]:
            arrow = {"name": "waits for", "cat": ARROW, "id": len(events), "pid": os.getpid()}
            # an arrow starts inside a slice: at the end of the holder's, or where its on_complete set this one free before that
            freed = min(max(h.end - 1, h.start), o.start)
            events.append({**arrow, "ph": "s", "tid": threads.of(h.thread), "ts": (freed - began) / 1000})
            events.append({**arrow, "ph": "f", "bp": "e", "tid": threads.of(o.thread), "ts": (o.start - began) / 1000})
    if api:
        for thread, start, end, var in list(recorder.waits):
            events.append(_slice("wait_for_all" if var is None else "wait_for_var", API, threads.of(thread),
                                 start - began, end - start, {}))
    for at, ctx, in_use, pooled in list(recorder.memory):
        events.append({"name": f"memory {ctx}", "cat": MEMORY, "ph": "C", "pid": os.getpid(), "tid": 0,
                       "ts": (at - began) / 1000, "args": {"in use": in_use, "pooled": pooled}})
    for phase, category, name, thread, at, given in list(recorder.marks):
        event = {"name": name, "cat": category, "ph": phase, "pid": os.getpid(), "tid": threads.of(thread),
                 "ts": (at - began) / 1000}
        if phase == "i":
            event["s"] = (given or {}).get("scope", "p")
        elif phase in "be":
            event["id"] = (given or {}).get("id", 0)
        elif phase == "C":
            event["args"] = given
        events.append(event)
    events.sort(key=lambda e: e["ts"])
    return {"traceEvents": threads.names() + events, "displayTimeUnit": "ms",
            "otherData": {"dropped": recorder.dropped, "operations": len(made)}}


def _slice(name: str, category: str, thread: int, at: int, long: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "cat": category, "ph": "X", "pid": os.getpid(), "tid": thread, "ts": at / 1000,
            "dur": max(long, 0) / 1000, "args": arguments}


class _Threads:
    """Thread identifiers as small numbers, with names; a thread that has ended goes by what it did."""

    def __init__(self, made: Sequence[Operation]):
        self._numbers: dict[int, int] = {}
        alive = {t.ident: t.name for t in threading.enumerate()}
        self._known = {o.thread: f"tritium-{o.ctx}" for o in made} | alive

    def of(self, ident: int) -> int:
        return self._numbers.setdefault(ident, len(self._numbers) + 1)

    def names(self) -> list[dict[str, Any]]:
        """The metadata events."""
        common = {"ph": "M", "pid": os.getpid(), "ts": 0}
        return [{**common, "name": "process_name", "tid": 0, "args": {"name": "tritium"}}] + [
            {**common, "name": "thread_name", "tid": n, "args": {"name": self._known.get(ident) or f"thread {ident}"}}
            for ident, n in self._numbers.items()]
