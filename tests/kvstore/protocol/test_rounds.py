"""Rounds: every contribution counts once, in rank order, also if messages are repeated or reordered. Oracle: a list of sums."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritium.kvstore.protocol.rounds import MOST_AHEAD, Acknowledge, Apply, Reject, Rounds


def rounds(n=2, sync=True, policy="fail"):
    r = Rounds(sync, policy)
    r.set_members(dict.fromkeys(range(n), 1), {})
    r.add("w")
    return r


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_delivery_gives_the_same_updates(data):
    """Each rank's rounds arrive any number of times and in any order."""
    n, last = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    r = rounds(n)
    sends = [(rank, k) for rank in range(n) for k in range(1, last + 1)]
    order = data.draw(st.permutations(sends + data.draw(st.lists(st.sampled_from(sends), max_size=20))))
    applied, acknowledged = [], set()
    for rank, k in order:
        for a in r.push("w", rank, k, (rank, k)):
            if isinstance(a, Apply):
                applied.append((a.version, a.data))
            else:
                assert isinstance(a, Acknowledge) and a.round <= len(applied)  # only applied contributions are acknowledged
                acknowledged.add((a.rank, a.round))
    assert applied == [(k, tuple((rank, k) for rank in range(n))) for k in range(1, last + 1)]
    assert acknowledged == set(sends)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_restart_from_any_version_ends_at_the_same_updates(data):
    """A server restarts with any earlier version on disk; all later contributions are sent again, in any order."""
    n, last = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    saved = data.draw(st.integers(0, last))
    r = rounds(n)
    r.add("w", saved)
    applied = []
    for rank, k in data.draw(st.permutations([(rank, k) for rank in range(n) for k in range(1, last + 1)])):
        applied += [a.data for a in r.push("w", rank, k, (rank, k)) if isinstance(a, Apply)]
    assert applied == [tuple((rank, k) for rank in range(n)) for k in range(saved + 1, last + 1)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40))
def test_async_applies_each_contribution_once(events):
    r, counts, applied = rounds(3, sync=False), [0, 0, 0], []
    for rank, again in events:
        counts[rank] += not again or not counts[rank]
        applied += [a.data[0] for a in r.push("w", rank, counts[rank], (rank, counts[rank])) if isinstance(a, Apply)]
    assert sorted(applied) == sorted((rank, k) for rank in range(3) for k in range(1, counts[rank] + 1))
    assert r["w"].version == len(applied)


def test_a_death_rejects_the_round_and_a_replacement_starts_it_again():
    r = rounds(3)
    assert r.push("w", 0, 1, "a") == [] and r.push("w", 2, 1, "dead") == []
    assert r.missing("w") == (1, [1])
    rejected = r.set_members({0: 1, 1: 1, 2: 1}, {2: "died"})
    assert rejected == [Reject(0, "w", 1, "worker 2 died; the round is not applied", (2,))]
    assert r.push("w", 1, 1, "b") == [Reject(1, "w", 1, "worker 2 died; the round is not applied", (2,))]
    assert r["w"].version == 0
    assert r.set_members({0: 1, 1: 1, 2: 2}, {}) == []
    assert r.push("w", 0, 1, "a") == r.push("w", 1, 1, "b") == []
    assert r.push("w", 2, 1, "c")[0] == Apply("w", 1, ("a", "b", "c"))


def test_policy_wait_keeps_the_contributions_of_other_workers():
    r = rounds(2, policy="wait")
    r.push("w", 0, 1, "a")
    assert r.set_members({0: 1, 1: 1}, {1: "died"}) == []
    assert r.set_members({0: 1, 1: 2}, {}) == []
    assert r.push("w", 1, 1, "b") == [Apply("w", 1, ("a", "b")), Acknowledge(0, "w", 1), Acknowledge(1, "w", 1)]


def test_a_new_incarnation_drops_the_contributions_of_the_earlier_one():
    r = rounds(2, policy="wait")
    r.push("w", 1, 1, "old")
    r.set_members({0: 1, 1: 2}, {})
    assert r.missing("w") == (1, [0, 1])


def test_policy_shrink_continues_without_the_dead_worker():
    r = rounds(3, policy="shrink")
    r.push("w", 0, 1, "a")
    r.push("w", 1, 1, "b")
    actions = r.set_members({0: 1, 1: 1, 2: 1}, {2: "died"})
    assert actions == [Apply("w", 1, ("a", "b")), Acknowledge(0, "w", 1), Acknowledge(1, "w", 1)]
    assert r.push("w", 2, 1, "late") == [Reject(2, "w", 1, "worker 2 is not a member of the job any more")]


@pytest.mark.parametrize("sync, ahead", [(True, MOST_AHEAD + 1), (False, 2)])
def test_a_contribution_too_far_ahead_is_rejected(sync, ahead):
    (action,) = rounds(1, sync).push("w", 0, ahead, "x")
    assert isinstance(action, Reject) and "too far ahead" in action.text


def test_a_death_does_not_reject_a_contribution_that_was_applied_before():
    r = rounds()
    assert r.push("w", 0, 1, "a", resent=True) == [] and r.push("w", 0, 2, "new") == []
    rejected = r.set_members({0: 1, 1: 1}, {1: "died"})
    assert rejected == [Reject(0, "w", 2, "worker 1 died; the round is not applied", (1,))]
    assert r.set_members({0: 1, 1: 1}, {}) == []
    assert r.push("w", 1, 1, "b", resent=True)[0] == Apply("w", 1, ("a", "b"))


@pytest.mark.parametrize("resent", [True, False])
def test_the_contribution_that_was_applied_before_wins_in_any_order(resent):
    """Not the one that the worker pushed later, after it had abandoned the round."""
    r = rounds()
    data = {True: "first", False: "second"}
    assert r.push("w", 0, 1, data[resent], resent) == r.push("w", 0, 1, data[not resent], not resent) == []
    assert r.push("w", 1, 1, "b", resent=True)[0] == Apply("w", 1, ("first", "b"))


def test_a_forgotten_contribution_does_not_count():
    r = rounds()
    r.push("w", 0, 1, "a")
    r.forget(0)
    assert r.missing("w") == (1, [0, 1]) and r.push("w", 1, 1, "b") == []
    assert r.push("w", 0, 1, "again")[0] == Apply("w", 1, ("again", "b"))


def test_an_applied_contribution_is_acknowledged_even_to_a_worker_declared_dead():
    """It sends the contribution again because the acknowledgement was lost. After a rejection it would push the round twice."""
    r = rounds(sync=False)
    r.push("w", 1, 1, "a")
    r.set_members({0: 1, 1: 1}, {1: "died"})
    assert r.push("w", 1, 1, "a") == [Acknowledge(1, "w", 1)]


@pytest.mark.parametrize("sync", [True, False])
def test_a_worker_that_is_only_unreachable_is_not_rejected(sync):
    """It sends its pushes again when it is back. A worker that has left does not come back, so it is rejected."""
    r = rounds(sync=sync)
    r.set_members({0: 1, 1: 1}, {1: "died"})
    assert r.push("w", 1, 1, "dropped") == []
    r.set_members({0: 1, 1: 1}, {})
    assert r.push("w", 1, 1, "b")[:1] == ([] if sync else [Apply("w", 1, ("b",))])
    assert not sync or r.push("w", 0, 1, "a")[0] == Apply("w", 1, ("a", "b"))
    r.set_members({0: 1, 1: 1}, {1: "left"})
    assert r.push("w", 1, 2, "b") == [Reject(1, "w", 2, "worker 1 is not a member of the job any more")]


def test_policy_wait_does_not_wait_for_a_worker_that_has_left():
    """It waits for one that has died, or ended in an unknown way."""
    for why, applied in (("died", False), ("ended", False), ("left", True)):
        rounds = Rounds(True, "wait")
        rounds.set_members({0: 1, 1: 1}, {})
        rounds.add("k")
        assert rounds.push("k", 1, 1, "b") == []
        done = rounds.set_members({0: 1, 1: 1}, {0: why})
        assert done == ([Apply("k", 1, ("b",)), Acknowledge(1, "k", 1)] if applied else [])
        assert bool(rounds.push("k", 1, 2, "c")) == applied
        rounds.set_members({0: 2, 1: 1}, {})  # a replacement is waited for again
        assert rounds.push("k", 1, rounds["k"].version + 1, "d") == []
