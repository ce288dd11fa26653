"""Pictures: well-formed SVG, one shape per node or value, nothing drawn over another."""

import xml.dom.minidom

import tritium as mx
from hypothesis import HealthCheck, given, settings
from support.random_graphs import networks
from tritium.graph.show.svg import MOST_NODES, draw_graph, draw_plan, layers
from tritium.graph.symbol import namespace as sym

SETTINGS = {"max_examples": 20, "deadline": None, "suppress_health_check": list(HealthCheck)}


def rectangles(svg):
    return [tuple(float(r.getAttribute(k)) for k in ("x", "y", "width", "height"))
            for r in xml.dom.minidom.parseString(svg).getElementsByTagName("rect")]


@settings(**SETTINGS)
@given(networks())
def test_nodes_do_not_overlap_and_edges_point_down(network):
    order = network[0]._order()
    boxes = rectangles(draw_graph(order))
    assert len(boxes) == len(order) == len({b[:2] for b in boxes})
    for a, (x, y, w, _) in enumerate(boxes):
        assert not any(y == v and abs(x - u) < w for u, v, _, _ in boxes[a + 1:])
    row = dict(zip(map(id, order), layers(order)))
    assert all(row[id(below)] < row[id(n)] for n in order for below, _ in n.inputs)


@settings(**SETTINGS)
@given(networks())
def test_values_alive_together_are_apart_in_the_plan(network):
    symbol, shapes = network
    plan = symbol.simple_bind(mx.cpu(), **shapes).memory_plan()
    svg = draw_plan(plan)
    assert len(rectangles(svg)) == len(plan.table()) and svg == plan._repr_svg_()


def test_names_are_escaped_and_long_graphs_cut(tmp_path):
    x = sym.Variable("<&>")
    assert "&lt;&amp;&gt;" in draw_graph(x._order(), title="a < b")
    for _ in range(MOST_NODES + 10):
        x = sym.relu(x)
    assert "11 more nodes are not drawn" in draw_graph(x._order())
    plan = sym.tanh(sym.dot(sym.Variable("a"), sym.Variable("b"))).simple_bind(mx.cpu(), a=(2, 2), b=(2, 2)).memory_plan()
    plan.save(str(tmp_path / "plan.svg"))
    assert (tmp_path / "plan.svg").read_text().startswith("<svg")


def test_a_notebook_shows_a_symbol():
    found = sym.relu(sym.Variable("a"), name="r")._repr_mimebundle_()
    assert found["text/plain"] == "<Symbol r>" and found["image/svg+xml"].endswith("</svg>")


def test_an_edge_past_other_boxes_avoids_them():
    """data -> relu -> + and data -> +: the second edge begins at the right side of data's box."""
    x = sym.Variable("data")
    svg = draw_graph((sym.relu(x) + x)._order())
    paths = [p for p in svg.splitlines() if p.startswith("<path")]
    assert len(paths) == 3 and sum('d="M180' in p for p in paths) == 1
