"""Types of command line arguments that several commands take."""

from __future__ import annotations

import re
from typing import Any

import click

from ..context import Context


class Device(click.ParamType):
    """A context in the user's spelling: cpu, gpu, cpu(1), gpu:0."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Context:
        if isinstance(value, Context):
            return value
        match = re.fullmatch(r"(cpu|gpu)(?:\((\d+)\)|:(\d+))?", value.strip().lower())
        if match is None:
            self.fail(f"{value!r} is not a device. Give cpu, gpu, or one with a number: cpu(1), gpu(0).", param, ctx)
        kind, *numbers = match.groups()
        return Context(kind, int(next((n for n in numbers if n), 0)))


def named_shape(value: str) -> tuple[str, tuple[int, ...]]:
    """Return an input and its shape from their spelling: data=32,3,224,224 or data:32,3,224,224."""
    match = re.fullmatch(r"(.+)[=:]([1-9]\d{0,11}(?:[,x][1-9]\d{0,11})*)", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a name and a shape. Write data=32,3,224,224.")
    return match[1], tuple(map(int, re.split("[,x]", match[2])))
