"""A job without processes, sockets or a clock: the real coordinator, servers and workers in one loop, driven by a seed.

The seed decides what happens next: a message arrives, a worker's thread runs, a connection breaks, a process dies. Some
connections and workers pause for a while, as on a busy machine. So a seed gives the same run each time.

Of the messages in flight when a connection ends, some are lost; the others arrive in any order with those of the next connection.
The memory for a value is overwritten before it arrives.

`SimulatedJob(seed, ...).run()` ends when every worker has completed its rounds, and checks every value that a worker got against
NumPy. It fails if a value is wrong, a contribution counts twice or not at all, nothing happens any more, or a worker that waited
until no worker was dead is rejected again because of a death that is over.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
from collections import Counter, defaultdict, deque
from types import SimpleNamespace
from unittest import mock

import numpy as np
from tritium import engine
from tritium.kvstore.protocol.coordinator import Coordinator
from tritium.kvstore.server import answers, optimizer_codec
from tritium.kvstore.server import main as server_main
from tritium.kvstore.wire.frame import pack, unpack
from tritium.kvstore.wire.shared_memory import remove_segments
from tritium.kvstore.worker import coordinator_connection, event_loop, remote_server, requests

from support.kvstore_processes import SIZES, Halves, SimulatedServer, SimulatedWorker, step
from support.kvstore_wires import FakeSockets

LARGE, CHUNK = 64, 512  # bytes: small, so that small values have frames of their own
_MOST_STEPS = 60_000
_LONGEST_PAUSE = 300  # steps


class SimulatedJob:
    """A job with so many workers and servers.

    faults:      names in FAULTS that may happen.
    timeout:     deadline of pushes, seconds.
    dtype:       of the values.
    from_start:  every process makes `rounds` rounds, then leaves: a replacement continues when the others have left.
    """

    FAULTS = ("cut", "silence", "kill_server", "kill_coordinator", "replace", "lose")

    def __init__(self, seed, folder, *, kind="sync", policy="fail", workers=2, servers=2, snapshot_rounds=3, rounds=4,
                 optimizer=True, faults=(), most_faults=8, timeout=1e9, dtype="float32", from_start=False):
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)  # for what happens, and for data
        self.folder, self.name = folder, f"{os.getpid():x}"
        self.kind, self.policy, self.snapshot_rounds, self.rounds, self.optimizer, self.timeout = (
            kind, policy, snapshot_rounds, rounds, optimizer, timeout)
        self.num_workers, self.num_servers = workers, servers
        self.dtype, self.from_start = np.dtype(dtype), from_start
        self.faults, self.left = faults, most_faults
        self.now, self.steps = 100.0, 0
        self.wires = []
        self.tried = defaultdict(lambda: defaultdict(list))  # (key, slice, round) -> rank -> pushed data that may count
        self.applied = defaultdict(dict)  # (key, slice, round) -> rank -> data that counted
        self.ghosts = defaultdict(lambda: defaultdict(list))  # as `tried`, of processes that have died
        self.unsure = set()  # (key, slice, round, rank) with an abandoned earlier contribution
        self.values = defaultdict(dict)  # (key, slice, round) -> rank -> values that it got
        self.contributors = defaultdict(list)  # (key, round) -> processes (worker, server) of each contribution
        self.finals = defaultdict(dict)  # key -> rank -> value
        self.known = defaultdict(set)  # worker -> (round, key, slice) whose values it has
        self.sockets, self.names = FakeSockets(self), itertools.count(1)
        self.deaths = []  # (generation, rank), as the coordinator counts
        self.log = deque(maxlen=400)
        self.slices_of = {}

    def data(self, n):
        return (self.numbers.integers(-8, 8, n).astype("f") / 4 + np.float32(0.1)).astype(self.dtype)

    def first(self, k):
        return np.arange(SIZES[k]).astype(self.dtype)

    def after(self, seconds):
        end = self.now + seconds
        return lambda: self.now >= end

    def settled(self):
        """Return whether servers have everything again: all workers have connected to them, no message is in flight, and none was
        lost, or ignored because the coordinator has lost its sender.
        """
        return not any(wire.ended or wire.near.sent or wire.far.sent for wire in self.wires if not wire.over) and all(
            w.client.coordinator.lost_since is None for w in self.workers) and all(
            s.ready and not s.session.again and s.incarnation == getattr(self.servers[s.index].process, "incarnation", None)
            for w in self.workers for s in w.client.servers)

    # ---- the oracle -----------------------------------------------------------------------------------------------------
    def acknowledged(self, worker, k, i, n, data, out):
        self.applied[k, i, n].setdefault(worker.rank, data)
        if out is not None:
            self.values[k, i, n].setdefault(worker.rank, []).append(out.copy())
            self.known[worker].add((n, k, i))

    def pushed(self, worker, k, i, n, data):
        """Note a contribution. Returns the list of those of this worker that may count."""
        self.contributors[k, n].append((worker, self.servers[worker.keys[k].slices[i][0]]))
        tried = self.tried[k, i, n][worker.rank]
        tried.append(data)
        return tried

    def may_be_made_again(self, k, n):
        """Return whether a round may have been lost with a server, and with a worker that could not send its part again.

        A replacement then continues with this round for every slice, and gets the newest values of those that have it.
        """
        return any(worker.gone and server.dead for worker, server in self.contributors[k, n])

    def final(self, rank, k, key):
        self.finals[k][rank] = key.value.copy()
        self.slices_of[k] = key.slices

    def check(self):
        for k in SIZES:
            for i, (_, a, b) in enumerate(self.slices_of[k]):
                states = [(None, self.first(k)[a:b])]
                if self.kind == "async":
                    self._check_async(k, i, states[0][1])
                    continue
                for n in range(1, max(n for key, part, n in self.tried if (key, part) == (k, i)) + 1):
                    states = self._round(k, i, n, states)
                    assert states, f"{k} part {i} round {n}: no sum of contributions gives {self.values[k, i, n]}"
                assert any(s[1].tobytes() == v[a:b].tobytes() for s in states for v in self.finals[k].values()), f"{k} at the end"
            assert self.from_start or len({v.tobytes() for v in self.finals[k].values()}) == 1

    def _round(self, k, i, n, states):
        """Return the possible (state, value) after round n, as far as the values that workers got allow."""
        values = {v.tobytes() for vs in self.values[k, i, n].values() for v in vs}
        again = self.may_be_made_again(k, n)  # then perhaps with a value that no worker got: one that pushed to it died first
        assert len(values) <= 1 or again, (
            f"{k} part {i} round {n}: workers got different values {self.values[k, i, n]}")
        choices = []
        for rank in range(self.num_workers):
            choices.append([*self._choices(k, i, n, rank), *([None] if rank in self.may_lack or n > self.rounds else [])])
        results = {}  # by their bytes: different contributions may give equal values
        for combination in itertools.product(*choices):
            data = [d for d in combination if d is not None]
            if not data:
                continue
            total = data[0].copy()
            for d in data[1:]:
                total = (total + d).astype(d.dtype)
            for state, value in states:
                new = step(state, total, value) if self.optimizer else (None, total)
                if not values or again or new[1].tobytes() in values:
                    results[tuple(None if part is None else part.tobytes() for part in new)] = new
        return list(results.values())

    def _choices(self, k, i, n, rank):
        """Return the data of rank that may have counted: what was acknowledged, or, if that is unknown, any that it pushed."""
        sure = (rank in self.applied[k, i, n] and (k, i, n, rank) not in self.unsure
                and not self.may_be_made_again(k, n))
        return ([self.applied[k, i, n][rank]] if sure else self.tried[k, i, n][rank]) + self.ghosts[k, i, n][rank]

    def _check_async(self, k, i, value):
        """Check that the final value is a sum of contributions in any order."""
        _, a, b = self.slices_of[k][i]
        totals = [value.astype("d")]
        for n, rank in itertools.product(range(1, self.rounds + 1), range(self.num_workers)):
            totals = [total - one for total in totals for one in self._choices(k, i, n, rank)][:1 << 16]
        for v in self.finals[k].values():
            assert any(np.allclose(v[a:b], total, rtol=0, atol=1e-3) for total in totals), f"{k} part {i}: {v[a:b]} {totals[0]}"

    # ---- the loop -------------------------------------------------------------------------------------------------------
    def run(self):
        """Run until every worker has finished. Returns how often each fault happened."""
        happened = Counter()
        with self._replacements():
            self.coordinator = Coordinator(self.num_workers, self.num_servers, self.policy)
            self.stored = json.dumps(self.coordinator.state())
            self.servers = [SimulatedServer(self, i) for i in range(self.num_servers)]
            self.workers = [SimulatedWorker(self, r) for r in range(self.num_workers)]
            self.may_lack, self.give_up_at = set(), 1e9
            while [w for w in self.workers if not w.finished]:
                self.steps += 1
                if self.steps > _MOST_STEPS:
                    raise AssertionError(f"nothing happens any more: {self._where()}")
                if self.faults and self.left > 0 and self.rng.random() < 0.008:
                    name = self.rng.choice(self.faults)
                    if getattr(self, f"_{name}")():
                        happened[name] += 1
                        self.left -= 1
                        self.log.append((self.steps, name))
                self._step()
            self.check()
        return happened

    def _where(self):
        return {w.rank: {"finished": w.finished, "gone": dict(w.client.coordinator.gone), "lost": w.client.coordinator.lost_since,
                         **{k: (key.round, key.busy) for k, key in w.keys.items()},
                         "links": [(s.ready, s.session.sent, len(s.waiting), list(s.asked)) for s in w.client.servers]}
                for w in self.workers}

    @contextlib.contextmanager
    def _replacements(self):
        clock = SimpleNamespace(monotonic=lambda: self.now)
        time_and_sockets, chunk = {"sockets": self.sockets, "time": clock}, {"CHUNK": CHUNK}
        before = engine.current()
        engine.set_current(engine.NaiveEngine())
        for i in range(self.num_servers):
            (self.folder / f"server-{i}").mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            for module, names in ((remote_server, time_and_sockets), (requests, {"LARGE": LARGE, **chunk}), (answers, chunk),
                                  (coordinator_connection, time_and_sockets), (event_loop, {"time": clock}),
                                  (server_main, time_and_sockets)):
                stack.enter_context(mock.patch.multiple(module, **names))
            stack.enter_context(mock.patch.object(Coordinator, "_set_gone", self._noting_deaths(Coordinator._set_gone)))
            stack.enter_context(mock.patch.dict(optimizer_codec._hooks, from_spec=lambda spec: Halves(self.kind == "sync")))
            try:
                yield
            finally:
                engine.set_current(before)
                remove_segments(self.name)

    def _noting_deaths(self, away):
        def noted(coordinator, rank, why):
            sends = away(coordinator, rank, why)
            self.deaths.append((coordinator._workers.generation, rank))
            return sends

        return noted

    def last_death(self, rank, generation):
        """Return the last death of a rank up to a generation."""
        return max((at, r) for at, r in self.deaths if r == rank and at <= generation)

    def _pause(self):
        """Hold a connection or a worker for a while."""
        self._hold(self._one([*self.wires, *self.workers]))

    def _hold(self, some):
        some.held = self.steps + self.rng.randrange(_LONGEST_PAUSE)

    def _step(self):
        """Let one event happen."""
        rng = self.rng
        if rng.random() < 0.01:
            self._pause()
        if self.now > self.give_up_at:
            self.give_up_at = 1e9
            self._send(self.coordinator.end_grace_period())
        event = rng.random()
        self.now += 0.001
        if event < 0.05:
            for server in self.servers:
                server.turn()
        elif event < 0.4 or not self._deliver():
            worker = self._one([w for w in self.workers if self.steps >= w.held])
            self.now += 0.01
            if worker is not None:
                worker.turn()

    def _deliver(self):
        """Let something arrive over a connection: a message, or its end. Returns False if there is nothing."""
        event = self._one([event for wire in self.wires if self.steps >= wire.held for event in wire.events()])
        if event is not None:
            event()
        return event is not None

    # ---- the coordinator, as a listener ------------------------------------------------------------------------------------
    def listener(self, address):
        """Return the process that listens at an address, or None."""
        return self if address == "coordinator" else next((s for s in self.servers if s.address == address), None)

    @property
    def users(self):
        """The role of each process."""
        return {**{s.public: "server" for s in self.servers}, **{w.public: "worker" for w in self.workers}}

    def receive(self, end, _head, payload):
        self._send(self.coordinator.receive(end, end.user, unpack(payload)))

    def lost(self, end):
        self._send(self.coordinator.lost(end))

    def _send(self, sends):
        if self.coordinator.changed:
            self.stored = json.dumps(self.coordinator.state())
        for peer, m in sends:
            if peer is not None:
                peer.put(b"", pack(m))

    # ---- faults ----------- ----------------------------------------------------------------------------------------------
    def _one(self, candidates):
        return self.rng.choice(candidates) if candidates else None

    def _cut(self):
        """A connection to a server ends."""
        wire = self._one([w for w in self.wires if not w.ended and w.address != "coordinator"])
        if wire is not None:
            wire.cut()
        return wire is not None

    def _silence(self):
        """The coordinator loses contact with a process for a while."""
        wire = self._one([w for w in self.wires if not w.ended and w.address == "coordinator" and (
            isinstance(w.owner, SimulatedServer) or self.policy != "shrink")])
        if wire is not None:
            wire.cut()
            wire.owner.cut_off = self.steps + self.rng.randrange(_LONGEST_PAUSE)
        return wire is not None

    def _kill_server(self):
        server = self._one([s for s in self.servers if s.joined])
        if server is not None:
            server.die()
            self.servers[server.index] = SimulatedServer(self, server.index)
        return server is not None

    def _kill_coordinator(self):
        """It is restarted at once; servers and workers come back."""
        self.coordinator = Coordinator(self.num_workers, self.num_servers, self.policy)
        self.coordinator.resume(json.loads(self.stored))
        self.give_up_at = self.now + 5
        for wire in [w for w in self.wires if w.address == "coordinator"]:
            wire.near.sent.clear()
            wire.cut()
            wire.far.closed = True
        return True

    def _replace(self):
        """A worker's process dies, and another one takes its rank."""
        worker = self._one([w for w in self.workers if not w.ending and w.keys])
        if worker is not None:
            self.replace(worker)
        return worker is not None

    def _lose(self):
        """A worker's process dies, and no other takes its rank."""
        worker = self._one([w for w in self.workers if not w.ending])
        if worker is None or len(self.workers) == 1 or not all(w.pushing for w in self.workers):
            return False
        self._bury(worker)
        self.workers.remove(worker)
        self.may_lack.add(worker.rank)
        return True

    def replace(self, worker):
        self._bury(worker)
        self.workers[worker.rank] = SimulatedWorker(self, worker.rank)
        self._hold(self.workers[worker.rank])

    def _bury(self, worker):
        worker.die()
        for where, by_rank in self.tried.items():
            self.ghosts[where][worker.rank] += by_rank.pop(worker.rank, ())
