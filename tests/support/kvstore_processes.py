"""Processes of workers and servers without threads and sockets, for kvstore_simulation.py.

They contain the real client and the real server. The loop of the job decides when each of them runs.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections import deque
from concurrent.futures import Future

import numpy as np
from tritium.errors import DeadWorkerError, KVStoreError, RoundMadeError
from tritium.kvstore.protocol.key_table import tag
from tritium.kvstore.protocol.session import State
from tritium.kvstore.server import main as server_main
from tritium.kvstore.wire.credentials import Credentials
from tritium.kvstore.wire.frame import CODES, INLINE, NOTHING, ROWS, FrameType, Record
from tritium.kvstore.worker import client, coordinator_connection, event_loop, remote_server, requests
from tritium.kvstore.worker.key_state import note_end

from support.kvstore_wires import poller_of

SMALL = 5  # keys that all workers push in one frame
SIZES = {**{f"s{i}": i + 1 for i in range(SMALL)}, "runs": 50, "split": 120, "rows": 40}
WIDTH = 2  # of the rows of key "rows"
SPLIT_SIZE = 100  # elements


class SimulatedServer:
    """A server's process."""

    def __init__(self, job, index):
        self.job, self.index, self.public = job, index, f"server{next(job.names)}"
        self.address = f"at {self.public}"
        p = self.process = server_main.ServerProcess.__new__(server_main.ServerProcess)
        p.job = {"job": job.name, "address": "coordinator", "policy": job.policy, "snapshot_rounds": job.snapshot_rounds,
                 "max_staleness": None}
        p.index, p.folder, p.attempt, p.address = index, job.folder / f"server-{index}", 0, self.address
        p.poller, p.users, p.peers, p.control = poller_of(self), {}, {}, None
        self.users, self.lost, self.receive = p.users, lambda end: None, p._receive
        p.public, self.dead = self.public, False
        self.turn()

    @property
    def joined(self):
        return self.process.server is not None

    def turn(self):
        """Connect to the coordinator if necessary."""
        if self.process.control is None and not self.dead:
            self.process._connect()

    def die(self):
        self.dead = True
        for wire in self.job.wires:
            if wire.address == self.address or wire.owner is self:
                wire.cut()
            if wire.owner is self:
                wire.near.closed = True


class SimulatedKey:
    """The state of a key in a worker, as KeyState."""

    def __init__(self, entry):
        self.id, self.slices, self.round, self.busy, self.fresh = entry["id"], entry["slices"], 0, False, False
        self.value = np.zeros(SIZES[entry["key"][2:]], entry["dtype"])


class SimulatedWorker:
    """The process of a worker: a real client whose thread is `turn`, and a program that pushes and pulls.

    patient:  after a rejection because of a death, it waits until it knows of no dead worker. Then it must not be rejected
              because of the same death again.
    """

    def __init__(self, job, rank):
        self.job, self.rank, self.public, self.keys, self.held = job, rank, f"worker{next(job.names)}", {}, 0
        self.arrived = True
        self.pushing = self.ending = self.finished = self.gone = False  # its progress
        self.patient = job.rng.random() < 0.7
        self.deaths, self.over = set(), set()  # that it was rejected for; and those of them that are over
        c = self.client = client.Client.__new__(client.Client)
        c.job, c.kind, c.servers, c.key_names = {"job": job.name, "address": "coordinator"}, job.kind, [], {}
        c.timeout = c.stall = 1e9
        c.credentials = Credentials(self.public, "")
        c.loop = self._make_loop()
        c.coordinator = coordinator_connection.CoordinatorConnection(c)
        c.coordinator.patience = 1e9
        learn_gone = c.coordinator.learn_gone
        c.coordinator.learn_gone = lambda gone, generation: (setattr(self, "heard", generation), learn_gone(gone, generation))
        self.program = self._program()
        self.until = next(self.program)

    def _make_loop(self):
        """An event loop without a thread and a poller."""
        loop = event_loop.EventLoop.__new__(event_loop.EventLoop)
        loop.poller, loop.pid, loop.connections = poller_of(self), os.getpid(), []
        loop._inbox, loop._wakes = deque(), True
        loop._closed = loop._stopping = loop._ended = False
        loop._lock, loop._check_at = threading.Lock(), 0.0
        loop.call_soon = lambda call, now=False: loop._inbox.append(call)
        return loop

    def turn(self):
        if self.gone:
            return
        loop = self.client.loop
        if self.arrived or loop._inbox or self.job.now >= loop._check_at:
            self.arrived = False
            loop.run_once([])
            for server in self.client.servers:
                check_states(server)
        while self.until() and not self.finished:
            try:
                self.until = next(self.program)
            except StopIteration:
                self.finished = True

    def die(self):
        self.gone = True
        for wire in self.job.wires:
            if wire.owner is self:
                wire.cut()
                wire.near.closed = True

    def _explain(self, server, text, dead, request):
        """The error of a rejected request, with the deaths that it is about."""
        error = remote_server.RemoteServer.explain(server, text, dead, request)
        if dead:
            error.deaths = {self.job.last_death(rank, self.heard) for rank in dead}
        return error

    # ---- its program ----------------------------------------------------------------------------------------------------
    def _no_worker_is_dead(self):
        """As get_num_dead_node."""
        return "died" not in self.client.coordinator.gone.values()

    def _wait_for_the_dead(self):
        """Wait until the dead workers are back or replaced."""
        deaths, self.deaths = self.deaths, set()
        yield self._no_worker_is_dead
        self.over |= deaths

    def _ask(self, op, **fields):
        request = self.client.coordinator._start(op, **fields)
        yield request.answer.done
        return request.answer.result()

    def _program(self):
        job, c = self.job, self.client
        while True:
            m = yield from self._ask("join", kind=job.kind, public=self.public, rank=self.rank)
            if "error" not in m:
                break
            assert "joined already" in m["error"], m
        handshakes = c._create_servers(m)
        for server in c.servers:
            server.explain = functools.partial(self._explain, server)
        yield lambda: all(h.done() for h in handshakes)
        if job.optimizer:
            yield from self._request("optimizer", spec={"name": "halves"}, n=1)
        m = yield from self._request("init", keys=[[tag(k), self._shape(k), job.dtype.name] for k in SIZES], big=SPLIT_SIZE)
        self.keys = {k: SimulatedKey(e) for k, e in zip(SIZES, m["keys"])}
        fill = {e["key"] for e in m["fill"]}
        if fill:
            yield from self._all(self._initial_value, [k for k in SIZES if tag(k) in fill])
        if m.get("first"):
            m = yield from self._request("filled", keys=[e["key"] for e in m["keys"]])
        yield from self._rounds()
        yield from self._all(self._fetch, list(SIZES))
        c.timeout, self.pushing = job.timeout, True
        self.goal = job.rounds + (max(key.round for key in self.keys.values()) if job.from_start else 0)
        yield from self._steps()
        self.ending = True
        if job.from_start:
            yield from self._finish()
            return
        yield from self._request("barrier", n=1)
        if job.kind == "async":
            job.left = 0  # a server that has died may lack pushes of others for a while
            yield job.settled
        yield from self._all(self._fetch, list(SIZES))
        for k, key in self.keys.items():
            job.final(self.rank, k, key)

    def _finish(self):
        """Complete the work of this worker, independently of the others."""
        yield from self._all(self._fetch, list(SIZES))
        for k, key in self.keys.items():
            self.job.final(self.rank, k, key)
        yield from self._request("leave", well=True)
        self.die()

    @staticmethod
    def _shape(k):
        return [SIZES[k] // WIDTH, WIDTH] if k == "rows" else [SIZES[k]]

    def _request(self, op, **fields):
        """Send a request, and again if it fails because of a death."""
        while True:
            over = frozenset(self.over)
            m = yield from self._ask(op, **fields)
            if "error" not in m:
                return m
            assert "died" in m["error"], m
            ranks = [int(r) for r in m["error"].partition("worker ")[2].partition(" died")[0].split(", ")]
            deaths = {self.job.last_death(rank, self.client.coordinator._generation) for rank in ranks}
            assert not deaths & over, f"{op} failed once more because of {deaths & over}"
            if self.patient:
                self.deaths |= deaths
                yield from self._wait_for_the_dead()
            else:
                yield self.job.after(0.3)

    def _rounds(self):
        """As _join_rounds in dist.py."""
        questions, ended = [requests.Question(i, FrameType.SAVE) for i in range(len(self.client.servers))], []
        self.client.submit(questions, ended.append)
        yield lambda: ended
        assert ended == [None]
        rounds = dict(entry for q in questions for entry in q.answers)
        for key in self.keys.values():
            key.round = client.common_round(rounds, key.id, len(key.slices))

    def _fetch(self, k, i, out):
        key = self.keys[k]
        return requests.Request(FrameType.PULL, key.slices[i][0], Record(key.id, i, 0, 0, key.round), out=out)

    def _initial_value(self, k, i, out):
        key, (server, a, b) = self.keys[k], self.keys[k].slices[i]
        data = self.job.first(k)[a:b]
        record = Record(key.id, i, CODES[data.dtype], b - a, 0, INLINE)
        return requests.Request(FrameType.INITIALIZE, server, record, data.view(np.uint8).data)

    def _all(self, make, keys):
        while not (yield from self._try(make, keys)):
            assert make == self._fetch

    def _try(self, make, keys):
        """Submit a request for each slice of keys, and wait. Returns whether all succeeded."""
        ended = Future()

        def done(error=None):
            ended.set_exception(error) if error is not None else ended.set_result(None)

        work = [make(k, i, self.keys[k].value[a:b]) for k in keys for i, (_, a, b) in enumerate(self.keys[k].slices)]
        self._submit(work, done)
        yield ended.done
        error = ended.exception()
        assert error is None or isinstance(error, KVStoreError), error
        return error is None

    def _submit(self, work, done):
        self.client.submit(work, done, self.job.rng.randrange(3))

    def _steps(self):
        """Push every key, in groups. The next operation of a key begins when its last one has ended. A rejected push is
        repeated.

        With `from_start`, workers stop at different rounds, but each of them at the same round of all keys: a group ends when all
        of its keys have, so a worker that has finished with one of them must not need another one any more.
        """
        rng, small = self.job.rng, [k for k in SIZES if k[1:].isdigit()]
        while any(key.round < self.goal or key.busy for key in self.keys.values()):
            if self.deaths and self.patient:
                yield from self._wait_for_the_dead()
            todo = [k for k, key in self.keys.items() if not key.busy and key.round < self.goal]
            if todo and rng.random() < 0.7:
                group = [k for k in small if k in todo] if rng.random() < 0.6 else []
                group = [k for k in group if self.keys[k].round == self.keys[group[0]].round]  # as push in dist.py
                group = group or [rng.choice(todo)]
                if rng.random() < 0.2 and "rows" not in group:
                    yield from self._pull(group)
                elif group == ["rows"]:
                    self._push_rows()
                else:
                    self._push([k for k in group if k != "rows"])
            yield self.job.after(0.02)

    def _pull(self, group):
        """Pull keys. A pull that reaches its deadline is given up: it may wait for a worker that waits in another pull.

        Its memory is in any state then.
        """
        before = {k: self.keys[k].round for k in group}
        if not (yield from self._try(self._fetch, group)):
            return
        for k, n in before.items():
            key, got = self.keys[k], {(n, k, i): (a, b) for i, (_, a, b) in enumerate(self.keys[k].slices)}
            known = got.keys() <= self.job.known[self] and not self.job.may_be_made_again(k, n)
            if self.job.kind == "sync" and n == key.round and known:
                for (_, _, i), (a, b) in got.items():
                    value = self.job.values[k, i, n][self.rank][-1]
                    assert key.value[a:b].tobytes() == value.tobytes(), f"pull of {k} after round {n}"

    def _push(self, group):
        work = []
        for k in group:
            key = self.keys[k]
            key.busy = True
            key.round += 1
            self.job.known[self] = {entry for entry in self.job.known[self] if entry[1] != k}
            for i, (where, a, b) in enumerate(key.slices):
                data = self.job.data(b - a)
                record = Record(key.id, i, CODES[data.dtype], b - a, key.round, INLINE)
                work.append(requests.Push(where, record, data, key.value[a:b]))
                work[-1].done = self._done(work[-1], k, i, data.copy(), key.value[a:b])
        self._submit(work, lambda error: self._free(group))

    def _push_rows(self):
        key = self.keys["rows"]
        key.busy = True
        key.round += 1
        work = []
        for i, (where, a, b) in enumerate(key.slices):
            count = (b - a) // WIDTH
            numbers = np.flatnonzero(self.job.numbers.random(count) < 0.5).astype(np.int64)
            data = self.job.data(len(numbers) * WIDTH)
            dense = np.zeros((count, WIDTH), data.dtype)
            dense[numbers] = data.reshape(-1, WIDTH)
            rows = np.concatenate([numbers.view(np.uint8), data.view(np.uint8)])
            record = Record(key.id, i, ROWS, len(rows), key.round, INLINE, 0, NOTHING)
            work.append(requests.Push(where, record, rows))
            work[-1].done = self._done(work[-1], "rows", i, dense.reshape(-1), None)
        self._submit(work, lambda error: self._free(["rows"]))

    def _free(self, group):
        for k in group:
            self.keys[k].busy = False

    def _done(self, push, k, i, data, out):
        """The callback of a contribution: it informs the oracle, then does the same as dist.py."""
        key, n = self.keys[k], self.keys[k].round
        tried = self.job.pushed(self, k, i, n, data)
        over = frozenset(self.over)

        def done(error):
            if isinstance(error, DeadWorkerError):
                assert not error.deaths & over, f"{k} round {n}: rejected once more because of {error.deaths & over}"
                self.deaths |= error.deaths
            if error is None:
                self.job.acknowledged(self, k, i, n, data, out)
            elif self._is_unresolved(push, error):
                self.job.unsure.add((k, i, n, self.rank))
            else:
                assert isinstance(error, KVStoreError), error
                tried[:] = [d for d in tried if d is not data]  # it was not applied, and never will be
            note_end(key, n, error)

        return done

    def _is_unresolved(self, push, error):
        """Return True if a failed push may have been applied."""
        session = self.client.servers[push.server].session
        return push.state is State.UNKNOWN or (session.was_applied(push) and not isinstance(error, RoundMadeError))


def check_states(server):
    """Every push of a worker is where its state says."""
    session = server.session
    assert {p.state for p in server.waiting if isinstance(p, requests.Push)} <= {State.QUEUED}
    assert {p.state for p in session.sent} <= {State.SENT}
    assert {p.state for p in session._unknown} <= {State.UNKNOWN}
    retained = [(name, p) for name, of_name in session._retained.items() for p in of_name]
    assert {(p.state, p.name == name) for name, p in retained} <= {(State.ACKNOWLEDGED, True)}
    for (name, earlier), (other, later) in itertools.pairwise(retained):
        assert name != other or earlier.round < later.round
    assert session._retained_bytes == sum([p.nbytes for _, p in retained])


class Halves:
    """An optimizer with a state: state = state / 2 + grad; value -= state."""

    def __init__(self, memory):
        self.state, self.memory = None, memory

    def create_updater(self):
        return Halves(self.memory)

    def __call__(self, _key, grad, value):
        grad = grad.tostype("default") if hasattr(grad, "rows") else grad
        if isinstance(self.state, bytes):
            self.state = np.frombuffer(self.state, grad.dtype).copy()
        self.state, new = step(self.state if self.memory else None, grad.asnumpy().reshape(-1), value.asnumpy().reshape(-1))
        value.device_array().reshape(-1)[:] = new

    def get_states(self, _dump):
        return b"" if self.state is None else self.state.tobytes()

    def set_states(self, data, _source):
        self.state = data or None


def step(state, grad, value):
    """Return (state, value) after an update."""
    state = grad if state is None else (state / 2 + grad).astype(grad.dtype)
    return state, (value - state).astype(value.dtype)
