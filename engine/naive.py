"""NaiveEngine: runs every function at once, in push order, in the pushing thread. For debugging, and as the oracle."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from ..context import Context
from ..errors import EngineError
from .base import Engine
from .blas_threads import limit_blas
from .completion import Completion
from .deps import Task, Var, add, done
from .failure import Failure
from .gate import Gate
from .gpu import cuda
from .interrupts import install, ki_protected, ki_unprotected
from .run_context import RunContext


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
        self._lane_of: dict[tuple[str, int, str], _Lane] = {}
        self._depth = 0
        self._runner = 0  # the thread that runs functions

    def wait_for_var(self, var: Var) -> None:
        if (engine := self._settle()) is not self:
            return engine.wait_for_var(var)
        if var.held < 0 and self.is_running_here():
            raise EngineError("wait_for_var: a running function waits for a var that it mutates itself.")
        failure = var.failure
        if failure is not None:
            self._raise_marked(var, failure)

    def wait_for_all(self) -> None:
        if (engine := self._settle("wait_for_all")) is not self:
            return engine.wait_for_all()
        marked = []
        for v in list(self._spoiled):
            if v.failure is not None:
                marked.append(v.failure)
                v.failure = None
        self._spoiled.clear()
        self._raise_first(marked)

    def stop(self, timeout: float | None = None) -> None:
        """Refuse pushes until start(); raise as wait_for_all does. Nothing is ever under way here."""
        self._close_for_stop()
        try:
            self._settle("stop")
            self._stopped = True
        finally:
            self.open_gate()
        self._lanes.clear()
        self.wait_for_all()

    def _settle(self, name: str = "wait_for_var") -> Engine:
        """Run what is queued; block while another thread does. The engine that has what was queued here meanwhile."""
        if self._depth or self._queue or self._bulks:
            engine = self._before_wait(name)
            if engine is not self:
                return engine
        while True:
            with self._turn:
                self._run_queue()
            if not self._queue:
                return self

    def _is_outside(self, gate: Gate) -> bool:
        return super()._is_outside(gate) and not (self._depth and self._runner == threading.get_ident())

    def is_running_here(self) -> bool:
        return bool(self._depth) and self._runner == threading.get_ident()

    def be_quiet(self, limit: float, refuses: str = "") -> None:
        self.close_gate(refuses)
        self.flush()
        if not self._turn.acquire(timeout=limit):
            raise EngineError(f"stop: a function did not end within {limit:g} s.")
        try:
            self._run_queue()
        finally:
            self._turn.release()

    def hold_still(self, limit: float) -> None:
        self._still = threading.get_ident() if self._turn.acquire(timeout=limit) else 0

    def go_on(self) -> None:
        if self._still == threading.get_ident():
            self._still = 0
            self._turn.release()
            if self._gate is not None and self._gate.owner == threading.get_ident():
                self.open_gate()
            self._settle()

    def forget_threads(self) -> None:
        own = self.is_running_here()
        super().forget_threads()
        if self._still == threading.get_ident():
            self._still = 0
            self._turn.release()
        else:
            self._turn = threading.RLock()
        if not own:
            self._lose([*self._queue])
            self._queue.clear()
            self._depth = self._runner = 0

    def _lane_of_kind(self, ctx: Context, kind: str, name: str) -> _Lane:
        if self._stopped:
            raise self._refuse(name)
        key = (ctx.device_type, ctx.device_id, kind)
        lane = self._lane_of.get(key)
        if lane is None:
            lane = self._lane_of[key] = _Lane(self, ctx, kind)
        return lane

    @ki_protected
    def _submit(self, task: Task) -> None:
        self._queue.append(task)
        self._proceed(task)

    @ki_protected
    def _append(self, task: Task) -> None:
        self._queue.append(task)

    @ki_protected
    def _proceed(self, task: Task) -> None:
        while self._queue and self._turn.acquire(False):
            try:
                if self._depth:  # pushed by a function that is running: after it
                    return
                self._run_queue()
            finally:
                self._turn.release()

    @ki_protected
    def _run_queue(self) -> None:
        if not self._depth:
            self._runner = threading.get_ident()
        self._depth += 1
        try:
            while self._queue:
                task = self._queue.popleft()
                if self._depth > 1:  # a running function waits: it cannot wait for what it holds itself
                    self._refuse_own(task)
                self._execute(task)
        finally:
            self._depth -= 1

    @ki_protected
    def _execute(self, task: Task) -> None:
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
                    cuda.synchronize(stream)  # serial on the device too: whoever comes next asks for no event
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

    @ki_unprotected
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

    @ki_protected
    def _finish(self, task: Task) -> None:
        task.fn = None
        done(task)
        if task.failure is not None:
            self._spoiled.update(task.mutable_vars)

    def _refuse_own(self, task: Task) -> None:
        for v in (*task.const_vars, *task.mutable_vars):
            if v.held == -1 or (v.held and v in task.mutable_vars):
                self._queue.appendleft(task)  # it runs when that function has ended
                raise EngineError(f"{task.name or 'wait'}: a running function waits for a var that it holds itself.")

    def _clear(self, var: Var, failure: Failure) -> None:
        if var.failure is failure:
            var.failure = None


class _Lane:
    """A context of the serial engine: its RunContext has no helpers, so `parallel` is a loop."""

    __slots__ = ("ctx", "engine", "kind", "run")

    def __init__(self, engine: NaiveEngine, ctx: Context, kind: str):
        self.engine, self.ctx, self.kind = engine, ctx, kind
        stream: Any = cuda.stream(ctx.device_id) if ctx.is_gpu else None
        self.run = RunContext(ctx, stream)
