"""The tape: one node for each recorded operation, with the arrays that its derivative needs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import MXNetError, describe
from ...kernels.op import Gradient, Op, Req
from ...kernels.params import Params
from ..core.array_core import ArrayCore
from ..core.chunk import Chunk, Layout

if TYPE_CHECKING:
    from ..core.ndarray import NDArray
    from ..dispatch.plan import DispatchPlan

Edge = tuple["TapeNode", int]  # a node and the number of its output


class _State(threading.local):
    """What a thread does. paused: it does not record now, but it will go on."""

    recording = False
    training = False
    paused = False


class Seen:
    """overwrites: True once memory was written in place while recording; until then arrays need not be checked for it."""

    overwrites = False


state = _State()
_number = itertools.count()


class TapeNode:
    """One recorded operation.

    number:   rises along every path, so that backward takes the highest number first.
    inputs:   for each input the edge to the node that computed it, or None where no gradient flows.
    layouts:  of the outputs.
    key:      equal for nodes for which backward runs the same kernels, wherever their inputs come from.
    """

    __slots__ = ("__weakref__", "freed", "freed_at", "inputs", "layouts", "name", "number", "overwrite")

    def __init__(self, name: str, inputs: Sequence[Edge | None], layouts: Sequence[Layout]):
        self.number = next(_number)
        self.overwrite: Overwrite | None = None
        self.name, self.inputs, self.layouts = name, tuple(inputs), tuple(layouts)
        self.freed = False

    @property
    def key(self) -> Any:
        raise NotImplementedError

    def free(self) -> None:
        """Release the arrays kept for backward."""
        if not self.freed:
            self.freed_at = next(_number)
        self.freed, self.inputs = True, ()
        if self.overwrite is not None:
            self.overwrite.freed = True

    def edges(self) -> tuple[Edge | None, ...]:
        """Return inputs, without those whose node was freed before this one was recorded: such an array is a constant."""
        return tuple([None if e is not None and e[0].freed and e[0].freed_at < self.number else e for e in self.inputs])

    def check(self) -> None:
        """Raise MXNetError if an earlier backward without retain_graph freed the node."""
        if self.freed:
            raise MXNetError(f"backward: the arrays that {self.name} kept were freed by an earlier backward. "
                             f"Pass retain_graph=True to the earlier one.")


class Leaf(TapeNode):
    """A variable: its gradient goes to a buffer as grad_req says ("write" or "add").

    fresh: True once backward has written the gradient. A Trainer sets it to False when it has used the gradient.
    """

    __slots__ = ("fresh", "grad", "req")

    def __init__(self, layout: Layout, grad: ArrayCore, req: str):
        super().__init__("variable", (), (layout,))
        self.grad, self.req, self.fresh = grad, req, False

    @property
    def key(self) -> Any:
        """See TapeNode."""
        return self.layouts, self.req

    def free(self) -> None:
        """Do nothing: a variable stays one."""


class OpNode(TapeNode):
    """One use of an operator. It keeps only the arrays that the gradient declaration names.

    plan, p:   operator, layouts and static parameters; the parameters with their run-time scalars.
    saved:     for each of `gradient.needs` the array, or None where it is an output's derivative.
    versions:  of the saved arrays' chunks when they were recorded; None for auxiliary states, which forward changes.
    layer:     that it was called for, set while a profile is made.
    """

    __slots__ = ("gradient", "layer", "p", "plan", "saved", "versions")

    def __init__(self, plan: DispatchPlan, p: Params, gradient: Gradient | None, inputs: Sequence[ArrayCore],
                 outputs: Sequence[ArrayCore]):
        self.number = next(_number)
        self.overwrite, self.freed = None, False
        self.name, self.layouts = plan.name, plan.outs
        self.inputs = tuple([a._grad_edge for a in inputs])
        self.plan, self.p, self.gradient = plan, p, gradient
        saved: list[Any] = []
        versions: list[int | None] = []
        for kind, i in () if gradient is None else gradient.needs:
            if kind == "x":  # the array itself: its node comes before this one, so that there is no cycle
                a = inputs[i]
                saved.append(a)
                versions.append(None if i in plan.mutated else 0 if a._var is None else a._var.version)
            elif kind == "y" and i >= plan.visible:  # nobody else has it
                saved.append(outputs[i])
                versions.append(None)
            elif kind == "y":  # another array on the same memory, because the array itself holds this node
                a = outputs[i]
                saved.append(detached(a))
                versions.append(a.chunk.var.version)
            else:
                saved.append(None)
                versions.append(None)
        self.saved, self.versions = saved, versions

    @property
    def op(self) -> Op:
        """The operator."""
        return self.plan.op

    @property
    def train(self) -> bool:
        """True if it trained."""
        return self.plan.train

    @property
    def in_layouts(self) -> Sequence[Layout]:
        """The layouts of the inputs."""
        return self.plan.ins

    @property
    def key(self) -> Any:
        """See TapeNode."""
        plan = self.plan
        return plan if plan.gradient is self.gradient else (plan, self.gradient)

    def free(self) -> None:
        super().free()
        self.saved = self.versions = ()

    def check(self) -> None:
        super().check()
        for a, version in zip(self.saved, self.versions):
            if version is not None and a._var is not None and a._var.version != version:
                raise overwritten(self.name, a)


class CallNode(TapeNode):
    """An operation whose derivative is a Python function: views, indexing, a user's Function.

    backward:  (list of dy, one per output) -> one array or None per input.
    """

    __slots__ = ("backward",)

    def __init__(self, name: str, inputs: Sequence[Edge | None], layouts: Sequence[Layout],
                 backward: Callable[[list[NDArray]], Sequence[NDArray | None]]):
        super().__init__(name, inputs, layouts)
        self.backward: Callable[[list[NDArray]], Sequence[NDArray | None]] | None = backward

    @property
    def key(self) -> Any:
        """See TapeNode."""
        return len(self.inputs), *self.layouts

    def free(self) -> None:
        super().free()
        self.backward = None


class GraphNode(CallNode):
    """One call of a compiled graph. Its derivatives go straight to where the walk wants them.

    run:      (list of dy, one per output; for each input the array to write its derivative to, or None; and the write
              requests) -> None.
    again:    () -> the outputs, computed again operator by operator and recorded, for derivatives of derivatives.
    release:  called once when the node is freed or forgotten.
    kept:     (variable, version) of the memory that backward reads.
    """

    __slots__ = ("again", "kept", "release", "run")

    def __init__(self, name: str, inputs: Sequence[Edge | None], layouts: Sequence[Layout],
                 run: Callable[[list[NDArray], list[NDArray | None], Sequence[Req]], None],
                 again: Callable[[], list[NDArray]], release: Callable[[], None], kept: Sequence[ArrayCore]):
        super().__init__(name, inputs, layouts, lambda _: ())
        self.run, self.again, self.release = run, again, release
        self.kept = [(a, a.chunk.var.version) for a in kept]

    @property
    def key(self) -> Any:
        """See TapeNode."""
        return "graph", *super().key

    def check(self) -> None:
        super().check()
        for a, version in self.kept:
            if a.chunk.var.version != version:
                raise overwritten(self.name, a)

    def free(self) -> None:
        if not self.freed:
            super().free()
            self.kept = []
            self.release()

    def __del__(self) -> None:
        if not self.freed:
            self.release()


def overwritten(name: str, a: ArrayCore) -> MXNetError:
    """Return the error for an array that backward needs and that was overwritten."""
    return MXNetError(f"backward: {name} needs {describe(a)} as it was, but its memory was written in place since. "
                      f"Write into a new array (b = a + 1, not a += 1), or write after backward().")


def detached(a: ArrayCore, chunk: Chunk | None = None) -> NDArray:
    """Return an array on the memory of a without its gradient edge. chunk: a.chunk, or a twin of it."""
    return ArrayCore.array_class(a.layout, a._view, chunk or a.chunk, a.offset)


class Overwrite:
    """A write, in place and while recording, to the bytes start to end of a chunk by the operation called name.

    number:  the tape's number at that time.
    taped:   True if the new values have a derivative.
    freed:   True once backward used that derivative; the values count as constant from then on.
    """

    __slots__ = ("end", "freed", "name", "number", "start", "taped")

    def __init__(self, a: ArrayCore, name: str, number: int, taped: bool):
        self.start, self.end = a.offset, a.offset + a.layout.nbytes
        self.name, self.number, self.taped, self.freed = name, number, taped, False


def written(a: ArrayCore, name: str, *, whole: bool = True) -> None:
    """Check, before a or a part of it is written in place by the operation called name, that the tape stays right.

    The write itself is counted by the version of the variable. whole: all of a is written.
    Raises: MXNetError if a is part of a recorded computation.
    """
    edge = a._grad_edge
    if edge is not None:
        if edge[0].freed:
            a._grad_edge = None  # the node of the old values is not needed any more
        elif state.recording:
            raise MXNetError(f"{name}: the array is part of a recorded computation, and writing to it would falsify the "
                             f"gradient. Make a new array, or write outside autograd.record().")
    if a._chunk_or_none is not None and a._chunk_or_none.overwrites:
        _overwritten_again(a, Overwrite(a, name, next(_number), False), whole)


def computed(a: ArrayCore, node: TapeNode, output: int) -> None:
    """Make this output of node the value of the existing array a. Other arrays on the same memory do not follow."""
    a._grad_edge = node, output
    node.overwrite = Overwrite(a, node.name, node.number, True)
    _overwritten_again(a, node.overwrite, True)


def _overwritten_again(a: ArrayCore, new: Overwrite, whole: bool) -> None:
    Seen.overwrites = True
    chunk = a.chunk
    old = [o for o in chunk.overwrites if not (o.freed or (whole and new.start <= o.start and o.end <= new.end))]
    chunk.overwrites = (*old, *([new] if state.recording or new.taped else ()))


def any_taped(arrays: Iterable[ArrayCore], name: str) -> bool:
    """Return True if a derivative flows through any of arrays; each is checked as in `is_taped`."""
    if Seen.overwrites:
        return True in [is_taped(a, name) for a in arrays]
    for a in arrays:  # noqa: SIM110 - this takes half the time of any(...)
        if a._grad_edge is not None:
            return True
    return False


def is_taped(a: ArrayCore, name: str) -> bool:
    """Return True if a derivative flows through a, which the operation called name uses while recording.

    Raises: MXNetError if a derivative would be lost because the memory was written through another array.
    """
    edge = a._grad_edge
    if a._chunk_or_none is not None:
        for o in a._chunk_or_none.overwrites:
            if o.start < a.offset + a.layout.nbytes and a.offset < o.end and not o.freed and (
                    o.taped if edge is None else edge[0].number < o.number):
                raise MXNetError(f"{name}: the memory of {describe(a)} was written while recording, by {o.name} through another "
                                 f"array that shares it, so a derivative would be lost here. Write into the array that "
                                 f"is used, or put parts together with concat, stack or where; .detach() takes the values alone.")
    return edge is not None


def record_call(a: ArrayCore, out: Any, name: str, backward: Callable[[Any], Any]) -> Any:
    """Record, if a derivative flows through a, that out was computed from it; return out. backward: from dy to dx."""
    if state.recording and is_taped(a, name):
        out._grad_edge = (CallNode(name, [a._grad_edge], [out.layout], lambda dys: [backward(dys[0])]), 0)
    return out
