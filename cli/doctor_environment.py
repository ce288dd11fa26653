"""`tritium doctor --env`: the environment variables that Tritium reads, with the values set now."""

from __future__ import annotations

import json

import click
from rich.console import Console

from ..environment import VARIABLES, facts, unknown


def show_environment(as_json: bool) -> int:
    """Print the table, or one line of JSON. Return the exit status: 1 if a variable has a value that it cannot have."""
    table, notes = [facts(v) for v in VARIABLES.values()], list(unknown().values())
    errors = [f["error"] for f in table if f["error"]]
    if as_json:
        click.echo(json.dumps({"variables": table, "problems": errors, "advice": notes}))
        return 1 if errors else 0
    console, subject = Console(highlight=False), ""

    def line(text: str, style: str | None = None) -> None:
        console.print(text, soft_wrap=True, markup=False, style=style)

    for f in table:
        if f["subject"] != subject:
            line(f"{chr(10) if subject else ''}{f['subject']}", "bold")
            subject = f["subject"]
        state = f"{f['name']}={f['value']}" if f["value"] else f"{f['name']}  (not set: {f['default']})"
        line(f"  {state}", "red" if f["error"] else "green" if f["value"] else None)
        line(f"      {f['meaning']} Give {f['wanted']}.", "dim")
    line("")
    for text in notes:
        line(f"Note: {text}", "yellow")
    for text in errors:
        line(f"Problem: {text}", "red")
    return 1 if errors else 0
