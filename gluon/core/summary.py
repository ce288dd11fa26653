"""The table that Block.summary prints."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ...errors import BlockError
from ...graph.symbol.symbol import Symbol
from .nested import _flatten

if TYPE_CHECKING:
    from .block import Block

_WIDTH = 80
_ROW = "{:>20}  {:>42} {:>15}"


def summarize(block: Block, inputs: Sequence[Any]) -> None:
    """Print the output shape and the number of parameters of each block, in the order in which they run on inputs.

    Raises BlockError for a block that is hybridized: its children do not run one by one.
    """
    rows: list[tuple[str, str, int]] = [("Input", _shapes(inputs), 0)]
    trainable, shared, seen = 0, 0, set[int]()
    handles: list[Any] = []

    def register(child: Block, name: str) -> None:
        def hook(called: Block, _: Any, outputs: Any) -> None:
            nonlocal trainable, shared
            if any(isinstance(a, Symbol) for a in _flatten(outputs, "output")[0]):
                return  # a trace, which completes the shapes of parameters, is no run
            own = 0
            for param in called._reg_params.values():
                count = prod(param.shape or ())
                own += count
                trainable += count if param.grad_req != "null" and id(param) not in seen else 0
                shared += count if id(param) in seen else 0
                seen.add(id(param))
            rows.append((f"{type(called).__name__}-{len(rows)}", _shapes(outputs), own))

        if getattr(child, "_active", False):
            raise BlockError(f'"{child.name}" must not be hybridized to print summary.')
        if child._in_summary:
            handles.append(child.register_forward_hook(hook))
        for key, below in child._children.items():
            register(below, f"{name}.{key}")

    try:
        register(block, block.name)
        block(*inputs)
    finally:
        for handle in handles:
            handle.detach()
    total = sum(n for *_, n in rows)
    print("-" * _WIDTH, _ROW.format("Layer (type)", "Output Shape", "Param #"), "=" * _WIDTH,
          *(_ROW.format(*row) for row in rows), "=" * _WIDTH, "Parameters in forward computation graph, duplicate included",
          f"   Total params: {total}", f"   Trainable params: {trainable}",
          f"   Non-trainable params: {total - trainable - shared}",
          f"Shared params in forward computation graph: {shared}", f"Unique parameters in model: {total - shared}", "-" * _WIDTH,
          sep="\n")


def _shapes(arrays: Any) -> str:
    """Return the shapes of nested arrays, as a tuple or a list of tuples."""
    shapes = [a.shape for a in _flatten(arrays, "input")[0] if a is not None]
    return str(shapes[0] if len(shapes) == 1 else shapes)
