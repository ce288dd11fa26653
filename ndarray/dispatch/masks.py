"""The operators whose results are masks: 0 and 1 in a numeric dtype, which select elements when used as an index.

The layout of an array says that it is a mask (`Layout.mask`), so views and copies, which keep the layout, are masks too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.declare.property_op import PropertyOp
from ...kernels.op import Op
from ...kernels.ops.tensor.data_movement import MoveProperty
from ..core.chunk import Layout

_COMPARES = ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal", "logical_and", "logical_or",
             "logical_xor")

#: Their result is always a mask.
_ALWAYS = frozenset(f"{before}{name}{after}" for name in _COMPARES for before, after in (("broadcast_", ""), ("_", ""), (
    "_", "_scalar"))) | {"logical_not", "_contrib_isnan", "_contrib_isinf", "_contrib_isfinite"}

#: Their result is a mask if all inputs are: and, or, all, any as products, minima and maxima; and copies.
_OF_MASKS = frozenset(("broadcast_mul", "elemwise_mul", "_mul", "broadcast_minimum", "_minimum", "broadcast_maximum", "_maximum",
                       "max", "min", "prod", "_copy", "identity", "broadcast_axis", "broadcast_to"))

#: Their result is a mask if these inputs are; the other inputs are indices, conditions or shapes.
_OF_SOME = {"take": (0,), "pick": (0,), "gather_nd": (0,), "where": (1, 2), "reshape_like": (0,), "slice_like": (0,),
            "broadcast_like": (0,)}

_OTHER_MOVES = frozenset(("Cast", "khatri_rao"))  # one changes the dtype, one multiplies


def gives_mask(op: Op, ins: Sequence[Layout]) -> bool:
    """Return True if the result of op on arrays of these layouts is a mask."""
    if op.role in _ALWAYS:
        return True
    some = _OF_SOME.get(op.role)
    if some is None and op.role not in _OF_MASKS and not (
            isinstance(op, PropertyOp) and issubclass(op.cls, MoveProperty) and op.role not in _OTHER_MOVES):
        return False
    read = [ins[i] for i in some] if some is not None else ins
    return bool(read) and all(a.mask or a.dtype.kind == "b" for a in read)
