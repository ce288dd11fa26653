"""`tritium launch`: run several processes of one script, and the servers of the store that they share."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from ..kvstore.job.local_job import POLICIES, LocalJob
from ..kvstore.job.ray_job import RayJob
from .group import Command
from .workers import LocalWorkers, RayWorkers, say


@click.command(cls=Command, examples=["launch -n 4 -s 2 python train.py",
                                      "launch -n 16 -s 4 --address HEAD:6379 python train.py"],
               context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "show_default": True})
@click.option("-n", "--workers", type=click.IntRange(1), required=True, help="Number of processes that run COMMAND.")
@click.option("-s", "--servers", type=click.IntRange(1), default=1, help="Number of server processes that hold the values.")
@click.option("--policy", type=click.Choice(POLICIES), default="fail",
              help="When a worker dies in dist_sync: fail: the others get an error. wait: they wait for its replacement, but "
                   "not for a worker that has ended with status 0. "
                   "shrink: they go on without it.")
@click.option("--restarts", type=click.IntRange(0), default=0, help="Number of times that a failed worker is started again.")
@click.option("--snapshot-rounds", type=click.IntRange(0), default=10,
              help="Rounds after which servers write each value to disk, so that a server that dies loses nothing. 0: never.")
@click.option("--max-staleness", type=click.IntRange(0), default=None,
              help="In dist_async: a pull waits while its worker has pushed so many times more than the slowest one.")
@click.option("--address", metavar="HOST:PORT",
              help="Address of a running Ray cluster, whose machines then run workers and servers. Its token is needed: "
                   "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH.")
@click.option("--env", "names", metavar="NAME[=VALUE]", multiple=True,
              help="Variable of this shell, or a new one, for the workers on a cluster. On this machine they have all. May be "
                   "given several times.")
@click.option("--tee", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
              help="Folder that gets the output of each worker as well, in worker-RANK.log.")
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON: command, workers, servers, status.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(workers: int, servers: int, policy: str, restarts: int, snapshot_rounds: int, max_staleness: int | None,
           address: str | None, names: tuple[str, ...], tee: Path | None, as_json: bool, command: tuple[str, ...]) -> None:
    """Run COMMAND in several processes that share one `mx.kv.create("dist_sync")` (or dist_async) store.

    The script needs no change; its environment holds the addresses. Each line that a worker writes comes after its rank, as in
    "[worker 1] epoch 3". The last line says which worker failed first, and why; its status is that of this command.

    A complete train.py, for the first of the examples below:

    \b
        import numpy as np
        import tritium as mx

    \b
        kv = mx.kv.create("dist_sync")
        x = np.random.RandomState(0).rand(1024, 8).astype("float32")
        y = (x.sum(axis=1) > 4).astype("float32")
        part = slice(kv.rank, None, kv.num_workers)
        data = mx.io.NDArrayIter(x[part], y[part], batch_size=32)
        layer = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2)
        module = mx.mod.Module(mx.sym.SoftmaxOutput(layer, name="softmax"))
        module.fit(data, num_epoch=5, kvstore=kv)
        print("accuracy", module.score(data, "acc")[0][1])
    """
    here, environment = dict(os.environ), dict[str, str]()
    for name, given, value in [n.partition("=") for n in names]:
        if not given and name not in here:
            raise click.UsageError(f"--env {name}: this shell has no such variable. Export it, or give NAME=VALUE.")
        environment[name] = value if given else here[name]
    try:
        settings: Any = {"policy": policy, "snapshot_rounds": snapshot_rounds, "max_staleness": max_staleness}
        job = LocalJob(workers, servers, **settings) if address is None else RayJob(address, workers, servers, **settings)
    except ModuleNotFoundError as e:
        raise click.ClickException(f'{e.name} is not installed. pip install "tritium[dist]".') from e
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with job:
        try:
            if address is not None:
                say(f"workers run in {Path.cwd()} on the machines of the cluster")
            start = LocalWorkers if address is None else RayWorkers
            status = start(job, command, tee, environment).run(workers, restarts)
        except OSError as e:
            what = "cannot be started: " if e.filename in (None, command[0]) else ""
            raise click.ClickException(f"{e.filename or command[0]}: {what}{e.strerror}.") from e
    if as_json:
        click.echo(json.dumps({"command": command, "workers": workers, "servers": servers, "status": status}))
    sys.exit(status)
