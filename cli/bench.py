"""`tritium bench`: the README's table of figures on this machine, beside PyTorch and MXNet if they are there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..context import Context
from ..kernels.configs.gpu_device import gpu_device
from ..kernels.configs.store import cpu_device
from ..progress import Progress
from ..tuning.session import time_text
from .bench_cases import CASES
from .group import Command
from .parameters import Device

_PROGRAM = Path(__file__).resolve().with_name("bench_cases.py")
TIMEOUT = 300.0  # seconds that one package may take for all cases


@click.command(cls=Command, context_settings={"show_default": True},
               examples=["bench", "bench --torch python --mxnet ~/mxnet/bin/python", "bench --device gpu --torch python --json"])
@click.option("--device", type=Device(), default="cpu", metavar="cpu|gpu", help="Device on which the cases run.")
@click.option("--torch", "torch_python", metavar="PYTHON", help="A Python with PyTorch, which then runs the same cases.")
@click.option("--mxnet", "mxnet_python", metavar="PYTHON", help="A Python with MXNet, which then runs the same cases.")
@click.option("--turns", type=click.IntRange(1), default=3, help="Times that each package runs, one after the other in turn.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=0.5, help="Time of a case in one turn.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, and nothing else.")
def bench(device: Context, torch_python: str | None, mxnet_python: str | None, turns: int, seconds: float, as_json: bool) -> None:
    """Time six common tasks, from adding small arrays to a training step. It takes about half a minute.

    Each package runs in a process of its own. A figure is the median of a turn's rounds, of the best turn, as other work on
    the machine makes turns slower.
    """
    pythons = {"tritium": sys.executable, "torch": torch_python, "mxnet": mxnet_python}
    packages = [name for name, python in pythons.items() if python]
    found: dict[str, dict[str, list[float]]] = {name: {case: [] for case in CASES} for name in packages}
    with Progress(turns * len(packages), "bench", "run") as progress:
        for _ in range(turns):
            for name in packages:
                progress.note = name
                for line in _run(name, str(pythons[name]), device.device_type, seconds):
                    found[name][line["case"]].append(line["seconds"])
                progress.advance()
    best = {name: {case: min(values) for case, values in cases.items()} for name, cases in found.items()}
    if as_json:
        click.echo(json.dumps({"device": _device_name(device), "cores": len(os.sched_getaffinity(0)), "turns": turns,
                               "seconds": best}))
        return
    table = Table("task", *packages, title=f"Time of one call on {_device_name(device)}", title_justify="left",
                  box=None, padding=(0, 2, 0, 0), header_style="bold")
    for case, label in CASES.items():
        table.add_row(label, *(time_text(best[name][case]) for name in packages))
    Console(highlight=False).print(table)


def _run(name: str, python: str, device: str, seconds: float) -> list[dict[str, Any]]:
    """Run the cases of a package under a Python, as its input: beside their file, `import inspect` would find ours.

    Raises ClickException with the reason if that fails.
    """
    environment = {k: v for k, v in os.environ.items() if name == "tritium" or k != "PYTHONPATH"}
    try:
        done = subprocess.run([os.path.expanduser(python), "-", name, device, str(seconds)], input=_PROGRAM.read_text(),
                              capture_output=True, text=True, timeout=TIMEOUT, env=environment)
    except subprocess.TimeoutExpired as e:
        raise click.ClickException(f"{name}: no end after {TIMEOUT:.0f} s.") from e
    except OSError as e:
        raise click.ClickException(f"{name}: {python} cannot be started: {e.strerror}.") from e
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise click.ClickException(f"{name}: the cases end with status {done.returncode}: {last[0]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _device_name(device: Context) -> str:
    found = gpu_device(device.device_id) if device.is_gpu else cpu_device()
    return found.name if found is not None else str(device)
