"""The coordinator's process without sockets: the grace period after a restart. The host process: its children."""

from __future__ import annotations

import os
from types import SimpleNamespace
from unittest import mock

from tritium.kvstore.job import coordinator_process
from tritium.kvstore.job.coordinator_process import CoordinatorServer
from tritium.kvstore.job.host import Children
from tritium.kvstore.protocol.coordinator import Coordinator


def test_returning_peers_are_handled_before_the_grace_period_ends(monkeypatch):
    """On a busy machine the grace period may be over before the coordinator has run at all."""
    server, events = CoordinatorServer.__new__(CoordinatorServer), []
    ready = [["accepted"], ["back"], []]
    server.poller = SimpleNamespace(select=lambda _: ready.pop(0), handle=events.extend)
    server.coordinator = SimpleNamespace(changed=False, end_grace_period=lambda: events.append("grace period") or [])
    server._grace_ends, server._sends = 10.0, []
    monkeypatch.setattr(coordinator_process, "time", SimpleNamespace(monotonic=lambda: 100.0))
    for _ in range(3):
        server.turn()
    assert events == ["accepted", "back", "grace period"]


def test_what_is_not_json_is_a_warning_that_names_its_sender(caplog):
    server = CoordinatorServer.__new__(CoordinatorServer)
    server.coordinator, server._sends = Coordinator(1, 1), []
    server._receive(mock.Mock(user="server"), b"", memoryview(b"{"))
    assert [r.getMessage() for r in caplog.records] == [
        "kvstore: the coordinator has an invalid message from a server that has not joined: control message: invalid JSON: "
        "JSONDecodeError."]


def test_the_process_id_of_a_child_is_written_before_it_runs(tmp_path, monkeypatch):
    """A process that the child answers may need the id at once."""
    children = Children(tmp_path, {"servers": 1})
    children._runs["server-0"] = lambda ready: (tmp_path / "seen").write_text((tmp_path / "server-0.pid").read_text())
    children.start("server-0")
    (pid,) = children.running
    os.waitpid(pid, 0)
    assert (tmp_path / "seen").read_text() == str(pid)
