"""Blocks in a row: the output of each is the input of the next."""

from __future__ import annotations

import warnings
from typing import Any

from ..block import Block, HybridBlock
from ..core.nested import _indent


class _Stack:
    """The methods that Sequential and HybridSequential have in common; each is mixed with its kind of block."""

    _children: dict[str, Any]
    _prefix: str
    _in_summary = False

    def add(self, *blocks: Any) -> None:
        """Append blocks; each is called by its index, as in "0.weight" of a saved file."""
        for block in blocks:
            self.register_child(block)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        lines = "\n".join(f"  ({key}): {_indent(repr(block), 2)}" for key, block in self._children.items())
        return f"{type(self).__name__}(\n{lines}\n)"

    def __getitem__(self, key: Any) -> Any:
        """Return the block at an index, or a new stack of the blocks of a slice, with the same parameters."""
        blocks = list(self._children.values())[key]
        if not isinstance(blocks, list):
            return blocks
        stack: Any = type(self)(prefix=self._prefix)  # type: ignore[call-arg]
        with stack.name_scope():
            stack.add(*blocks)
        return stack

    def __len__(self) -> int:
        return len(self._children)


class Sequential(_Stack, Block):
    """Blocks in a row, of any kind.

        net = nn.Sequential()
        with net.name_scope():
            net.add(nn.Dense(10, activation="relu"), nn.Dense(20))
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def forward(self, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Hybridize each child that can be; warn where all can be, since a HybridSequential is then one graph."""
        if self._children and all(isinstance(c, HybridBlock) for c in self._children.values()):
            warnings.warn(f"All children of this Sequential layer '{self.prefix}' are HybridBlocks. A HybridSequential of them "
                          "runs as one graph, which is faster.", stacklevel=2)
        super().hybridize(active, **kwargs)


class HybridSequential(_Stack, HybridBlock):
    """HybridBlocks in a row, which `hybridize` makes one graph.

        net = nn.HybridSequential()
        with net.name_scope():
            net.add(nn.Dense(10, activation="relu"), nn.Dense(20))
        net.hybridize()
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        for block in self._children.values():
            x = block(x)
        return x
