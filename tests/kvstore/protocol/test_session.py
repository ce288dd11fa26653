"""Session: the states of a worker's contributions. Oracle: a small server that applies, saves, restarts and loses messages."""

from __future__ import annotations

import numpy as np
import pytest
from tritium.kvstore.protocol.session import Contribution, Session, State, ValuesLostError

NAME = (7, 0)


def contribution(round, name=NAME):
    return Contribution(name, round, 100)


def connected(durable=True, retain_bytes=1000, process=1):
    session = Session(retain_bytes)
    session.handshake(process, durable, {})
    return session


def sent(session, round, seq=1):
    """A contribution in state SENT."""
    c = contribution(round)
    assert session.submit(c) and c.state is State.QUEUED
    session.send(c, seq)
    assert c.state is State.SENT and c.process == session.process
    return c


def test_a_contribution_is_retained_until_it_is_on_disk():
    session = connected()
    first, second = sent(session, 1), sent(session, 2)
    session.acknowledge(first)
    session.acknowledge(second)
    assert first.state is second.state is State.ACKNOWLEDGED and session.sent == []
    session.on_disk({NAME: 1})
    assert first.state is State.DURABLE and second.state is State.ACKNOWLEDGED
    session.on_disk({NAME: 5})
    assert second.state is State.DURABLE


def test_without_snapshots_an_acknowledged_contribution_is_done():
    session = connected(durable=False)
    c = sent(session, 1)
    session.acknowledge(c)
    assert c.state is State.DURABLE and not session.save


def test_an_answer_finds_the_contribution_of_its_frames_only():
    session = connected()
    c = sent(session, 1, seq=4)
    assert session.find(NAME, 1, 4) is session.find(NAME, 1, 0) is c
    assert session.find(NAME, 1, 3) is session.find(NAME, 2, 4) is session.find((7, 1), 1, 4) is None


def test_a_restarted_server_gets_the_retained_contributions_in_order():
    session = connected()
    for n in (1, 2, 3):
        session.acknowledge(sent(session, n))
    unanswered = sent(session, 4)
    session.handshake(2, True, {NAME: 1})
    assert [c.round for c in session.again] == [2, 3]
    assert session.take_sent() == [unanswered] and session.sent == []
    assert session.submit(unanswered) and unanswered.state is State.QUEUED and unanswered.process == 1


def test_too_many_retained_bytes_request_one_snapshot():
    session = connected(retain_bytes=250)
    contributions = [sent(session, n) for n in (1, 2, 3, 4)]
    asked = []
    for c in contributions:
        session.acknowledge(c)
        asked.append(session.save)
        session.save = False
    assert asked == [False, False, True, False]
    session.on_disk({NAME: 4}, complete=True)
    assert all(c.state is State.DURABLE for c in contributions)


@pytest.mark.parametrize("applied", [0, 1])
def test_the_handshake_resolves_an_abandoned_contribution(applied):
    session = connected()
    abandoned, later = sent(session, 1), contribution(1)
    session.abandon([abandoned])
    assert abandoned.state is State.UNKNOWN and session._unknown and session.sent == []
    session.handshake(1, True, {NAME: applied})
    assert not session._unknown and session.again == [] and session.was_applied(later) == bool(applied)
    if applied:
        assert abandoned.state is State.ACKNOWLEDGED
        assert not session.submit(later) and session.superseded == [later] and later.state is State.FAILED
    else:
        assert abandoned.state is State.FAILED
    assert session.submit(contribution(1))


def test_an_abandoned_contribution_of_an_earlier_process_is_sent_again():
    """Its acknowledgement may be lost, and other workers may have seen the result of that process."""
    session = connected(process=1)
    c = sent(session, 1)
    session.abandon([c])
    session.handshake(2, True, {})
    assert session.again == [c]
    assert c.state is State.ACKNOWLEDGED and session.was_applied(c)


def test_a_push_to_a_round_with_an_earlier_contribution_ends_when_that_is_applied():
    """Not before: a pull of that round would wait for other workers, which may wait for this one."""
    session = connected(process=1)
    first, again = sent(session, 1), contribution(1)
    session.abandon([first])
    session.handshake(2, True, {})
    assert session.again == [first]
    session.send(first, 7)
    assert not session.submit(again) and session.superseded == [] and session.sent == [again] and again.state is State.SENT
    assert session.find(NAME, 1, 0) is session.find(NAME, 1, 7) is None  # the answer is not to the second contribution
    session.applied(NAME, 0)
    session.handshake(3, True, {})
    assert session.again == [first]
    assert session.take_sent() == [again] and not session.submit(again)  # lost with the server once more
    assert session.superseded == []
    session.applied(NAME, 1)
    assert session.superseded == [again] and session.sent == []
    assert again.state is State.FAILED and first.state is State.ACKNOWLEDGED and session.submit(contribution(1))


def test_of_two_abandoned_contributions_to_a_round_the_first_is_retained():
    session = connected()
    first, second = sent(session, 1), contribution(1)
    session.abandon([first])
    assert session.submit(second)
    session.abandon([second])
    session.handshake(1, True, {NAME: 1})
    assert session.again == [] and first.state is State.ACKNOWLEDGED and second.state is State.FAILED


@pytest.mark.parametrize("dead, process, resent", [(True, 1, True), (True, 2, False), (False, 1, False)])
def test_a_rejected_contribution_that_an_earlier_process_may_have_applied_is_sent_again(dead, process, resent):
    """Other workers may have seen the result of that process, so the round must contain the same contribution."""
    session = connected(process=process)
    c = sent(session, 1)
    session.handshake(2, True, {})
    assert session.take_sent() == [c] and session.submit(c)
    session.send(c, 2)
    session.reject(c, applied=False, dead=dead)
    assert session.again == [c] * resent
    assert c.state is (State.ACKNOWLEDGED if resent else State.FAILED) and session.was_applied(c) == resent


def test_a_rejected_contribution_that_was_applied_is_retained():
    session = connected()
    c = sent(session, 1)
    session.reject(c, applied=True, dead=False)
    assert session.again == [] and c.state is State.ACKNOWLEDGED and not session.was_applied(c)


def test_a_server_that_has_lost_its_values_is_an_error():
    session = connected(durable=False)
    session.acknowledge(sent(session, 1))
    session.handshake(1, False, {NAME: 1})
    with pytest.raises(ValuesLostError):
        session.handshake(2, False, {})
    session = connected()
    session.on_disk({NAME: 3, (8, 0): 1}, complete=True)
    session.on_disk({NAME: 2})  # an incomplete report may be late
    with pytest.raises(ValuesLostError):
        session.on_disk({NAME: 3}, complete=True)


class Job:
    """One worker, as dist.py drives it, and a server that applies a round as soon as its contribution arrives."""

    def __init__(self, seed):
        self.rng, self.session = np.random.default_rng(seed), connected(retain_bytes=300)
        self.round, self.current, self.seq = 0, None, 1
        self.acknowledged, self.failed, self.all = {}, [], []
        self.process, self.on_disk, self.applied = 1, 0, []
        self.arriving, self.answers = [], []

    def run(self):
        events = (self.push, self.push, self.arrive, self.arrive, self.answer, self.answer, self.save, self.cut, self.restart,
                  self.abandon)
        for _ in range(300):
            events[int(self.rng.integers(len(events)))]()
        while self.current is not None or self.arriving or self.answers:
            self.arrive(), self.answer()
        assert {n: self.applied[n - 1] for n in self.acknowledged} == self.acknowledged
        assert len(self.applied) >= self.round and all(c in self.failed for c in self.applied[self.round:])
        assert all(c in self.applied for c in self.all if c.state is State.DURABLE)
        assert not any(c in self.applied for c in self.all if c.state is State.FAILED)

    def follow(self):
        """Do what follows from an event."""
        session = self.session
        for c in session.again:
            assert c.state not in (State.DURABLE, State.FAILED)
            self.arriving.append(c)
        for c in session.superseded:
            self.current = None
            assert self.applied_by_earlier(c)
        if session.save and self.rng.random() < 0.5:
            self.on_disk = len(self.applied)
        session.again, session.superseded, session.save = [], [], False

    def applied_by_earlier(self, c):
        """Return True if the server has an abandoned contribution to the round of c."""
        return any(e.round == c.round and e in self.failed for e in self.applied)

    def submit(self, c):
        if self.session.submit(c):
            self.seq += 1
            self.session.send(c, self.seq)
            self.arriving.append(c)
        self.follow()

    def push(self):
        if self.current is None:
            self.round += 1
            self.current = contribution(self.round)
            self.all.append(self.current)
            self.submit(self.current)

    def arrive(self):
        if self.arriving:
            c = self.arriving.pop(0)
            if c.round == len(self.applied) + 1:
                self.applied.append(c)
            self.answers.append(c)

    def answer(self):
        if self.answers:
            c = self.answers.pop(0)
            if self.session.find(c.name, c.round, c.seq) is c:
                self.session.acknowledge(c)
                self.acknowledged[c.round], self.current = c, None
            else:
                self.session.applied(c.name, min(c.round, len(self.applied)))
            self.follow()
            self.session.on_disk({NAME: self.on_disk})

    def save(self):
        if self.rng.random() < 0.3:
            self.on_disk = len(self.applied)

    def cut(self):
        self.arriving, self.answers = [], []
        self.session.on_disk({NAME: self.on_disk}, complete=True)
        self.session.handshake(self.process, True, {NAME: len(self.applied)})
        self.follow()
        for c in self.session.take_sent():
            self.submit(c)

    def restart(self):
        self.process += 1
        del self.applied[self.on_disk:]
        self.cut()

    def abandon(self):
        if self.current is not None:
            self.session.abandon([self.current])
            self.failed.append(self.current)
            self.round, self.current = self.round - 1, None
            self.cut()


@pytest.mark.parametrize("seed", range(40))
def test_every_acknowledged_contribution_is_in_its_round(seed):
    """Messages are lost, the server restarts from old snapshots, pushes are abandoned. Nothing that has ended is sent again."""
    Job(seed).run()
