"""Shape and dtype inference over a graph, in both directions, to a fixed point.

None is a shape of unknown rank and -1 an unknown size, as in kernels/op.py; MXNet's 0 and () stay in the Symbol API.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...dtype import FLAG_TO_DTYPE, as_dtype
from ...errors import DTypeError, GraphError, MXNetError, ShapeError
from ...kernels.op import Op, Shape, is_known, merge_shapes
from ...np_shape import state as np_shape
from ..symbol.node import Node

Shapes = list[list[Shape | None]]  # [node][output]
DTypes = list[list[np.dtype | None]]


def infer_shapes(order: Sequence[Node], known: Mapping[str, Shape | None]) -> Shapes:
    """Infer the shapes of each node's outputs, as far as they follow.

    known:  shapes of variables by name. A variable's `__shape__` counts where known does not have the whole shape.
    Raises: ShapeError that names the node, its operator, its inputs with shapes, and the rule.
    """
    def of_variable(node: Node) -> Shape | None:
        given = known.get(node.name)
        return given if is_known(given) else merge_shapes(node.name, "the variable's shape", _declared_shape(node), given)

    start: Shapes = [[of_variable(node)] if node.op is None else [None] * node.n_outputs() for node in order]
    _fixed_point(order, start, lambda op: op.infer_shape, merge_shapes, ShapeError)
    return start


def infer_dtypes(order: Sequence[Node], known: Mapping[str, np.dtype | None], default: np.dtype | None = None) -> DTypes:
    """Infer the dtypes of each node's outputs, as far as they follow.

    default: the dtype of variables that stay unknown, applied to one after the other; None leaves them unknown.
    """
    start: DTypes = [[known[node.name] if known.get(node.name) is not None else _declared_dtype(node)]
                     if node.op is None else [None] * node.n_outputs() for node in order]

    def merge(name: str, what: str, a: np.dtype | None, b: np.dtype | None) -> np.dtype | None:
        if a is not None and b is not None and a != b:
            raise DTypeError(f"{name}: {what} would have to be both {a.name} and {b.name}. Convert one with Cast.")
        return a if b is None else b

    run = _fixed_point(order, start, lambda op: op.infer_dtype, merge, DTypeError)
    if default is not None:
        for i, node in enumerate(order):
            if node.op is None and start[i][0] is None:
                start[i][0] = default
                run(i)
    return start


def _fixed_point(order: Sequence[Node], table: list[list], rule: Callable[[Op], Callable], merge: Callable,
                 error: type[MXNetError]) -> Callable[[int], None]:
    """Apply rule(op)(params, inputs, outputs) to nodes until nothing changes, filling table.

    Returns a function that continues after a change at node i.
    """
    index = {id(n): i for i, n in enumerate(order)}
    inputs = [[(index[id(n)], k) for n, k in node.inputs] for node in order]
    users: list[list[int]] = [[] for _ in order]
    for i, entries in enumerate(inputs):
        for j, _ in entries:
            users[j].append(i)
    waiting: deque[int] = deque()
    queued = [False] * len(order)

    def queue(i: int) -> None:
        if not queued[i] and order[i].op is not None:
            queued[i] = True
            waiting.append(i)

    def store(i: int, k: int, value: Any, source: int) -> None:
        if value == table[i][k] is not None:
            return
        table[i][k] = value
        if i != source:
            queue(i)
        for user in users[i]:
            if user != source:
                queue(user)

    def settle() -> None:
        while waiting:
            i = waiting.popleft()
            queued[i] = False
            node = order[i]
            assert node.op is not None
            ins = [table[j][k] for j, k in inputs[i]]
            outs = list(table[i])
            try:
                new_ins, new_outs = rule(node.op)(node.use, ins, outs)
                for k, value in enumerate(new_outs):
                    old = table[i][k]
                    if old is None and value is not None:  # np.dtype("float64") == None is true
                        store(i, k, value, i)
                    elif value is not None and value != old:
                        store(i, k, merge(node.name, f"output {node.output_names()[k]}", old, value), i)
                for n, ((j, k), value) in enumerate(zip(inputs[i], new_ins)):
                    old = table[j][k]
                    if old is None and value is not None:
                        store(j, k, value, i)
                    elif value is not None and value != old:
                        store(j, k, merge(node.name, f"input {node.input_names()[n]} ({order[j].name})", old, value), i)
            except MXNetError as failure:
                raise error(_explain(node, ins, str(failure))) from failure

    for i, node in enumerate(order):
        if node.op is not None and len(node.inputs) != len(node.input_names()):
            raise GraphError(f"{node.name}: {node.op.name} takes {len(node.input_names())} inputs "
                             f"({', '.join(node.input_names())}), the node has {len(node.inputs)}.")
        if not _takes_any_shape(node):
            queue(i)
    settle()
    for i, node in enumerate(order):
        if _takes_any_shape(node):  # its own default counts where no reader has decided
            queue(i)
    settle()

    def resume(i: int) -> None:
        for user in users[i]:
            queue(user)
        settle()

    return resume


def _takes_any_shape(node: Node) -> bool:
    """Return True for an operator without inputs that was given no shape, such as `sym.random.normal()`."""
    return node.op is not None and not node.inputs and not node.use.get("shape", True)


def _explain(node: Node, ins: Sequence[Any], rule: str) -> str:
    assert node.op is not None
    shown = ", ".join(f"{name} {below.name} {spell(value)}"
                      for name, (below, _), value in zip(node.input_names(), node.inputs, ins))
    return f"{node.name} ({node.op.name}): {rule} Inputs: {shown or 'none'}."


def spell(value: Shape | np.dtype | None) -> str:
    """Spell a shape or dtype for messages; `?` if it is unknown."""
    if value is None:
        return "?"
    if isinstance(value, tuple):
        return "(" + ", ".join("?" if d < 0 else str(d) for d in value) + ("," if len(value) == 1 else "") + ")"
    return str(value)


def _declared_shape(node: Node) -> Shape | None:
    text = node.attrs.get("__shape__")
    if text is None or text == "None":
        return None
    try:
        if len(text) > 4096:
            raise ValueError
        value = ast.literal_eval(text.replace("L", ""))
        value = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        if not all(isinstance(d, int) for d in value):
            raise ValueError
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ShapeError(f"{node.name}: __shape__ {text[:80]!r} is not a tuple of integers.") from None
    return from_user(value)


def _declared_dtype(node: Node) -> np.dtype | None:
    text = node.attrs.get("__dtype__")
    if text is None or text in ("None", "-1"):
        return None
    if text.lstrip("-").isdigit():
        found = FLAG_TO_DTYPE.get(int(text))
        if found is None:
            raise DTypeError(f"{node.name}: __dtype__ {text} is not a dtype number. Known: {sorted(FLAG_TO_DTYPE)}.")
        return found
    return as_dtype(text)


def from_user(shape: Sequence[int] | None) -> Shape | None:
    """Convert a shape of the Symbol API (0 and () are unknown; with np_shape -1 and None) to one of inference (-1 and None)."""
    if shape is None or (len(shape) == 0 and not np_shape.active):
        return None
    return tuple(-1 if d < 0 or (d == 0 and not np_shape.active) else int(d) for d in shape)


def to_user(shape: Shape | None) -> Shape | None:
    """The reverse of from_user."""
    if np_shape.active:
        return shape
    return () if shape is None else tuple(0 if d < 0 else d for d in shape)
