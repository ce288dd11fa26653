"""A job on this machine: a folder only this user can read, and the host process that runs coordinator and shards.

`Job` starts it, and ends it on `close`. A worker finds its job by TRITIUM_KV_JOB, the path of a file with keys of mode 0600.
"""

from __future__ import annotations

import logging
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ...errors import KVStoreError, ParameterError
from ..wire.frame import pack
from ..wire.shared_memory import remove_segments

POLICIES = ("fail", "wait", "shrink")
_READY_WITHIN = 60.0  # seconds
_TRIES, _HEARD_WITHIN = 5, 2000  # ms: the coordinator may be away
_LARGEST = 1 << 20  # bytes of a message
_log = logging.getLogger(__name__)


class Job:
    """workers ranks and shards servers on this machine.

    policy:     what a worker's death means for dist_sync: "fail", "wait" for a replacement, or "shrink": go on without it.
    every:      rounds of a key between two snapshots; 0 keeps none, and a server's death is the end of the job.
    staleness:  dist_async: a worker's pull of a key waits while it has pushed more than so many times more often than the slowest
                worker; None: it never waits.
    interface:  the address that is listened on.
    """

    def __init__(self, workers: int = 1, shards: int = 1, *, policy: str = "fail", every: int | None = None,
                 staleness: int | None = None, interface: str | None = None):
        from ..wire import sockets

        if policy not in POLICIES:
            raise ParameterError(f"KVStore: policy={policy!r} is not one of {', '.join(POLICIES)}.")
        if workers < 1 or shards < 1:
            raise ParameterError(f"KVStore: {workers} workers and {shards} servers: there must be one of each at least.")
        if staleness is None and os.environ.get("TRITIUM_KV_MAX_STALENESS"):
            staleness = int(os.environ["TRITIUM_KV_MAX_STALENESS"])
        if staleness is not None and staleness < 0:
            raise ParameterError(f"KVStore: staleness={staleness} must be 0 or more.")
        self.id = secrets.token_hex(8)
        self.folder = Path(tempfile.mkdtemp(prefix="tritium-job-"))
        every = int(os.environ.get("TRITIUM_KV_SNAPSHOT_ROUNDS", "10")) if every is None else every
        interface = interface or os.environ.get("TRITIUM_KV_INTERFACE", "127.0.0.1")
        sockets.write_secret(self.folder / "job.json", {"job": self.id, "workers": workers, "shards": shards, "policy": policy,
                                                        "every": every, "staleness": staleness, "interface": interface})
        reading, self._alive = os.pipe()
        try:
            self.host = subprocess.Popen([sys.executable, "-m", f"{__package__}.host", str(self.folder)], stdin=reading,
                                         stdout=subprocess.PIPE, env=_environment(), start_new_session=True)
        finally:
            os.close(reading)
        assert self.host.stdout is not None
        ready, _, _ = select.select([self.host.stdout], [], [], _READY_WITHIN)
        if not ready or self.host.stdout.readline() != b"ready\n":
            self.close()
            raise KVStoreError(f"KVStore: the job's host did not start within {_READY_WITHIN:.0f} s. Its messages are above.")

    @property
    def file(self) -> Path:
        """What a worker must be able to read."""
        return self.folder / "worker.json"

    def ended(self, rank: int) -> None:
        """Say that the process of a worker has ended, and well."""
        from ..wire import sockets

        say_ended(sockets.read_secret(self.file), rank)

    def coordinator_pid(self) -> int:
        """The process of the coordinator."""
        return int((self.folder / "coordinator.pid").read_text())

    def shard_pid(self, index: int) -> int:
        """The process of a shard."""
        return int((self.folder / f"shard-{index}.pid").read_text())

    def close(self) -> None:
        """End host and shards, and delete what they wrote."""
        if self._alive < 0:
            return
        os.close(self._alive)
        self._alive = -1
        try:
            self.host.wait(30)
        except subprocess.TimeoutExpired:
            self.host.kill()
            self.host.wait()
        if self.host.stdout is not None:
            self.host.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        remove_segments(self.id)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:  # at the end of the interpreter there are no modules any more
            self.close()
        except Exception:
            pass


def say_ended(job: dict[str, Any], rank: int) -> None:
    """Tell the coordinator that the process of a worker has ended, and well. job: what the job's key file says."""
    import zmq

    from ..wire import sockets

    context = zmq.Context(io_threads=1)
    try:
        for _ in range(_TRIES):
            s = sockets.connect(context, sockets.Keys(job["public"], job["secret"]), job["server"], job["address"], _LARGEST)
            s.send(pack({"op": "ended", "id": 0, "rank": rank}))
            if s.poll(_HEARD_WITHIN):
                return
        _log.warning("kvstore: the coordinator did not hear that worker %d has ended.", rank)
    finally:
        context.destroy(linger=0)


def _environment() -> dict[str, str]:
    """This process's environment, for one that needs no GPU and imports nothing from the working directory."""
    return {**os.environ, "TRITIUM_GPU": "off", "PYTHONSAFEPATH": "1"}
