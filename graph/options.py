"""Options of graph compilation, for tests and to find a fault: fusion, memory plan, recomputation, bulk size."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from .. import environment
from ..kernels.configs import float32_matmul


@dataclass(frozen=True, slots=True)
class Options:
    """The options of compilation.

    fuse:        merge elementwise operators (TRITIUM_FUSION=0 turns it off).
    plan:        let arrays share memory (TRITIUM_MEMORY_PLAN=0).
    recompute:   compute cheap values again in backward instead of keeping them (TRITIUM_RECOMPUTE=0).
    mirror:      compute all values again that are not costly (MXNET_BACKWARD_DO_MIRROR=1).
    bulk_train:  steps per engine operation in training (MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN, 15).
    bulk_infer:  the same for inference; 0 is the whole pass.
    capture:     on a GPU, record the launches of a pass once and replay them (TRITIUM_CAPTURE=0).
    layout:      put channels last around convolutions (TRITIUM_LAYOUT=0).
    float32:     how GPUs multiply float32 matrices (mx.config.float32_matmul), as `float32_matmul.other` says it.
    checks:      called with (Program, MemoryPlan) for every plan that an executor makes.
    """

    fuse: bool = True
    plan: bool = True
    recompute: bool = True
    mirror: bool = False
    bulk_train: int = 15
    bulk_infer: int = 0
    capture: bool = True
    layout: bool = True
    float32: str = ""
    checks: tuple[Callable[[Any, Any], None], ...] = ()


_changes: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("tritium_graph_options", default=None)


def current() -> Options:
    """Return the options of the environment, changed by `with options(...)`."""
    from_environment = Options(
        environment.FUSION.get(), environment.MEMORY_PLAN.get(), environment.RECOMPUTE.get(),
        environment.BACKWARD_DO_MIRROR.get(), environment.BULK_TRAIN.get(), capture=environment.CAPTURE.get(),
        layout=environment.LAYOUT.get(), float32=float32_matmul.other())
    return replace(from_environment, **_changes.get() or {})


@contextlib.contextmanager
def options(**changes: Any) -> Iterator[Options]:
    """`with options(fuse=False): ...` changes the options of graphs bound inside."""
    token = _changes.set({**(_changes.get() or {}), **changes})
    try:
        yield current()
    finally:
        _changes.reset(token)
