"""The command line: `tritium train`, and the commands of the other files. Also as `python -m tritium train`."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from .. import engine
from ..context import Context
from ..errors import ContextError, MXNetError
from ..examples.networks import NETWORKS
from ..examples.train_digits import Report, train_digits
from ..integers import cdiv
from ..ndarray import zeros
from ..version import __version__
from .doctor import doctor
from .im2rec import im2rec
from .inspect import inspect
from .launch import launch
from .run import run
from .tune import tune


class Device(click.ParamType):
    """A context in the user's spelling: cpu, gpu, cpu(1), gpu:0."""

    name = "device"

    def convert(self, value, param, ctx) -> Context:
        if isinstance(value, Context):
            return value
        match = re.fullmatch(r"(cpu|gpu)(?:\((\d+)\)|:(\d+))?", value.strip().lower())
        if match is None:
            self.fail(f"{value!r} is not a device. Give cpu, gpu, or one with a number: cpu(1), gpu(0).", param, ctx)
        kind, *numbers = match.groups()
        return Context(kind, int(next((n for n in numbers if n), 0)))


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tritium")
def main() -> None:
    """Tritium: the architecture of Apache MXNet, built anew in Python."""


for command in (tune, doctor, launch, run, inspect, im2rec):
    main.add_command(command)


@main.command(context_settings={"show_default": True})
@click.option("--device", type=Device(), default="cpu", metavar="cpu|gpu",
              help="Device to train on: cpu, gpu, or one with a number, as in gpu(1). A GPU needs pip install "
                   "'tritium[gpu]'; TRITIUM_GPU=interpret runs GPU kernels on any machine, slowly.")
@click.option("--network", type=click.Choice(list(NETWORKS)), default="lenet",
              help="lenet: two convolutions and two fully connected layers. mlp: three fully connected layers.")
@click.option("--epochs", type=click.IntRange(1), default=12, help="Passes over the 1,437 training digits.")
@click.option("--batch-size", type=click.IntRange(1, 1437), default=32, help="Digits per training step.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0,
              help="Decides the initial weights and the order of the digits. The same seed gives the same weights, "
                   "bit for bit, with any engine and number of workers.")
@click.option("--engine", "engine_name", type=click.Choice(["threaded", "naive"]), default="threaded",
              help="threaded: operations run on worker threads once their inputs are ready. naive: one after another "
                   "as they are issued, for debugging.")
@click.option("--workers", type=click.IntRange(1), default=None, show_default="one per core",
              help="Worker threads of the threaded engine.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=Path("out"),
              help="Folder for the checkpoint: digits-NETWORK-symbol.json and digits-NETWORK-EPOCHS.params.")
@click.option("--json", "as_json", is_flag=True,
              help="End with one line of JSON: accuracy, images_per_s, planned_bytes, naive_bytes, fused_operators, "
                   "weights_sha256 and more.")
@click.option("--profile", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write a trace of all operations for https://ui.perfetto.dev.")
def train(device: Context, network: str, epochs: int, batch_size: int, seed: int, engine_name: str, workers: int | None,
          out: Path, as_json: bool, profile: Path | None) -> None:
    """Train a network on 1,797 real handwritten digits and score it on the 360 held out.

    The digits come with Tritium (UCI Optical Recognition of Handwritten Digits, CC BY 4.0). At the end the weights
    are written in MXNet's checkpoint format, loaded again, and scored once more: the command fails if the accuracy
    is not the same.
    """
    console = Console(highlight=False)
    if engine_name == "naive":
        if workers is not None:
            raise click.UsageError("--workers is for --engine threaded: the naive engine has no workers.")
        engine.set_current(engine.NaiveEngine())
    elif workers is not None:
        engine.set_current(engine.ThreadedEngine(workers))
    check_device(device)
    console.print(f"Training {network} on {device}: 1,437 digits, {epochs} epochs, batches of {batch_size}, "
                  f"seed {seed}", soft_wrap=True)
    if profile is not None:
        engine.profiler.set_config(filename=str(profile), profile_all=True)
        engine.profiler.set_state("run")
    try:
        display = EpochDisplay(console, epochs, cdiv(1437, batch_size))
        with display.bar or nullcontext():
            report = train_digits(network, device, epochs=epochs, batch_size=batch_size, seed=seed, out=out,
                                  after_batch=display.batch, after_epoch=display.epoch)
    except MXNetError as e:
        raise click.ClickException(str(e)) from e
    if profile is not None:
        engine.profiler.dump()
    console.print(closing_table(report))
    same = report.accuracy == report.loaded_accuracy
    console.print(f"Checkpoint: {report.params_file} and {report.symbol_file}", soft_wrap=True)
    console.print(f"Loaded again: accuracy {report.loaded_accuracy:.4f}, {'the same' if same else 'NOT the same'}")
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report)))
    if not same:
        raise click.ClickException(f"the loaded checkpoint scores {report.loaded_accuracy:.4f}, "
                                   f"the trained network {report.accuracy:.4f}. This is a bug; please report it.")


def check_device(device: Context) -> None:
    """End the command with the reason if device cannot be used."""
    try:
        zeros((1,), ctx=device).wait_to_read()
    except ContextError as e:
        raise click.BadParameter(str(e), param_hint="--device") from e


class EpochDisplay:
    """Shows progress: a bar in a terminal or notebook; when piped, a plain line per epoch."""

    def __init__(self, console: Console, epochs: int, batches: int):
        self.console, self.epochs, self.batches = console, epochs, batches
        self.bar: Progress | None = None
        if console.is_jupyter or (sys.stdout.isatty() and not console.is_dumb_terminal):
            bar = self.bar = Progress(TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
                                      TimeElapsedColumn(), TextColumn("{task.fields[note]}"), console=console,
                                      transient=True)
            self.task = bar.add_task(f"epoch 1/{epochs}", total=epochs * batches, note="")

    def batch(self, epoch: int, batch: int, metrics: dict[str, float]) -> None:
        """Show that a batch is done. epoch and batch count from 0."""
        if self.bar:
            self.bar.update(self.task, completed=epoch * self.batches + batch + 1, note=self._note(metrics),
                            description=f"epoch {epoch + 1}/{self.epochs}")

    def epoch(self, epoch: int, images_per_s: float, metrics: dict[str, float]) -> None:
        """Show that an epoch is done."""
        if not self.bar:
            click.echo(f"epoch {epoch + 1:>{len(str(self.epochs))}}/{self.epochs}  {self._note(metrics)}  "
                       f"{images_per_s:,.0f} images/s")

    @staticmethod
    def _note(metrics: dict[str, float]) -> str:
        loss, accuracy = metrics.get("cross-entropy"), metrics.get("accuracy")
        return "" if loss is None or accuracy is None else f"loss {loss:.4f}  training accuracy {accuracy:.4f}"


def closing_table(report: Report) -> Table:
    """Return a table of accuracy, speed and memory."""
    table = Table("name", Column("value", justify="right"), title=f"{report.network} on {report.device}", title_justify="left",
                  show_header=False)
    saved = 1 - report.planned_bytes / report.naive_bytes if report.naive_bytes else 0
    for row in (
        (f"Accuracy on the {report.held_out} held-out digits", f"{report.accuracy:.4f}"),
        ("Training speed, median epoch", f"{report.images_per_s:,.0f} images/s"),
        ("Training time", f"{report.train_seconds:.1f} s"),
        ("Memory planned", f"{report.planned_bytes / 1024:,.1f} KiB"),
        ("Memory without planning", f"{report.naive_bytes / 1024:,.1f} KiB"),
        ("Saved by planning", f"{saved:.0%}"),
        ("Operators fused", f"{report.fused_operators}"),
    ):
        table.add_row(*row)
    return table
