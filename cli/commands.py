"""The command line: the group of all commands. Also as `python -m tritium`."""

from __future__ import annotations

import click

from ..version import __version__
from .bench import bench
from .completion import completion
from .convert import convert
from .doctor import doctor
from .group import Group
from .im2rec import im2rec
from .inspect import inspect
from .launch import launch
from .plan import plan
from .run import run
from .train import train
from .tune import tune


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tritium")
def main() -> None:
    """Tritium: the architecture of Apache MXNet, built anew in Python.

    `tritium COMMAND --help` ends with examples. Exit codes: 0 success, 1 failure, 2 a wrong command line, 130 Ctrl-C.
    """


for command in (train, inspect, plan, convert, tune, bench, doctor, run, launch, im2rec, completion):
    main.add_command(command)
