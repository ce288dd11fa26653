"""The symbol of what autograd recorded: `mx.autograd.get_symbol`, handed to the floor below, which knows no symbols."""

from __future__ import annotations

from ...errors import GraphError, describe
from ...ndarray import NDArray
from ...ndarray.autograd.tape import Leaf, OpNode, TapeNode
from .compose import make_node
from .node import Entry, Node
from .symbol import Symbol


def get_symbol(x: NDArray) -> Symbol:
    """Return the operators that computed x while recording, as a graph.

    Variables are called var0, var1, … in the order of their first use. An array without a gradient becomes a new variable at
    each use. Nodes are called node_0, node_1, ….
    Raises: GraphError if x was not recorded, or was computed by something else than operators: indexing, a Function.
    """
    if getattr(x, "_grad_edge", None) is None:
        raise GraphError(f"get_symbol: {describe(x)} was not computed from variables while recording. Call attach_grad() on an "
                         f"input, and compute inside autograd.record().")
    made: dict[TapeNode, Node] = {}
    counts = {"var": 0, "node_": 0}

    def name(kind: str) -> str:
        counts[kind] += 1
        return f"{kind}{counts[kind] - 1}"

    def entry(of: tuple[TapeNode, int] | None) -> Entry:
        return (Node(None, name("var")), 0) if of is None else (made[of[0]], of[1])

    last, output = x._grad_edge
    for node in _in_order(last):
        if isinstance(node, Leaf):
            made[node] = Node(None, name("var"))
        elif isinstance(node, OpNode):
            given = {d.name: node.p[d.name] for d in node.op.params if node.p[d.name] != d.default}
            made[node] = make_node(node.op, [entry(i) for i in node.inputs], {}, given, name=name("node_"))
        else:
            raise GraphError(f"get_symbol: {node.name} is computed by a Python function, not by an operator. Use operators, such "
                             f"as slice and take instead of indexing.")
    return Symbol([(made[last], output)])


def _in_order(last: TapeNode) -> list[TapeNode]:
    """List the recorded nodes that led to last, inputs first."""
    order: dict[TapeNode, None] = {}
    stack = [last]
    while stack:
        node = stack[-1]
        node.check()
        waiting = [i[0] for i in reversed(node.inputs) if i is not None and i[0] not in order]
        if waiting:
            stack += waiting
        else:
            order[stack.pop()] = None
    return list(order)

