"""A recording as Chrome's trace-event JSON, which Perfetto opens. Source: the Trace Event Format, Google, 2016."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from ..failure import format_call_site
from .operations import Operation
from .recorder import GPU_THREAD, Recorder

#: Categories that a viewer can hide: functions, the kernels in them, pushes and waits, arrows, memory. User-made objects have
#: their domain's.
OPERATION, KERNEL, API, ARROW, MEMORY = "operation", "kernel", "api", "dependency", "memory"
_ARROWS = 4  # per operation, from those that held it longest


def document(recorder: Recorder, operations: Sequence[Operation], began: int, api: bool) -> dict[str, Any]:
    """Return the file as a dict. began: the perf_counter_ns that is time 0. api: include pushes and waits."""
    events: list[dict[str, Any]] = []
    threads = Threads(operations)
    for o in operations:
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
            # an arrow starts inside a slice: at the end of the holder's, or earlier where its on_complete freed this one
            freed = min(max(h.end - 1, h.start), o.start)
            events.append({**arrow, "ph": "s", "tid": threads.of(h.thread), "ts": (freed - began) / 1000})
            events.append({**arrow, "ph": "f", "bp": "e", "tid": threads.of(o.thread), "ts": (o.start - began) / 1000})
    for name, thread, start, end, pieces, _ in list(recorder.parts):
        events.append(_slice(name, KERNEL, threads.of(thread), start - began, end - start, {"pieces": pieces}))
    if api:
        for thread, start, end, var in list(recorder.waits):
            events.append(_slice("wait_for_all" if var is None else "wait_for_var", API, threads.of(thread),
                                 start - began, end - start, {}))
    for at, ctx, in_use, pooled in list(recorder.memory):
        events.append({"name": f"memory {ctx}", "cat": MEMORY, "ph": "C", "pid": os.getpid(), "tid": 0,
                       "ts": (at - began) / 1000, "args": {"in use": in_use, "pooled": pooled}})
    for phase, category, name, thread, at, details in list(recorder.marks):
        event = {"name": name, "cat": category, "ph": phase, "pid": os.getpid(), "tid": threads.of(thread),
                 "ts": (at - began) / 1000}
        if phase == "i":
            event["s"] = details["scope"]
        elif phase in "be":
            event["id"] = details["id"]
        elif phase == "C":
            event["args"] = details
        events.append(event)
    events.sort(key=lambda e: e["ts"])
    return {"traceEvents": threads.names() + events, "displayTimeUnit": "ms",
            "otherData": {"dropped": recorder.dropped, "operations": len(operations)}}


def _slice(name: str, category: str, thread: int, at: int, duration: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "cat": category, "ph": "X", "pid": os.getpid(), "tid": thread, "ts": at / 1000,
            "dur": max(duration, 0) / 1000, "args": arguments}


class Threads:
    """Small numbers for thread identifiers, with names. A thread that has ended is named by the context it worked for."""

    def __init__(self, operations: Sequence[Operation]):
        self._numbers: dict[int, int] = {}
        alive = {t.ident: t.name for t in threading.enumerate()}
        self._known = {o.thread: f"tritium-{o.ctx}" for o in operations} | alive

    def of(self, ident: int) -> int:
        return self._numbers.setdefault(ident, len(self._numbers) + 1)

    def name(self, ident: int) -> str:
        if ident <= GPU_THREAD:
            return f"gpu({GPU_THREAD - ident})"
        return self._known.get(ident) or (f"tritium-c-helper {-ident}" if ident < 0 else f"thread {ident}")

    def names(self) -> list[dict[str, Any]]:
        """Return the metadata events."""
        common = {"ph": "M", "pid": os.getpid(), "ts": 0}
        return [{**common, "name": "process_name", "tid": 0, "args": {"name": "tritium"}}] + [
            {**common, "name": "thread_name", "tid": n, "args": {"name": self.name(ident)}}
            for ident, n in self._numbers.items()]
