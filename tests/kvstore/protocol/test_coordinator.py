"""The coordinator alone: messages in, messages out, in any order. No process is started."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritium.kvstore.protocol.coordinator import Coordinator


class Desk:
    """A coordinator whose shards say ack at once; what each peer was sent."""

    def __init__(self, workers=2, shards=1, policy="fail"):
        self.c = Coordinator(workers, shards, policy)
        self.sent: dict[str, list] = {}
        for i in range(shards):
            self.say(f"s{i}", "shard", op="join", index=i, address=f"tcp://{i}", public=f"key{i}")

    def take(self, sends):
        for peer, m in sends:
            self.sent.setdefault(peer, []).append(m)
            if "epoch" in m:
                self.take(self.c.receive(peer, "shard", {"op": "ack", "epoch": m["epoch"]}))

    def say(self, peer, role="worker", **m):
        """What peer is answered, None if it has to wait."""
        m.setdefault("id", f"{m['op']}{len(self.sent.get(peer, []))}")
        self.take(self.c.receive(peer, role, m))
        return self.answer(peer, m["id"])

    def answer(self, peer, number):
        return next((m for m in self.sent.get(peer, []) if m.get("id") == number), None)

    def join(self, peer, rank=None, kind="sync"):
        return self.say(peer, op="join", kind=kind, public=f"public of {peer}", rank=rank)


KEYS = {"keys": [["s:w", [2, 3], "float32"]], "big": 10**6}


def test_ranks_in_order_of_arrival_or_as_asked_for():
    desk = Desk(3)
    assert [desk.join("a")["rank"], desk.join("b", 2)["rank"], desk.join("c")["rank"]] == [0, 2, 1]
    assert "all 3 workers are here already" in desk.join("d")["error"]


def test_nobody_joins_before_every_shard_is_there():
    c = Coordinator(1, 1)
    assert c.receive("w", "worker", {"op": "join", "id": 1, "kind": "sync", "public": "p"}) == []
    sends = c.receive("s", "shard", {"op": "join", "id": 2, "index": 0, "address": "x", "public": "y"})
    members = next(m for peer, m in sends if peer == "s" and m.get("op") == "members")
    assert not any(m.get("id") == 1 for _, m in sends)  # the shard must know the worker's key first
    sends = c.receive("s", "shard", {"op": "ack", "epoch": members["epoch"]})
    assert next(m for _, m in sends if m.get("id") == 1)["rank"] == 0


def test_the_kinds_must_agree():
    desk = Desk()
    desk.join("a")
    assert "the job is dist_sync; this worker wants dist_async" in desk.join("b", kind="async")["error"]


def test_init_ends_when_rank_0_has_filled_and_all_have_called():
    desk = Desk()
    desk.join("a"), desk.join("b")
    assert desk.say("b", op="init", id="b1", **KEYS) is None
    assert [e["key"] for e in desk.say("a", op="init", id="a1", **KEYS)["fill"]] == ["s:w"]
    assert desk.say("a", op="filled", id="a2", keys=["s:w"]) is not None and desk.answer("b", "b1")["keys"][0]["shape"] == [2, 3]


def test_shapes_must_agree():
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.say("a", op="init", **KEYS)
    assert "is float32[2, 3] for rank 0, float32[3, 2] for rank 1" in desk.say(
        "b", op="init", keys=[["s:w", [3, 2], "float32"]], big=10)["error"]


def test_shapes_must_agree_whoever_calls_first():
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.say("b", op="init", id=1, keys=[["s:w", [3, 2], "float32"]], big=10)
    desk.say("a", op="init", **KEYS)
    desk.say("a", op="filled", keys=["s:w"])
    assert "is float32[2, 3] for rank 0, float32[3, 2] for rank 1" in desk.answer("b", 1)["error"]


def key(*names):
    return {"keys": [[f"s:{n}", [2], "float32"] for n in names], "big": 10**6}


def test_workers_that_make_different_keys_hear_of_it_when_all_wait():
    desk = Desk(3)
    for peer in "abc":
        desk.join(peer)
    for peer in "abc":
        desk.say(peer, op="init", id=1, **key("w"))
    desk.say("a", op="filled", id=2, keys=["s:w"])
    assert desk.answer("b", 1)["keys"]
    desk.say("c", op="init", id=3, **key("u", "v"))
    desk.say("a", op="init", id=3, **key("x", "v"))
    assert desk.say("a", op="filled", id=4, keys=["s:x", "s:v"]) is None
    assert desk.answer("c", 3) is None  # b is at work, and may still make both
    missing = desk.say("a", op="missing", of="init", id="m")
    assert missing["ranks"] == [1, 2]
    assert missing["why"] == ": worker 0 inits 'x', 'v'; worker 1 is in no init; worker 2 inits 'u', 'v'"
    desk.say("b", op="barrier", id=5)
    for peer, n in (("a", 4), ("c", 3)):
        assert desk.answer(peer, n)["error"] == (
            "workers wait for each other, because they make different keys: worker 0 inits 'x', 'v'; worker 1 is at a barrier; "
            "worker 2 inits 'u', 'v'. All must call init for the same keys, in the same order")
    assert desk.answer("b", 5) is None
    for peer in "ac":
        desk.say(peer, op="barrier", id=6)
    assert "error" not in desk.answer("b", 5)


def test_who_waits_for_a_replacement_of_rank_0_is_at_odds_with_nobody():
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.take(desk.c.lost("a"))
    assert desk.say("b", op="init", id=1, **key("w")) is None
    desk.join("A", 0)
    desk.say("A", op="init", **key("w"))
    desk.say("A", op="filled", keys=["s:w"])
    assert desk.answer("b", 1)["keys"]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_all_make_their_keys_or_hear_who_makes_which(data):
    """Each worker's calls of init, one after another, in any order: nobody waits for ever."""
    n = data.draw(st.integers(1, 3))
    groups = [["a"], ["b"], ["c", "d"], ["e"]]
    orders = [data.draw(st.lists(st.sampled_from(groups), unique_by=str, max_size=3) | st.just(groups)) for _ in range(n)]
    desk, ended, at = Desk(n), {}, dict.fromkeys(range(n), 0)
    for r in range(n):
        desk.join(f"w{r}", r)
    waiting = {}
    while len(ended) < n:
        for r, number in list(waiting.items()):
            answer = desk.answer(f"w{r}", number)
            if answer is None:
                continue
            del waiting[r]
            if "error" in answer:
                ended[r] = answer["error"]
                desk.say(f"w{r}", op="leave")
            elif answer.get("fill"):
                waiting[r] = f"{number} filled"
                desk.say(f"w{r}", op="filled", id=waiting[r], keys=[e["key"] for e in answer["fill"]])
            elif at[r] > len(orders[r]):
                ended[r] = ""
                desk.say(f"w{r}", op="leave")
        free = [r for r in range(n) if r not in waiting and r not in ended]
        if free:
            r = data.draw(st.sampled_from(free))
            waiting[r] = f"call {at[r]}"
            what = {"op": "init", **key(*orders[r][at[r]])} if at[r] < len(orders[r]) else {"op": "barrier"}
            at[r] += 1
            desk.say(f"w{r}", id=waiting[r], **what)
        elif waiting:
            assert any(desk.answer(f"w{r}", number) for r, number in waiting.items()), "all wait for ever"
    if all(order == orders[0] for order in orders):
        assert not any(ended.values())
    assert all("inits" in why for why in ended.values() if why)


def test_what_servers_cannot_do_is_the_callers_error():
    """An optimizer that they do not know, a key for which there is no memory; who waits for it hears of it, too."""
    desk = Desk()
    desk.join("a"), desk.join("b")
    trouble = {}

    def take(sends):
        for peer, m in sends:
            desk.sent.setdefault(peer, []).append(m)
            if "epoch" in m:
                why = trouble.get(m["op"], "")
                take(desk.c.receive(peer, "shard", {"op": "ack", "epoch": m["epoch"], "error": why}))

    desk.take, trouble["optimizer"] = take, "no optimizer mine"
    desk.say("b", op="optimizer", id=1, spec=None)
    assert desk.say("a", op="optimizer", id=1, spec={"name": "mine"})["error"] == "no optimizer mine"
    assert desk.answer("b", 1)["error"] == "no optimizer mine" and desk.c.state()["optimizers"] == [None]
    trouble.clear()
    desk.say("b", op="optimizer", id=2, spec=None)
    assert "error" not in desk.say("a", op="optimizer", id=2, spec={"name": "sgd"}) and "error" not in desk.answer("b", 2)
    trouble["keys"] = "no memory"
    desk.say("b", op="init", id=3, **KEYS)
    assert desk.say("a", op="init", id=3, **KEYS)["error"] == desk.answer("b", 3)["error"] == "no memory"
    assert desk.c.state()["keys"] == [] and desk.c.state()["loads"] == [0]


def test_keys_of_one_number_that_are_made_together_differ(monkeypatch):
    monkeypatch.setattr("tritium.kvstore.protocol.coordinator.number", lambda tagged: 5)
    desk = Desk(1)
    desk.join("a")
    assert [e["id"] for e in desk.say("a", op="init", **key("u", "v", "w"))["fill"]] == [5, 6, 7]


def test_who_has_ended_well_is_not_waited_for_and_who_has_not_is():
    """Policy wait. The launcher says how a process ended that could not know."""
    desk = Desk(3, policy="wait")
    for peer in "abc":
        desk.join(peer)
    desk.say("b", op="leave", well=False), desk.say("c", op="leave")
    assert desk.say("a", op="barrier", id=1) is None
    assert desk.sent["a"][-1]["gone"] == {"1": "ended", "2": "left"}
    desk.say("launcher", op="ended", rank=1)
    assert desk.answer("a", 1) == {"id": 1, "ranks": [0, 1, 2]}
    assert desk.sent["s0"][-1]["members"]["gone"] == {"1": "left", "2": "left"}
    sent = len(desk.sent["s0"])
    desk.say("launcher", op="ended", rank=1)  # once more: nothing new
    assert len(desk.sent["s0"]) == sent


@pytest.mark.parametrize("policy", ["fail", "wait"])
@pytest.mark.parametrize("before", [True, False])
def test_who_stays_makes_keys_when_rank_0_has_left(policy, before):
    """Whether it calls init before or after: nobody waits for a worker that has finished."""
    desk = Desk(2, policy=policy)
    desk.join("a"), desk.join("b")
    if before:
        desk.say("b", op="init", id=1, **KEYS)
    desk.say("a", op="leave")
    if not before:
        desk.say("b", op="init", id=1, **KEYS)
    answer = desk.answer("b", 1)
    assert answer["first"] and [e["key"] for e in answer["fill"]] == ["s:w"]
    assert desk.say("b", op="filled", keys=["s:w"])["keys"] and "id" in desk.say("b", op="optimizer", spec={"name": "sgd"})


def test_big_arrays_are_split_as_mxnet_does_and_small_ones_go_where_there_is_room():
    desk = Desk(1, 3)
    desk.join("a")
    keys = desk.say("a", op="init", keys=[["s:a", [10], "float32"], ["s:b", [1001], "float32"], ["i:7", [4], "float32"],
                                          ["s:7", [4], "float32"]], big=1000)["fill"]
    assert [e["parts"] for e in keys[:2]] == [[[0, 0, 10]], [[0, 0, 334], [1, 334, 667], [2, 667, 1001]]]
    assert {e["parts"][0][0] for e in keys[2:]} == {1, 2} and keys[2]["id"] != keys[3]["id"]


def test_an_optimizer_that_takes_norms_keeps_arrays_whole():
    desk = Desk(1, 2)
    desk.join("a")
    desk.say("a", op="optimizer", spec={"name": "lars", "elementwise": False})
    (entry,) = desk.say("a", op="init", keys=[["s:b", [1000], "float32"]], big=10)["fill"]
    assert len(entry["parts"]) == 1
    late = Desk(1, 2)
    late.join("a")
    late.say("a", op="init", keys=[["s:b", [1000], "float32"]], big=10)
    assert "Call set_optimizer before init" in late.say("a", op="optimizer", spec={"name": "lars", "elementwise": False})["error"]


def test_a_barrier_waits_for_all_and_not_for_who_has_left():
    desk = Desk(3)
    for peer in "abc":
        desk.join(peer)
    assert desk.say("a", op="barrier", id=1) is None and desk.say("b", op="barrier", id=1) is None
    desk.say("c", op="leave")
    assert desk.answer("a", 1) == desk.answer("b", 1) == {"id": 1, "ranks": [0, 1, 2]}


def test_a_death_ends_the_barrier_with_an_error():
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.say("a", op="barrier", id=1)
    desk.take(desk.c.lost("b"))
    assert desk.answer("a", 1)["error"] == "barrier: worker 1 died"
    assert {"op": "gone", "gone": {"1": "died"}, "generation": 3} in desk.sent["a"]
    assert desk.join("b2", 1)["incarnation"] == 2
    assert desk.say("a", op="barrier", id=2) is None and desk.say("b2", op="barrier", id=2) == {"id": 2, "ranks": [0, 1]}


def test_a_replacement_finds_keys_and_optimizer():
    desk = Desk()
    desk.join("a"), desk.join("b")
    for peer in "ab":
        desk.say(peer, op="optimizer", spec={"name": "sgd"})
        desk.say(peer, op="init", **KEYS)
    desk.say("a", op="filled", keys=["s:w"])
    desk.take(desk.c.lost("a"))
    assert desk.join("a2")["rank"] == 0
    assert "error" not in desk.say("a2", op="optimizer", spec={"name": "sgd"})
    assert desk.say("a2", op="init", **KEYS)["fill"] == []


def test_a_shard_that_comes_back_is_told_everything():
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.say("a", op="init", **KEYS)
    desk.take(desk.c.lost("s0"))
    assert desk.sent["a"][-1] == {"op": "shard", "index": 0, "down": True}
    m = desk.say("s0b", "shard", op="join", id=9, index=0, address="new", public="k")
    assert m["keys"][0]["key"] == "s:w" and m["members"]["ranks"] == {"0": 1, "1": 1} and m["incarnation"] == 2
    assert desk.sent["a"][-1]["address"] == "new"


def test_who_wants_to_join_is_let_in_at_the_next_barrier():
    """The shards know of it before anybody is answered."""
    desk = Desk()
    desk.join("a"), desk.join("b")
    assert desk.say("c", op="join", id=1, kind="sync", public="pc", rank="new") is None
    assert desk.say("a", op="barrier", id=1, n=1) is None
    assert desk.say("b", op="barrier", id=1, n=1) == desk.answer("a", 1) == {"id": 1, "ranks": [0, 1, 2]}
    assert desk.answer("c", 1)["rank"] == 2 and desk.answer("c", 1)["ranks"] == [0, 1, 2]
    assert desk.sent["s0"][-1]["members"]["ranks"] == {"0": 1, "1": 1, "2": 1}


def test_who_leaves_with_a_barrier_is_no_member_any_more_and_may_come_again():
    desk = Desk(3)
    for peer in "abc":
        desk.join(peer)
    desk.say("b", op="barrier", id=1, n=1), desk.say("c", op="barrier", id=1, n=1)
    assert desk.say("a", op="barrier", id=1, n=1, leave=True) == desk.answer("b", 1) == {"id": 1, "ranks": [1, 2]}
    assert desk.sent["s0"][-1]["members"]["ranks"] == {"1": 1, "2": 1} and desk.sent["s0"][-1]["members"]["gone"] == {}
    assert desk.say("b", op="init", id=2, **KEYS)["fill"]  # the lowest member takes the place of rank 0
    assert desk.say("a2", op="join", id=1, kind="sync", public="p", rank=0) is None
    desk.say("b", op="barrier", id=3, n=2), desk.say("c", op="barrier", id=3, n=2)
    assert desk.answer("a2", 1)["rank"] == 0 and desk.answer("a2", 1)["incarnation"] == 2
    assert desk.answer("b", 3)["ranks"] == [0, 1, 2]


def test_the_dead_are_let_go_at_a_barrier_where_the_policy_is_shrink():
    desk = Desk(3, policy="shrink")
    for peer in "abc":
        desk.join(peer)
    desk.take(desk.c.lost("b"))
    desk.say("a", op="barrier", id=1, n=1)
    assert desk.say("c", op="barrier", id=1, n=1)["ranks"] == [0, 2]


def test_it_says_for_whom_a_request_waits():
    desk = Desk(3)
    for peer in "abc":
        desk.join(peer)
    desk.say("a", op="barrier", n=1)
    assert desk.say("a", op="missing", of="barrier", id="m1")["ranks"] == [1, 2]
    desk.say("b", op="init", **KEYS)
    assert desk.say("b", op="missing", of="init", id="m2")["ranks"] == [0, 2]
    assert desk.say("b", op="missing", of="optimizer", id="m3")["ranks"] == [0]


def restarted(desk):
    """Another coordinator that goes on from desk's, as its file would have it. Nobody is connected."""
    new = Desk(1, 0)
    new.c = Coordinator(len(desk.c._workers), len(desk.c._shards), desk.c.policy)
    new.c.resume(json.loads(json.dumps(desk.c.state())))
    return new


def test_a_restart_goes_on_and_waits_for_the_shards():
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.say("a", op="init", **KEYS), desk.say("a", op="filled", keys=["s:w"])
    desk.say("b", op="init", **KEYS)
    new = restarted(desk)
    assert new.say("A", op="back", id=1, rank=0, incarnation=1, public="public of a") is None  # the shard is not there yet
    new.say("S", "shard", op="back", index=0, incarnation=1, public="key0")
    told = new.sent["S"][0]
    assert told["keys"][0]["key"] == "s:w" and "optimizer" not in told and told["epoch"]
    assert new.answer("A", 1)["shards"][0]["down"] is False
    new.say("B", op="back", id=1, rank=1, incarnation=1, public="public of b")
    assert new.say("A", op="barrier", id=2, n=1) is None and new.say("B", op="barrier", id=2, n=1)["ranks"] == [0, 1]
    assert new.say("A", op="init", id=3, **KEYS)["fill"] == []


def test_what_was_answered_before_a_restart_is_answered_again():
    """Of a barrier only one worker heard; an optimizer is set once; a worker that asks to join again is the same one."""
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.say("a", op="optimizer", spec={"name": "sgd"}, n=1), desk.say("b", op="optimizer", spec={"name": "sgd"}, n=1)
    desk.say("a", op="barrier", n=1), desk.say("b", op="barrier", n=1)
    new = restarted(desk)
    new.say("S", "shard", op="back", index=0, incarnation=1, public="key0")
    new.say("A", op="back", id=1, rank=0, incarnation=1, public="public of a")
    assert new.say("A", op="barrier", id=2, n=1)["ranks"] == [0, 1] and new.say("A", op="barrier", id=3, n=2) is None
    sent = len(new.sent["S"])
    assert new.say("A", op="optimizer", id=4, spec={"name": "sgd"}, n=1) == {"id": 4} and len(new.sent["S"]) == sent
    m = new.say("B", op="join", id=5, kind="sync", public="public of b", rank=1)
    assert (m["rank"], m["incarnation"]) == (1, 1)
    new.take(new.c.give_up())  # nobody: all are here
    assert new.say("A", op="info", id=6)["members"]["gone"] == {}


def test_who_asks_to_join_once_more_is_one_worker():
    """What it said on an earlier connection may be heard later, and changes nothing."""
    desk, join = Desk(3), {"op": "join", "kind": "sync", "public": "public of b"}
    desk.join("a")
    assert [desk.say("b3", n=3, **join)["rank"], desk.say("b5", n=5, **join)["rank"], desk.join("c")["rank"]] == [1, 1, 2]
    assert desk.say("b4", n=4, **join) is None
    desk.take(desk.c.lost("b4")), desk.take(desk.c.lost("b3"))
    assert [m for m in desk.sent["a"] if m.get("gone")] == []
    desk.take(desk.c.lost("b5"))
    assert desk.say("b4", n=4, **join) is None and desk.say("b6", n=6, **join)["incarnation"] == 2
    for n in (1, 4, 2):
        assert desk.say(f"d{n}", n=n, op="join", kind="sync", public="public of d", rank="new") is None
    for peer in "a", "b6":
        desk.say(peer, op="barrier", n=1)
    assert desk.say("c", op="barrier", n=1)["ranks"] == [0, 1, 2, 3]
    assert [m["rank"] for m in desk.sent["d4"] if "rank" in m] == [3] and not desk.sent.keys() & {"d1", "d2"}


def test_a_shard_that_joins_while_others_are_told_of_an_optimizer_learns_of_it():
    """So does one whose connection was lost then; and one that has it does not set it again."""
    c = Coordinator(1, 2)
    for i in range(2):
        c.receive(f"s{i}", "shard", {"op": "join", "id": 0, "index": i, "address": "x", "public": f"key{i}"})
    c.receive("a", "worker", {"op": "join", "id": 1, "kind": "sync", "public": "p"})
    for i in range(2):
        c.receive(f"s{i}", "shard", {"op": "ack", "epoch": 9})
    sent = c.receive("a", "worker", {"op": "optimizer", "id": 2, "spec": {"name": "sgd"}, "n": 1})
    assert [peer for peer, m in sent if m.get("optimizer")] == ["s0", "s1"]
    assert c.lost("s0") == [("a", {"op": "shard", "index": 0, "down": True})]
    assert c.receive("s1", "shard", {"op": "ack", "epoch": 9}) == []  # server 0 may not have heard of it
    back = {"op": "back", "index": 0, "incarnation": 1, "public": "key0"}
    told = dict(c.receive("S", "shard", {**back, "optimizers": 0}))["S"]
    assert told["optimizer"] == {"name": "sgd"} and told["optimizers"] == 1
    assert ("a", {"id": 2}) in c.receive("S", "shard", {"op": "ack", "epoch": told["epoch"]})
    assert "optimizer" not in dict(c.receive("S", "shard", {**back, "optimizers": 1}))["S"]
    join = {"op": "join", "id": 3, "index": 1, "address": "y", "public": "new"}
    assert dict(c.receive("t1", "shard", join))["t1"]["optimizers"] == 1


def test_who_is_back_hears_where_servers_are_when_it_is_answered():
    c = Coordinator(1, 1)
    c.receive("s", "shard", {"op": "join", "id": 0, "index": 0, "address": "old", "public": "key"})
    c.receive("a", "worker", {"op": "join", "id": 1, "kind": "sync", "public": "p"})
    c.receive("s", "shard", {"op": "ack", "epoch": 9})
    assert not any(m.get("id") == 2 for _, m in c.receive("A", "worker", {
        "op": "back", "id": 2, "rank": 0, "incarnation": 1, "public": "p"}))
    c.lost("s")
    sent = c.receive("t", "shard", {"op": "join", "id": 0, "index": 0, "address": "new", "public": "other"})
    news = [m["shards"][0]["address"] if "shards" in m else m["address"] for peer, m in sent
            if peer == "A" and m.get("op") != "gone"]
    assert news[-1] == "new" and len(news) == 2


def test_who_does_not_come_back_after_a_restart_is_dead():
    desk = Desk(2, 2)
    desk.join("a"), desk.join("b")
    new = restarted(desk)
    new.say("S", "shard", op="back", index=0, incarnation=1, public="key0")
    assert new.say("A", op="back", id=1, rank=0, incarnation=1, public="public of a") is None
    new.take(new.c.give_up())
    gone, answer = new.sent["A"][-2:]
    assert answer == new.answer("A", 1) and answer["shards"][1]["down"] is True and gone["gone"] == {"1": "died"}
    assert "was taken for dead" in new.say("A", op="back", id=2, rank=1, incarnation=7, public="x")["error"]


def test_a_worker_whose_connection_was_lost_comes_back_as_itself():
    desk = Desk()
    desk.join("a"), desk.join("b")
    desk.take(desk.c.lost("b"))
    assert "error" not in desk.say("b2", op="back", id=1, rank=1, incarnation=1, public="public of b")
    assert desk.sent["a"][-1] == {"op": "gone", "gone": {}, "generation": 4}
    assert desk.sent["s0"][-1]["members"]["ranks"] == {"0": 1, "1": 1}


def test_an_earlier_connection_that_is_heard_later_changes_nothing():
    """Its end would be taken for the death of who is here on a later one."""
    desk = Desk()
    desk.join("a")
    for peer, n in ("a3", 3), ("a2", 2):
        desk.say(peer, op="back", id=n, rank=0, incarnation=1, public="public of a")
    for peer, n in ("S2", 2), ("S1", 1):
        desk.say(peer, "shard", op="back", id=1, n=n, index=0, incarnation=1, public="key0")
    for peer, n in ("T1", 1), ("T0", 0):
        desk.say(peer, "shard", op="join", n=n, index=0, address="x", public="new")
    told = len(desk.sent["a3"])
    for peer in ("a2", "S1", "S2", "T0"):
        desk.take(desk.c.lost(peer))
    assert len(desk.sent["a3"]) == told and desk.sent["a3"][-1]["incarnation"] == 2 and not desk.sent.keys() & {"a2", "S1", "T0"}


@pytest.mark.parametrize("again", [{"op": "back", "rank": 1, "incarnation": 1, "public": "public of b"},
                                   {"op": "join", "rank": 1, "kind": "sync", "public": "another"}], ids=["back", "replaced"])
def test_others_hear_that_a_worker_is_here_when_every_shard_knows(again):
    """Not before: what they push because of the news would be refused by a shard that has not heard. Nor by news of another."""
    desk = Desk(3)
    for peer in "abc":
        desk.join(peer)
    c, epochs = desk.c, []
    desk.take(c.lost("b"))

    def heard(sends):
        epochs.extend(m["epoch"] for _, m in sends if "epoch" in m)
        return [m["gone"] for peer, m in sends if peer == "a"]

    def ack(epoch):
        return heard(c.receive("s0", "shard", {"op": "ack", "epoch": epoch}))

    assert heard(c.receive("b2", "worker", {"id": 1, **again})) == []
    back = epochs[-1]
    assert heard(c.lost("c")) == [{"1": "died", "2": "died"}] == heard(c.lost("b2"))
    assert heard(c.receive("b3", "worker", {"id": 1, **again, "incarnation": c._workers[1].incarnation})) == []
    assert ack(back) == [{"1": "died", "2": "died"}] and ack(epochs[-1]) == [{"2": "died"}]


@pytest.mark.parametrize("again", [{"op": "back", "rank": 1, "incarnation": 1, "public": "public of b"},
                                   {"op": "join", "rank": 1, "kind": "sync", "public": "another"},
                                   {"op": "join", "rank": None, "kind": "sync", "public": "public of a"}])
def test_who_is_let_in_knows_already_who_is_dead(again):
    """Else it would find nobody dead, and push to be refused."""
    desk = Desk(3)
    for peer in "abc":
        desk.join(peer)
    desk.take(desk.c.lost("b")), desk.take(desk.c.lost("c"))
    desk.say("B", id=1, **again)
    gone, answer = desk.sent["B"]
    assert gone["gone"] == ({"2": "died"} if again["rank"] else {"1": "died", "2": "died"}) and answer["id"] == 1


names = st.sampled_from(["op", "id", "keys", "index", "epoch", "rank", "kind", "spec", "public", "n", "of", "leave",
                         "incarnation"])
operations = st.sampled_from(["join", "init", "filled", "barrier", "optimizer", "ack", "leave", "back", "missing", "info"])
values = st.one_of(st.none(), st.integers(), st.just("new"), st.text(max_size=5), st.lists(st.integers(), max_size=2), operations)
anything = st.dictionaries(names, values, max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["w", "s0", "x"]), st.sampled_from(["worker", "shard"]), anything), max_size=15))
def test_no_message_breaks_it(messages):
    c = Coordinator(2, 1)
    for peer, role, m in messages:
        for _, answer in c.receive(peer, role, m):
            assert isinstance(answer, dict)
    json.dumps(c.state())
    desk = Desk()
    assert desk.join("a")["rank"] == 0
