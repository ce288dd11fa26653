"""`tritium run`: run a script that was written for MXNet."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from .group import Command

_HERE = Path(__file__).resolve().parent


@click.command(cls=Command, examples=["run train_mnist.py --gpus 0 --num-epochs 3", "run --device cpu -m my_package.train"],
               context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as in python -m.")
@click.option("--device", type=click.Choice(["cpu"]), help="cpu: every GPU that the script names is the CPU.")
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(is_module: bool, device: str | None, script: str, args: tuple[str, ...]) -> None:
    """Run a Python script written for MXNet: in it, `import mxnet as mx` gives Tritium.

    Python processes that the script starts find Tritium in the same way. Names that newer versions of NumPy do not have any
    more, such as np.float, are there again, with a note at the first use.
    """
    if not is_module and not Path(script).is_file():
        raise click.BadParameter(f"{script} is not a file.", param_hint="SCRIPT")
    environment = dict(os.environ)
    paths = [str(_HERE / "as_mxnet"), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    if device is not None:
        environment["TRITIUM_GPU_CONTEXTS"] = device
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, str(_HERE / "run_script.py"), *(["-m"] if is_module else []), script, *args]
    os.execve(sys.executable, command, environment)
