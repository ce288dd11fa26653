"""The tape: which operations gave an array, and what their derivatives need. One node per recorded operation."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...errors import MXNetError, describe
from ...kernels.op import Gradient, Op
from ...kernels.params import Params
from ..core.array_core import ArrayCore
from ..core.chunk import Layout

Entry = tuple["Node", int]


class _State(threading.local):
    recording = False
    training = False


class Seen:
    """overwrites: whether anything was ever written in place while recording; until then nobody need look for it."""

    overwrites = False


state = _State()
_number = itertools.count()


class Node:
    """One recorded operation.

    number:   rises along every path, so that walking backward is taking the highest first.
    inputs:   for each input the entry that gave it, or None where no gradient flows.
    layouts:  of the outputs.
    """

    __slots__ = ("__weakref__", "freed", "inputs", "layouts", "name", "number", "overwrite")

    def __init__(self, name: str, inputs: Sequence[Entry | None], layouts: Sequence[Layout]):
        self.number = next(_number)
        self.overwrite: Overwrite | None = None
        self.name, self.inputs, self.layouts = name, tuple(inputs), tuple(layouts)
        self.freed = False

    def free(self) -> None:
        """Let go of what was kept for backward."""
        self.freed, self.inputs = True, ()
        if self.overwrite is not None:
            self.overwrite.freed = True

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
        super().__init__(op.name, [a._grad_edge for a in inputs], [a.layout for a in outputs])
        self.op, self.p, self.gradient, self.train = op, p, gradient, train
        self.in_layouts = tuple(a.layout for a in inputs)
        self.saved: tuple[Any, ...] = ()
        self.versions: tuple[int | None, ...] = ()
        if gradient is not None:
            self.saved = tuple(None if kind == "dy" else detached((inputs if kind == "x" else outputs)[i])
                               for kind, i in gradient.needs)
            self.versions = tuple(None if a is None or (kind == "x" and i in states) else a.chunk.version
                                  for a, (kind, i) in zip(self.saved, gradient.needs))

    def free(self) -> None:
        super().free()
        self.saved = ()

    def check(self) -> None:
        super().check()
        for a, version in zip(self.saved, self.versions):
            if version is not None and a.chunk.version != version:
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


def detached(a: Any, chunk: Any = None) -> Any:
    """The same memory without the array's place on the tape, which would be a circle. chunk: its own, or a twin of it."""
    return ArrayCore.array_class(a.layout, a._view, chunk or a.chunk, a.offset)


class Overwrite:
    """Bytes start to end of a chunk, written in place while recording by the operation called name and numbered so.

    taped:  whether a derivative belongs to them. freed: whether it has been walked, after which they count as constant.
    """

    __slots__ = ("end", "freed", "name", "number", "start", "taped")

    def __init__(self, a: Any, name: str, number: int, taped: bool):
        self.start, self.end = a.offset, a.offset + a.layout.nbytes
        self.name, self.number, self.taped, self.freed = name, number, taped, False


def written(a: Any, what: str, *, whole: bool = True) -> None:
    """Call before a, or a part of it, is written in place: raises if that would falsify the tape.

    That it was written, its variable says.
    """
    entry = a._grad_edge
    if entry is not None:
        if entry[0].freed:
            a._grad_edge = None  # what computed the old values is no longer known, and no longer matters
        elif state.recording:
            raise MXNetError(f"{what}: the array is part of a recorded computation, and writing to it would falsify the "
                             f"gradient. Make a new array, or write outside autograd.record().")
    if a._chunk_or_none is not None and a._chunk_or_none.overwrites:
        _overwritten_again(a, Overwrite(a, what, next(_number), False), whole)


def computed(a: Any, node: Node, output: int) -> None:
    """a, which was there before, holds from now on this output of node. Other arrays over its memory know nothing of that."""
    a._grad_edge = node, output
    node.overwrite = Overwrite(a, node.name, node.number, True)
    _overwritten_again(a, node.overwrite, True)


def _overwritten_again(a: Any, new: Overwrite, whole: bool) -> None:
    chunk, Seen.overwrites = a.chunk, True
    old = [o for o in chunk.overwrites if not (o.freed or (whole and new.start <= o.start and o.end <= new.end))]
    chunk.overwrites = (*old, *([new] if state.recording or new.taped else ()))


def any_taped(arrays: Iterable[Any], what: str) -> bool:
    """Whether a derivative flows through any of arrays, each of which is checked as `is_taped` does."""
    return True in [is_taped(a, what) for a in arrays]


def is_taped(a: Any, what: str) -> bool:
    """Whether a derivative flows through a, which is being used while recording.

    Raises: MXNetError if its memory was written through another array since a was computed: a does not know how.
    """
    entry = a._grad_edge
    if a._chunk_or_none is not None:
        for o in a._chunk_or_none.overwrites:
            if o.start < a.offset + a.layout.nbytes and a.offset < o.end and not o.freed and (
                    o.taped if entry is None else entry[0].number < o.number):
                raise MXNetError(f"{what}: the memory of {describe(a)} was written while recording, by {o.name} through another "
                                 f"array that shares it, so a derivative would be lost here. Write into the array that "
                                 f"is used, or put parts together with concat, stack or where; .detach() takes the values alone.")
    return entry is not None
