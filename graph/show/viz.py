"""mx.viz: a table of a network's layers, and a drawing of it without other programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import DTypeLike

from ...atomic_file import write_atomic
from ...errors import GraphError
from ...kernels.op import Shape, is_known
from ..passes.infer import from_user, infer_shapes, to_user
from ..symbol.node import Node, split_variables
from ..symbol.symbol import Symbol
from .svg import draw_graph


class Drawing:
    """An SVG picture. Notebooks show it, save writes it; render is MXNet's name for that."""

    def __init__(self, svg: str, title: str):
        self.svg, self.title = svg, title

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, fname: str) -> None:
        """Write the SVG text to a file."""
        write_atomic(fname, self.svg)

    def render(self, filename: str | None = None, **_: Any) -> str:
        """Write `filename` (the title, if none is given) with `.svg` appended; returns the name."""
        name = f"{filename or self.title}.svg"
        self.save(name)
        return name


def print_summary(symbol: Symbol, shape: Mapping[str, Sequence[int]] | None = None, line_length: int = 120,
                  positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0)) -> None:
    """Print a table of the layers: name and operator, output shape without the batch, parameters, the layers before.

    shape:        known shapes by name, such as {"data": (1, 3, 32, 32)}; without it shapes and counts are left out.
    line_length:  characters of a line; positions: where the columns end, in lines.
    Raises:       GraphError when shapes are given and some output's stays unknown.
    """
    _check(symbol, "print_summary")
    order = symbol._order()
    found = infer_shapes(order, {k: from_user(v) for k, v in (shape or {}).items()})
    at = {id(n): i for i, n in enumerate(order)}
    arguments, _ = split_variables(order)
    data = set(shape or {})
    parameters = {id(n) for n in arguments if n.name not in data and not n.name.endswith("label")}
    ends = [int(line_length * p) if p <= 1 else int(p) for p in positions]
    counted: set[int] = set()
    total = 0

    def line(fields: Sequence[str]) -> None:
        text = ""
        for field, end in zip(fields, ends):
            text = (text + field)[: end - 1].ljust(end)
        print(text)

    print("_" * line_length)
    line(["Layer (type)", "Output Shape", "Param #", "Previous Layer"])
    rule = "="
    for i, node in enumerate(order):
        if node.op is None and (id(node) in parameters or node.name not in data):
            continue
        if shape is not None and not is_known(found[i][0]):
            raise GraphError(f"print_summary: the shape of {node.name} cannot be inferred. Give the shapes of more inputs.")
        before, count = [], 0
        for below, _ in node.inputs:
            if below.op is not None or below.name in data:
                before.append(below.name)
            elif id(below) in parameters and id(below) not in counted:
                counted.add(id(below))
                own = found[at[id(below)]][0]
                count += math.prod(own) if own is not None and is_known(own) else 0
        total += count
        kind = "null" if node.op is None else node.op.name
        made = _spelled(found[i][0]) if shape is not None else ""
        print(rule * line_length)
        rule = "_"
        line([f"{node.name}({kind})", made, str(count), before[0] if before else ""])
        for more in before[1:]:
            line(["", "", "", more])
    print("=" * line_length)
    print(f"Total params: {total}")
    print("_" * line_length)


def plot_network(symbol: Symbol, title: str = "plot", save_format: str = "svg", shape: Mapping[str, Sequence[int]] | None = None,
                 dtype: DTypeLike = None, node_attrs: Mapping[str, str] | None = None, hide_weights: bool = True) -> Drawing:
    """Draw the network, with shapes at its edges if `shape` is given.

    hide_weights:             leave out variables that are parameters or states.
    save_format, node_attrs:  accepted as in MXNet, and ignored: the drawing is SVG and has its own style.
    """
    _check(symbol, "plot_network")
    del save_format, dtype, node_attrs
    order = symbol._order()
    edge: dict[tuple[int, int], str] = {}
    if shape is not None:
        found = infer_shapes(order, {k: from_user(v) for k, v in shape.items()})
        edge = {(id(n), k): _spelled(s) for n, shapes in zip(order, found) for k, s in enumerate(shapes) if s is not None}
    if hide_weights:
        order = [n for n in order if n.op is not None or not _is_weight(n)]
    return Drawing(draw_graph(order, {id(n): _label(n) for n in order}, edge, title), title)


def _is_weight(node: Node) -> bool:
    return node.name.endswith(("_weight", "_bias", "_beta", "_gamma", "_moving_var", "_moving_mean", "_running_var",
                               "_running_mean", "_parameters"))


def _label(node: Node) -> str:
    """Return the operator and its main parameters."""
    if node.op is None:
        return ""
    shown = [node.attrs[k] for k in ("kernel", "stride", "num_filter", "num_hidden", "act_type", "pool_type") if k in node.attrs]
    return " ".join([node.op.name, *(s.replace(", ", "x").strip("()") for s in shown)])


def _spelled(shape: Shape | None) -> str:
    """Spell a shape without the batch: 64x28x28."""
    return "?" if shape is None else "x".join(str(d) for d in to_user(shape)[1:])


def _check(symbol: Any, what: str) -> None:
    if not isinstance(symbol, Symbol):
        raise GraphError(f"{what}: {type(symbol).__name__} is not a Symbol.")
