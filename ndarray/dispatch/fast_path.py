"""quick: a ∘ b and small products, computed where they are written: one look-up, one NumPy call, one new array.

For four numbers everything around the arithmetic costs ten times the arithmetic. What follows from layouts alone is
found out once and kept: whether the operator is a single NumPy function, and the layout of its result. Anything out of the
ordinary (a tape, a writer under way, a profiler, another engine than the threaded one) goes the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtype import to_integer
from ...engine import current
from ...kernels.cpu.errstate import prepared
from ...kernels.ir.expr import LOAD, PARAM
from ...kernels.ir.primitives import PRIMITIVES
from ...kernels.op import builtin
from ...kernels.ops.linalg.dot import SMALL
from ..autograd.tape import Seen
from ..core.array_core import ArrayCore
from ..core.chunk import Layout

_BYTES = 512  # of a result: NumPy keeps the GIL for so few elements, so that the engine's bookkeeping is not held up
_KEPT = 4096  # what is known of one operator; a program with ever new numbers must not grow for ever
_NUMBERS = frozenset((int, float))
_NEITHER = (False, False)
_TURNED = {(): _NEITHER, (("transpose_a", True),): (True, False), (("transpose_b", True),): (False, True)}


def method(ordinary: Callable[[Any, Any], Any], same: str, spread: str, scalar: str) -> Callable[[Any, Any], Any]:
    """`a ∘ b` as `ordinary` computes it, sooner where it can be.

    same, spread, scalar:  the operator for equal shapes, for shapes that broadcast, for a number b.
    """
    known: dict[tuple, Any] = {}

    def operator(a: Any, b: Any) -> Any:
        key: Any = None
        if b.__class__ is a.__class__:
            key = a.layout, b.layout
            found = known.get(key)
            if found and a._grad_edge is None and b._grad_edge is None and not (Seen.overwrites and _overwritten(a, b)):
                function, what, _, _ = found
                x, y = a._view, b._view
                if x is not None and y is not None:
                    view = current().try_call_inline(a, b, prepared.leaf, function, x, y)
                    if view is not None:
                        return ArrayCore.array_class(what, view)
        elif b.__class__ in _NUMBERS and b:  # 0.0 and -0.0 would be one key
            key = a.layout, b, b.__class__
            found = known.get(key)
            if found and a._grad_edge is None and not (Seen.overwrites and _overwritten(a, a)):
                function, what, left, right = found
                x = a._view
                if x is not None:
                    view = current().try_call_inline(a, a, prepared.leaf, function, x if left is None else left,
                                              x if right is None else right)
                    if view is not None:
                        return ArrayCore.array_class(what, view)
        made = ordinary(a, b)
        if key is not None and key not in known:
            if len(known) >= _KEPT:
                known.clear()
            name = scalar if len(key) == 3 else same if a.layout.shape == b.layout.shape else spread
            known[key] = _single(name, a, b, made.layout)
        return made

    return operator


def product(ordinary: Callable[..., Any]) -> Callable[..., Any]:
    """`dot(a, b, ...)` as `ordinary` computes it, sooner where both are small matrices."""
    known: dict[tuple, Layout] = {}

    def dot(*args: Any, **kwargs: Any) -> Any:
        key: Any = None
        if len(args) == 2 and isinstance(args[0], ArrayCore) and isinstance(args[1], ArrayCore):
            a, b = args
            try:
                turned = _TURNED.get(tuple(kwargs.items())) if kwargs else _NEITHER
            except TypeError:  # what cannot be hashed is no flag
                turned = None
            if turned is not None:
                key = a.layout, b.layout, turned
                what = known.get(key)
                if what is not None and a._grad_edge is None and b._grad_edge is None and not (
                        Seen.overwrites and _overwritten(a, b)):
                    x, y = a._view, b._view
                    if x is not None and y is not None:
                        view = current().try_call_inline(a, b, np.dot, x.T if turned[0] else x, y.T if turned[1] else y)
                        if view is not None:
                            return ArrayCore.array_class(what, view)
        made = ordinary(*args, **kwargs)
        if key is not None and key not in known and _is_small(a.layout, b.layout, made.layout):
            if len(known) >= _KEPT:
                known.clear()
            known[key] = made.layout
        return made

    return dot


def _overwritten(a: Any, b: Any) -> bool:
    """Whether memory of a or b was written in place while recording: the tape looks closer."""
    return any(x._chunk_or_none is not None and x._chunk_or_none.overwrites for x in (a, b))


def _is_small(a: Layout, b: Layout, what: Layout) -> bool:
    """Whether a product is one that the operator, too, leaves to a single np.dot, whose result is tiny."""
    return (what.tiny and len(a.shape) == len(b.shape) == 2 and a.dtype == b.dtype == what.dtype and what.dtype.char in "fd"
            and 0 < a.size * b.size * what.size <= SMALL**2)  # (m k) (k n) (m n)


def _single(name: str, a: Any, b: Any, what: Layout) -> tuple[np.ufunc, Layout, Any, Any] | None:
    """(function, what, left, right): what the operator called name comes to for tiny a and b; None if it is more.

    left, right:  None where the function takes an array, or the number there, as it takes that.
    """
    op, dtype = builtin(name), a.layout.dtype
    is_number = b.__class__ in _NUMBERS
    p = op.parse({"scalar": b} if is_number else {})
    arrays = (a,) if is_number else (a, b)
    e = op.expression(p, [x.layout.dtype for x in arrays])
    if e is None or not what.tiny or what.nbytes > _BYTES or not what.shape or len(e.outputs) != 1 or e.states:
        return None
    root = e.outputs[0]
    function = PRIMITIVES[root.op].numpy if root.op in PRIMITIVES else None
    if not isinstance(function, np.ufunc) or function.nin != 2:
        return None
    given = [("array", x.value) if x.op == LOAD else x.op for x in root.args]
    if given == [("array", 0), ("array", 1)] and not is_number:
        left = right = None
    elif is_number and sorted(map(str, given)) == sorted(map(str, [("array", 0), PARAM])):
        try:
            value = prepared.leaf(np.asarray, to_integer(p.scalar, dtype) if dtype.kind in "iu" else b, dtype)
        except OverflowError:
            return None
        left, right = (value, None) if given[0] == PARAM else (None, value)
    else:
        return None
    tried = [np.ones(x.layout.shape, x.layout.dtype) for x in arrays]
    x, y = tried if not is_number else (tried[0], right) if left is None else (left, tried[0])
    got = prepared.leaf(function, x, y)
    return (function, what, left, right) if got.dtype == what.dtype and got.shape == what.shape else None
