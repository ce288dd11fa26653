"""Node: one use of an operator, or a variable; and the order in which a graph is listed and run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...errors import GraphError
from ...kernels.op import Op
from ...kernels.params import Params

if TYPE_CHECKING:
    from ..control_flow.subgraph import Subgraph

Entry = tuple["Node", int]  # one output of a node

#: Attributes that MXNet hides from operators: written `__lr_mult__` in files, read as `lr_mult` too.
HIDDEN_KEYS = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "profiler_scope")


def hidden_form(key: str) -> str:
    """`lr_mult` -> `__lr_mult__`; other keys as they are."""
    return f"__{key}__" if key in HIDDEN_KEYS else key


class Node:
    """One use of an operator (op, params, inputs), or a variable (op None).

    attrs:   strings, as in a symbol JSON: the given parameters, and `__x__` attributes.
    params:  the result of `op.parse(attrs)`; None for a variable.
    inputs:  entries (node, output index), arguments first, then auxiliary states.
    """

    __slots__ = ("attrs", "inputs", "name", "op", "params")

    def __init__(self, op: Op | None, name: str, params: Params | None = None, attrs: dict[str, str] | None = None,
                 inputs: Sequence[Entry] = ()):
        self.op = op
        self.name = name
        self.params = params
        self.attrs: dict[str, str] = {} if attrs is None else attrs
        self.inputs: list[Entry] = list(inputs)

    def output_names(self) -> tuple[str, ...]:
        """The names of all outputs, hidden ones included; a variable has its own name."""
        if self.op is None:
            return (self.name,)
        names = self.op.outputs(self.use)
        return tuple(f"{self.name}_{n}" for n in names)

    @property
    def use(self) -> Params:
        """The parameters of an operator node."""
        assert self.params is not None, f"{self.name}: a variable has no parameters"
        return self.params

    @property
    def subgraphs(self) -> Sequence[Subgraph]:
        """The graphs inside a loop or branch; empty for other nodes."""
        return () if self.params is None else self.params.get("subgraphs", ())

    def n_outputs(self) -> int:
        return 1 if self.op is None else len(self.op.outputs(self.use))

    def n_visible(self) -> int:
        return 1 if self.op is None else self.op.visible_outputs(self.use)

    def input_names(self) -> tuple[str, ...]:
        """The operator's names of its inputs: arguments, then auxiliary states."""
        op, p = self.op, self.params
        if op is None or p is None:
            return ()
        return (*op.arguments(p), *op.auxiliaries(p))

    def auxiliary_inputs(self) -> list[Entry]:
        """The inputs that are states this node changes."""
        n = 0 if self.op is None else len(self.op.auxiliaries(self.use))
        return self.inputs[len(self.inputs) - n:] if n else []

    def __repr__(self) -> str:
        return f"<variable {self.name}>" if self.op is None else f"<node {self.name} ({self.op.name})>"


def topological(heads: Iterable[Node], is_leaf: Callable[[Node], bool] | None = None) -> list[Node]:
    """List all nodes that heads need, inputs before users: depth first from each head, inputs from left to right.

    This is MXNet's order, so arguments have MXNet's order. No recursion. Raises GraphError on a cycle.
    is_leaf: True for nodes whose inputs are not visited.
    """
    order: list[Node] = []
    listed: dict[int, bool] = {}  # by id; False while the inputs of the node are being visited

    def rest(node: Node) -> Iterator[Entry]:
        return iter(() if is_leaf is not None and is_leaf(node) else node.inputs)

    for head in heads:
        if id(head) in listed:
            continue
        listed[id(head)] = False
        path, inputs = [head], [rest(head)]
        while path:
            for below, _ in inputs[-1]:
                seen = listed.get(id(below))
                if seen is None:
                    listed[id(below)] = False
                    path.append(below)
                    inputs.append(rest(below))
                    break
                if not seen:
                    raise GraphError(f"{below.name}: the graph has a cycle through this node: {path[-1].name} feeds it "
                                     f"and reads it.")
            else:
                inputs.pop()
                node = path.pop()
                listed[id(node)] = True
                order.append(node)
    return order


def split_variables(order: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """Return (arguments, auxiliary states) among the nodes of order, each in that order."""
    states = {id(n) for node in order for n, _ in node.auxiliary_inputs()}
    variables = [n for n in order if n.op is None]
    return [n for n in variables if id(n) not in states], [n for n in variables if id(n) in states]


def copy_graph(heads: Sequence[Entry], replace: dict[int, Entry] | None = None) -> tuple[list[Entry], dict[int, Node]]:
    """Copy a graph; return the heads of the copy, and the copies by the id of the original.

    replace: {id of a variable: the entry to put in its place}; the entries are not copied.
    """
    replace = replace or {}
    made: dict[int, Node] = {}

    def follow(entry: Entry) -> Entry:
        node, index = entry
        return replace[id(node)] if id(node) in replace else (made[id(node)], index)

    for node in topological(n for n, _ in heads):
        if id(node) not in replace:
            made[id(node)] = Node(node.op, node.name, node.params, dict(node.attrs), [follow(e) for e in node.inputs])
    return [follow(e) for e in heads], made
