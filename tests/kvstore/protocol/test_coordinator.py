"""The coordinator without processes: messages in, messages out, in any order."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kvstore_coordinator import KEYS, Harness
from tritium.kvstore.protocol.coordinator import Coordinator


def test_ranks_are_given_in_order_of_arrival_or_as_requested():
    h = Harness(3)
    assert [h.join("a")["rank"], h.join("b", 2)["rank"], h.join("c")["rank"]] == [0, 2, 1]
    assert "all 3 workers have joined already" in h.join("d")["error"]


def test_no_worker_joins_before_every_server_has():
    c = Coordinator(1, 1)
    assert c.receive("w", "worker", {"op": "join", "id": 1, "kind": "sync", "public": "p"}) == []
    sends = c.receive("s", "server", {"op": "join", "id": 2, "index": 0, "address": "x", "public": "y"})
    members = next(m for peer, m in sends if peer == "s" and m.get("op") == "members")
    assert not any(m.get("id") == 1 for _, m in sends)  # the server must know the worker's key first
    sends = c.receive("s", "server", {"op": "ack", "epoch": members["epoch"]})
    assert next(m for _, m in sends if m.get("id") == 1)["rank"] == 0


def test_all_workers_use_one_kind_of_store():
    h = Harness()
    h.join("a")
    assert "the job is dist_sync, this worker asks for dist_async" in h.join("b", kind="async")["error"]


def test_init_returns_when_rank_0_has_sent_values_and_all_have_called_it():
    h = Harness()
    h.join("a"), h.join("b")
    assert h.say("b", op="init", id="b1", **KEYS) is None
    assert [e["key"] for e in h.say("a", op="init", id="a1", **KEYS)["fill"]] == ["s:w"]
    assert h.say("a", op="filled", id="a2", keys=["s:w"]) is not None and h.answer("b", "b1")["keys"][0]["shape"] == [2, 3]


def test_shapes_must_be_equal():
    h = Harness()
    h.join("a"), h.join("b")
    h.say("a", op="init", **KEYS)
    assert "is float32[2, 3] for rank 0, float32[3, 2] for rank 1" in h.say(
        "b", op="init", keys=[["s:w", [3, 2], "float32"]], big=10)["error"]


def test_shapes_must_be_equal_also_if_rank_0_calls_last():
    h = Harness()
    h.join("a"), h.join("b")
    h.say("b", op="init", id=1, keys=[["s:w", [3, 2], "float32"]], big=10)
    h.say("a", op="init", **KEYS)
    h.say("a", op="filled", keys=["s:w"])
    assert "is float32[2, 3] for rank 0, float32[3, 2] for rank 1" in h.answer("b", 1)["error"]


def test_a_barrier_that_a_worker_has_given_up_is_not_passed_by_others():
    h = Harness()
    h.join("a"), h.join("b")
    h.say("a", op="barrier", id=1, n=1)
    h.say("a", op="forget", of=1)
    assert h.say("b", op="barrier", id=2, n=1) is None
    h.say("a", op="barrier", id=3, n=2)
    assert h.answer("b", 2)["ranks"] == h.answer("a", 3)["ranks"] == [0, 1] and h.answer("a", 1) is None


def key(*names):
    return {"keys": [[f"s:{n}", [2], "float32"] for n in names], "big": 10**6}


def test_workers_that_initialize_different_keys_get_an_error_when_all_wait():
    h = Harness(3)
    for peer in "abc":
        h.join(peer)
    for peer in "abc":
        h.say(peer, op="init", id=1, **key("w"))
    h.say("a", op="filled", id=2, keys=["s:w"])
    assert h.answer("b", 1)["keys"]
    h.say("c", op="init", id=3, **key("u", "v"))
    h.say("a", op="init", id=3, **key("x", "v"))
    assert h.say("a", op="filled", id=4, keys=["s:x", "s:v"]) is None
    assert h.answer("c", 3) is None  # b is busy, and may still initialize both
    missing = h.say("a", op="missing", of="init", id="m")
    assert missing["ranks"] == [1, 2]
    assert missing["why"] == ": worker 0 initializes 'x', 'v'; worker 1 has not called init; worker 2 initializes 'u', 'v'"
    h.say("b", op="barrier", id=5)
    for peer, n in (("a", 4), ("c", 3)):
        assert h.answer(peer, n)["error"] == (
            "workers wait for each other, because they initialize different keys: worker 0 initializes 'x', 'v'; worker 1 is at "
            "a barrier; worker 2 initializes 'u', 'v'. All workers must call init for the same keys, in the same order")
    assert h.answer("b", 5) is None
    for peer in "ac":
        h.say(peer, op="barrier", id=6)
    assert "error" not in h.answer("b", 5)


def test_waiting_in_init_for_a_replacement_of_rank_0_is_not_a_mismatch():
    h = Harness()
    h.join("a"), h.join("b")
    h.take(h.c.lost("a"))
    assert h.say("b", op="init", id=1, **key("w")) is None
    h.join("A", 0)
    h.say("A", op="init", **key("w"))
    h.say("A", op="filled", keys=["s:w"])
    assert h.answer("b", 1)["keys"]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_init_returns_or_names_who_initializes_which_keys(data):
    """Workers call init several times, in any order: none waits for ever."""
    n = data.draw(st.integers(1, 3))
    groups = [["a"], ["b"], ["c", "d"], ["e"]]
    orders = [data.draw(st.lists(st.sampled_from(groups), unique_by=str, max_size=3) | st.just(groups)) for _ in range(n)]
    h, ended, at = Harness(n), {}, dict.fromkeys(range(n), 0)
    for r in range(n):
        h.join(f"w{r}", r)
    waiting = {}
    while len(ended) < n:
        for r, number in list(waiting.items()):
            answer = h.answer(f"w{r}", number)
            if answer is None:
                continue
            del waiting[r]
            if "error" in answer:
                ended[r] = answer["error"]
                h.say(f"w{r}", op="leave")
            elif answer.get("fill"):
                waiting[r] = f"{number} filled"
                h.say(f"w{r}", op="filled", id=waiting[r], keys=[e["key"] for e in answer["fill"]])
            elif at[r] > len(orders[r]):
                ended[r] = ""
                h.say(f"w{r}", op="leave")
        free = [r for r in range(n) if r not in waiting and r not in ended]
        if free:
            r = data.draw(st.sampled_from(free))
            waiting[r] = f"call {at[r]}"
            message = {"op": "init", **key(*orders[r][at[r]])} if at[r] < len(orders[r]) else {"op": "barrier"}
            at[r] += 1
            h.say(f"w{r}", id=waiting[r], **message)
        elif waiting:
            assert any(h.answer(f"w{r}", number) for r, number in waiting.items()), "all wait for ever"
    if all(order == orders[0] for order in orders):
        assert not any(ended.values())
    assert all("initializes" in why for why in ended.values() if why)


def test_a_failure_on_the_servers_is_an_error_of_the_caller():
    """An unknown optimizer, and a key without enough memory. Workers that wait for it get the error, too."""
    h = Harness()
    h.join("a"), h.join("b")
    errors = {}

    def take(sends):
        for peer, m in sends:
            h.sent.setdefault(peer, []).append(m)
            if "epoch" in m:
                why = errors.get(m["op"], "")
                take(h.c.receive(peer, "server", {"op": "ack", "epoch": m["epoch"], "error": why}))

    h.take, errors["optimizer"] = take, "no optimizer mine"
    h.say("b", op="optimizer", id=1, spec={"name": "mine"})
    assert h.say("a", op="optimizer", id=1, spec={"name": "mine"})["error"] == "no optimizer mine"
    assert h.answer("b", 1)["error"] == "no optimizer mine" and h.c.state()["optimizers"] == [None]
    errors.clear()
    h.say("b", op="optimizer", id=2, spec={"name": "mine"})
    assert "error" not in h.say("a", op="optimizer", id=2, spec={"name": "sgd"}) and "error" not in h.answer("b", 2)
    errors["keys"] = "no memory"
    h.say("b", op="init", id=3, **KEYS)
    assert h.say("a", op="init", id=3, **KEYS)["error"] == h.answer("b", 3)["error"] == "no memory"
    assert h.c.state()["keys"] == []


def test_no_number_of_a_key_is_used_twice():
    h = Harness(1)
    h.join("a")

    def numbers(*names, error=""):
        sends = h.c.receive("a", "worker", {"op": "init", "id": 9, **key(*names)})
        announced = next(m for peer, m in sends if peer == "s0")
        h.take(h.c.receive("s0", "server", {"op": "ack", "epoch": announced["epoch"], "error": error}))
        return [e["id"] for e in announced["keys"]]

    assert numbers("u", "v") == [0, 1]
    assert numbers("w", error="no memory") == [2]  # a server may still know it by that number
    state = json.loads(json.dumps(h.c.state()))
    assert numbers("w") == [3]
    h.c = Coordinator(1, 1)
    h.c.resume(state)
    h.say("s0", "server", op="back", index=0, incarnation=1, public="key0")
    h.say("a", op="back", id=10, rank=0, incarnation=1, public="public of a")
    assert numbers("x") == [3]


def test_only_workers_that_have_ended_with_success_are_not_waited_for():
    """Policy wait. The launcher reports the success of a process that could not know it."""
    h = Harness(3, policy="wait")
    for peer in "abc":
        h.join(peer)
    h.say("b", op="leave", well=False), h.say("c", op="leave")
    assert h.say("a", op="barrier", id=1) is None
    assert h.sent["a"][-1]["gone"] == {"1": "ended"}
    h.say("launcher", op="ended", rank=1)
    assert h.answer("a", 1) == {"id": 1, "ranks": [0, 1, 2]}
    assert h.sent["s0"][-1]["members"]["gone"] == {"1": "left", "2": "left"}
    sent = len(h.sent["s0"])
    h.say("launcher", op="ended", rank=1)  # a repeated report
    assert len(h.sent["s0"]) == sent


@pytest.mark.parametrize("policy", ["fail", "wait"])
@pytest.mark.parametrize("before", [True, False])
def test_the_next_rank_initializes_keys_when_rank_0_has_left(policy, before):
    """Also if it calls init before rank 0 leaves."""
    h = Harness(2, policy=policy)
    h.join("a"), h.join("b")
    if before:
        h.say("b", op="init", id=1, **KEYS)
    h.say("a", op="leave")
    if not before:
        h.say("b", op="init", id=1, **KEYS)
    answer = h.answer("b", 1)
    assert answer["first"] and [e["key"] for e in answer["fill"]] == ["s:w"]
    assert h.say("b", op="filled", keys=["s:w"])["keys"] and "id" in h.say("b", op="optimizer", spec={"name": "sgd"})


def test_large_arrays_are_split_as_in_mxnet_and_small_ones_go_to_the_emptiest_server():
    h = Harness(1, 3)
    h.join("a")
    keys = h.say("a", op="init", keys=[["s:a", [10], "float32"], ["s:b", [1001], "float32"], ["i:7", [4], "float32"],
                                       ["s:7", [4], "float32"]], big=1000)["fill"]
    assert [e["slices"] for e in keys[:2]] == [[[0, 0, 10]], [[0, 0, 334], [1, 334, 667], [2, 667, 1001]]]
    assert {e["slices"][0][0] for e in keys[2:]} == {1, 2} and keys[2]["id"] != keys[3]["id"]


def test_no_key_is_split_with_an_optimizer_that_needs_norms():
    h = Harness(1, 2)
    h.join("a")
    h.say("a", op="optimizer", spec={"name": "lars", "elementwise": False})
    (entry,) = h.say("a", op="init", keys=[["s:b", [1000], "float32"]], big=10)["fill"]
    assert len(entry["slices"]) == 1
    late = Harness(1, 2)
    late.join("a")
    late.say("a", op="init", keys=[["s:b", [1000], "float32"]], big=10)
    assert "Call set_optimizer before init" in late.say("a", op="optimizer", spec={"name": "lars", "elementwise": False})["error"]


def test_a_barrier_waits_for_all_workers_that_have_not_left():
    h = Harness(3)
    for peer in "abc":
        h.join(peer)
    assert h.say("a", op="barrier", id=1) is None and h.say("b", op="barrier", id=1) is None
    h.say("c", op="leave")
    assert h.answer("a", 1) == h.answer("b", 1) == {"id": 1, "ranks": [0, 1, 2]}


def test_a_death_ends_the_barrier_with_an_error():
    h = Harness()
    h.join("a"), h.join("b")
    h.say("a", op="barrier", id=1)
    h.take(h.c.lost("b"))
    assert h.answer("a", 1)["error"] == "barrier: worker 1 died"
    assert {"op": "gone", "gone": {"1": "died"}, "generation": 3} in h.sent["a"]
    assert h.join("b2", 1)["incarnation"] == 2
    assert h.say("a", op="barrier", id=2) is None and h.say("b2", op="barrier", id=2) == {"id": 2, "ranks": [0, 1]}


def test_a_replacement_finds_keys_and_optimizer():
    h = Harness()
    h.join("a"), h.join("b")
    for peer in "ab":
        h.say(peer, op="optimizer", spec={"name": "sgd"})
        h.say(peer, op="init", **KEYS)
    h.say("a", op="filled", keys=["s:w"])
    h.take(h.c.lost("a"))
    assert h.join("a2")["rank"] == 0
    assert "error" not in h.say("a2", op="optimizer", spec={"name": "sgd"})
    assert h.say("a2", op="init", **KEYS)["fill"] == []


def test_a_restarted_server_gets_members_and_keys():
    h = Harness()
    h.join("a"), h.join("b")
    h.say("a", op="init", **KEYS)
    h.take(h.c.lost("s0"))
    assert h.sent["a"][-1] == {"op": "shard", "index": 0, "down": True, "address": "tcp://0", "public": "key0", "incarnation": 1}
    m = h.say("s0b", "server", op="join", id=9, index=0, address="new", public="k")
    assert m["keys"][0]["key"] == "s:w" and m["members"]["ranks"] == {"0": 1, "1": 1} and m["incarnation"] == 2
    assert h.sent["a"][-1]["address"] == "new"


def test_a_new_worker_joins_at_the_next_barrier():
    """The servers know of it before any worker is answered."""
    h = Harness()
    h.join("a"), h.join("b")
    assert h.say("c", op="join", id=1, kind="sync", public="pc", rank="new") is None
    assert h.say("a", op="barrier", id=1, n=1) is None
    assert h.say("b", op="barrier", id=1, n=1) == h.answer("a", 1) == {"id": 1, "ranks": [0, 1, 2]}
    assert h.answer("c", 1)["rank"] == 2 and h.answer("c", 1)["ranks"] == [0, 1, 2]
    assert h.sent["s0"][-1]["members"]["ranks"] == {"0": 1, "1": 1, "2": 1}


def test_a_worker_that_left_at_a_barrier_may_join_again():
    h = Harness(3)
    for peer in "abc":
        h.join(peer)
    h.say("b", op="barrier", id=1, n=1), h.say("c", op="barrier", id=1, n=1)
    assert h.say("a", op="barrier", id=1, n=1, leave=True) == h.answer("b", 1) == {"id": 1, "ranks": [1, 2]}
    assert h.sent["s0"][-1]["members"]["ranks"] == {"1": 1, "2": 1} and h.sent["s0"][-1]["members"]["gone"] == {}
    assert h.say("b", op="init", id=2, **KEYS)["fill"]  # the lowest member takes the place of rank 0
    assert h.say("a2", op="join", id=1, kind="sync", public="p", rank=0) is None
    h.say("b", op="barrier", id=3, n=2), h.say("c", op="barrier", id=3, n=2)
    assert h.answer("a2", 1)["rank"] == 0 and h.answer("a2", 1)["incarnation"] == 2
    assert h.answer("b", 3)["ranks"] == [0, 1, 2]


def test_policy_shrink_removes_dead_workers_at_a_barrier():
    h = Harness(3, policy="shrink")
    for peer in "abc":
        h.join(peer)
    h.take(h.c.lost("b"))
    h.say("a", op="barrier", id=1, n=1)
    assert h.say("c", op="barrier", id=1, n=1)["ranks"] == [0, 2]


def test_it_reports_which_workers_a_request_waits_for():
    h = Harness(3)
    for peer in "abc":
        h.join(peer)
    h.say("a", op="barrier", n=1)
    assert h.say("a", op="missing", of="barrier", id="m1")["ranks"] == [1, 2]
    h.say("b", op="init", **KEYS)
    assert h.say("b", op="missing", of="init", id="m2")["ranks"] == [0, 2]
    assert h.say("b", op="missing", of="optimizer", id="m3")["ranks"] == [0]


def restarted(h):
    """A coordinator that resumes from the state of another. Nothing is connected."""
    new = Harness(1, 0)
    new.c = Coordinator(len(h.c._workers), len(h.c._servers), h.c.policy)
    new.c.resume(json.loads(json.dumps(h.c.state())))
    return new


def test_a_restarted_coordinator_waits_for_its_servers():
    h = Harness()
    h.join("a"), h.join("b")
    h.say("a", op="init", **KEYS), h.say("a", op="filled", keys=["s:w"])
    h.say("b", op="init", **KEYS)
    new = restarted(h)
    assert new.say("A", op="back", id=1, rank=0, incarnation=1, public="public of a") is None  # the server is not back yet
    new.say("S", "server", op="back", index=0, incarnation=1, public="key0")
    answer = new.sent["S"][0]
    assert answer["keys"][0]["key"] == "s:w" and "optimizer" not in answer and answer["epoch"]
    assert new.answer("A", 1)["shards"][0]["down"] is False
    new.say("B", op="back", id=1, rank=1, incarnation=1, public="public of b")
    assert new.say("A", op="barrier", id=2, n=1) is None and new.say("B", op="barrier", id=2, n=1)["ranks"] == [0, 1]
    assert new.say("A", op="init", id=3, **KEYS)["fill"] == []


def test_deferred_requests_reach_the_new_process_of_a_server_that_dies_again():
    """The coordinator restarts and the server comes back, then dies before it has acknowledged that."""
    h = Harness()
    h.join("a"), h.join("b")
    new = restarted(h)
    new.say("A", op="back", id=1, rank=0, incarnation=1, public="public of a")
    dying = new.c.receive("S", "server", {"op": "back", "index": 0, "incarnation": 1, "public": "key0"})
    assert [peer for peer, _ in dying] == ["S"]
    new.say("T", "server", op="join", index=0, address="tcp://0", public="another key")  # before the end of S is known
    new.take(new.c.lost("S"))
    assert new.sent["T"][0]["incarnation"] == 2 and "S" not in new.sent
    assert "error" not in new.answer("A", 1)


def test_requests_sent_again_after_a_restart_get_the_same_answers():
    """A barrier that only one worker saw; an optimizer, which is set once; a join, which gives the same rank."""
    h = Harness()
    h.join("a"), h.join("b")
    h.say("a", op="optimizer", spec={"name": "sgd"}, n=1), h.say("b", op="optimizer", spec={"name": "sgd"}, n=1)
    h.say("a", op="barrier", n=1), h.say("b", op="barrier", n=1)
    new = restarted(h)
    new.say("S", "server", op="back", index=0, incarnation=1, public="key0")
    new.say("A", op="back", id=1, rank=0, incarnation=1, public="public of a")
    assert new.say("A", op="barrier", id=2, n=1)["ranks"] == [0, 1] and new.say("A", op="barrier", id=3, n=2) is None
    sent = len(new.sent["S"])
    assert new.say("A", op="optimizer", id=4, spec={"name": "sgd"}, n=1) == {"id": 4} and len(new.sent["S"]) == sent
    m = new.say("B", op="join", id=5, kind="sync", public="public of b", rank=1)
    assert (m["rank"], m["incarnation"]) == (1, 1)
    new.take(new.c.end_grace_period())  # all are back
    assert new.c.state()["workers"][0][4] == new.c.state()["workers"][1][4] == ""


def test_a_repeated_join_request_is_of_the_same_worker():
    """Requests on earlier connections may arrive later, and change nothing."""
    h, join = Harness(3), {"op": "join", "kind": "sync", "public": "public of b"}
    h.join("a")
    assert [h.say("b3", n=3, **join)["rank"], h.say("b5", n=5, **join)["rank"], h.join("c")["rank"]] == [1, 1, 2]
    assert h.say("b4", n=4, **join) is None
    h.take(h.c.lost("b4")), h.take(h.c.lost("b3"))
    assert [m for m in h.sent["a"] if m.get("gone")] == []
    h.take(h.c.lost("b5"))
    assert h.say("b4", n=4, **join) is None and h.say("b6", n=6, **join)["incarnation"] == 2
    for n in (1, 4, 2):
        assert h.say(f"d{n}", n=n, op="join", kind="sync", public="public of d", rank="new") is None
    for peer in "a", "b6":
        h.say(peer, op="barrier", n=1)
    assert h.say("c", op="barrier", n=1)["ranks"] == [0, 1, 2, 3]
    assert [m["rank"] for m in h.sent["d4"] if "rank" in m] == [3] and not h.sent.keys() & {"d1", "d2"}


def test_a_server_that_joins_while_an_optimizer_is_installed_gets_it():
    """So does a server whose connection was lost. One that has it does not get it again."""
    c = Coordinator(1, 2)
    for i in range(2):
        c.receive(f"s{i}", "server", {"op": "join", "id": 0, "index": i, "address": "x", "public": f"key{i}"})
    c.receive("a", "worker", {"op": "join", "id": 1, "kind": "sync", "public": "p"})
    for i in range(2):
        c.receive(f"s{i}", "server", {"op": "ack", "epoch": 9})
    sent = c.receive("a", "worker", {"op": "optimizer", "id": 2, "spec": {"name": "sgd"}, "n": 1})
    assert [peer for peer, m in sent if m.get("optimizer")] == ["s0", "s1"]
    assert c.lost("s0") == [("a", {"op": "shard", "index": 0, "down": True, "address": "x", "public": "key0", "incarnation": 1})]
    assert c.receive("s1", "server", {"op": "ack", "epoch": 9}) == []  # server 0 may not have received it
    back = {"op": "back", "index": 0, "incarnation": 1, "public": "key0"}
    answer = dict(c.receive("S", "server", {**back, "optimizers": 0}))["S"]
    assert answer["optimizer"] == {"name": "sgd"} and answer["optimizers"] == 1
    assert ("a", {"id": 2}) in c.receive("S", "server", {"op": "ack", "epoch": answer["epoch"]})
    assert "optimizer" not in dict(c.receive("S", "server", {**back, "optimizers": 1}))["S"]
    join = {"op": "join", "id": 3, "index": 1, "address": "y", "public": "new"}
    assert dict(c.receive("t1", "server", join))["t1"]["optimizers"] == 1


def test_the_answer_to_a_returning_worker_has_the_current_server_locations():
    c = Coordinator(1, 1)
    c.receive("s", "server", {"op": "join", "id": 0, "index": 0, "address": "old", "public": "key"})
    c.receive("a", "worker", {"op": "join", "id": 1, "kind": "sync", "public": "p"})
    c.receive("s", "server", {"op": "ack", "epoch": 9})
    assert not any(m.get("id") == 2 for _, m in c.receive("A", "worker", {
        "op": "back", "id": 2, "rank": 0, "incarnation": 1, "public": "p"}))
    c.lost("s")
    sent = c.receive("t", "server", {"op": "join", "id": 0, "index": 0, "address": "new", "public": "other"})
    news = [m["shards"][0]["address"] if "shards" in m else m["address"] for peer, m in sent
            if peer == "A" and m.get("op") != "gone"]
    assert news[-1] == "new" and len(news) == 2


def test_a_worker_that_does_not_come_back_after_a_restart_is_dead():
    h = Harness(2, 2)
    h.join("a"), h.join("b")
    new = restarted(h)
    new.say("S", "server", op="back", index=0, incarnation=1, public="key0")
    assert new.say("A", op="back", id=1, rank=0, incarnation=1, public="public of a") is None
    new.take(new.c.end_grace_period())
    gone, answer = new.sent["A"][-2:]
    assert answer == new.answer("A", 1) and answer["shards"][1]["down"] is True and gone["gone"] == {"1": "died"}
    assert "was declared dead" in new.say("A", op="back", id=2, rank=1, incarnation=7, public="x")["error"]


def test_a_worker_that_reconnects_keeps_its_rank():
    h = Harness()
    h.join("a"), h.join("b")
    h.take(h.c.lost("b"))
    assert "error" not in h.say("b2", op="back", id=1, rank=1, incarnation=1, public="public of b")
    assert h.sent["a"][-1] == {"op": "gone", "gone": {}, "generation": 4}
    assert h.sent["s0"][-1]["members"]["ranks"] == {"0": 1, "1": 1}


def test_messages_of_an_earlier_connection_change_nothing():
    """The end of that connection is not the death of its worker or server."""
    h = Harness()
    h.join("a")
    for peer, n in ("a3", 3), ("a2", 2):
        h.say(peer, op="back", id=n, rank=0, incarnation=1, public="public of a")
    for peer, n in ("S2", 2), ("S1", 1):
        h.say(peer, "server", op="back", id=1, n=n, index=0, incarnation=1, public="key0")
    for peer, n in ("T1", 1), ("T0", 0):
        h.say(peer, "server", op="join", n=n, index=0, address="x", public="new")
    sent = len(h.sent["a3"])
    for peer in ("a2", "S1", "S2", "T0"):
        h.take(h.c.lost(peer))
    assert len(h.sent["a3"]) == sent and h.sent["a3"][-1]["incarnation"] == 2 and not h.sent.keys() & {"a2", "S1", "T0"}


@pytest.mark.parametrize("again", [{"op": "back", "rank": 1, "incarnation": 1, "public": "public of b"},
                                   {"op": "join", "rank": 1, "kind": "sync", "public": "another"}], ids=["back", "replaced"])
def test_workers_learn_of_a_return_when_every_server_knows_of_it(again):
    """Otherwise a push that follows would be rejected. News of another worker do not reveal the return either."""
    h = Harness(3)
    for peer in "abc":
        h.join(peer)
    c, epochs = h.c, []
    h.take(c.lost("b"))

    def gone(sends):
        epochs.extend(m["epoch"] for _, m in sends if "epoch" in m)
        return [m["gone"] for peer, m in sends if peer == "a"]

    def ack(epoch):
        return gone(c.receive("s0", "server", {"op": "ack", "epoch": epoch}))

    assert gone(c.receive("b2", "worker", {"id": 1, **again})) == []
    back = epochs[-1]
    assert gone(c.lost("c")) == [{"1": "died", "2": "died"}] and gone(c.lost("b2")) == []
    assert gone(c.receive("b3", "worker", {"id": 1, **again, "incarnation": c._workers[1].incarnation})) == []
    assert ack(back) == ack(epochs[-1]) == [] and ack(epochs[-1]) == [{"2": "died"}]  # b3 is announced after the others


@pytest.mark.parametrize("again", [{"op": "back", "rank": 1, "incarnation": 1, "public": "public of b"},
                                   {"op": "join", "rank": 1, "kind": "sync", "public": "another"},
                                   {"op": "join", "rank": None, "kind": "sync", "public": "public of a"}])
def test_a_worker_learns_of_deaths_before_its_join_is_answered(again):
    """Otherwise it would see no dead worker, and its push would be rejected."""
    h = Harness(3)
    for peer in "abc":
        h.join(peer)
    h.take(h.c.lost("b")), h.take(h.c.lost("c"))
    h.say("B", id=1, **again)
    gone, answer = h.sent["B"]
    assert gone["gone"] == ({"2": "died"} if again["rank"] else {"1": "died", "2": "died"}) and answer["id"] == 1


def test_a_worker_that_ended_during_a_restart_has_left_and_is_not_dead_afterwards():
    """The launcher's report arrives before the end of the grace period."""
    h = Harness(2)
    h.join("a", 0), h.join("b", 1)
    h.c, state = Coordinator(2, 1), json.loads(json.dumps(h.c.state()))
    h.c.resume(state)
    h.say("s0", "server", op="back", index=0, public="key0", incarnation=1, n=1)
    assert "error" not in h.say("launcher", op="ended", rank=1)
    h.take(h.c.end_grace_period())
    assert h.c.state()["workers"][1][4] == "left"
