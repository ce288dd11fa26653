"""Rounds: every contribution counts once, in rank order, whatever is repeated, delayed or reordered. Oracle: a list of sums."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritium.kvstore.protocol.rounds import MOST_AHEAD, Answer, Apply, Refuse, Rounds


def rounds(n=2, sync=True, policy="fail"):
    r = Rounds(sync, policy)
    r.set_members(dict.fromkeys(range(n), 1), {})
    r.add("w")
    return r


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_delivery_gives_the_same_updates(data):
    """Each rank's rounds arrive any number of times, in any order that begins a round only after the one before was sent."""
    n, last = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    r = rounds(n)
    sends = [(rank, k) for rank in range(n) for k in range(1, last + 1)]
    order = data.draw(st.permutations(sends + data.draw(st.lists(st.sampled_from(sends), max_size=20))))
    applied, answered = [], set()
    for rank, k in order:
        for a in r.push("w", rank, k, (rank, k)):
            if isinstance(a, Apply):
                applied.append((a.version, a.data))
            else:
                assert isinstance(a, Answer) and a.round <= len(applied)  # told only what was applied
                answered.add((a.rank, a.round))
    assert applied == [(k, tuple((rank, k) for rank in range(n))) for k in range(1, last + 1)]
    assert answered == set(sends)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_restart_from_any_version_ends_at_the_same_updates(data):
    """The shard is lost at any point; what is on disk is any earlier version; all that is newer is sent again, in any order."""
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
    assert r.version("w") == len(applied)


def test_a_death_refuses_the_round_and_a_replacement_begins_it_anew():
    r = rounds(3)
    assert r.push("w", 0, 1, "a") == [] and r.push("w", 2, 1, "dead") == []
    assert r.missing("w") == (1, [1])
    told = r.set_members({0: 1, 1: 1, 2: 1}, {2: "died"})
    assert told == [Refuse(0, "w", 1, "worker 2 died; the round is not applied", (2,))]
    assert r.push("w", 1, 1, "b") == [Refuse(1, "w", 1, "worker 2 died; the round is not applied", (2,))]
    assert r.version("w") == 0
    assert r.set_members({0: 1, 1: 1, 2: 2}, {}) == []
    assert r.push("w", 0, 1, "a") == r.push("w", 1, 1, "b") == []
    assert r.push("w", 2, 1, "c")[0] == Apply("w", 1, ("a", "b", "c"))


def test_waiting_keeps_the_others_contributions():
    r = rounds(2, policy="wait")
    r.push("w", 0, 1, "a")
    assert r.set_members({0: 1, 1: 1}, {1: "died"}) == []
    assert r.set_members({0: 1, 1: 2}, {}) == []
    assert r.push("w", 1, 1, "b") == [Apply("w", 1, ("a", "b")), Answer(0, "w", 1), Answer(1, "w", 1)]


def test_a_new_incarnation_drops_what_the_former_one_gave():
    r = rounds(2, policy="wait")
    r.push("w", 1, 1, "old")
    r.set_members({0: 1, 1: 2}, {})
    assert r.missing("w") == (1, [0, 1])


def test_shrinking_goes_on_without_the_dead():
    r = rounds(3, policy="shrink")
    r.push("w", 0, 1, "a")
    r.push("w", 1, 1, "b")
    assert r.set_members({0: 1, 1: 1, 2: 1}, {2: "died"}) == [Apply("w", 1, ("a", "b")), Answer(0, "w", 1), Answer(1, "w", 1)]
    assert r.push("w", 2, 1, "late") == [Refuse(2, "w", 1, "worker 2 is no member of the job any more")]


@pytest.mark.parametrize("sync, ahead", [(True, MOST_AHEAD + 1), (False, 2)])
def test_too_far_ahead_is_refused(sync, ahead):
    (refused,) = rounds(1, sync).push("w", 0, ahead, "x")
    assert isinstance(refused, Refuse) and "too far ahead" in refused.text


def test_what_was_made_before_is_not_refused_and_may_be_made_again():
    r = rounds()
    assert r.push("w", 0, 1, "a", again=True) == [] and r.push("w", 0, 2, "new") == []
    told = r.set_members({0: 1, 1: 1}, {1: "died"})
    assert told == [Refuse(0, "w", 2, "worker 1 died; the round is not applied", (1,))]
    assert r.set_members({0: 1, 1: 1}, {}) == []
    assert r.push("w", 1, 1, "b", again=True)[0] == Apply("w", 1, ("a", "b"))


@pytest.mark.parametrize("again", [True, False])
def test_what_was_made_before_counts_in_any_order(again):
    """Not what was pushed instead: by a worker to which the round was lost, since another part of the key was given up."""
    r = rounds()
    given = {True: "first", False: "second"}
    assert r.push("w", 0, 1, given[again], again) == r.push("w", 0, 1, given[not again], not again) == []
    assert r.push("w", 1, 1, "b", again=True)[0] == Apply("w", 1, ("first", "b"))


def test_what_is_forgotten_does_not_count():
    r = rounds()
    r.push("w", 0, 1, "a")
    r.forget(0)
    assert r.missing("w") == (1, [0, 1]) and r.push("w", 1, 1, "b") == []
    assert r.push("w", 0, 1, "again")[0] == Apply("w", 1, ("again", "b"))


def test_what_was_applied_is_answered_even_to_the_dead():
    """It asks again because it did not hear. Told that it does not count, it would push the round once more."""
    r = rounds(sync=False)
    r.push("w", 1, 1, "a")
    r.set_members({0: 1, 1: 1}, {1: "died"})
    assert r.push("w", 1, 1, "a") == [Answer(1, "w", 1)]


@pytest.mark.parametrize("sync", [True, False])
def test_who_is_silent_is_not_refused(sync):
    """What it pushes before it hears that it was taken for dead, it sends again when it is back. Who has left is back no more."""
    r = rounds(sync=sync)
    r.set_members({0: 1, 1: 1}, {1: "died"})
    assert r.push("w", 1, 1, "dropped") == []
    r.set_members({0: 1, 1: 1}, {})
    assert r.push("w", 1, 1, "b")[:1] == ([] if sync else [Apply("w", 1, ("b",))])
    assert not sync or r.push("w", 0, 1, "a")[0] == Apply("w", 1, ("a", "b"))
    r.set_members({0: 1, 1: 1}, {1: "left"})
    assert r.push("w", 1, 2, "b") == [Refuse(1, "w", 2, "worker 1 is no member of the job any more")]


def test_policy_wait_does_not_wait_for_who_has_left():
    """It waits for who has died, or ended in a way that nobody knows to be well."""
    for why, made in (("died", False), ("ended", False), ("left", True)):
        rounds = Rounds(True, "wait")
        rounds.set_members({0: 1, 1: 1}, {})
        rounds.add("k")
        assert rounds.push("k", 1, 1, "b") == []
        done = rounds.set_members({0: 1, 1: 1}, {0: why})
        assert done == ([Apply("k", 1, ("b",)), Answer(1, "k", 1)] if made else [])
        assert bool(rounds.push("k", 1, 2, "c")) == made
        rounds.set_members({0: 2, 1: 1}, {})  # somebody takes its place: it is waited for again
        assert rounds.push("k", 1, rounds.version("k") + 1, "d") == []
