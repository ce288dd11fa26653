"""A GPU task's configurations as compile jobs, and the verdict on their builds. Neither a GPU nor triton is needed: launches are
recorded, and other processes compile (gpu/compile.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..kernels.configs import active as active_configs
from ..kernels.configs.key import Config
from ..kernels.gpu.compile import CompiledKernel, CompileJob
from ..kernels.gpu.record import record
from .tasks import TuningTask

_OPTIONS = ("num_warps", "num_stages")
MIN_OCCUPANCY = 1 / 16  # of a multiprocessor's warps: below it nothing hides the memory's latency


def jobs_of(task: TuningTask, config: Config, target: int) -> list[CompileJob]:
    """Return the compile jobs of task with config, for a compute capability (times ten)."""
    options = {n: config[n] for n in _OPTIONS if n in config}
    return [replace(job, constexprs={n: config.get(n, v) for n, v in job.constexprs.items()}, **options)
            for job in recorded(task, config, target)]


def recorded(task: TuningTask, config: Config, target: int) -> list[CompileJob]:
    """Return the jobs of task's kernels as the operator launches them with config."""
    with active_configs.forced(task.key.template, config), record(target) as recorder:
        task.launch()
    jobs, blocks = recorder.jobs, {n for n in config if n.isupper()}
    named = [j for j in jobs if j.name.startswith(task.key.template[4:].replace(" ", "_"))]  # as those of attention, which share
    return [j for j in named or jobs if blocks <= set(j.constexprs)] or jobs


def uses_config(task: TuningTask, config: Config, target: int) -> bool:
    """Return True if the operator launches its kernels with config. If not, results are kept but cannot be used yet."""
    jobs = recorded(task, config, target)
    return any(all(j.constexprs.get(n, v) == v for n, v in config.items() if n not in _OPTIONS)
               and all(getattr(j, n) == config[n] for n in _OPTIONS if n in config) for j in jobs)


def evaluate_build(task: TuningTask, kernels: Iterable[CompiledKernel], like: Sequence[CompiledKernel] = ()
                   ) -> tuple[str, dict[str, Any]]:
    """Return (the fault of a configuration's kernels, or ""; the worst of their figures).

    like: the default's kernels. A property that they lack is not required of others.
    """
    kernels = list(kernels)
    facts: dict[str, Any] = {"registers": max(k.registers for k in kernels), "shared": max(k.shared for k in kernels),
                             "spills": sum(k.spills for k in kernels),
                             "occupancy": round(min(k.occupancy for k in kernels), 3)}
    wrong = ""
    if facts["spills"]:
        wrong = f"{facts['spills']} instructions spill registers"
    elif facts["occupancy"] < MIN_OCCUPANCY:
        wrong = f"occupancy {facts['occupancy']}"
    elif any(k.tensor_ops for k in like) and not any(k.tensor_ops for k in kernels):
        wrong = "no tensor core instruction, which the default has"
    return wrong, facts
