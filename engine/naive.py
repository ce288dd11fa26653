"""NaiveEngine: runs every function at once, in push order, in the pushing thread. For debugging, and as the oracle."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from typing import Any

from ..context import Context
from ..errors import EngineError
from . import cuda
from .base import Engine
from .blas import limit_blas
from .complete import Completion
from .deps import Task, Var, add, done
from .failure import Failure
from .interrupt import install, opens, shielded
from .run import RunContext


class NaiveEngine(Engine):
    """Serial. A function pushed by a running function, or by another thread meanwhile, runs right after it.

    Errors are kept for the wait, as in ThreadedEngine, so that a program behaves the same on both.
    """

    def __init__(self) -> None:
        super().__init__()
        limit_blas()
        install()
        self._queue: deque[Task] = deque()
        self._turn = threading.RLock()
        self._lane_of: dict[tuple[str, int], _Lane] = {}
        self._spoiled: weakref.WeakSet[Var] = weakref.WeakSet()
        self._depth = 0

    def wait_for_var(self, var: Var) -> None:
        self._settle()
        failure = var.failure
        if failure is not None:
            self._raise_marked(var, failure)

    def wait_for_all(self) -> None:
        self._settle()
        marked = []
        for v in list(self._spoiled):
            if v.failure is not None:
                marked.append(v.failure)
                v.failure = None
        self._spoiled.clear()
        self._raise_first(marked)

    def stop(self, timeout: float | None = None) -> None:
        """Refuse pushes until start(); raise as wait_for_all does. Nothing is ever under way here."""
        self._settle()
        self._stopped = True
        self._lanes.clear()
        self.wait_for_all()

    def _settle(self) -> None:
        """Run what is queued; block while another thread does."""
        if self._bulks:
            self.flush()
        while True:
            with self._turn:
                self._run_queue()
            if not self._queue:
                return

    def _lane_of_kind(self, ctx: Context, kind: str, name: str) -> _Lane:
        if self._stopped:
            raise self._refuse(name)
        key = (ctx.device_type, ctx.device_id)
        lane = self._lane_of.get(key)
        if lane is None:
            lane = self._lane_of[key] = _Lane(self, ctx)
        return lane

    @shielded
    def _submit(self, task: Task) -> None:
        self._queue.append(task)
        self._proceed(task)

    @shielded
    def _append(self, task: Task) -> None:
        self._queue.append(task)

    @shielded
    def _proceed(self, task: Task) -> None:
        while self._queue and self._turn.acquire(False):
            try:
                if self._depth:  # pushed by a function that is running: after it
                    return
                self._run_queue()
            finally:
                self._turn.release()

    @shielded
    def _run_queue(self) -> None:
        self._depth += 1
        try:
            while self._queue:
                self._execute(self._queue.popleft())
        finally:
            self._depth -= 1

    @shielded
    def _execute(self, task: Task) -> None:
        if self._depth > 1:  # a running function waits: it cannot wait for what it holds itself
            self._refuse_own(task)
        ready = add(task)
        assert ready, f"{task.name}: not ready in a serial engine"
        if task.failure is None:
            profiler = self._profiler
            start = time.perf_counter_ns() if profiler is not None else 0
            stream = task.lane.run.stream
            try:
                if stream is None:
                    self._call(task)
                else:
                    with cuda.run_on(stream):
                        self._call(task)
            except BaseException as e:
                if task.failure is None:
                    self._fail(task, e)
                if isinstance(e, KeyboardInterrupt):
                    raise
            finally:
                if profiler is not None:
                    profiler.ended(task, start)
                self._finish(task)
        else:
            self._finish(task)

    @opens
    def _call(self, task: Task) -> None:
        assert task.fn is not None
        if not task.wants_complete:
            task.fn(task.lane.run)
            return
        ended = threading.Lock()
        ended.acquire()

        def complete(task: Task, error: BaseException | None) -> None:
            if error is not None:
                self._fail(task, error)
            ended.release()

        on_complete = Completion(task, complete)
        try:
            task.fn(task.lane.run, on_complete)
        except BaseException as e:
            if not on_complete.close():
                raise
            self._fail(task, e)
            return
        del on_complete  # so that a function that lost it is noticed
        ended.acquire()

    @shielded
    def _finish(self, task: Task) -> None:
        task.fn = None
        done(task)
        if task.failure is not None:
            self._spoiled.update(task.mutable_vars)

    def _refuse_own(self, task: Task) -> None:
        for v in (*task.const_vars, *task.mutable_vars):
            if v.held == -1 or (v.held and v in task.mutable_vars):
                raise EngineError(f"{task.name or 'wait'}: a running function waits for a var that it holds itself.")

    def _clear(self, var: Var, failure: Failure) -> None:
        if var.failure is failure:
            var.failure = None


class _Lane:
    """A context of the serial engine: its RunContext has no helpers, so `parallel` is a loop."""

    __slots__ = ("ctx", "engine", "run")

    def __init__(self, engine: NaiveEngine, ctx: Context):
        self.engine, self.ctx = engine, ctx
        stream: Any = cuda.stream(ctx.device_id) if ctx.is_gpu else None
        self.run = RunContext(ctx, stream)
