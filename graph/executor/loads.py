"""The copies with which a pass begins, in C: of arrays that differ from pass to pass into the same targets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...engine import Var
from ...kernels.cpu.c_move import copies
from ...kernels.cpu.c_team import Phases
from ...kernels.cpu.c_template import address
from ...kernels.ir.strided import Strided
from ...ndarray.core.array_core import ArrayCore
from ...ndarray.dispatch.copy import COPIED

#: (source, target) of arrays of equal layouts on the host, to be copied.
Copies = Sequence[tuple[ArrayCore, ArrayCore]]


class Targets:
    """The arrays that the copies before a run write, and what follows from them for the task.

    long:     those that several threads copy. key: the same for the same ones. nbytes: of all.
    mutable:  the variables that the task changes.
    """

    __slots__ = ("arrays", "key", "long", "mutable", "nbytes")

    def __init__(self, copies: Copies, mutable: Sequence[Var]):
        self.arrays = [target for _, target in copies]
        self.long = [a for a in self.arrays if is_long(a)]
        self.key = tuple(map(id, self.long))
        self.nbytes = sum(a.layout.nbytes for a in self.arrays)
        self.mutable = list(dict.fromkeys([*mutable, *[a.chunk.var for a in self.arrays]]))

    def are_of(self, copies: Copies) -> bool:
        """Return whether these copies write the arrays."""
        if len(copies) != len(self.arrays):
            return False
        for (_, target), own in zip(copies, self.arrays):  # noqa: SIM110  # a generator takes longer
            if target is not own:
                return False
        return True


class Loads:
    """Copies as one phase of a segment's first function in C, so that its threads share them.

    targets:  the arrays that are written. key: as of Targets, of which they are the long ones.
    phases:   the phase that writes them, from the arrays that `give` was given. works: whether there is one.
    """

    __slots__ = ("_held", "_steps", "key", "phases", "targets", "works")

    def __init__(self, of: Targets):
        self.targets, self.key = of.long, of.key
        self._held: list[ArrayCore] = []
        self._steps = []
        for target in self.targets:
            whole = Strided(0, (target.size,), (1,))
            calls = copies([(whole, whole)], target.layout.dtype, target.layout.dtype, False)
            if calls is None:
                break
            self._steps.append(calls[0].prepare(None, target.device_array()))
        self.works = len(self._steps) == len(self.targets)
        self.phases = Phases([self._steps] if self.works else [])

    def give(self, copies: Copies) -> Copies:
        """Set what the next run copies, of copies among which all of its targets are. Return the others."""
        targets, others, self._held = self.targets, [], []
        for source, target in copies:
            at = len(self._held)
            if at < len(targets) and target is targets[at]:
                self._held.append(source)
                self._steps[at].addresses[0] = source.address() or address(source.device_array())
            else:
                others.append((source, target))
        return others


def is_long(target: ArrayCore) -> bool:
    """Return whether an array is so large that several threads are to copy it."""
    return target.layout.nbytes > COPIED


def copy(pairs: Copies) -> None:
    """Copy in this thread."""
    for source, target in pairs:
        np.copyto(target.device_array(), source.device_array())
