"""`tritium inspect FILE`: summary and damage of a .rec, .params, .safetensors, .states or symbol JSON file."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tqdm import tqdm

from ..errors import FileError
from .file_info import Inspection, inspect_file


@click.command(name="inspect", context_settings={"show_default": True})
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each file, and nothing else.")
@click.option("--rows", type=click.IntRange(1), default=100, help="Rows of a table to show at most.")
@click.option("--decode", "decoding", is_flag=True, help="Decode every image of a .rec file, and name those that are damaged.")
def inspect(files: tuple[Path, ...], as_json: bool, rows: int, decoding: bool) -> None:
    """Summarise files of records, arrays or a network, which are read to the end and checked.

    Nothing in a file is run. The command fails if a file is damaged.
    """
    console = Console(highlight=False)
    bad = 0
    for file in files:
        try:
            with tqdm(desc=str(file), unit="B", unit_scale=True, leave=False, disable=not sys.stderr.isatty(), delay=0.5) as bar:
                def advance(done: int, total: int, bar: tqdm = bar) -> None:
                    bar.total = total
                    bar.update(done - bar.n)

                found = inspect_file(file, advance, decoding)
        except FileError as e:
            found = Inspection(str(file), "unknown", problems=[str(e)])
        bad += bool(found.problems)
        if as_json:
            click.echo(json.dumps(dataclasses.asdict(found)))
        else:
            show(console, found, rows)
    if bad:
        sys.exit(1)


def show(console: Console, found: Inspection, rows: int) -> None:
    """Print the facts, the table, and the problems last."""
    console.print(f"[bold]{escape(found.file)}[/bold]: {escape(found.kind)}", soft_wrap=True)
    for name, value in found.facts.items():
        console.print(f"  {escape(name)}: {escape(f'{value:,}' if isinstance(value, int) else str(value))}", soft_wrap=True)
    if found.rows:
        table = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
        for name, value in zip(found.columns, found.rows[0]):
            table.add_column(name, justify="right" if isinstance(value, int) else "left")
        for row in found.rows[:rows]:
            table.add_row(*(escape(f"{v:,}" if isinstance(v, int) else str(v)) for v in row))
        console.print(table)
        if len(found.rows) > rows:
            console.print(f"  ... {len(found.rows) - rows:,} more rows; --rows shows more")
    for problem in found.problems:
        console.print(f"  [red]problem:[/red] {escape(problem)}", soft_wrap=True)
