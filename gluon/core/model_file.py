"""The files of Block.save: `PREFIX-model.json`, the tree of blocks, and `PREFIX-model.params`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...atomic_file import read_file, write_atomic
from ...errors import FileError

if TYPE_CHECKING:
    from .block import Block


def write_model(block: Block, prefix: str) -> None:
    """Write the tree of block, with the graphs of what was hybridized, and all parameters."""
    tree: dict[str, Any] = {}
    _add(block, [0], tree)
    write_atomic(f"{prefix}-model.json", json.dumps(tree))
    block.save_parameters(f"{prefix}-model.params")


def _add(block: Block, number: list[int], tree: dict[str, Any]) -> None:
    own: dict[str, Any] = {"orig_name": block.name}
    tree[f"{type(block).__name__.lower()}{number[0]}"] = own
    graph = getattr(block, "_cached_graph", None)
    if graph is not None:
        own["hybridized"] = bool(graph)
    if graph:
        inputs, out = graph
        own.update(in_format=block._in_format, out_format=block._out_format,  # type: ignore[attr-defined]
                   inputs=[i.tojson() for i in inputs], symbol=out.tojson())
    own["children"] = {}
    for name, child in block._children.items():
        number[0] += 1
        own["children"][child.name] = name
        _add(child, number, own)


def read_model(block: Block, prefix: str) -> None:
    """Read the parameters of a block that was built like the one saved, and hybridize what was hybridized.

    Raises FileError if the blocks of the file are others.
    """
    path = f"{prefix}-model.json"
    try:
        tree = json.loads(read_file(path))
    except (ValueError, RecursionError) as e:
        raise FileError(f"Block.load: {path}: it is not the JSON of a model: {e}.") from e
    _restore(block, [0], tree, path)
    block.load_parameters(f"{prefix}-model.params")


def _restore(block: Block, number: list[int], tree: Any, path: str) -> None:
    name = f"{type(block).__name__.lower()}{number[0]}"
    own = tree.get(name) if isinstance(tree, dict) else None
    if not isinstance(own, dict):
        raise FileError(f"Block.load: {path}: there is no block {name} where this model has one. Build the model as it was built "
                        f"when it was saved.")
    if own.get("hybridized") and hasattr(block, "_active"):
        block._active = True  # type: ignore[attr-defined]
    for child in block._children.values():
        number[0] += 1
        _restore(child, number, own, path)
