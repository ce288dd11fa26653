"""Kernels tied to arrays that stay where they are, as those of a bound graph do: views are made once, not at each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .op import Kernel

Run = Any
Call = Callable[..., None]  # call(run), or call(run, scalars) of a kernel that takes run-time scalars
Tie = Callable[[Sequence[Any], Sequence[Any]], Call]


def tieable(tie: Tie, kernel: Kernel | None = None) -> Kernel:
    """A kernel from `tie(inputs, outputs)`, which looks at the arrays and returns what one run does.

    kernel: the same for arrays that come only once, where that can be said in a cheaper way.
    """

    def once(run: Run, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        tie(inputs, outputs)(run)

    made = once if kernel is None else kernel
    vars(made)["tie"] = tie
    return made


def tied(kernel: Kernel, inputs: Sequence[Any], outputs: Sequence[Any]) -> Call:
    """What one run of kernel does to these arrays."""
    tie = getattr(kernel, "tie", None)
    if tie is not None:
        return tie(inputs, outputs)

    def call(run: Run, scalars: Sequence[float] = ()) -> None:
        if scalars:
            kernel(run, inputs, outputs, scalars=scalars)
        else:
            kernel(run, inputs, outputs)

    return call
