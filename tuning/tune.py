"""tune(op, shapes): what `tritium tune --op` does, in this process, so that operators declared in a notebook can be tuned."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from numpy.typing import DTypeLike

from ..context import GPU_MODE, Context, missing_gpu
from ..engine import num_gpus
from ..errors import ContextError, OperatorError, ParameterError
from ..kernels import op as ops
from ..kernels.configs.gpu_device import gpu_device
from ..kernels.configs.key import Config
from ..kernels.configs.store import Store, cpu_device, pick, store_path
from ..kernels.declare.operator_property import OperatorProperty
from ..kernels.op import Op, Shape
from ..show import frame, table
from .child import TimingServer
from .collect import WorkloadItem, operator_calls, workload
from .search import Failed, OutOfTime
from .session import ProgressListener, Summary, TaskRun, TuningRun, default_and_best, plan, show, summarise, time_text


@dataclass(frozen=True)
class TunedKernel:
    """A kernel of a tuned operator: the median seconds of a run with the default blocks, and with the best that were found.

    Both are None if the time ran out before. config: the best, which is the default where nothing is clearly faster.
    """

    name: str
    default_s: float | None
    best_s: float | None
    config: Config


@dataclass(frozen=True, repr=False)
class Tuned:
    """The result of `tune`: its kernels; the calls that have nothing to tune, with the reasons; and the run's numbers.

    As text, a line for each. A notebook shows the sum of it: the lines of the kernels have been printed.
    """

    kernels: list[TunedKernel]
    without: dict[str, str]
    summary: Summary

    def __repr__(self) -> str:
        return "\n".join(self._last_lines())

    def __str__(self) -> str:
        return "\n".join([*(_line(k) for k in self.kernels), *self._last_lines()])

    def _repr_html_(self) -> str:
        rows = [(k.name, "" if k.default_s is None else time_text(k.default_s), "" if k.best_s is None else time_text(k.best_s),
                 _gain(k), show(k.config)) for k in self.kernels]
        found = [table(("kernel", "default", "best", "gain", "blocks"), rows)] if rows else []
        return frame(*found, *(f"<div>{escape(line)}</div>" for line in self._last_lines()))

    def _last_lines(self) -> list[str]:
        lines = [f"{name}: nothing to tune: {why}." for name, why in self.without.items()]
        if self.kernels:
            n, of = self.summary.improved, len(self.kernels)
            lines.append(f"{n} of {of} kernel{'' if of == 1 else 's'} ha{'s' if n == 1 else 've'} better blocks than the default"
                         f"{'. To use them: tritium.tuning.use()' if n else '.'}")
            if not self.summary.finished:
                lines.append("The time ran out. Call it again to go on, or give a larger budget.")
        return lines


def _gain(k: TunedKernel) -> str:
    return "not timed" if not k.default_s or not k.best_s else f"{max(k.default_s / k.best_s, 1):.2f} x"


def _line(k: TunedKernel) -> str:
    if k.default_s is None or k.best_s is None:
        return f"{k.name}: not timed"
    if k.best_s >= k.default_s:
        return f"{k.name}: {time_text(k.default_s)}, the default is best"
    return f"{k.name}: {time_text(k.default_s)} -> {time_text(k.best_s)} ({k.default_s / k.best_s:.2f} x) {show(k.config)}"


def tune(op: Op | type[OperatorProperty] | str, shapes: Shape | Sequence[Shape], *, dtype: DTypeLike = "float32",
         device: Context | str = "cpu", budget: float = 60.0, train: bool = True, store: Path | str | None = None,
         again: bool = False, params: Mapping[str, object] | None = None, progress: bool = True) -> Tuned:
    """Find and store the best block sizes for an operator, in this process: `tune(my_op, (512, 512))`.

    op:       what a declaration returned, or the operator's name.
    shapes:   the shape of all inputs, or a list with the shape of each.
    device:   mx.cpu() or mx.gpu(): where kernels are timed, and for what the results hold.
    budget:   seconds.
    train:    tune the derivative, too.
    store:    the file of results; default, that of `tritium tune`.
    again:    time configurations that the store has already.
    params:   the operator's parameters.
    progress: print a line for each kernel when it is done.
    Returns:  the times. They are used by kernels made after `tritium.tuning.use()`.
    Raises:   OperatorError for an unknown operator; ContextError for a GPU that cannot be timed; ShapeError, ParameterError.
    """
    found = _operator(op)
    given = _shapes(found, shapes)
    target = device.device_type if isinstance(device, Context) else str(device)
    timed_on = _device(target)
    sm = int(timed_on.cc.replace(".", "")) if timed_on.cc else 90
    name = f"{found.name} {'@'.join('x'.join(map(str, s)) for s in given)}"
    work = workload(operator_calls(name, found, params or {}, given, dtype, train), target, train, sm)
    path, until = Path(store or store_path()), time.monotonic() + budget
    with Store(path) as results:
        parts = plan(work, timed_on, results, sm, again)
        summary = summarise(parts, Summary("timed", timed_on.name, str(path)), work.kernels)
        if parts:
            run = TuningRun(parts, timed_on, results, summary, _Lines() if progress else ProgressListener())
            run.time(LocalRunner([i.task for i in work.items], target, until), until)
    return Tuned([_kernel(p) for p in parts], work.without, summary)


def _kernel(part: TaskRun) -> TunedKernel:
    times, best = default_and_best(part.known.values()), pick(part.known.values())
    return TunedKernel(part.item.name, *(times or (None, None)), part.default if best is None else best.settings)


class _Lines(ProgressListener):
    def result(self, part: TaskRun, text: str) -> None:
        print(f"{part.item.name}: {text}", flush=True)


def _operator(op: Op | type[OperatorProperty] | str) -> Op:
    if isinstance(op, Op):
        return op
    if isinstance(op, type) and issubclass(op, OperatorProperty):
        op = op.name
    if not isinstance(op, str):
        raise OperatorError(f"tune: {op!r} is not an operator. Give what its declaration returned, or its name.")
    return ops.get(op)


def _shapes(op: Op, shapes: Any) -> list[Shape]:
    try:
        every = [shapes] if shapes and all(isinstance(n, int) for n in shapes) else shapes
        given = [tuple(int(n) for n in s) for s in every]
    except (TypeError, ValueError):
        given = []
    if not given or any(n < 1 for s in given for n in s):
        raise ParameterError(f"tune: {op.name}: {shapes!r} is neither a shape nor a list of shapes, with sizes of at least 1. "
                             f"Give (512, 512), or [(512, 64), (64,)] with one shape for each input.")
    return given


def _device(target: str) -> Any:
    if target == "cpu":
        return cpu_device()
    if target != "gpu":
        raise ContextError(f"tune: device {target!r} is neither a cpu nor a gpu. Give mx.cpu() or mx.gpu().")
    if GPU_MODE == "interpret":
        raise ContextError("tune: kernels are interpreted here (TRITIUM_GPU=interpret), and their times mean nothing. "
                           "Tune for the CPU, or compile without a GPU: tritium tune --offline sm_90.")
    device = gpu_device()
    if device is None:
        raise ContextError(f"tune: {missing_gpu(0, num_gpus())}")
    return device


class LocalRunner:
    """Times and checks configurations of tasks in this process, as Runner does in a child. A crash ends the process.

    until: when time.monotonic() reaches it, every call raises OutOfTime; a call that has begun ends by itself.
    """

    def __init__(self, tasks: Sequence[Any], target: str, until: float = math.inf):
        self._server, self._until = TimingServer(tasks, target), until

    def seconds(self, number: int, item: WorkloadItem, config: Config, limit: float) -> float:
        """See Runner.seconds. limit is not kept."""
        return float(self._ask({"do": "time", "task": number, "key": str(item.task.key), "config": config})["seconds"])

    def differs(self, number: int, item: WorkloadItem, config: Config, limit: float) -> str:
        """See Runner.differs. limit is not kept."""
        return str(self._ask({"do": "check", "task": number, "key": str(item.task.key), "config": config})["differs"])

    def rooflines(self, dtypes: list[str], limit: float = 60.0) -> dict[str, float]:
        """Measure nothing: a report needs them, and this run writes none."""
        raise Failed("not measured")

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if time.monotonic() >= self._until:
            raise OutOfTime
        answer = self._server.answer(order)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer
