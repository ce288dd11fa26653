"""Switches of the executor, for tests and for finding a fault: fusion, memory plan, recomputation, bulk size."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..errors import ParameterError


@dataclass(frozen=True, slots=True)
class Options:
    """How a graph is compiled.

    fuse:        merge elementwise operators (TRITIUM_FUSION=0 turns it off).
    plan:        let arrays share memory (TRITIUM_MEMORY_PLAN=0).
    recompute:   compute nearly free values again in backward instead of keeping them (TRITIUM_RECOMPUTE=0).
    mirror:      compute everything cheap again (MXNET_BACKWARD_DO_MIRROR=1).
    layout:      on a GPU, put channels last around convolutions (TRITIUM_LAYOUT=0).
    bulk_train:  steps per engine operation in training (MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN, 15).
    bulk_infer:  the same for inference; 0 is the whole pass.
    capture:     on a GPU, record a pass's launches once and replay them (TRITIUM_CAPTURE=0).
    """

    fuse: bool = True
    plan: bool = True
    recompute: bool = True
    mirror: bool = False
    bulk_train: int = 15
    bulk_infer: int = 0
    capture: bool = True
    layout: bool = True


_current: contextvars.ContextVar[Options | None] = contextvars.ContextVar("tritium_graph_options", default=None)


def current() -> Options:
    """The options of the innermost `with options(...)`, else those of the environment."""
    found = _current.get()
    if found is not None:
        return found
    return Options(_flag("TRITIUM_FUSION"), _flag("TRITIUM_MEMORY_PLAN"), _flag("TRITIUM_RECOMPUTE"),
                   _flag("MXNET_BACKWARD_DO_MIRROR", "0"), _number("MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN", 15),
                   capture=_flag("TRITIUM_CAPTURE"), layout=_flag("TRITIUM_LAYOUT"))


@contextlib.contextmanager
def options(**changes: bool | int) -> Iterator[Options]:
    """`with options(fuse=False): ...`: graphs bound inside are compiled so."""
    token = _current.set(replace(current(), **changes))
    try:
        yield current()
    finally:
        _current.reset(token)


def _flag(name: str, default: str = "1") -> bool:
    return os.environ.get(name, default).lower() not in ("0", "false", "off")


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not text.isdecimal():
        raise ParameterError(f"{name}: {text!r} is not a whole number.")
    return int(text)
