"""Messages of any form: none breaks the coordinator, and a wrong one is answered and logged."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kvstore_coordinator import KEYS, Harness
from tritium.kvstore.protocol import coordinator
from tritium.kvstore.protocol.coordinator import Coordinator

names = st.sampled_from(["op", "id", "keys", "index", "epoch", "rank", "kind", "spec", "public", "n", "of", "leave",
                         "incarnation"])
operations = st.sampled_from(["join", "init", "filled", "barrier", "optimizer", "ack", "leave", "back", "missing", "info"])
values = st.one_of(st.none(), st.integers(), st.just("new"), st.text(max_size=5), st.lists(st.integers(), max_size=2), operations)
anything = st.dictionaries(names, values, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["w", "s0", "x"]), st.sampled_from(["worker", "server"]), anything), max_size=15))
def test_no_message_breaks_the_coordinator(messages):
    c = Coordinator(2, 1)
    with mock.patch.object(coordinator._log, "error", side_effect=AssertionError("a message of a wrong form was handled")):
        for peer, role, m in messages:
            for _, answer in c.receive(peer, role, m):
                assert isinstance(answer, dict)
    json.dumps(c.state())
    h = Harness()
    assert h.join("a")["rank"] == 0


def test_an_error_that_no_code_raises_on_purpose_is_logged(monkeypatch, caplog):
    """The worker gets it as an error, too, and nothing that was to be sent before it."""
    h = Harness(1)
    h.join("a")
    assert "not joined" in h.say("b", op="barrier")["error"]
    assert not caplog.records
    monkeypatch.setattr(h.c, "_answer_waiting", lambda: h.c._send("a", {"id": 0}) or None.joined)
    answer = h.say("a", op="barrier")
    assert "AttributeError" in answer["error"] and h.answer("a", 0) is None
    assert [r.getMessage() for r in caplog.records] == ["kvstore: unexpected error in the coordinator: barrier of a worker"]
    assert "in _worker_barrier" in caplog.text


@pytest.mark.parametrize(("peer", "role", "message", "wrong"), [
    ("a", "worker", {"op": "dance"}, "worker 0: unknown request 'dance' of a worker"),
    ("b", "worker", {"op": "join", "kind": "sync", "n": "1"},
     "a worker that has not joined: join: invalid fields: n='1', public=None"),
    ("s0", "server", {"op": "ack", "epoch": [1]}, "server 0: ack: invalid fields: epoch=[1]"),
    ("a", "worker", {"op": "init", "keys": [["s:w", [2, None], "float32"]], "big": 1},
     "worker 0: init: invalid fields: keys=[['s:w', [2, None], 'float32']]"),
    ("a", "worker", {"op": "init", "keys": [["s:w", [2]]], "big": 1}, "worker 0: init: invalid fields: keys=[['s:w', [2]]]"),
])
def test_a_message_of_a_wrong_form_is_a_warning_that_names_its_sender(caplog, peer, role, message, wrong):
    h = Harness(1)
    h.join("a")
    assert h.say(peer, role, **message)["error"] == wrong.partition(": ")[2]
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", f"kvstore: the coordinator has an invalid message from {wrong}")]
    assert h.say("a", **{**KEYS, "op": "init"})["first"]
