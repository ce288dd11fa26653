"""The group of commands and its commands: exit codes, suggestions, and examples in every help text.

Exit codes: 0 success, 1 failure, 2 a wrong command line, 130 an interrupt (Ctrl-C). `tritium run` and `tritium launch` end with
the status of the script.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

import click

from ..errors import MXNetError, nearest

INTERRUPTED = 130  # exit code after Ctrl-C, as shells have it


class Command(click.Command):
    """A command with examples at the end of its help. examples: command lines without `tritium` in front."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any):
        super().__init__(*args, **options)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, one a line, however long."""
        with formatter.section("Examples"):
            for line in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}tritium {line}\n")


class Group(click.Group):
    """The commands of `tritium`."""

    command_class = Command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or end with the names that are near."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"{args[0]!r} is not a command.{nearest(args[0], known)} Commands: {', '.join(known)}.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Errors of Tritium and of files end it with status 1 and their text, an interrupt with 130."""
        try:
            return super().invoke(ctx)
        except MXNetError as e:
            raise click.ClickException(str(e)) from e
        except OSError as e:
            if e.errno == errno.EPIPE:
                raise
            raise click.ClickException(f"{e.filename}: {e.strerror}." if e.filename else str(e)) from e
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(INTERRUPTED)
