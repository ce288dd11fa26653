"""A network as text in Graphviz's language DOT, with the labels and colours of MXNet's plot_network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..symbol.node import Node

#: How every node is drawn, unless plot_network is given other attributes.
NODE = {"shape": "box", "fixedsize": "true", "width": "1.3", "height": "0.8034", "style": "filled"}
_VARIABLE, _OTHER = "#8dd3c7", "#fccde5"
_FILL = {"Convolution": "#fb8072", "Deconvolution": "#fb8072", "FullyConnected": "#fb8072", "BatchNorm": "#bebada",
         "Activation": "#ffffb3", "LeakyReLU": "#ffffb3", "Pooling": "#80b1d3", "Concat": "#fdb462", "Flatten": "#fdb462",
         "Reshape": "#fdb462", "Softmax": "#b3de69"}


def dot_text(order: Sequence[Node], edge: Mapping[tuple[int, int], str], title: str, node_attrs: Mapping[str, str]) -> str:
    """Return the graph of the nodes in order. edge: texts by (node id, output)."""
    drawn = {id(n) for n in order}
    lines = [f"digraph {_quoted(title)} {{"]
    for n in order:
        own = {"shape": "oval", "fillcolor": _VARIABLE} if n.op is None else {"fillcolor": _FILL.get(n.op.name, _OTHER)}
        lines.append(f"\t{_quoted(n.name)} [{_attributes(_label(n), {**NODE, **node_attrs, **own})}]")
    for n in order:
        lines += [f"\t{_quoted(n.name)} -> {_quoted(below.name)} "
                  f"[{_attributes(edge.get((id(below), k), ''), {'dir': 'back', 'arrowtail': 'open'})}]"
                  for below, k in n.inputs if id(below) in drawn]
    return "\n".join([*lines, "}"])


def _label(node: Node) -> str:
    """Return the operator with its main parameters where MXNet shows these, else the name of the node."""
    if node.op is None or node.params is None:
        return node.name
    op, p = node.op.name, node.params
    if op in ("Convolution", "Deconvolution"):
        return f"{op}\n{_times(p.kernel)}/{_times(p.stride) or '1'}, {p.num_filter}"
    if op == "FullyConnected":
        return f"{op}\n{p.num_hidden}"
    if op in ("Activation", "LeakyReLU"):
        return f"{op}\n{p.act_type}"
    if op == "Pooling":
        return f"{op}\n{p.pool_type}, {_times(p.kernel)}/{_times(p.stride) or '1'}"
    return node.name


def _times(sizes: Sequence[int] | None) -> str:
    return "x".join(map(str, sizes or ()))


def _attributes(label: str, others: Mapping[str, str]) -> str:
    return " ".join([f"label={_quoted(label)}", *(f"{k}={_quoted(str(v))}" for k, v in sorted(others.items()))])


def _quoted(text: str) -> str:
    """Return text as an identifier of DOT, in quotes where it needs them."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*|-?(\.[0-9]+|[0-9]+(\.[0-9]*)?)", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
