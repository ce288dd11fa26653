"""The tape: which operations gave an array, and what their derivatives need. One node per recorded operation."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import MXNetError, describe
from ..kernels.op import Gradient, Op
from ..kernels.params import Params
from .chunk import Layout

Entry = tuple["Node", int]


class _State(threading.local):
    recording = False
    training = False


state = _State()
_number = itertools.count()


class Node:
    """One recorded operation.

    number:   rises along every path, so that walking backward is taking the highest first.
    inputs:   for each input the entry that gave it, or None where no gradient flows.
    layouts:  of the outputs.
    """

    __slots__ = ("__weakref__", "freed", "inputs", "layouts", "name", "number")

    def __init__(self, name: str, inputs: Sequence[Entry | None], layouts: Sequence[Layout]):
        self.number = next(_number)
        self.name, self.inputs, self.layouts = name, tuple(inputs), tuple(layouts)
        self.freed = False

    def free(self) -> None:
        """Let go of what was kept for backward."""
        self.freed, self.inputs = True, ()

    def check(self) -> None:
        """Raise if the node was walked before without retain_graph."""
        if self.freed:
            raise MXNetError(f"backward: what {self.name} kept was freed by an earlier backward. "
                             f"Pass retain_graph=True to the earlier one.")


class Leaf(Node):
    """A variable: its gradient goes to a buffer as grad_req says ("write" or "add")."""

    __slots__ = ("grad", "req")

    def __init__(self, what: Layout, grad: Any, req: str):
        super().__init__("variable", (), (what,))
        self.grad, self.req = grad, req

    def free(self) -> None:
        """A variable stays one."""


class OpNode(Node):
    """One use of an operator. Keeps what its gradient declaration names, and nothing else.

    saved:     for each of `gradient.needs` the array, or None where it is an output's derivative.
    versions:  of the saved arrays' chunks when they were recorded; None for states, which forward itself changes.
    """

    __slots__ = ("gradient", "in_layouts", "op", "p", "saved", "train", "versions")

    def __init__(self, op: Op, p: Params, gradient: Gradient | None, inputs: Sequence[Any], outputs: Sequence[Any],
                 train: bool, states: Sequence[int] = ()):
        super().__init__(op.name, [a._entry for a in inputs], [a._layout for a in outputs])
        self.op, self.p, self.gradient, self.train = op, p, gradient, train
        self.in_layouts = tuple(a._layout for a in inputs)
        self.saved: tuple[Any, ...] = ()
        self.versions: tuple[int | None, ...] = ()
        if gradient is not None:
            self.saved = tuple(None if kind == "dy" else bare((inputs if kind == "x" else outputs)[i])
                               for kind, i in gradient.needs)
            self.versions = tuple(None if a is None or (kind == "x" and i in states) else a._chunk.version
                                  for a, (kind, i) in zip(self.saved, gradient.needs))

    def free(self) -> None:
        super().free()
        self.saved = ()

    def check(self) -> None:
        super().check()
        for a, version in zip(self.saved, self.versions):
            if version is not None and a._chunk.version != version:
                raise overwritten(self.name, a)


class CallNode(Node):
    """An operation whose derivative is a Python function: views, indexing, user Functions.

    backward:  (list of dy, one per output, None where none came) -> one array or None per input.
    """

    __slots__ = ("backward",)

    def __init__(self, name: str, inputs: Sequence[Entry | None], layouts: Sequence[Layout],
                 backward: Callable[[list[Any]], Sequence[Any]]):
        super().__init__(name, inputs, layouts)
        self.backward: Callable[[list[Any]], Sequence[Any]] | None = backward

    def free(self) -> None:
        super().free()
        self.backward = None


def overwritten(name: str, a: Any) -> MXNetError:
    """The error for an array that backward needs and that is not what it was."""
    return MXNetError(f"backward: {name} needs {describe(a)} as it was, but its memory was written in place since. "
                      f"Write into a new array (b = a + 1, not a += 1), or write after backward().")


def bare(a: Any) -> Any:
    """The same memory without the array's place on the tape, which would be a circle."""
    b = object.__new__(type(a))
    b._held, b._offset, b._layout, b._view = a._chunk, a._offset, a._layout, a._view
    b._var = a._var
    b._entry = b._grad = b._grad_req = None
    return b


def written(a: Any, what: str) -> None:
    """Raise if to write a in place would falsify the tape. That it was written, its chunk's version says."""
    if state.recording and a._entry is not None:
        raise MXNetError(f"{what}: the array is part of a recorded computation, and writing to it would falsify the "
                         f"gradient. Make a new array, or write outside autograd.record().")
