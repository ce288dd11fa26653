"""Node order: MXNet's depth-first order, without recursion; cycles are found."""

import pytest
from tritium.errors import GraphError
from tritium.graph.symbol import namespace as sym
from tritium.graph.symbol.node import Node, copy_graph, topological
from tritium.kernels import op as ops

RELU = ops.get("relu")


def chain(n):
    at = Node(None, "x")
    for i in range(n):
        at = Node(RELU, f"r{i}", RELU.parse({}), {}, [(at, 0)])
    return at


def test_arguments_in_depth_first_order():
    a, b, c = (sym.Variable(n) for n in "abc")
    right = b * c
    assert (right + a).list_arguments() == ["b", "c", "a"]
    assert (a + right).list_arguments() == ["a", "b", "c"]


def test_a_hundred_thousand_nodes():
    order = topological([chain(100_000)])
    assert len(order) == 100_001 and order[0].name == "x" and order[-1].name == "r99999"


def test_copying_is_deep_and_needs_no_recursion():
    end = chain(100_000)
    heads, made = copy_graph([(end, 0)])
    assert len(made) == 100_001 and heads[0][0] is not end


def test_cycle_is_named():
    end = chain(3)
    end.inputs[0][0].inputs[0] = (end, 0)
    with pytest.raises(GraphError, match="r2: the graph has a cycle through this node"):
        topological([end])


def test_shared_nodes_are_listed_once():
    a = sym.Variable("a")
    y = sym.relu(a)
    assert len(topological([(y + y)._outputs[0][0]])) == 3
