"""`tritium completion`: the script that completes commands and options in a shell."""

from __future__ import annotations

import json

import click
from click.shell_completion import get_completion_class

from .group import Command

_WHERE = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/completions/tritium.fish"}


@click.command(cls=Command, examples=["completion bash >> ~/.bashrc", "completion zsh >> ~/.zshrc",
                                      "completion fish > ~/.config/fish/completions/tritium.fish"])
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON: shell, file, script.")
def completion(shell: str, as_json: bool) -> None:
    """Print a script after which the shell completes commands, options and file names of `tritium`."""
    kind = get_completion_class(shell)
    assert kind is not None, shell
    script = kind.source_template % {"complete_func": "_tritium_completion", "complete_var": "_TRITIUM_COMPLETE",
                                     "prog_name": "tritium"}
    click.echo(json.dumps({"shell": shell, "file": _WHERE[shell], "script": script}) if as_json else script)
