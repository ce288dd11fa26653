"""The parent of the timing process (child.py): orders with time limits. A child that dies or does not answer is replaced."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..errors import MXNetError
from ..kernels.configs.key import Config
from ..kernels.gpu.compile import read_lines
from .collect import TuningRequest, WorkloadItem
from .search import Failed, OutOfTime

STARTING = 120.0  # seconds that a child may take to start and collect


class Runner:
    """A child process that times and checks configurations: `with Runner(request) as runner:`.

    command: the child's command, default child.py.
    until: when time.monotonic() reaches it, every call raises OutOfTime, and the child is ended.
    """

    def __init__(self, request: TuningRequest, command: Sequence[str] = (), until: float = math.inf):
        self.request, self.until = request, until
        self.command = list(command) or [sys.executable, "-m", f"{__package__}.child"]
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self.restarts = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def seconds(self, number: int, item: WorkloadItem, config: Config, limit: float) -> float:
        """Time item, the request's `number`-th, with config once. Raises Failed, OutOfTime."""
        return float(self._ask({"do": "time", "task": number, "key": str(item.task.key), "config": config}, limit)["seconds"])

    def differs(self, number: int, item: WorkloadItem, config: Config, limit: float) -> str:
        """Return the fault of config's outputs, or "". Raises Failed, OutOfTime."""
        return str(self._ask({"do": "check", "task": number, "key": str(item.task.key), "config": config}, limit)["differs"])

    def rooflines(self, dtypes: list[str], limit: float = 60.0) -> dict[str, float]:
        """Measure the limits of this machine. Raises Failed, OutOfTime."""
        return self._ask({"do": "rooflines", "dtypes": dtypes}, limit)["rooflines"]

    def stop(self) -> None:
        """End the child and all processes it started."""
        child, self._child = self._child, None
        if child is None:
            return
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe:
                pipe.close()
        self._errors.close()

    def _ask(self, order: Mapping[str, Any], limit: float) -> dict[str, Any]:
        self._check_time()
        if self._child is None:
            self._start()
        try:
            answer = self._answer(order, limit)
        except (BrokenPipeError, StopIteration):
            raise Failed(self._died()) from None
        except TimeoutError:
            self._check_time()
            self.stop()
            raise Failed(f"no answer in {limit:.0f} s") from None
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _start(self) -> None:
        self.restarts += 1
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        environment = {n: v for n, v in os.environ.items() if n != "TRITIUM_TUNED"}
        self._child = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=self._errors, env=environment, start_new_session=True)
        assert self._child.stdout is not None
        self._lines = read_lines(self._child.stdout.fileno(), lambda: self._deadline)
        try:
            self._answer(asdict(self.request), STARTING)
        except (BrokenPipeError, StopIteration, TimeoutError):
            self._check_time()
            raise MXNetError(f"tune: the timing process does not start: {self._died()}") from None

    def _check_time(self) -> None:
        if time.monotonic() >= self.until:
            self.stop()
            raise OutOfTime

    def _answer(self, order: Mapping[str, Any], limit: float) -> dict[str, Any]:
        """Send an order to the child; return its answer. Raises BrokenPipeError or StopIteration if the child has died."""
        assert self._child is not None and self._child.stdin is not None
        self._child.stdin.write(json.dumps(order).encode() + b"\n")
        self._child.stdin.flush()
        self._deadline = min(time.monotonic() + limit, self.until)
        return json.loads(next(self._lines))

    def _died(self) -> str:
        child, errors = self._child, self._errors
        status = None
        if child is not None:
            try:
                status = child.wait(5)
            except subprocess.TimeoutExpired:
                status = "still running"
        errors.seek(0)
        output = errors.read()[-1000:].decode(errors="replace").strip()
        self.stop()
        if isinstance(status, int) and status < 0:
            status = signal.Signals(-status).name
        return f"the process ended ({status}): {output.splitlines()[-1] if output else 'without a message'}"
