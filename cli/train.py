"""`tritium train`: train a network on the bundled digits, save it, load it and score it again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Column, Table

from .. import engine
from ..context import Context
from ..errors import ContextError
from ..examples.networks import NETWORKS
from ..examples.train_digits import Report, train_digits
from ..integers import cdiv
from ..ndarray import zeros
from ..progress import Progress
from .group import Command
from .parameters import Device


@click.command(cls=Command, context_settings={"show_default": True},
               examples=["train", "train --network mlp --epochs 4 --json", "train --device gpu --profile trace.json"])
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
    with EpochDisplay(epochs, cdiv(1437, batch_size)) as display:
        on: Any = device  # an example imports the package by name, and pyright may take its Context for another class
        report = train_digits(network, on, epochs=epochs, batch_size=batch_size, seed=seed, out=out,
                              after_batch=display.batch, after_epoch=display.epoch)
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


class EpochDisplay(Progress):
    """The progress of all epochs, and a line at the end of each."""

    def __init__(self, epochs: int, batches: int):
        super().__init__(epochs * batches, f"epoch 1/{epochs}", "batch")
        self.epochs, self.batches = epochs, batches

    def batch(self, epoch: int, batch: int, metrics: dict[str, float]) -> None:
        """Show that a batch is done. epoch and batch count from 0."""
        self.title = f"epoch {epoch + 1}/{self.epochs}"
        self.reach(epoch * self.batches + batch + 1, note=lambda: self._note(metrics))

    def epoch(self, epoch: int, images_per_s: float, metrics: dict[str, float]) -> None:
        """Say that an epoch is done."""
        self.say(f"epoch {epoch + 1:>{len(str(self.epochs))}}/{self.epochs}  {self._note(metrics)}  {images_per_s:,.0f} images/s")

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
