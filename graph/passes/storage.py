"""The storage types of a graph's outputs by those of the arrays bound to it, as MXNet infers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ndarray.core.sparse_ops import result_stype
from ..symbol.node import Entry, Node


def output_stypes(order: Sequence[Node], heads: Sequence[Entry], given: Mapping[str, str]) -> list[str]:
    """Return "default", "row_sparse" or "csr" for each head.

    order: all nodes. given: the storage types of variables; those of others are "default".
    """
    found: dict[int, str] = {}
    for node in order:
        if node.op is None:
            found[id(node)] = given.get(node.name, "default")
            continue
        inputs = [found[id(below)] if index == 0 else "default" for below, index in node.inputs]
        if node.op.name == "cast_storage":
            found[id(node)] = node.use.stype
        else:
            sparse = any(s != "default" for s in inputs)
            found[id(node)] = result_stype(node.op, node.use, inputs) if sparse else "default"
    return [found[id(node)] if index == 0 else "default" for node, index in heads]
