"""mx.viz: a table of a network's layers, and a drawing of it without other programs."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import DTypeLike

from ...atomic_file import write_atomic
from ...errors import GraphError, MissingLibraryError
from ...kernels.op import Shape, is_known
from ..passes.infer import from_user, infer_shapes
from ..symbol.node import split_variables
from ..symbol.symbol import Symbol
from .dot import dot_text
from .svg import describe, draw_graph, is_weight


class Drawing:
    """A drawing of a network, with the names of the Digraph that MXNet returns. Notebooks show it.

    svg:     the picture, made without other programs.
    source:  the network in Graphviz's language DOT, as MXNet writes it.
    format:  "svg"; or what Graphviz's program `dot` writes, such as "pdf" and "png".
    """

    def __init__(self, svg: str, title: str, source: str, format: str = "pdf"):
        self.svg, self.title, self.source, self.format = svg, title, source, format

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, filename: str | None = None, directory: str | None = None) -> str:
        """Write the SVG text if filename ends in `.svg`, else the source (to `TITLE.gv` by default). Returns the path."""
        path = os.path.join(directory or "", filename or f"{self.title}.gv")
        write_atomic(path, self.svg if path.endswith(".svg") else self.source)
        return path

    def render(self, filename: str | None = None, directory: str | None = None, view: bool = False, cleanup: bool = False) -> str:
        """Write the source to filename and the picture beside it, with its format appended; return the picture's path.

        cleanup:  delete the source afterwards. view: open the picture.
        Raises:   MissingLibraryError for a format other than "svg" where Graphviz is not installed.
        """
        source = self.save(filename, directory)
        path = f"{source}.{self.format}"
        if self.format == "svg":
            write_atomic(path, self.svg)
        else:
            write_atomic(path, self.pipe())
        if cleanup:
            os.remove(source)
        if view:
            webbrowser.open(Path(path).resolve().as_uri())
        return path

    def view(self, filename: str | None = None, directory: str | None = None, cleanup: bool = False) -> str:
        """Render the picture and open it. Returns its path."""
        return self.render(filename, directory, True, cleanup)

    def pipe(self, format: str | None = None) -> bytes:
        """Return the picture in a format that Graphviz writes. Raises MissingLibraryError where it is not installed."""
        program = shutil.which("dot")
        if program is None:
            raise MissingLibraryError(f"plot_network: {format or self.format} is drawn by Graphviz, and its program `dot` is not "
                                      f"installed. Install Graphviz, or use save_format='svg' or save('{self.title}.svg').")
        done = subprocess.run([program, f"-T{format or self.format}"], input=self.source.encode(), capture_output=True,
                              check=False)
        if done.returncode:
            raise GraphError(f"plot_network: dot failed: {done.stderr.decode(errors='replace').strip()[:200]}")
        return done.stdout


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


def plot_network(symbol: Symbol, title: str = "plot", save_format: str = "pdf", shape: Mapping[str, Sequence[int]] | None = None,
                 dtype: DTypeLike = None, node_attrs: Mapping[str, str] | None = None, hide_weights: bool = True) -> Drawing:
    """Draw the network, with shapes at its edges if `shape` is given.

    save_format:   of `render` and `view`; all but "svg" need Graphviz.
    node_attrs:    Graphviz's attributes of the nodes, for these formats.
    hide_weights:  leave out variables that are parameters or states.
    dtype:         accepted for MXNet's sake, without effect.
    """
    _check(symbol, "plot_network")
    order = symbol._order()
    edge: dict[tuple[int, int], str] = {}
    if shape is not None:
        found = infer_shapes(order, {k: from_user(v) for k, v in shape.items()})
        edge = {(id(n), k): _spelled(s) for n, shapes in zip(order, found) for k, s in enumerate(shapes) if s is not None}
    if hide_weights:
        order = [n for n in order if n.op is not None or not is_weight(n)]
    svg = draw_graph(order, {id(n): describe(n) for n in order}, edge, title)
    return Drawing(svg, title, dot_text(order, edge, title, node_attrs or {}), save_format)


def _spelled(shape: Shape | None) -> str:
    """Spell a shape without the batch: 64x28x28."""
    return "?" if shape is None else "x".join(str(max(d, 0)) for d in shape[1:])


def _check(symbol: Any, what: str) -> None:
    if not isinstance(symbol, Symbol):
        raise GraphError(f"{what}: {type(symbol).__name__} is not a Symbol.")
