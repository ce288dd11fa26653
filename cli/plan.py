"""`tritium plan`: the shapes, the memory and the kernels of a symbol file. Nothing of the network is run."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..dtype import as_dtype
from ..errors import GraphError, nearest
from ..graph.compile import compile_program
from ..graph.memory.plan import MemoryPlan
from ..graph.options import current
from ..graph.passes.infer import from_user
from ..graph.program import Program, specs_of
from ..graph.show.explain import Explanation, explain
from ..graph.symbol.node import Node, split_variables, topological
from ..graph.symbol.symbol import load
from ..kernels.op import Spec
from .doctor import size_text
from .group import Command
from .parameters import named_shape

WIDTH, HEIGHT = 72, 16  # of the memory picture, in characters
_LETTERS = string.ascii_letters


@click.command(cls=Command, context_settings={"show_default": True},
               examples=["plan resnet-symbol.json --shape data=1,3,224,224",
                         "plan lstm-symbol.json --shape data=32,35 --shape softmax_label=32,35 --dtype data=int32 --train",
                         "plan net-symbol.json --shape data=1,3,32,32 --target gpu --json"])
@click.argument("symbol_file", metavar="X-symbol.json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--shape", "shapes", type=named_shape, multiple=True, metavar="NAME=N,N,...",
              help="Shape of an input: data=1,3,224,224. Once per input.")
@click.option("--dtype", "dtypes", multiple=True, metavar="[NAME=]DTYPE",
              help="Dtype of all inputs, or of one: float16, data=int32. Float32 unless given.")
@click.option("--train", is_flag=True, help="Plan a training step; otherwise a forward pass.")
@click.option("--target", type=click.Choice(["cpu", "gpu"]), default="cpu", help="Device to plan for; it need not exist here.")
@click.option("--rows", type=click.IntRange(1), default=100, help="Rows of a table to show at most.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, and nothing else.")
def plan(symbol_file: Path, shapes: tuple[tuple[str, tuple[int, ...]], ...], dtypes: tuple[str, ...], train: bool, target: str,
         rows: int, as_json: bool) -> None:
    """Show the shapes of a network's layers, its kernels, and a picture of its memory.

    The kernels are those of a bound graph: operators that are fused stand together; --json also has the reason why the next one
    is apart. In the picture, time runs to the right and addresses run downwards.
    """
    symbol = load(str(symbol_file))
    order = topological(n for n, _ in symbol._outputs)
    arguments, states = ([n.name for n in part] for part in split_variables(order))
    types = _dtypes(dtypes, [name for name, _ in shapes])
    for name in (*dict(shapes), *types):
        if name not in (*arguments, *states):
            raise GraphError(f"plan: {symbol_file} has no input {name!r}.{nearest(name, arguments)} "
                             f"Its arguments: {', '.join(arguments[:12])}{' ...' if len(arguments) > 12 else ''}.")
    known = {n: from_user(s) for n, s in shapes}
    specs = specs_of(order, {n: s for n, s in known.items() if s is not None}, {n: as_dtype(t) for n, t in types.items()})
    fed = {*known, *(n for n in arguments if n.endswith("label"))}
    wanted = {n: "null" if n in fed else "write" for n in arguments}
    program, memory = compile_program(symbol._outputs, specs, train, wanted, current(), targets=(target,))
    kernels = explain(program)
    layers = _layers(order, specs, fed)
    if as_json:
        click.echo(json.dumps(_facts(symbol_file, target, train, layers, kernels, memory)))
        return
    console = Console(highlight=False)
    _show_layers(console, layers, rows)
    _show_kernels(console, kernels, rows)
    click.echo(picture(memory, len(program.steps)))
    click.echo(_totals(program, memory))


def _dtypes(given: tuple[str, ...], inputs: list[str]) -> dict[str, str]:
    types: dict[str, str] = {}
    for text in given:
        name, _, dtype = text.rpartition("=")
        types.update({name: dtype} if name else dict.fromkeys(inputs, dtype))
    return types


def _layers(order: list[Node], specs: list[list[Spec]], fed: set[str]) -> list[dict[str, Any]]:
    """Return a row per operator: its name, its output's shape and dtype, the shapes of its parameters. fed: the inputs."""
    place = {id(n): i for i, n in enumerate(order)}
    rows = []
    for node, outputs in zip(order, specs):
        if node.op is not None:
            parameters = [specs[place[id(below)]][k] for below, k in node.inputs if below.op is None and below.name not in fed]
            rows.append({"name": node.name, "operator": node.op.name, "shape": list(outputs[0].shape),
                         "dtype": outputs[0].dtype.name, "parameters": [list(s.shape) for s in parameters]})
    return rows


def _facts(file: Path, target: str, train: bool, layers: list[dict[str, Any]], kernels: Explanation, memory: MemoryPlan
           ) -> dict[str, Any]:
    return {"file": str(file), "target": target, "train": train, "layers": layers,
            "kernels": [{"name": k.name, "operators": list(k.operators), "backward": k.backward, "bytes": k.nbytes,
                         "code": k.code, "apart": k.apart} for k in kernels],
            "planned_bytes": memory.planned_bytes, "arena_bytes": memory.arena_bytes, "output_bytes": memory.output_bytes,
            "lower_bound_bytes": memory.lower_bound_bytes, "naive_bytes": memory.naive_bytes, "values": memory.table()}


def _show_layers(console: Console, layers: list[dict[str, Any]], rows: int) -> None:
    table = Table("layer", "operator", "output", "parameters", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for row in layers[:rows]:
        parameters = " ".join(map(_shape, row["parameters"]))
        table.add_row(escape(row["name"]), escape(row["operator"]), _shape(row["shape"]), parameters)
    console.print(table)
    _say_more(len(layers), rows)


def _show_kernels(console: Console, kernels: Explanation, rows: int) -> None:
    console.print()
    table = Table("kernel", "operators in it", "bytes", "code", box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.columns[2].justify = "right"
    for k in kernels[:rows]:
        table.add_row(f"{k.number}{' backward' if k.backward else ''}", escape(" + ".join(k.operators)), f"{k.nbytes:,}", k.code)
    console.print(table)
    _say_more(len(kernels), rows)
    click.echo()


def _say_more(length: int, rows: int) -> None:
    if length > rows:
        click.echo(f"... {length - rows:,} more rows; --rows shows more")


def _shape(shape: list[int]) -> str:
    return "x".join(map(str, shape)) or "()"


def picture(memory: MemoryPlan, steps: int) -> str:
    """Return the arena as text: a column for some steps, a row for some bytes, a letter for the value that lies there."""
    table = memory.table()
    if not table or not memory.arena_bytes:
        return "No inner values: all memory is in the outputs."
    width, height = max(1, WIDTH // steps) * min(steps, WIDTH), HEIGHT
    cells = [["."] * width for _ in range(height)]
    largest = sorted(table, key=lambda r: -int(r["nbytes"]))
    letter = {id(row): _LETTERS[i] if i < len(_LETTERS) else "#" for i, row in enumerate(largest)}
    for row in reversed(largest):
        first, last, at, end = (int(row[k]) for k in ("first", "last", "offset", "nbytes"))
        end += at
        for y in range(at * height // memory.arena_bytes, max(1, -(-end * height // memory.arena_bytes))):
            for x in range(first * width // steps, max(first * width // steps + 1, -(-(last + 1) * width // steps))):
                if y < height and x < width:
                    cells[y][x] = letter[id(row)]
    lines = [f"{size_text(memory.arena_bytes * y // height):>11} |{''.join(line)}|" for y, line in enumerate(cells)]
    names = [f"{letter[id(r)]} {r['name']} {size_text(int(r['nbytes']))}" for r in largest[:8]]
    steps_text = f"{'':>12} steps 0 to {steps - 1}; a letter is a value, a dot is free"
    return "\n".join([*lines, steps_text, *(f"{'':>13}{name}" for name in names)])


def _totals(program: Program, memory: MemoryPlan) -> str:
    saved = 1 - memory.planned_bytes / memory.naive_bytes if memory.naive_bytes else 0
    return (f"\n{len(program.steps)} kernels. Memory of inner values and outputs: {size_text(memory.planned_bytes)} planned, "
            f"{size_text(memory.naive_bytes)} without sharing ({saved:.0%} saved), {size_text(memory.lower_bound_bytes)} at "
            f"least.")
