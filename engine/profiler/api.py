"""The profiler, with MXNet's names (`mx.profiler`): what ran, when and where, and what it waited for.

    mx.profiler.set_config(profile_all=True, aggregate_stats=True, filename="profile.json")
    mx.profiler.set_state("run")
    ...
    mx.nd.waitall()
    mx.profiler.dump()                    # open the file in https://ui.perfetto.dev
    print(mx.profiler.explain("dot"))     # why it did not start earlier

At most 250,000 operations, waits and memory changes each are kept (`set_config(limit=...)`); more are counted, and the
file, the table and `dropped()` say how many.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from ...atomic_file import write_atomic
from ...errors import EngineError, nearest
from .. import current_engine
from ..base import Engine
from ..memory import storage
from . import chrome_trace, timeline
from .objects import Sink
from .recorder import LIMIT, Recorder
from .recorder import scope as _scope_of
from .summary import as_json, as_table
from .timeline import Explanation

_DEFAULTS: dict[str, Any] = {
    "filename": "profile.json", "profile_all": False, "profile_symbolic": False, "profile_imperative": False,
    "profile_memory": False, "profile_api": False, "profile_process": "worker", "aggregate_stats": False,
    "continuous_dump": False, "contiguous_dump": False, "dump_period": 1.0, "gpu_memory_profile_filename_prefix": "",
    "limit": LIMIT,
}
_STATES = {"run": True, "stop": False, 1: True, 0: False}


class _Profiler:
    """The one profiler of the process: its settings, its recorder, and the engine it watches."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.config = dict(_DEFAULTS)
        self.running = self.paused = False
        self.recorder = Recorder()
        self.began = time.perf_counter_ns()
        self.engine: Engine | None = None
        self.dumper: _Dumper | None = None

    def watch(self) -> None:
        """Have the engine tell the recorder, or nobody, as state and pause say."""
        on = self.running and not self.paused
        engine = self.engine or current_engine.current()
        engine.set_profiler(self.recorder if on else None)
        Sink.recorder = self.recorder if on else None
        storage.observers[:] = [self.recorder.memory_is] if on and self.wants("memory") else []

    def wants(self, what: str) -> bool:
        return bool(self.config["profile_all"] or self.config[f"profile_{what}"])

    def clear(self) -> None:
        self.recorder = Recorder(self.config["limit"])
        self.began = time.perf_counter_ns()


_profiler = _Profiler()


def set_config(**settings: Any) -> None:
    """Settings, as MXNet has them. What the engine runs is always recorded while the profiler runs.

    filename:         where `dump` writes.
    profile_api:      pushes and waits in the trace too. profile_memory: how many bytes each context holds.
    profile_all:      both. profile_symbolic, profile_imperative, profile_process: taken, and change nothing.
    aggregate_stats:  `dumps` gives a table; without it too.
    continuous_dump:  write the file every dump_period seconds while running.
    limit:            how many operations, waits and memory changes are kept, each.
    Raises:           EngineError for a setting that does not exist, or while the profiler runs.
    """
    p = _profiler
    for k in settings:
        if k not in _DEFAULTS:
            raise EngineError(f"profiler.set_config: no setting {k!r}. Known: {', '.join(_DEFAULTS)}.{nearest(k, _DEFAULTS)}")
    with p.lock:
        if p.running:
            raise EngineError('profiler.set_config: the profiler is running. Call set_state("stop") first.')
        p.config.update(settings)
        if not p.recorder.ran:
            p.clear()


def set_state(state: str | int = "stop", profile_process: str = "worker", *, engine: Engine | None = None) -> None:
    """"run" or "stop". Running again goes on with what was recorded before, until `dump` has written it.

    engine: the one to watch, if not the one that arrays use.
    """
    if state not in _STATES:
        raise EngineError(f'profiler.set_state: state is {state!r}. Give "run" or "stop".')
    p = _profiler
    with p.lock:
        if p.running and p.engine is not engine and engine is not None:
            (p.engine or current_engine.current()).set_profiler(None)
        if engine is not None:
            p.engine = engine
        p.running, p.paused = _STATES[state], False
        if p.running and not p.recorder.ran:
            p.clear()
        p.watch()
        if not p.running:
            p.engine = None
        if p.dumper is not None:
            p.dumper.stop()
            p.dumper = None
        if p.running and (p.config["continuous_dump"] or p.config["contiguous_dump"]):
            p.dumper = _Dumper(float(p.config["dump_period"]))


def state() -> str:
    """"run" or "stop"."""
    return "run" if _profiler.running else "stop"


def pause(profile_process: str = "worker") -> None:
    """Record nothing until resume()."""
    with _profiler.lock:
        _profiler.paused = True
        _profiler.watch()


def resume(profile_process: str = "worker") -> None:
    """Go on recording, if the profiler runs."""
    with _profiler.lock:
        _profiler.paused = False
        _profiler.watch()


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write what was recorded to the configured file, as Chrome trace JSON. It is there whole or not at all.

    finished: stop, and forget what was written.
    Raises FileError where it cannot be written; then nothing is forgotten.
    """
    p = _profiler
    with p.lock:
        made = timeline.operations(p.recorder)
        document = chrome_trace.document(p.recorder, made, p.began, p.wants("api"))
        write_atomic(p.config["filename"], json.dumps(document))
        if finished:
            if p.running:
                set_state("stop")
            p.clear()


def dumps(reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False) -> str:
    """Times per operation name, milliseconds: count, total, minimum, maximum, mean; and peak memory per context.

    format:   "table" or "json".
    sort_by:  "total", "avg", "min", "max" or "count".
    reset:    forget what was recorded.
    """
    p = _profiler
    with p.lock:
        made = timeline.operations(p.recorder)
        if format not in ("table", "json"):
            raise EngineError(f'profiler.dumps: format is {format!r}. Give "table" or "json".')
        text = (as_table if format == "table" else as_json)(made, p.recorder, sort_by, ascending)
        if reset:
            p.clear()
            p.watch()
        return text


def explain(what: str | int) -> Explanation:
    """What an operation waited for, how long, and who held it. `print` it.

    what: its index in push order (negative: from the end), or a name: of several, the one that waited longest.
    Raises EngineError if it was not recorded.
    """
    with _profiler.lock:
        return timeline.explain(timeline.operations(_profiler.recorder), what)


def dropped() -> int:
    """How much found no room since the last dump."""
    return _profiler.recorder.dropped


@contextlib.contextmanager
def scope(name: str = "<unk>:", append_mode: bool = True) -> Iterator[None]:
    """Names of what this thread pushes inside begin with name; within another scope, with both."""
    prefix = name if name.endswith(":") else f"{name}:"
    _profiler.recorder.scoped = Recorder.scoping = True
    token = _scope_of.set(_scope_of.get() + prefix if append_mode else prefix)
    try:
        yield
    finally:
        _scope_of.reset(token)


#: MXNet's names from before 1.2.
profiler_set_config, profiler_set_state, dump_profile = set_config, set_state, dump


class _Dumper(threading.Thread):
    """Writes the file again and again while the profiler runs."""

    def __init__(self, period: float):
        super().__init__(name="tritium-profiler", daemon=True)
        self._period, self._over = period, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(self._period):
            dump(finished=False)

    def stop(self) -> None:
        """Ask it to end; it may be writing."""
        self._over.set()
