"""Which operators are linear in their data: their derivative is their transpose, whose derivative is the operator itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .op import Op
from .params import Params

LINEAR = frozenset({
    "Reshape", "Flatten", "expand_dims", "squeeze", "reshape_like", "transpose", "SwapAxis", "depth_to_space", "space_to_depth",
    "Cast", "Concat", "stack", "add_n", "SliceChannel", "_split_v2", "slice", "slice_axis", "slice_like", "reverse", "tile",
    "repeat", "take", "Embedding", "pick", "batch_take", "gather_nd", "broadcast_to", "broadcast_axis", "broadcast_like",
    "diag", "Crop", "Pad", "Pooling", "SequenceLast", "SequenceReverse", "cumsum", "im2col", "col2im", "where",
    "_linalg_extractdiag", "_linalg_makediag", "_linalg_extracttrian", "_linalg_maketrian"})
_NOT_ALWAYS: dict[str, Callable[[Any], bool]] = {
    "Pooling": lambda p: p.pool_type not in ("avg", "sum"), "Pad": lambda p: bool(p.get("constant_value"))}


def is_linear(op: Op, p: Params) -> bool:
    """Whether op, with these parameters, is linear in the inputs that get a derivative."""
    return op.role in LINEAR and not _NOT_ALWAYS.get(op.role, lambda _: False)(p)
