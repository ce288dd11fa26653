"""The store on 2 to 4,096 workers: a simulation of events with the store's own decisions, and real runs over shaped links.

    python perf/kvstore_scale.py [--workers 2,8,64,4096] [--servers 1,16] [--megabytes 64] [--gigabits 25]   # the model
    python perf/kvstore_scale.py --real [--workers 2,4,8]                                 # the model beside real processes

Each line of JSON is a job: seconds of a step, of the ideal (computing, and the worker's own link at its full rate), messages and
bytes a step of one worker and one server, and what limits it. `Session`, `Rounds` and `place` decide, as in the store; links,
processors and the time of computing are modelled (`Network`). With --real, 2 to 8 workers and a server run in network namespaces
of their own, behind a bridge whose ports `tc` shapes in both directions; no privileges are needed where user namespaces are.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import common
from tritium.kvstore.protocol.coordinator import Coordinator
from tritium.kvstore.protocol.key_table import place
from tritium.kvstore.protocol.rounds import Acknowledge, Apply, Rounds
from tritium.kvstore.protocol.session import Contribution, Session

_HEAD = 64 + 80  # bytes of a frame with one record, besides its values
_REAL_MBIT, _REAL_KEYS, _REAL_STEPS = 100, 4, 5


@dataclass(frozen=True)
class Network:
    """Links and processors.

    bandwidth:    bytes per second of each machine's link, in each direction.
    latency:      seconds from one machine to another.
    overhead:     bytes on the wire over bytes of frames: TLS, TCP and Ethernet.
    buffer:       bytes that the switch holds for one link. A message that finds more is sent again after `resend` seconds, once
                  (incast).
    per_message:  seconds of a processor for a message.
    per_byte:     seconds of a server's processor for a byte that it decrypts and adds, or encrypts.
    straggling:   part of the time of computing that a worker takes longer on average, exponentially distributed.
    """

    bandwidth: float = 25e9 / 8
    latency: float = 50e-6
    overhead: float = 1.07
    buffer: float = math.inf
    resend: float = 5e-3
    per_message: float = 40e-6
    per_byte: float = 0.6e-9
    straggling: float = 0.0


_Arrival = tuple[float, int, Callable[[], None]]  # seconds on the link, bytes, and what follows


@dataclass(eq=False)
class _Machine:
    """A link and a processor: the times from which on they are free, what waits for the link by its sender, and the messages and
    bytes that went through.
    """

    sends_at: float = 0.0
    computes_at: float = 0.0
    receiving: bool = False
    waiting: dict[_Machine, deque[_Arrival]] = field(default_factory=dict)
    senders: list[_Machine] = field(default_factory=list)  # the keys of waiting
    waiting_bytes: int = 0
    sent: int = 0
    received: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0


class Simulation:
    """Steps of a job: each worker computes, pushes every key, and has every value before it computes again.

    sizes:   bytes of each key.
    chunk:   bytes of a message.
    groups:  workers on one machine whose gradients are added up there first; they are one worker of the store.
    """

    def __init__(self, workers: int, servers: int, sizes: list[int], network: Network, *, compute: float = 0.0,
                 chunk: int = 512 << 10, split_size: int = 10**6, groups: int = 1, seed: int = 0):
        self.net, self.compute, self.chunk, self.random = network, compute, chunk, random.Random(seed)
        ranks = -(-workers // groups)
        self.workers, self.servers = [_Machine() for _ in range(ranks)], [_Machine() for _ in range(servers)]
        self.sessions = [[Session[Contribution](1 << 40) for _ in range(servers)] for _ in range(ranks)]
        self.rounds = [Rounds() for _ in range(servers)]
        self.parts: dict[tuple[int, int], tuple[int, int]] = {}  # slice -> server, bytes
        loads = [0] * servers
        for key, nbytes in enumerate(sizes):
            for i, (server, start, stop) in enumerate(place((nbytes // 4,), loads, split_size)):
                loads[server] += 4 * (stop - start)
                self.parts[key, i] = server, 4 * (stop - start)
                self.rounds[server].add((key, i))
        for rounds in self.rounds:
            rounds.set_members(dict.fromkeys(range(ranks), 0), {})
        for sessions in self.sessions:
            for session in sessions:
                session.handshake(0, False, {})
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number, self.now = 0, 0.0
        self._missing: dict[tuple[int, tuple[int, int], bool], int] = {}
        self._left = [0] * ranks
        self.ends: list[float] = []  # of the steps of each worker

    def _at(self, when: float, run: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, run))

    def _send(self, source: _Machine, target: _Machine, nbytes: int, server: bool, handle: Callable[[], None],
              again: bool = False) -> None:
        """Send one message; `handle` runs when the processor of the target has it."""
        wire = nbytes * self.net.overhead / self.net.bandwidth
        start = max(self.now, source.sends_at, source.computes_at)
        source.sends_at = start + wire
        source.sent, source.sent_bytes = source.sent + 1, source.sent_bytes + nbytes

        def arrive() -> None:
            if not again and target.waiting_bytes > self.net.buffer:
                self._at(self.now + self.net.resend, lambda: self._send(source, target, nbytes, server, handle, True))
                return
            if source not in target.waiting:
                target.waiting[source] = deque()
                target.senders.append(source)
            target.waiting[source].append((wire, nbytes, compute))
            target.waiting_bytes += nbytes
            if not target.receiving:
                self._receive(target)

        def compute() -> None:
            work = self.net.per_message + (self.net.per_byte * nbytes if server else 0.0)
            target.computes_at = max(self.now, target.computes_at) + work
            self._at(target.computes_at, handle)

        self._at(start + self.net.latency, arrive)

    def _receive(self, target: _Machine) -> None:
        """Let the next message of one of the senders through the link of a machine: TCP serves them in no fixed order."""
        at = self.random.randrange(len(target.senders))
        source = target.senders[at]
        wire, nbytes, then = target.waiting[source].popleft()
        if not target.waiting[source]:
            del target.waiting[source]
            target.senders[at] = target.senders[-1]
            target.senders.pop()
        target.receiving = True

        def done() -> None:
            target.receiving = False
            target.waiting_bytes -= nbytes
            target.received, target.received_bytes = target.received + 1, target.received_bytes + nbytes
            if target.waiting:
                self._receive(target)
            then()

        self._at(self.now + wire, done)

    def _transfer(self, rank: int, name: tuple[int, int], up: bool, done: Callable[[], None]) -> None:
        """Send all bytes of a slice from a worker to its server, or back."""
        server, nbytes = self.parts[name]
        ends = self.workers[rank], self.servers[server]
        pieces = [min(self.chunk, nbytes - at) for at in range(0, nbytes, self.chunk)]
        self._missing[rank, name, up] = len(pieces)

        def handle() -> None:
            self._missing[rank, name, up] -= 1
            if not self._missing[rank, name, up]:
                done()
        if not up:
            ends = ends[::-1]
        for piece in pieces:
            if not up:  # the server encrypts
                ends[0].computes_at = max(self.now, ends[0].computes_at) + self.net.per_byte * piece
            self._send(*ends, piece + _HEAD, up, handle)

    def _step(self, rank: int, round: int, steps: int) -> None:
        if round > steps:
            return
        self._left[rank] = len(self.parts)
        for name, (server, nbytes) in self.parts.items():
            push = Contribution(name, round, nbytes)
            session = self.sessions[rank][server]
            session.submit(push)
            session.send(push, 1)
            self._transfer(rank, name, True, lambda push=push, server=server: self._arrived(rank, server, push, steps))

    def _arrived(self, rank: int, server: int, push: Contribution, steps: int) -> None:
        for action in self.rounds[server].push(push.name, rank, push.round, push):
            if isinstance(action, Apply):
                machine = self.servers[server]
                machine.computes_at = max(self.now, machine.computes_at) + self.net.per_byte * push.nbytes
            elif isinstance(action, Acknowledge):
                self._transfer(action.rank, push.name, False, lambda a=action: self._acknowledged(a.rank, server, a, steps))

    def _acknowledged(self, rank: int, server: int, answer: Acknowledge, steps: int) -> None:
        session = self.sessions[rank][server]
        push = session.find(answer.key, answer.round)
        assert push is not None
        session.acknowledge(push)
        self._left[rank] -= 1
        if not self._left[rank]:
            self.ends.append(self.now)
            self._begin(rank, answer.round + 1, steps)

    def _begin(self, rank: int, round: int, steps: int) -> None:
        delay = self.compute * (1 + self.net.straggling * self.random.expovariate(1.0))
        self._at(self.now + delay, lambda: self._step(rank, round, steps))

    def run(self, steps: int = 2) -> float:
        """Return the seconds of a step: the time of all, over their number."""
        for rank in range(len(self.workers)):
            self._begin(rank, 1, steps)
        while self._events:
            self.now, _, run = heapq.heappop(self._events)
            run()
        assert len(self.ends) == steps * len(self.workers)
        return max(self.ends) / steps


def ideal(sizes: list[int], network: Network, compute: float) -> float:
    """Return the least seconds of a step: computing, then the worker's own link at its full rate, there and back at once."""
    return compute + sum(sizes) * network.overhead / network.bandwidth + 2 * network.latency


def line(workers: int, servers: int, sizes: list[int], network: Network, *, compute: float, steps: int = 2, **options: int
         ) -> dict[str, Any]:
    """Simulate one job, and return its line."""
    job = Simulation(workers, servers, sizes, network, compute=compute, **options)
    seconds = job.run(steps)
    least = ideal(sizes, network, compute)
    busiest = max(job.servers, key=lambda m: m.received_bytes)
    of = lambda m, name: getattr(m, name) // steps
    link = busiest.received_bytes * network.overhead / network.bandwidth / steps
    work = (busiest.received * network.per_message + (2 * busiest.received_bytes + busiest.sent_bytes) * network.per_byte) / steps
    limits = {"worker's link": least - compute, "server's link": link, "server's processor": work, "computing": compute}
    worker = job.workers[0]
    return {"bench": "kvstore_scale", "workers": workers, "servers": servers, **options,
            "step_s": round(seconds, 5), "ideal_s": round(least, 5), "ratio": round(seconds / least, 2),
            "limit": max(limits, key=limits.__getitem__),
            **{f"{role}_{name}": of(m, name) for role, m in (("worker", worker), ("server", busiest))
               for name in ("sent", "received", "sent_bytes", "received_bytes")}}


class CountedCoordinator:
    """A coordinator whose workers all speak at once. It handles messages in the order in which they have arrived."""

    def __init__(self, workers: int, servers: int):
        self.coordinator, self.workers = Coordinator(workers, servers), workers
        for i in range(servers):
            self.run([(("server", i), {"op": "join", "index": i, "address": f"10.0.0.1:{i}", "public": "f" * 64})], "server")

    def run(self, messages: Iterable[tuple[Any, dict[str, Any]]], role: str = "worker") -> dict[str, Any]:
        """Handle messages, and those that follow from them. Returns the number of all, to and from it, and its seconds."""
        arrived, number, start = deque((peer, role, m) for peer, m in messages), 0, time.process_time()
        while arrived:
            peer, sender, message = arrived.popleft()
            sends = self.coordinator.receive(peer, sender, {"id": 0, **message})
            number += 1 + len(sends)
            arrived += [(to, "server", {"op": "ack", "epoch": m["epoch"]}) for to, m in sends if "epoch" in m]
        return {"messages": number, "cpu_s": round(time.process_time() - start, 4)}

    def each(self, **message: Any) -> dict[str, Any]:
        """Let every worker send a message."""
        return self.run((("worker", r), {"rank": r, "public": f"{r:064}", **message}) for r in range(self.workers))


def coordinator_line(workers: int, servers: int) -> dict[str, Any]:
    """Return what the coordinator does for so many workers. A step needs no message of it."""
    job, keys = CountedCoordinator(workers, servers), {"keys": [["s:w", [9], "float32"]], "big": 10**6}
    stages = {"join": job.each(op="join", kind="sync")}
    job.run([(("worker", 0), {"op": "init", **keys}), (("worker", 0), {"op": "filled", "keys": ["s:w"]})])
    stages |= {"init": job.each(op="init", **keys), "barrier": job.each(op="barrier", n=1)}
    state = len(json.dumps(job.coordinator.state()))
    stages["leave"] = job.each(op="leave")
    return {"bench": "kvstore_scale coordinator", "workers": workers, "servers": servers, "step_messages": 0,
            **{f"{stage}_{what}": n for stage, counts in stages.items() for what, n in counts.items()}, "state_bytes": state}


# ---- real runs over shaped links -----------------------------------------------------------------------------------------
_WORKER = """
import json, os, sys, time
import tritium as mx
keys, n, steps = map(int, sys.argv[1:4])
kv = mx.kv.create("dist_sync")
names = [str(i) for i in range(keys)]
grads, outs = ([mx.nd.ones((n,)) for _ in names] for _ in range(2))
kv.init(names, grads)
seconds = []
for step in range(steps + 1):
    kv.barrier()
    start = time.perf_counter()
    for name, grad, out in zip(names, grads, outs):
        kv.push(name, grad)
        kv.pull(name, out)
    mx.nd.waitall()
    seconds.append(time.perf_counter() - start)
kv.barrier()
if kv.rank == 0:
    print(json.dumps(seconds[1:]))
"""
_SERVER = """
import sys
from tritium.kvstore.job.local_job import LocalJob
with LocalJob(int(sys.argv[1]), 1, snapshot_rounds=0, interface="10.9.0.1") as job:
    print(job.file, flush=True)
    sys.stdin.read()
"""


def _tc(device: str, *inside: str) -> None:
    subprocess.run([*inside, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{_REAL_MBIT}mbit", "burst", "128kb",
                    "limit", "16mb"], check=True)


def _in_namespace(i: int, command: list[str], env: dict[str, str], **options: int) -> subprocess.Popen[str]:
    """Start a command in a network namespace of its own: address 10.9.0.(i+1), behind port i of the bridge."""
    script = f"read _ && ip link set lo up && ip addr add 10.9.0.{i + 1}/24 dev n{i} && ip link set n{i} up && " \
             f"tc qdisc add dev n{i} root tbf rate {_REAL_MBIT}mbit burst 128kb limit 16mb && exec \"$@\""
    child = subprocess.Popen(["unshare", "-n", "sh", "-c", script, "sh", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True, env=env, **options)
    run = lambda *words: subprocess.run(words, check=True)
    own = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{child.pid}/ns/net") == own:
        time.sleep(0.01)
    run("ip", "link", "add", "dev", f"p{i}", "type", "veth", "peer", "name", f"n{i}")
    run("ip", "link", "set", "dev", f"n{i}", "netns", str(child.pid))
    run("ip", "link", "set", "dev", f"p{i}", "master", "br0")
    run("ip", "link", "set", "dev", f"p{i}", "up")
    _tc(f"p{i}")
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return child


def _real(workers: int, nbytes: int) -> list[float]:
    """Return the seconds of steps of real workers and one server. Runs in a user and network namespace (see main)."""
    for words in (("add", "dev", "br0", "type", "bridge"), ("set", "dev", "br0", "up")):
        subprocess.run(["ip", "link", *words], check=True)
    env = {**os.environ, "TRITIUM_GPU": "off", "TRITIUM_KV_SHARED": "0", "TRITIUM_KV_TIMEOUT": "120"}
    server = _in_namespace(0, [sys.executable, "-c", _SERVER, str(workers)], env)
    assert server.stdout is not None and server.stdin is not None
    env["TRITIUM_KV_JOB"] = server.stdout.readline().strip()
    command = [sys.executable, "-c", _WORKER, str(_REAL_KEYS), str(nbytes // 4), str(_REAL_STEPS)]
    children = [_in_namespace(1 + r, command, {**env, "TRITIUM_KV_RANK": str(r)}) for r in range(workers)]
    out = [child.communicate(timeout=300)[0] for child in children]
    server.stdin.close()
    server.wait(30)
    return json.loads(out[0].strip().splitlines()[-1])


def compare(workers: int) -> dict[str, Any]:
    """Return a line with the step of the model and of real processes."""
    nbytes = 1 << 20
    with TemporaryDirectory() as folder:
        path = Path(folder, "seconds")
        done = subprocess.run(["unshare", "-Urn", sys.executable, __file__, "--inside", str(workers), "--out", str(path)],
                              capture_output=True, text=True, check=False, timeout=600)
        if not path.exists():
            return {"bench": "kvstore_scale real", "workers": workers, "error": done.stderr.strip()[-300:]}
        seconds = json.loads(path.read_text())
    network = Network(bandwidth=_REAL_MBIT * 1e6 / 8, latency=100e-6, per_message=200e-6, per_byte=2e-9)
    model = statistics.median(Simulation(workers, 1, [nbytes] * _REAL_KEYS, network, seed=i).run(1) for i in range(15))
    real = statistics.median(seconds)
    return {"bench": "kvstore_scale real", "workers": workers, "servers": 1, "keys": _REAL_KEYS, "key_bytes": nbytes,
            "link_mbit": _REAL_MBIT, "real_s": round(real, 4), "real_best_s": round(min(seconds), 4), "model_s": round(model, 4),
            "error": round(model / real - 1, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(n) for n in text.split(",")]
    parser.add_argument("--workers", type=numbers)
    parser.add_argument("--servers", type=numbers, default=[1, 16])
    parser.add_argument("--megabytes", type=int, default=64, help="of all keys, of 1 MiB each")
    parser.add_argument("--gigabits", type=float, default=25.0)
    parser.add_argument("--compute", type=float, default=0.1, help="seconds of computing in a step")
    parser.add_argument("--straggling", type=float, default=0.0)
    parser.add_argument("--buffer", type=float, default=math.inf, help="bytes of the switch for a link")
    parser.add_argument("--chunk", type=int, default=1 << 20)
    parser.add_argument("--groups", type=int, default=1, help="workers on one machine, added up there first")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        given.out.write_text(json.dumps(_real(given.inside, 1 << 20)))
    elif given.real:
        for workers in given.workers or (2, 4, 8):
            common.say(compare(workers))
    else:
        network = replace(Network(), bandwidth=given.gigabits * 1e9 / 8, straggling=given.straggling, buffer=given.buffer)
        for workers in given.workers or (2, 8, 64, 512, 4096):
            common.say(coordinator_line(workers, given.servers[-1]))
            for servers in given.servers:
                common.say(line(workers, servers, [1 << 20] * given.megabytes, network, compute=given.compute,
                                steps=1 if workers > 100 else 2, chunk=given.chunk, groups=given.groups))


if __name__ == "__main__":
    main()
