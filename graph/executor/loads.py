"""The copies with which a pass begins, in C: of arrays that differ from pass to pass into the same targets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.cpu.c_move import copies
from ...kernels.cpu.c_team import Phases
from ...kernels.cpu.c_template import address
from ...kernels.ir.strided import Strided
from ...ndarray.core.array_core import ArrayCore
from ...ndarray.dispatch.copy import COPIED

#: (source, target) of arrays of equal layouts on the host, to be copied.
Copies = Sequence[tuple[ArrayCore, ArrayCore]]


class Loads:
    """Copies as one phase of a segment's first function in C, so that its threads share them.

    targets:  the arrays that are written. phases: the phase that writes them, from the arrays that `give` was given.
    """

    __slots__ = ("_held", "_steps", "phases", "targets")

    def __init__(self, targets: Sequence[ArrayCore]):
        self.targets = list(targets)
        self._held: list[np.ndarray] = []
        self._steps = []
        for target in targets:
            whole = Strided(0, (target.size,), (1,))
            calls = copies([(whole, whole)], target.layout.dtype, target.layout.dtype, False)
            if calls is None:
                break
            self._steps.append(calls[0].prepare(None, target.device_array()))
        self.phases = Phases([self._steps] if len(self._steps) == len(self.targets) else [])

    def writes_to(self, targets: Sequence[ArrayCore]) -> bool:
        """Return whether these are its targets."""
        return len(targets) == len(self.targets) and all(a is b for a, b in zip(targets, self.targets))

    def give(self, sources: Sequence[ArrayCore]) -> None:
        """Set what the next run copies."""
        self._held = [source.device_array() for source in sources]
        for step, source in zip(self._steps, self._held):
            step.addresses[0] = address(source)


def is_long(target: ArrayCore) -> bool:
    """Return whether an array is so large that several threads are to copy it."""
    return target.layout.nbytes > COPIED


def copy(pairs: Copies) -> None:
    """Copy in this thread."""
    for source, target in pairs:
        np.copyto(target.device_array(), source.device_array())
