"""Which operators give masks: 0 and 1 that select when they are an index, though their dtype is that of what was compared.

A mask is known by its layout (`Layout.mask`), so that views, copies and everything else that hands a layout on hands it on too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.declare.operator_property import PropertyOp
from ...kernels.op import Op
from ...kernels.ops.tensor.data_movement import MoveProperty
from ..core.chunk import Layout

_COMPARES = ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal", "logical_and", "logical_or",
             "logical_xor")

#: Whatever they are given.
_ALWAYS = frozenset(f"{before}{name}{after}" for name in _COMPARES for before, after in (("broadcast_", ""), ("_", ""), (
    "_", "_scalar"))) | {"logical_not", "_contrib_isnan", "_contrib_isinf", "_contrib_isfinite"}

#: If all that they are given is masks: products, and, or, all, any; and copies.
_OF_MASKS = frozenset(("broadcast_mul", "elemwise_mul", "_mul", "broadcast_minimum", "_minimum", "broadcast_maximum", "_maximum",
                       "max", "min", "prod", "_copy", "identity", "broadcast_axis", "broadcast_to"))

#: If these of their arrays are masks; the others are positions, conditions or shapes.
_OF_SOME = {"take": (0,), "pick": (0,), "gather_nd": (0,), "where": (1, 2), "reshape_like": (0,), "slice_like": (0,),
            "broadcast_like": (0,)}

_OTHER_MOVES = frozenset(("Cast", "khatri_rao"))  # to another dtype; a product and not a move


def gives_mask(op: Op, ins: Sequence[Layout]) -> bool:
    """Whether op makes masks of arrays of these layouts."""
    if op.role in _ALWAYS:
        return True
    some = _OF_SOME.get(op.role)
    if some is None and op.role not in _OF_MASKS and not (
            isinstance(op, PropertyOp) and issubclass(op.cls, MoveProperty) and op.role not in _OTHER_MOVES):
        return False
    read = [ins[i] for i in some] if some is not None else ins
    return bool(read) and all(a.mask or a.dtype.kind == "b" for a in read)
