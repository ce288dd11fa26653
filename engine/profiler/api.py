"""The profiler's functions, with MXNet's names: record the functions that run, their times, threads and dependencies.

    mx.profiler.set_config(profile_all=True, aggregate_stats=True, filename="profile.json")
    mx.profiler.set_state("run")
    ...
    mx.nd.waitall()
    mx.profiler.dump()                    # open the file in https://ui.perfetto.dev
    print(mx.profiler.explain("dot"))     # the reason why it did not start earlier

At most 250,000 operations, waits and memory changes each are kept (`set_config(limit=...)`). Further ones are counted in the
file, the table and `dropped()`.
"""

from __future__ import annotations

import atexit
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
from . import chrome_trace, objects
from .layers import LayerTimes, layer_times
from .operations import WaitingTime, operations_of
from .operations import explain as _explain
from .picture import Timeline, draw
from .recorder import LIMIT, Recorder
from .recorder import scope as _scope_of
from .summary import as_json, as_table

_DEFAULTS: dict[str, Any] = {
    "filename": "profile.json", "profile_all": False, "profile_symbolic": False, "profile_imperative": False,
    "profile_memory": False, "profile_api": False, "profile_process": "worker", "aggregate_stats": False,
    "continuous_dump": False, "contiguous_dump": False, "dump_period": 1.0, "gpu_memory_profile_filename_prefix": "",
    "limit": LIMIT,
}
_STATES = {"run": True, "stop": False, 1: True, 0: False}


class _Profiler:
    """The profiler of the process: its settings, its recorder, and the engine it observes."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.config = dict(_DEFAULTS)
        self.running = self.paused = self.finished = False
        self.recorder = Recorder()
        self.began = time.perf_counter_ns()
        self.engine: Engine | None = None
        self.dumper: threading.Thread | None = None
        self.stop_dumping = threading.Event()

    def connect(self) -> None:
        """Connect the recorder to the engine, or disconnect it, depending on state and pause."""
        on = self.running and not self.paused
        engine = self.engine or current_engine.current()
        engine.set_profiler(self.recorder if on else None)
        objects.active_recorder = self.recorder if on else None
        storage.observers[:] = [self.recorder.memory_is] if on and self.wants("memory") else []

    def wants(self, part: str) -> bool:
        return bool(self.config["profile_all"] or self.config[f"profile_{part}"])

    def write(self) -> None:
        """Write the recording to the configured file."""
        operations = operations_of(self.recorder)
        document = chrome_trace.document(self.recorder, operations, self.began, self.wants("api"))
        write_atomic(self.config["filename"], json.dumps(document))

    def clear(self) -> None:
        self.recorder, self.finished = Recorder(self.config["limit"]), False
        self.began = time.perf_counter_ns()


_profiler = _Profiler()


def set_config(**settings: Any) -> None:
    """Set options, named as in MXNet. Functions of the engine are always recorded while the profiler runs.

    filename:         where `dump` writes.
    profile_api:      record pushes and waits too. profile_memory: record the bytes that each context holds.
    profile_all:      both. profile_symbolic, profile_imperative, profile_process: accepted without effect.
    aggregate_stats:  accepted without effect: `dumps` always works.
    continuous_dump:  write the file every dump_period seconds while running.
    limit:            the most operations, waits and memory changes, each, that are kept.
    Raises:           EngineError for a setting that does not exist.
    """
    p = _profiler
    for k in settings:
        if k not in _DEFAULTS:
            raise EngineError(f"profiler.set_config: unknown option {k!r}. Known: {', '.join(_DEFAULTS)}.{nearest(k, _DEFAULTS)}")
    with p.lock:
        p.config.update(settings)
        if p.running:
            p.connect()
        elif not p.recorder.ran:
            p.clear()


def set_state(state: str | int = "stop", profile_process: str = "worker", *, engine: Engine | None = None) -> None:
    """Set the state to "run" or "stop", which writes the file. Running again adds to the recording, until `dump` has written it.

    engine: the engine to observe; None for the one that arrays use.
    """
    if state not in _STATES:
        raise EngineError(f'profiler.set_state: state is {state!r}. Give "run" or "stop".')
    p = _profiler
    with p.lock:
        if p.running and p.engine is not engine and engine is not None:
            (p.engine or current_engine.current()).set_profiler(None)
        if engine is not None:
            p.engine = engine
        if p.running and not _STATES[state]:
            p.write()
        p.running, p.paused = _STATES[state], False
        if p.running and (p.finished or not p.recorder.ran):
            p.clear()
        p.connect()
        if not p.running:
            p.engine = None
        p.stop_dumping.set()
        if p.running and (p.config["continuous_dump"] or p.config["contiguous_dump"]):
            p.stop_dumping = threading.Event()
            p.dumper = threading.Thread(target=_keep_dumping, args=(float(p.config["dump_period"]), p.stop_dumping),
                                        name="tritium-profiler", daemon=True)
            p.dumper.start()


def state() -> str:
    """Return "run" or "stop"."""
    return "run" if _profiler.running else "stop"


def pause(profile_process: str = "worker") -> None:
    """Stop recording until resume()."""
    with _profiler.lock:
        _profiler.paused = True
        _profiler.connect()


def resume(profile_process: str = "worker") -> None:
    """Record again, if the profiler runs."""
    with _profiler.lock:
        _profiler.paused = False
        _profiler.connect()


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write the recording to the configured file, as Chrome trace JSON, atomically.

    finished: stop. The next run begins a new recording; until then `dumps` and the others show this one.
    Raises FileError if the file cannot be written, and keeps the recording then.
    """
    p = _profiler
    with p.lock:
        p.write()
        if finished:
            if p.running:
                set_state("stop")
            p.finished = True


def dumps(reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False) -> str:
    """Return count, total, minimum, maximum and mean time in milliseconds per operation name, and memory per context.

    format:   "table" or "json".
    sort_by:  "total", "avg", "min", "max" or "count".
    reset:    clear the recording.
    """
    p = _profiler
    with p.lock:
        operations = operations_of(p.recorder)
        if format not in ("table", "json"):
            raise EngineError(f'profiler.dumps: format is {format!r}. Give "table" or "json".')
        text = (as_table if format == "table" else as_json)(operations, p.recorder, sort_by, ascending)
        if reset:
            p.clear()
            p.connect()
        return text


def layers(reset: bool = False) -> LayerTimes:
    """Return the time of each layer, forward and backward, that of the most time first. `print` it, or show it in a notebook.

    The layers of a bound graph, and of a hybridized block, are its nodes. In imperative code they are the blocks that called the
    operators, and elsewhere the operators. A kernel that computes several layers is counted for the first one, which names the
    others. On a GPU the kernels of a graph are launched one by one while a profile is made, and timed by events on their stream;
    operators called by themselves have the time in which they were enqueued.

    reset: clear the recording.
    """
    p = _profiler
    with p.lock:
        found = layer_times(operations_of(p.recorder), list(p.recorder.parts))
        if reset:
            p.clear()
            p.connect()
        return found


def timeline(milliseconds: float | None = None) -> Timeline:
    """Return a picture of the recording: a row for each thread, a box for each kernel, coloured by layer.

    milliseconds: draw only so many at the end; None for all. A notebook shows it; `.save("step.svg")` writes a file.
    """
    with _profiler.lock:
        operations, parts = operations_of(_profiler.recorder), list(_profiler.recorder.parts)
        threads = chrome_trace.Threads(operations)
        idents = {o.thread for o in operations} | {p[1] for p in parts}
        return draw(operations, parts, milliseconds, {ident: threads.name(ident) for ident in idents})


def explain(what: str | int) -> WaitingTime:
    """Return the operations that an operation waited for, and how long. `print` it.

    what: an index in push order (negative: from the end), or a name, for the one of that name that waited longest.
    Raises EngineError if it was not recorded.
    """
    with _profiler.lock:
        return _explain(operations_of(_profiler.recorder), what)


def dropped() -> int:
    """Return the number of entries of the recording that exceeded the limit."""
    return _profiler.recorder.dropped


@contextlib.contextmanager
def scope(name: str = "<unk>:", append_mode: bool = True) -> Iterator[None]:
    """`with scope(name):` put name in front of the names of functions that this thread pushes; nested scopes add up."""
    prefix = name if name.endswith(":") else f"{name}:"
    _profiler.recorder.scoped = Recorder.scoping = True
    token = _scope_of.set(_scope_of.get() + prefix if append_mode else prefix)
    try:
        yield
    finally:
        _scope_of.reset(token)


@atexit.register
def _write_at_exit() -> None:
    """Write the file of a recording that still runs when the process ends."""
    if _profiler.running:
        set_state("stop")


# MXNet's names before version 1.2
profiler_set_state, dump_profile = set_state, dump


def set_kvstore_handle(handle: Any) -> None:
    """Accepted without effect, as `profile_process` is: a server is profiled in its own process."""


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """Call set_config(filename=filename); with the mode "all" also profile_all=True."""
    set_config(filename=filename, profile_all=mode == "all")


def _keep_dumping(period: float, stop: threading.Event) -> None:
    """Write the file every period seconds until stop is set."""
    while not stop.wait(period):
        dump(finished=False)
