"""The actor of a worker on a cluster, without Ray."""

from __future__ import annotations

import sys

import pytest
from tritium.cli.workers import WorkerActor
from tritium.errors import KVStoreError


def run(command, folder, **environment):
    actor = WorkerActor({})
    actor.start(command, str(folder), {"TRITIUM_KV_RANK": "0", **environment})
    out, errors, status = b"", b"", None
    try:
        while status is None:
            *written, status = actor.read()
            out, errors = out + written[0], errors + written[1]
    finally:
        assert not actor.folder.exists()
    return out, errors, status


def test_all_that_the_command_writes_and_its_status_are_returned(tmp_path):
    code = ("import os, sys; sys.stdout.write('x' * 300000 + os.environ['NAME'] + os.getcwd()); "
            "print('why', file=sys.stderr); exit(7)")
    out, errors, status = run([sys.executable, "-c", code], tmp_path, NAME="given")
    assert (out, errors, status) == (b"x" * 300000 + f"given{tmp_path}".encode(), b"why\n", 7)


def test_a_folder_or_a_program_that_the_machine_lacks_is_named(tmp_path):
    with pytest.raises(KVStoreError, match=f"the folder {tmp_path / 'none'} does not exist on "):
        run(["true"], tmp_path / "none")
    with pytest.raises(KVStoreError, match=f"/no/such/program cannot be started in {tmp_path} on "):
        run(["/no/such/program"], tmp_path)
