"""Subgraph: a graph inside a node, for loops and branches. It is immutable, and equal to others of the same structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...kernels.op import Shape, Spec
from ..passes.gradient import copy_op
from ..passes.infer import infer_dtypes, infer_shapes
from ..symbol.node import Entry, Node, copy_graph, topological

_ONE = Spec((1,), np.dtype("float32"))


class Subgraph:
    """Heads, and the variables that they are computed from.

    heads:    as composed or read from a file; what is written to a file.
    inputs:   names of the variables, in depth-first order: the positions that a node's `..._locs` parameters speak of.
    states:   which of the inputs are auxiliary states.
    body:     a copy of the heads to compute with: input i is called "i", and no head is a variable or another head.
    draws:    whether something in it draws random numbers.
    """

    __slots__ = ("_dtypes", "_hash", "_key", "_shapes", "body", "draws", "heads", "inputs", "order", "states")

    def __init__(self, heads: Sequence[Entry]):
        self.heads = tuple(heads)
        variables = [n for n in topological(n for n, _ in heads) if n.op is None]
        self.inputs = tuple(n.name for n in variables)
        copies, made = copy_graph(self.heads)
        for i, n in enumerate(variables):
            made[id(n)].name = str(i)
        op, params = copy_op()
        seen: set[tuple[int, int]] = set()
        self.body: list[Entry] = []
        for k, (node, index) in enumerate(copies):
            if node.op is None or (id(node), index) in seen:
                node, index = Node(op, f"head{k}", params, {}, [(node, index)]), 0
            seen.add((id(node), index))
            self.body.append((node, index))
        self.order = topological(n for n, _ in self.body)
        self.states = frozenset(int(n.name) for node in self.order for n, _ in node.auxiliary_inputs())
        self.draws = any(n.op.num_random(n.use, [_ONE] * n.n_outputs()) for n in self.order if n.op is not None)
        at = {id(n): i for i, n in enumerate(self.order)}
        self._key = (tuple((n.op, n.params, n.name if n.op is None else "", _attributes(n),
                            tuple((at[id(b)], k) for b, k in n.inputs)) for n in self.order),
                     tuple((at[id(n)], k) for n, k in self.body))
        self._hash = hash(self._key)
        self._shapes: dict[tuple, tuple[list[Shape | None], list[Shape | None]]] = {}
        self._dtypes: dict[tuple, tuple[list[np.dtype | None], list[np.dtype | None]]] = {}

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subgraph) and self._key == other._key

    def __repr__(self) -> str:
        return f"<subgraph of {len(self.order)} nodes>"

    def shapes(self, inputs: Sequence[Shape | None]) -> tuple[list[Shape | None], list[Shape | None]]:
        """Infer (input shapes, head shapes) from the known input shapes. Raises ShapeError."""
        key = tuple(inputs)
        if key not in self._shapes:
            self._shapes[key] = self._read(infer_shapes(self.order, {str(i): s for i, s in enumerate(inputs)}))
        return self._shapes[key]

    def dtypes(self, inputs: Sequence[np.dtype | None]) -> tuple[list[np.dtype | None], list[np.dtype | None]]:
        """Infer (input dtypes, head dtypes) from the known input dtypes. Raises DTypeError."""
        key = tuple(d if d is None else d.str for d in inputs)
        if key not in self._dtypes:
            self._dtypes[key] = self._read(infer_dtypes(self.order, {str(i): d for i, d in enumerate(inputs)}))
        return self._dtypes[key]

    def _read(self, found: list[list[Any]]) -> tuple[list[Any], list[Any]]:
        of = {id(n): values for n, values in zip(self.order, found)}
        ins = {n.name: of[id(n)][0] for n in self.order if n.op is None}
        return [ins[str(i)] for i in range(len(self.inputs))], [of[id(n)][i] for n, i in self.body]


def _attributes(node: Node) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((k, v) for k, v in node.attrs.items() if k != "__subgraph_name__"))
