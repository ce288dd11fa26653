"""NaiveEngine: runs every function at once, in push order, in the pushing thread. For debugging, and as the tests' oracle."""

from __future__ import annotations

import threading
import time
from typing import Any

from ..context import Context
from ..errors import EngineError
from .base import Engine
from .bulk import Gate
from .completion import CompletionCallback
from .deps import Task, Var, add, done
from .failure import Failure
from .gpu import cuda
from .interrupts import ki_protected, ki_unprotected
from .run_context import RunContext


class NaiveEngine(Engine):
    """Serial. A function pushed by a running function, or by another thread meanwhile, runs right after it.

    Errors are kept for the wait, as in ThreadedEngine, so that a program behaves the same on both.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()  # held to run functions
        self._depth = 0  # how many functions are running, one inside the other
        self._runner = 0  # the thread that runs them

    def wait_for_var(self, var: Var, *, on_device: bool = True) -> None:
        if (engine := self._run_queued()) is not self:
            return engine.wait_for_var(var, on_device=on_device)
        if var.held < 0 and self.is_running_here():
            raise EngineError("wait_for_var: a running function waits for a var that it mutates itself.")
        if var.failure is not None:
            self._raise(var, var.failure)

    def wait_for_all(self) -> None:
        if (engine := self._run_queued("wait_for_all")) is not self:
            return engine.wait_for_all()
        self._raise_first(self._take_poison())

    def drain(self, timeout: float | None) -> None:
        self._run_queued("stop")

    def _run_queued(self, name: str = "wait_for_var") -> Engine:
        """Run what is queued; block while another thread does. Return the engine that has what was queued here meanwhile."""
        if self._depth or self._arrived or self._bulks:
            engine = self._before_wait(name)
            if engine is not self:
                return engine
        while True:
            with self._lock:
                self._run_all()
            if not self._arrived:
                return self

    def _is_outside(self, gate: Gate) -> bool:
        return super()._is_outside(gate) and not self.is_running_here()

    def is_running_here(self) -> bool:
        return bool(self._depth) and self._runner == threading.get_ident()

    def drain_and_close(self, timeout: float, refuses: str = "") -> None:
        self.close_gate(refuses)
        self.flush()
        if not self._lock.acquire(timeout=timeout):
            raise EngineError(f"stop: a function did not end within {timeout:g} s.")
        try:
            self._run_all()
        finally:
            self._lock.release()

    def reset_in_child(self) -> None:
        own = self.is_running_here()
        super().reset_in_child()
        if self._forking == threading.get_ident():
            self._forking = 0
            self._lock.release()
        else:
            self._lock = threading.RLock()
        if not own:
            self._lose([*self._arrived])
            self._arrived.clear()
            self._depth = self._runner = 0

    def _new_pool(self, ctx: Context, kind: str) -> _SerialPool:
        return self._worker_pools.setdefault((ctx.device_type, ctx.device_id, kind), _SerialPool(self, ctx, kind))

    @ki_protected
    def pump(self) -> None:
        while self._arrived and self._lock.acquire(False):
            try:
                if self._depth:  # a running function pushed it: it runs afterwards
                    return
                self._run_all()
            finally:
                self._lock.release()

    @ki_protected
    def _run_all(self) -> None:
        if not self._depth:
            self._runner = threading.get_ident()
        self._depth += 1
        try:
            while self._arrived:
                task = self._arrived.popleft()
                if self._depth > 1:  # a running function waits, which must not be for what it holds itself
                    self._refuse_own(task)
                self._execute(task)
        finally:
            self._depth -= 1

    @ki_protected
    def _execute(self, task: Task) -> None:
        ready = add(task)
        assert ready, f"{task.name}: not ready in a serial engine"
        if task.failure is not None:
            self._finish(task)
            return
        profiler = self._profiler
        start = time.perf_counter_ns() if profiler is not None else 0
        stream = task.pool.run.stream
        try:
            if stream is None:
                self._call(task)
            else:
                with cuda.run_on(stream):
                    self._call(task)
                cuda.synchronize(stream)  # serial on the device too, so that later functions need no event
        except BaseException as e:
            if task.failure is None:
                self._fail(task, e)
            if isinstance(e, KeyboardInterrupt):
                raise
        finally:
            if profiler is not None:
                profiler.ended(task, start)
            self._finish(task)

    @ki_unprotected
    def _call(self, task: Task) -> None:
        assert task.fn is not None
        if not task.wants_complete:
            task.fn(task.pool.run)
            return
        ended = threading.Lock()
        ended.acquire()

        def complete(task: Task, error: BaseException | None) -> None:
            if error is not None:
                self._fail(task, error)
            ended.release()

        on_complete = CompletionCallback(task, complete)
        try:
            task.fn(task.pool.run, on_complete)
        except BaseException as e:
            if not on_complete.close():
                raise
            self._fail(task, e)
            return
        del on_complete  # so that a function that dropped it fails
        ended.acquire()

    @ki_protected
    def _finish(self, task: Task) -> None:
        task.fn = None
        done(task)
        if task.failure is not None:
            self._poisoned.update(task.mutable_vars)

    def _refuse_own(self, task: Task) -> None:
        for v in (*task.const_vars, *task.mutable_vars):
            if v.held == -1 or (v.held and v in task.mutable_vars):
                self._arrived.appendleft(task)  # it runs when that function has ended
                raise EngineError(f"{task.name or 'wait'}: a running function waits for a var that it holds itself.")

    def _clear(self, var: Var, failure: Failure) -> None:
        if var.failure is failure:
            var.failure = None


class _SerialPool:
    """A context of the serial engine. Its RunContext has no threads, so `parallel` calls in turn."""

    __slots__ = ("ctx", "engine", "kind", "run")

    def __init__(self, engine: NaiveEngine, ctx: Context, kind: str):
        self.engine, self.ctx, self.kind = engine, ctx, kind
        stream: Any = cuda.stream(ctx.device_id) if ctx.is_gpu else None
        self.run = RunContext(ctx, stream)
