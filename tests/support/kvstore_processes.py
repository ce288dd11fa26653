"""A worker's and a server's process without a thread or a socket, for kvstore_simulation.py: the real client and the real server,
of which each turn is taken when the job's loop says so.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import zmq
from tritium.errors import DeadWorkerError, KVStoreError, RoundMadeError
from tritium.kvstore.protocol.placement import tag
from tritium.kvstore.server import main as server_main
from tritium.kvstore.wire import sockets
from tritium.kvstore.wire.frame import pack, unpack
from tritium.kvstore.worker import client, coordinator_connection, requests, server_connection
from tritium.kvstore.worker.dist import _Countdown, _Ended

from support.kvstore_wires import Lanes, Part, Pipe

SMALL = 5  # keys that are pushed in one frame, by all
SIZES = {**{f"s{i}": i + 1 for i in range(SMALL)}, "runs": 50, "split": 120, "rows": 40}
WIDTH = 2  # of the rows of "rows"
BIG = 100  # elements from which keys are split


class Server:
    """A server's process."""

    def __init__(self, job, index):
        self.job, self.index, self.number, self.address = job, index, next(Pipe.numbers), f"tcp://server:{next(Pipe.numbers)}"
        p = self.process = server_main.Process.__new__(server_main.Process)
        p.zmq, p.sockets, p.index, p.context, p.users, p.peers = zmq, job.sockets, index, self, {}, {}
        p.job = {"job": job.name, "public": "", "secret": "", "server": "", "address": "coordinator", "every": job.every}
        p.said, p.public, p.lanes, p.router, self.parts = 0, f"server{self.number}", Lanes(job, self), self, []
        p._connect()
        self.joining = {"op": "join", "id": 0, "index": index, "address": self.address, "public": p.public}
        p.control.send(pack(self.joining))
        self.joined = self.dead = False

    def send(self, data, flags=0, copy=True):
        """As a ROUTER."""
        self.parts.append(bytes(data) if copy else data)
        if not flags & zmq.SNDMORE:
            (name, *message), self.parts = self.parts, []
            for pipe in self.job.pipes:
                if pipe.name == name and pipe.open:
                    pipe.down.append(message)

    def register(self, *_):
        """As a poller."""

    unregister = register

    def turn(self):
        """Hear the coordinator."""
        p = self.process
        if self.dead:
            return
        while p.control.inbox:
            m = unpack(p.control.inbox.popleft()[0])
            if self.joined:
                p._control(m)
            else:
                p._joined(m, self.job.folder / f"shard-{self.index}")
                self.joined = True
        if p.control.ended and not self.joined:
            p.control.ended = 0
            p._reconnect(self, self.joining)
        elif p.control.ended:
            p.control.ended = 0
            p._back(self)

    def receive(self, pipe, message):
        if pipe.user is None:
            pipe.user = self.process.users[pipe.dealer.owner.public]
        parts = [Part(pipe.name), *(Part(m) for m in message)]
        parts[1].user = pipe.user
        self.process._receive(parts)

    def take(self, ours, message):
        """From a lane: the payload is there for this call alone."""
        lent = bytearray(message[1])
        self.process._take(ours.rank, bytes(message[0]), memoryview(lent), lent=True)
        lent[:] = b"\xff" * len(lent)

    def dies(self):
        self.dead = True
        self.process.control.close(0)
        for pipe in [p for p in self.job.pipes if p.dealer.address == self.address and p.open]:
            pipe.dealer.cut()
        for ours in self.process.lanes.of.values():
            ours.ended = True


class Key:
    """What a worker knows of a key, as dist.py's _Key."""

    def __init__(self, entry):
        self.id, self.parts, self.round, self.busy, self.fresh = entry["id"], entry["parts"], 0, False, False
        self.value = np.zeros(SIZES[entry["key"][2:]], entry["dtype"])


class Worker:
    """A worker's process: a real client whose thread is `turn`, and a program that pushes and pulls.

    patient:  once refused because of a death, it waits until it knows of nobody dead, and must not be refused for that one again.
    """

    def __init__(self, job, rank):
        self.job, self.rank, self.public, self.keys, self.held = job, rank, f"worker{next(Pipe.numbers)}", {}, 0
        self.pushing = self.ending = self.finished = self.gone = False  # how far it is
        self.patient = bool(job.rng.random() < 0.7)
        self.deaths, self.over = set(), set()  # those it was refused for, and those of them that it has waited for
        c = self.client = client.Client.__new__(client.Client)
        c.job, c.every, c.timeout, c.stall, c.pid, c.kind = job.name, job.every, 1e9, 1e9, os.getpid(), job.kind
        c.links, c.key_names, c.probe = [], {}, None
        c._inbox, c._wake, c._awake, c._closed, c._stopping, c._ended = deque(), -1, True, False, False, False
        c._turn_lock, c._lock, c._check_at, c._context = threading.Lock(), threading.Lock(), 0.0, self
        c._keys, c._zeromq, c.stirred = sockets.Keys(self.public, ""), set(), True
        c._poller = SimpleNamespace(register=lambda *_: None, unregister=lambda *_: None)
        c.control = coordinator_connection.Control(c, {"public": "", "secret": "", "server": "", "address": "coordinator"})
        c.control.within = 1e9
        c.explain, heard_of = self._explain, c.control.heard_of
        c.control.heard_of = lambda gone, generation: (setattr(self, "heard", generation), heard_of(gone, generation))
        self.program = self._program()
        self.until = next(self.program)

    def turn(self):
        if self.gone:
            return
        self.client._awake = True
        self.client._turn(True)
        self.client._awake = True
        while self.until() and not self.finished:
            try:
                self.until = next(self.program)
            except StopIteration:
                self.finished = True

    def dies(self):
        self.gone = True
        for dealer in [self.client.control.socket, *(li.socket for li in self.client.links)]:
            if dealer is not None:
                dealer.close(0)
        for li in self.client.links:
            if li._lane is not None:
                li._lane.close()

    def _explain(self, text, dead, work):
        error = client.Client.explain(self.client, text, dead, work)
        if dead:
            error.deaths = {self.job.last_death(rank, self.heard) for rank in dead}
        return error

    # ---- its program ----------------------------------------------------------------------------------------------------
    def _nobody_dead(self):
        """As get_num_dead_node says it."""
        return "died" not in self.client.control.gone.values()

    def _wait_for_the_dead(self):
        """Those that are in the way come back, or are replaced."""
        deaths, self.deaths = self.deaths, set()
        yield self._nobody_dead
        self.over |= deaths

    def _ask(self, op, **fields):
        ask = coordinator_connection._Request({"op": op, "id": next(self.client.control._ids), **fields}, Future())
        self.client._hand(lambda: self.client.control._ask(ask))
        yield ask.answer.done
        return ask.answer.result()

    def _program(self):
        job, c = self.job, self.client
        while True:
            m = yield from self._ask("join", kind=job.kind, public=self.public, rank=self.rank)
            if "error" not in m:
                break
            assert "here already" in m["error"], m
        welcomed = c._joined(m)
        yield lambda: all(w.done() for w in welcomed)
        if job.optimizer:
            yield from self._insist("optimizer", spec={"name": "halves"}, n=1)
        m = yield from self._insist("init", keys=[[tag(k), self._shape(k), job.dtype.name] for k in SIZES], big=BIG)
        self.keys = {k: Key(e) for k, e in zip(SIZES, m["keys"])}
        fill = {e["key"] for e in m["fill"]}
        if fill:
            yield from self._all(lambda k, i, out, done: requests.Send(
                self.keys[k].parts[i][0], self.keys[k].id, i, job.first(k)[slice(*self.keys[k].parts[i][1:])], 0, None, done,
                fill=True), [k for k in SIZES if tag(k) in fill])
        if m.get("first"):
            m = yield from self._insist("filled", keys=[e["key"] for e in m["keys"]])
        yield from self._rounds()
        yield from self._all(self._fetch, list(SIZES))
        c.timeout, self.pushing = job.timeout, True
        self.goal = {k: job.rounds + (key.round if job.anew else 0) for k, key in self.keys.items()}
        yield from self._steps()
        self.ending = True
        if job.anew:
            yield from self._finish()
            return
        yield from self._insist("barrier", n=1)
        if job.kind == "async":
            job.left = 0  # a server that dies now may lack, for a while, what others pushed
            yield job.after(3)
        yield from self._all(self._fetch, list(SIZES))
        for k, key in self.keys.items():
            job.final(self.rank, k, key)

    def _finish(self):
        """All is done here, whatever the others do."""
        yield from self._all(self._fetch, list(SIZES))
        for k, key in self.keys.items():
            self.job.final(self.rank, k, key)
        yield from self._insist("leave", well=True)
        self.dies()

    @staticmethod
    def _shape(k):
        return [SIZES[k] // WIDTH, WIDTH] if k == "rows" else [SIZES[k]]

    def _insist(self, op, **fields):
        """Ask again where somebody's death is in the way."""
        while True:
            over = frozenset(self.over)
            m = yield from self._ask(op, **fields)
            if "error" not in m:
                return m
            assert "died" in m["error"], m
            ranks = [int(r) for r in m["error"].partition("worker ")[2].partition(" died")[0].split(", ")]
            deaths = {self.job.last_death(rank, self.client.control._generation) for rank in ranks}
            assert not deaths & over, f"{op} failed once more because of {deaths & over}"
            if self.patient:
                self.deaths |= deaths
                yield from self._wait_for_the_dead()
            else:
                yield self.job.after(0.3)

    def _rounds(self):
        """As dist.py's _join_rounds."""
        futures = [self.client.ask(i, server_connection.Op.SAVE) for i in range(len(self.client.links))]
        yield lambda: all(f.done() for f in futures)
        found = {(r.key, r.part): r.round for f in futures for r in f.result()}
        for key in self.keys.values():
            key.round = client.round_of(found, key.id, len(key.parts))

    def _fetch(self, k, i, out, done):
        return requests.Fetch(self.keys[k].parts[i][0], self.keys[k].id, i, out, None, done, self.keys[k].round)

    def _all(self, make, keys):
        ended = Future()

        def done(error=None):
            ended.set_exception(error) if error is not None else ended.set_result(None)

        count = _Countdown(sum(len(self.keys[k].parts) for k in keys), done)
        work = [make(k, i, self.keys[k].value[a:b], count) for k in keys for i, (_, a, b) in enumerate(self.keys[k].parts)]
        self._submit(work)
        yield ended.done
        try:
            ended.result()
        except KVStoreError:
            assert make == self._fetch, ended.exception()
            yield from self._all(make, keys)

    def _submit(self, work):
        priority = int(self.job.rng.integers(3))

        def queue():
            for w in work:
                if hasattr(w.done, "__dict__"):
                    w.done.work = w
                w.together = work
                self.client.links[w.shard].queue(w, priority)

        self.client._hand(queue)

    def _steps(self):
        """Rounds of every key, in groups; a key's next operation begins when its last one has ended. Refused: once more."""
        rng, small = self.job.rng, [k for k in SIZES if k[1:].isdigit()]
        while any(key.round < self.goal[k] or key.busy for k, key in self.keys.items()):
            if self.deaths and self.patient:
                yield from self._wait_for_the_dead()
            todo = [k for k, key in self.keys.items() if not key.busy and key.round < self.goal[k]]
            if todo and rng.random() < 0.7:
                group = [k for k in small if k in todo] if rng.random() < 0.6 else []
                group = group or [todo[int(rng.integers(len(todo)))]]
                if rng.random() < 0.2 and "rows" not in group:
                    yield from self._pull(group)
                elif group == ["rows"]:
                    self._push_rows()
                else:
                    self._push([k for k in group if k != "rows"])
            yield self.job.after(0.02)

    def _pull(self, group):
        before = {k: (self.keys[k].round, self.keys[k].value.copy()) for k in group}
        yield from self._all(self._fetch, group)
        for k, (n, value) in before.items():
            parts = {(n, k, i) for i in range(len(self.keys[k].parts))}
            if self.job.kind == "sync" and n == self.keys[k].round and parts <= self.job.known[self]:
                assert self.keys[k].value.tobytes() == value.tobytes(), f"pull of {k} after round {n}"

    def _push(self, group):
        countdown = _Countdown(sum(len(self.keys[k].parts) for k in group), lambda error=None: self._free(group))
        work = []
        for k in group:
            key = self.keys[k]
            key.busy = True
            key.round += 1
            self.job.known[self] = {what for what in self.job.known[self] if what[1] != k}
            for i, (where, a, b) in enumerate(key.parts):
                data = self.job.data(b - a)
                work.append(requests.Send(where, key.id, i, data, key.round, key.value[a:b],
                                      self._noted(k, i, data.copy(), key.value[a:b], countdown),
                                      release=lambda data=data: data.view(np.uint8).fill(0xFF)))
        self._submit(work)

    def _push_rows(self):
        key = self.keys["rows"]
        key.busy = True
        key.round += 1
        countdown = _Countdown(len(key.parts), lambda error=None: self._free(["rows"]))
        work = []
        for i, (where, a, b) in enumerate(key.parts):
            count = (b - a) // WIDTH
            numbers = np.flatnonzero(self.job.rng.random(count) < 0.5).astype(np.int64)
            data = self.job.data(len(numbers) * WIDTH)
            dense = np.zeros((count, WIDTH), data.dtype)
            dense[numbers] = data.reshape(-1, WIDTH)
            work.append(requests.SendRows(where, key.id, i, numbers, data, WIDTH, key.round,
                                      self._noted("rows", i, dense.reshape(-1), None, countdown)))
        self._submit(work)

    def _free(self, group):
        for k in group:
            self.keys[k].busy = False

    def _noted(self, k, i, data, out, countdown):
        """What is called when a contribution has ended: it tells the oracle, then does as dist.py does."""
        key, n = self.keys[k], self.keys[k].round
        tried = self.job.tried[k, i, n][self.rank]
        tried.append(data)
        ended, over = _Ended(key, n, countdown), frozenset(self.over)

        def done(error=None):
            if isinstance(error, DeadWorkerError):
                assert not error.deaths & over, f"{k} round {n}: refused once more because of {error.deaths & over}"
                self.deaths |= error.deaths
            if error is None:
                self.job.ended(self, k, i, n, data, out)
            elif (done.work.doomed is not None and error is done.work.doomed[1]) or (  # given up: nobody knows yet
                    self.client.links[done.work.shard]._made.get(done.work.name) == n and not isinstance(error, RoundMadeError)):
                self.job.unsure.add((k, i, n, self.rank))
            else:
                assert isinstance(error, KVStoreError), error
                tried[:] = [d for d in tried if d is not data]  # it did not and will not count
            ended(error)

        return done


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
    """(state, value) after an update."""
    state = grad if state is None else (state / 2 + grad).astype(grad.dtype)
    return state, (value - state).astype(value.dtype)
