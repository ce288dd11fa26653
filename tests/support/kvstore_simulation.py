"""A job without processes, sockets or a clock: the real coordinator, servers and workers' connections in one seeded loop.

What the loop does next is drawn by seed: a message arrives, a worker's thread takes a turn, a connection breaks, a process dies.
Some connections and workers stand still for a while, as on a busy machine. So a seed gives the same run each time.

Connections are modelled as libzmq's are: what was on its way when one ended arrives up to some point, in any order with what
comes on the next one; what was not, goes on the next one. Memory that is lent (a payload, the bytes of a contribution until they
are released) is overwritten as soon as the lender may do so.

`Job(seed, ...).run()` ends when every worker has made all its rounds, and holds every value that a worker was given against
NumPy. It fails where a value is wrong, a round counts a contribution twice or not at all, nothing happens any more, or a worker
that waited until nobody was dead is refused once more because of a death that was over.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from collections import Counter, defaultdict, deque
from types import SimpleNamespace
from unittest import mock

import numpy as np
from tritium import engine
from tritium.kvstore.protocol.coordinator import Coordinator
from tritium.kvstore.server import optimizer_codec
from tritium.kvstore.server import server as serve
from tritium.kvstore.wire import encrypted_channel
from tritium.kvstore.wire.frame import pack, unpack
from tritium.kvstore.wire.shared_memory import remove_segments
from tritium.kvstore.worker import client, coordinator_connection, requests, server_connection

from support.kvstore_processes import SIZES, Halves, Server, Worker, step
from support.kvstore_wires import FakeSockets, Lane, Part

RUN, CHUNK = 64, 512  # bytes: small ones, so that little values are in several runs
_MOST_STEPS = 60_000
_STANDS = 600  # steps that something may stand still


class Job:
    """workers, shards: how many. faults: which of FAULTS may happen. timeout: deadline of what is pushed, seconds.

    dtype:  of the values.
    anew:   every process makes as many rounds as `rounds`, then leaves: a replacement goes on when the others have left.
    """

    FAULTS = ("cut", "cut_lane", "silence", "kill_server", "kill_coordinator", "replace", "lose")

    def __init__(self, seed, folder, *, kind="sync", policy="fail", workers=2, shards=2, every=3, rounds=4, optimizer=True,
                 faults=(), most_faults=8, timeout=1e9, dtype="float32", anew=False):
        self.rng, self.folder, self.name = np.random.default_rng(seed), folder, uuid.uuid4().hex
        self.kind, self.policy, self.every, self.rounds, self.optimizer, self.timeout = (
            kind, policy, every, rounds, optimizer, timeout)
        self.count, self.shards = workers, shards
        self.dtype, self.anew = np.dtype(dtype), anew
        self.faults, self.left = faults, most_faults
        self.now, self.steps = 100.0, 0
        self.pipes, self.lanes, self.to_end, self.to_hear = [], [], [], []
        self.tried = defaultdict(lambda: defaultdict(list))  # (key, part, round) -> rank -> what it pushed and may count
        self.applied = defaultdict(dict)  # (key, part, round) -> rank -> what counted
        self.ghosts = defaultdict(lambda: defaultdict(list))  # the same, by processes that have died
        self.unsure = set()  # (key, part, round, rank) of which an earlier contribution was given up
        self.values = defaultdict(dict)  # (key, part, round) -> rank -> what it was given
        self.finals = defaultdict(dict)  # key -> rank -> value
        self.known = defaultdict(set)  # worker -> (round, key, part) it has the value of
        self.sockets = FakeSockets(self)
        self.deaths = []  # (generation, rank), as the coordinator says it
        self.log = deque(maxlen=400)
        self.parts = {}

    def data(self, n):
        return (self.rng.integers(-8, 8, n).astype("f") / 4 + np.float32(0.1)).astype(self.dtype)

    def first(self, k):
        return np.arange(SIZES[k]).astype(self.dtype)

    def after(self, seconds):
        end = self.now + seconds
        return lambda: self.now >= end

    # ---- the oracle -----------------------------------------------------------------------------------------------------
    def ended(self, worker, k, i, n, data, out):
        self.applied[k, i, n].setdefault(worker.rank, data)
        if out is not None:
            self.values[k, i, n].setdefault(worker.rank, []).append(out.copy())
            self.known[worker].add((n, k, i))

    def final(self, rank, k, key):
        self.finals[k][rank] = key.value.copy()
        self.parts[k] = key.parts

    def check(self):
        for k in SIZES:
            for i, (_, a, b) in enumerate(self.parts[k]):
                states = [(None, self.first(k)[a:b])]
                if self.kind == "async":
                    self._check_async(k, i, states[0][1])
                    continue
                for n in range(1, max(n for key, part, n in self.tried if (key, part) == (k, i)) + 1):
                    states = self._round(k, i, n, states)
                    assert states, f"{k} part {i} round {n}: no sum of what counted gives {self.values[k, i, n]}"
                assert any(s[1].tobytes() == v[a:b].tobytes() for s in states for v in self.finals[k].values()), f"{k} at the end"
            assert self.anew or len({v.tobytes() for v in self.finals[k].values()}) == 1

    def _round(self, k, i, n, states):
        """All (state, value) that round n may have given, of which what workers were given leaves the right one."""
        given = {v.tobytes() for vs in self.values[k, i, n].values() for v in vs}
        assert len(given) <= 1, f"{k} part {i} round {n}: workers were given different values {self.values[k, i, n]}"
        choices = []
        for rank in range(self.count):
            choices.append([*self._choices(k, i, n, rank), *([None] if rank in self.may_lack or n > self.rounds else [])])
        made = []
        for some in itertools.product(*choices):
            there = [d for d in some if d is not None]
            if not there:
                continue
            total = there[0].copy()
            for d in there[1:]:
                total = (total + d).astype(d.dtype)
            for state, value in states:
                new = step(state, total, value) if self.optimizer else (None, total)
                if not given or new[1].tobytes() in given:
                    made.append(new)
        return made

    def _choices(self, k, i, n, rank):
        """What of rank may have counted: what it was told has, or, where it could not know, any of what it gave."""
        sure = rank in self.applied[k, i, n] and (k, i, n, rank) not in self.unsure
        return ([self.applied[k, i, n][rank]] if sure else self.tried[k, i, n][rank]) + self.ghosts[k, i, n][rank]

    def _check_async(self, k, i, value):
        """Contributions in any order: the optimizer adds them up."""
        _, a, b = self.parts[k][i]
        totals = [value.astype("d")]
        for n, rank in itertools.product(range(1, self.rounds + 1), range(self.count)):
            totals = [total - one for total in totals for one in self._choices(k, i, n, rank)][:1 << 16]
        for v in self.finals[k].values():
            assert any(np.allclose(v[a:b], total, rtol=0, atol=1e-3) for total in totals), f"{k} part {i}: {v[a:b]} {totals[0]}"

    # ---- the loop -------------------------------------------------------------------------------------------------------
    def run(self):
        """All of it. Returns how often each fault happened."""
        happened = Counter()
        with self._instead():
            self.coordinator = Coordinator(self.count, self.shards, self.policy)
            self.kept = json.dumps(self.coordinator.state())
            self.servers = [Server(self, i) for i in range(self.shards)]
            self.workers = [Worker(self, r) for r in range(self.count)]
            self.may_lack, self.give_up_at = set(), 1e9
            while not all(w.finished for w in self.workers):
                self.steps += 1
                if self.steps > _MOST_STEPS:
                    raise AssertionError(f"nothing happens any more: {self._where()}")
                if self.faults and self.left > 0 and self.rng.random() < 0.004:
                    name = self.faults[int(self.rng.integers(len(self.faults)))]
                    if getattr(self, f"_{name}")():
                        happened[name] += 1
                        self.left -= 1
                        self.log.append((self.steps, name))
                self._step()
            self.check()
        return happened

    def _where(self):
        return {w.rank: {"finished": w.finished, "gone": dict(w.client.control.gone), "lost": w.client.control.lost,
                         **{k: (key.round, key.busy) for k, key in w.keys.items()},
                         "links": [(li.ready, list(li._sent), len(li._queue), len(li._runs), list(li._fetching))
                                   for li in w.client.links]} for w in self.workers}

    @contextlib.contextmanager
    def _instead(self):
        clock = SimpleNamespace(monotonic=lambda: self.now)
        fake_lane = SimpleNamespace(join=self._join, available=lambda: True, Offer=encrypted_channel.Offer,
                                    READS=encrypted_channel.READS, Lane=encrypted_channel.Lane)
        before = engine.current()
        engine.set_current(engine.NaiveEngine())
        for i in range(self.shards):
            (self.folder / f"shard-{i}").mkdir(exist_ok=True)
        with contextlib.ExitStack() as stack:
            for module, names in ((server_connection, {"sockets": self.sockets, "time": clock, "encrypted_channel": fake_lane,
                                                       "RUN": RUN, "CHUNK": CHUNK}),
                                  (requests, {"RUN": RUN, "CHUNK": CHUNK}),
                                  (coordinator_connection, {"sockets": self.sockets, "time": clock}), (client, {"time": clock}),
                                  (serve, {"RUN": RUN, "CHUNK": CHUNK})):
                stack.enter_context(mock.patch.multiple(module, **names))
            stack.enter_context(mock.patch.object(Coordinator, "_away", self._noting_deaths(Coordinator._away)))
            stack.enter_context(mock.patch.dict(optimizer_codec._hooks, from_spec=lambda spec: Halves(self.kind == "sync")))
            try:
                yield
            finally:
                engine.set_current(before)
                remove_segments(self.name)

    def _noting_deaths(self, away):
        def noted(coordinator, rank, why):
            sends = away(coordinator, rank, why)
            self.deaths.append((coordinator._generation, rank))
            return sends

        return noted

    def last_death(self, rank, generation):
        """That of which somebody speaks who has heard of what was until generation."""
        return max((at, r) for at, r in self.deaths if r == rank and at <= generation)

    def _stand_still(self):
        """Something does not move for a while."""
        some = self._one([*self.pipes, *self.lanes, *self.workers])
        if some is not None:
            self._hold(some)

    def _hold(self, some):
        some.held = self.steps + int(self.rng.integers(_STANDS))

    def _moving(self, some):
        return [s for s in some if self.steps >= s.held]

    def _step(self):
        """One thing that may happen now."""
        rng = self.rng
        if rng.random() < 0.005:
            self._stand_still()
        if self.now > self.give_up_at:
            self.give_up_at = 1e9
            self._send(self.coordinator.give_up())
        what = rng.random()
        self.now += 0.001
        if what < 0.35:
            worker = self._one(self._moving(self.workers))
            self.now += 0.01
            if worker is not None:
                worker.turn()
        elif what < 0.45 and self.to_end:
            self._end(self.to_end.pop(int(rng.integers(len(self.to_end)))))
        elif what < 0.5 and self.to_hear:
            dealer = self.to_hear.pop(int(rng.integers(len(self.to_hear))))
            dealer.ended += dealer.open
            if isinstance(dealer.owner, Server):
                dealer.owner.turn()
        elif what < 0.75:
            self._deliver()
        else:
            self._deliver_lane()

    def _deliver(self):
        """A message over a connection."""
        pipes = self._moving(self.pipes)
        ways = [(p, True) for p in pipes if p.up and self._reaches(p)]
        ways += [(p, False) for p in pipes if p.down and p.open]
        if not ways:
            return
        pipe, up = ways[int(self.rng.integers(len(ways)))]
        if not up:
            message = pipe.down.popleft()
            pipe.dealer.inbox.append([Part(bytes(m)) for m in message])
            if isinstance(pipe.dealer.owner, Server):
                pipe.dealer.owner.turn()
            return
        message = [bytes(m) for m in pipe.up.popleft()]
        if pipe.dealer.address == "coordinator":
            role = "shard" if isinstance(pipe.dealer.owner, Server) else "worker"
            self._send(self.coordinator.receive(pipe.name, role, unpack(message[0])))
            return
        for server in self.servers:
            if server.address == pipe.dealer.address:
                server.receive(pipe, message)

    def _reaches(self, pipe):
        """Whether something listens at the other end, and lets it in."""
        return pipe.dealer.address == "coordinator" or pipe.user is not None or any(
            s.joined and s.address == pipe.dealer.address and pipe.dealer.owner.public in s.process.users for s in self.servers)

    def _send(self, sends):
        if self.coordinator.changed:
            self.kept = json.dumps(self.coordinator.state())
        for peer, m in sends:
            for pipe in self.pipes:
                if pipe.name == peer and pipe.open:
                    pipe.down.append([pack(m)])

    def _end(self, pipe):
        """The listening end hears that a connection has ended."""
        if pipe in self.pipes and not pipe.up:
            self.pipes.remove(pipe)
        elif pipe in self.pipes:
            self.to_end.append(pipe)
            return
        if pipe.dealer.address == "coordinator":
            self._send(self.coordinator.lost(pipe.name))
        for server in self.servers:
            server.turn()

    def _join(self, _host, offer, _poller):
        server = next((s for s in self.servers if s.number == offer.port), None)
        if server is None:
            raise ConnectionRefusedError("nobody listens")
        ours = Lane(self, server, None)
        ours.offered = offer.name
        return ours

    def _deliver_lane(self):
        ours = self._one(self._moving(self.lanes))
        if ours is None:
            return
        lanes = ours.server.process.lanes
        if ours.ended and not ours.up:
            self.lanes.remove(ours)
            for rank in [r for r, of in lanes.of.items() if of is ours]:
                del lanes.of[rank]
        elif not ours.taken:
            ours.taken = True
            rank = lanes.offered.pop(ours.offered, None)
            if rank is None or ours.server not in self.servers:
                ours.ended = True
                return
            ours.rank = rank
            lanes.of[rank] = ours
        elif ours.up and (ours.ended or self.rng.random() < 0.5):
            message = ours.up.popleft()
            if lanes.of.get(ours.rank) is ours and ours.server in self.servers:
                ours.server.take(ours, message)
        elif ours.down and not ours.ended:
            head, payload = ours.down.popleft()
            ours.inbox.append((bytes(head), bytes(payload)))

    # ---- what may go wrong ----------------------------------------------------------------------------------------------
    def _one(self, found):
        found = list(found)
        return found[int(self.rng.integers(len(found)))] if found else None

    def _cut(self):
        """A connection ends, and is made anew."""
        pipe = self._one(p for p in self.pipes if p.open and p.dealer.address != "coordinator")
        if pipe is not None:
            pipe.dealer.cut()
        return pipe is not None

    def _cut_lane(self):
        ours = self._one(x for x in self.lanes if x.taken and not x.ended)
        if ours is not None:
            ours.ended = True
            ours.up = deque(list(ours.up)[:int(self.rng.integers(len(ours.up) + 1))])
        return ours is not None

    def _silence(self):
        """The coordinator hears nothing of somebody, who is only silent; its connection is made anew."""
        pipe = self._one(p for p in self.pipes if p.open and p.dealer.address == "coordinator" and (
            isinstance(p.dealer.owner, Server) or self.policy != "shrink"))
        if pipe is not None:
            pipe.dealer.cut()
            self._hold(pipe.dealer.pipe)
        return pipe is not None

    def _kill_server(self):
        server = self._one(s for s in self.servers if s.joined)
        if server is not None:
            server.dies()
            self.servers[server.index] = Server(self, server.index)
        return server is not None

    def _kill_coordinator(self):
        """It is started again at once; who was there comes back."""
        self.coordinator = Coordinator(self.count, self.shards, self.policy)
        self.coordinator.resume(json.loads(self.kept))
        self.give_up_at = self.now + 5
        for pipe in [p for p in self.pipes if p.dealer.address == "coordinator"]:
            if pipe.open:
                pipe.up.clear()
                pipe.dealer.cut()
            self.pipes.remove(pipe)
            self.to_end = [p for p in self.to_end if p is not pipe]
        return True

    def _replace(self):
        """A worker's process dies, and another one takes its rank."""
        worker = self._one(w for w in self.workers if not w.ending and w.keys)
        if worker is not None:
            self.replace(worker)
        return worker is not None

    def _lose(self):
        """A worker's process dies, and nobody takes its rank."""
        worker = self._one(w for w in self.workers if not w.ending)
        if worker is None or len(self.workers) == 1 or not all(w.pushing for w in self.workers):
            return False
        self._bury(worker)
        self.workers.remove(worker)
        self.may_lack.add(worker.rank)
        return True

    def replace(self, worker):
        self._bury(worker)
        self.workers[worker.rank] = Worker(self, worker.rank)
        self._hold(self.workers[worker.rank])

    def _bury(self, worker):
        worker.dies()
        for where, by_rank in self.tried.items():
            self.ghosts[where][worker.rank] += by_rank.pop(worker.rank, ())
