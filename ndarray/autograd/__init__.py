"""autograd: record operations, then compute derivatives backward. Names as in MXNet: `with autograd.record(): ...`.

Recording and training (Dropout drops, BatchNorm uses the batch's statistics) are switched on and off for each thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import MXNetError, OperatorError, ShapeError, describe
from ..core.array_core import ArrayCore
from ..core.chunk import Layout
from ..dispatch.copy import filled
from .recorded import walk_recorded
from .tape import CallNode, Leaf, any_taped, overwritten, state
from .walk import walk

if TYPE_CHECKING:
    from ..core.ndarray import NDArray

_REQUESTS = ("null", "write", "add")

#: Return the Symbol of the operators that computed an array (graph/symbol/from_tape.py). The root's `connect` sets it.
get_symbol: Callable[[Any], Any]


# ---- the states of a thread -----------------------------------------------------------------------------------------
class _Scope:
    """Set recording and training for a `with` block; None leaves a state as it is."""

    __slots__ = ("_recording", "_saved", "_training")

    def __init__(self, recording: bool | None, training: bool | None):
        self._recording, self._training = recording, training
        self._saved: list[tuple[bool, bool, bool]] = []

    def __enter__(self) -> None:
        self._saved.append((state.recording, state.training, state.paused))
        if self._recording is not None:
            state.paused = not self._recording and (state.paused or state.recording)
            state.recording = self._recording
        if self._training is not None:
            state.training = self._training

    def __exit__(self, *exc: object) -> None:
        state.recording, state.training, state.paused = self._saved.pop()


def record(train_mode: bool = True) -> _Scope:
    """Record, in a `with` block, every operation on variables for backward. train_mode: operators train meanwhile."""
    return _Scope(True, train_mode)


def pause(train_mode: bool = False) -> _Scope:
    """Record nothing in a `with` block inside `record`."""
    return _Scope(False, train_mode)


def train_mode() -> _Scope:
    """Let operators train in a `with` block; recording stays as it is."""
    return _Scope(None, True)


def predict_mode() -> _Scope:
    """Let operators predict in a `with` block; recording stays as it is."""
    return _Scope(None, False)


def is_recording() -> bool:
    """Return True if this thread records."""
    return state.recording


def is_training() -> bool:
    """Return True if operators of this thread train."""
    return state.training


def set_recording(is_recording: bool) -> bool:
    """Switch recording on or off, and return the earlier state."""
    before, state.recording = state.recording, bool(is_recording)
    return before


def set_training(train_mode: bool) -> bool:
    """Switch training on or off, and return the earlier state."""
    before, state.training = state.training, bool(train_mode)
    return before


# ---- variables ------------------------------------------------------------------------------------------------------
def mark_variables(variables: NDArray | Sequence[NDArray], gradients: NDArray | Sequence[NDArray],
                   grad_reqs: str | Sequence[str] = "write") -> None:
    """Make arrays variables whose gradients backward puts into the given arrays.

    grad_reqs:  "write", "add" or "null", for all or one for each.
    Raises:     ShapeError when a gradient's shape or dtype is not its variable's; ValueError for another request.
    """
    variables, gradients = _listed(variables), _listed(gradients)
    requests = [grad_reqs] * len(variables) if isinstance(grad_reqs, str) else list(grad_reqs)
    if not len(variables) == len(gradients) == len(requests):
        raise OperatorError(f"mark_variables: {len(variables)} variables, {len(gradients)} gradients, "
                            f"{len(requests)} requests. Give one of each.")
    for v, g, req in zip(variables, gradients, requests):
        if req not in _REQUESTS:
            raise OperatorError(f"mark_variables: grad_req {req!r} is not one of {', '.join(_REQUESTS)}.")
        if req != "null" and not g.layout.same(v.layout):
            raise ShapeError(f"mark_variables: the gradient is {describe(g)}, the variable {describe(v)}.")
        v._grad = g
        v._grad_edge = None if req == "null" else (Leaf(v.layout, g, req), 0)


def attach_grad(array: NDArray, grad_req: str = "write") -> None:
    """Make array a variable, with a gradient of zeros; the operation that computed it is forgotten."""
    mark_variables([array], [filled(array.layout, 0)], grad_req)


# ---- backward -------------------------------------------------------------------------------------------------------
def backward(heads: NDArray | Sequence[NDArray], head_grads: NDArray | Sequence[NDArray | None] | None = None,
             retain_graph: bool = False, train_mode: bool = True) -> None:
    """Compute the derivatives of Σ heads·head_grads into the gradients of all variables they depend on.

    head_grads:    one array for each head, None meaning ones.
    retain_graph:  keep the record for another backward.
    Raises:        MXNetError when a head was not recorded, or its record was freed by an earlier backward.
    """
    heads, grads = _heads(heads, head_grads)
    with _Scope(False, train_mode):
        walk(heads, grads, retain_graph, None)


def grad(heads: NDArray | Sequence[NDArray], variables: NDArray | Sequence[NDArray],
         head_grads: NDArray | Sequence[NDArray | None] | None = None, retain_graph: bool | None = None,
         create_graph: bool = False, train_mode: bool = True) -> list[NDArray]:
    """Return the derivatives of Σ heads·head_grads by variables as new arrays; no variable's `.grad` changes.

    create_graph:  record backward too, for derivatives of derivatives.
    Returns:       a list, also for one variable.
    Raises:        as backward; MXNetError for an array that was not recorded, or a derivative that cannot be differentiated.
    """
    heads, grads = _heads(heads, head_grads)
    wanted = _listed(variables)
    for v in wanted:
        if v._grad_edge is None:
            raise MXNetError(f"grad: {describe(v)} is not part of a recorded computation. Call attach_grad() on it "
                             f"before recording.")
    retain = create_graph if retain_graph is None else retain_graph
    with _Scope(create_graph, train_mode):
        computed = (walk_recorded if create_graph else walk)(heads, grads, retain, [v._grad_edge for v in wanted])
    found = [filled(v.layout, 0) if g is None else g for v, g in zip(wanted, computed)]
    return [_constant(v, g) if create_graph and g._grad_edge is None else g for v, g in zip(wanted, found)]


def _constant(variable: NDArray, gradient: NDArray) -> NDArray:
    """Return a derivative that does not depend on its variable as part of the record: its own derivative is 0."""
    recorded = gradient.detach()
    recorded._grad_edge = CallNode("grad", [variable._grad_edge], [gradient.layout], lambda _: [None]), 0
    return recorded


def _listed(arrays: Any) -> list[Any]:
    return [arrays] if isinstance(arrays, ArrayCore) else list(arrays)


def _heads(heads: Any, head_grads: Any) -> tuple[list[Any], list[Any]]:
    heads = _listed(heads)
    grads: list[Any] = [None] * len(heads) if head_grads is None else _listed(head_grads)
    if len(grads) != len(heads):
        raise OperatorError(f"backward: {len(heads)} heads, {len(grads)} head gradients. Give one for each, or None.")
    for i, (h, g) in enumerate(zip(heads, grads)):
        if h._grad_edge is None:
            raise MXNetError(f"backward: {describe(h)} was not computed from a variable while recording. "
                             f"Call attach_grad() on the variables and compute inside autograd.record().")
        if g is not None and g.size != h.size:
            raise ShapeError(f"backward: the head is {describe(h)}, its gradient {describe(g)}. Give as many elements.")
        grads[i] = _as(g, h.layout)
    return heads, grads


def _as(gradient: Any, layout: Layout) -> Any:
    """Return gradient in layout, which has as many elements: itself, or a copy of another shape, dtype or context."""
    if gradient is None or gradient.layout.same(layout):
        return gradient
    return gradient.reshape(layout.shape).as_in_context(layout.ctx).astype(layout.dtype, copy=False)


# ---- a user's own derivative ----------------------------------------------------------------------------------------
class Function:
    """An operation with a derivative of your own: subclass, write `forward` and `backward`, call an instance.

        class Cube(autograd.Function):
            def forward(self, x):
                self.save_for_backward(x)
                return x * x * x
            def backward(self, dy):
                x, = self.saved_tensors
                return 3 * x * x * dy

    The two are not recorded. backward gets one array per output and returns one per input.
    """

    _saved: Any = ()
    _versions: tuple[int | None, ...] = ()

    def save_for_backward(self, *args: Any) -> None:
        """Keep arrays, and anything else, for backward; there they are `self.saved_tensors`."""
        self.saved_tensors = args

    @property
    def saved_tensors(self) -> Any:
        """The arguments of save_for_backward, or the value that was assigned.

        Raises MXNetError if an array among the arguments, or in an assigned tuple or list, was written in place since.
        """
        for a, version in zip(self._saved, self._versions) if self._versions else ():
            if version is not None and a.chunk.var.version != version:
                raise overwritten(type(self).__name__, a)
        return self._saved

    @saved_tensors.setter
    def saved_tensors(self, value: Any) -> None:
        self._saved = value
        self._versions = tuple(a.chunk.var.version if isinstance(a, ArrayCore) else None
                               for a in (value if isinstance(value, (tuple, list)) else ()))

    def forward(self, *inputs: NDArray) -> NDArray | Sequence[NDArray]:
        """Return the outputs."""
        raise NotImplementedError(f"{type(self).__name__}: forward is not written.")

    def backward(self, *output_grads: NDArray) -> NDArray | Sequence[NDArray]:
        """Return the derivatives of the inputs."""
        raise NotImplementedError(f"{type(self).__name__}: backward is not written.")

    def __call__(self, *inputs: Any) -> Any:
        with pause(train_mode=is_training()):
            results = self.forward(*inputs)
        outputs = _listed(results)
        name = type(self).__name__
        if is_recording() and any_taped(inputs, name):
            node = CallNode(name, [a._grad_edge for a in inputs], [o.layout for o in outputs], _checked(self, inputs))
            for i, o in enumerate(outputs):
                if any(o is a for a in inputs):
                    raise OperatorError(f"{name}: forward returned its input. Return a copy.")
                o._grad_edge = (node, i)
        return results


def _checked(function: Function, inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
    layouts = [a.layout for a in inputs]

    def run(dys: list[Any]) -> list[Any]:
        result: Any = function.backward(*dys)
        grads = [result] if isinstance(result, ArrayCore) or result is None else list(result)
        name = type(function).__name__
        if len(grads) != len(layouts):
            raise OperatorError(f"{name}: backward returned {len(grads)} arrays for {len(layouts)} inputs.")
        for g, layout in zip(grads, layouts):
            if g is not None and g.size != layout.size:
                raise ShapeError(f"{name}: backward returned {describe(g)} for an input that is {describe(layout)}.")
        return [_as(g, layout) for g, layout in zip(grads, layouts)]

    return run

