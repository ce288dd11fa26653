"""Coordinator: the members of a job, the placement of its keys, and the requests that wait for other workers.

It sees no values and has no sockets, threads or clock. `receive(peer, role, message)` and `lost(peer)` return (peer, message)
pairs to send. The caller has authenticated the peer; `role` is "worker" or "server". A request carries "id", and so does its
answer. Messages call a server "shard" and its slices "parts". What servers must know before a worker may act on it is sent to
them first: the worker is answered when all servers have sent "ack" (`_notify_servers`).

Membership changes at barriers. Workers beyond the job's first number are admitted there, workers that asked to leave are let go,
and with policy "shrink" dead workers are removed. A death, and a replacement that takes the rank of a dead worker, take effect at
once.

`state()` is everything that must survive a restart. It is written before any message is sent. A coordinator that resumes from it
waits until its servers are "back". A request that is sent again because its answer was lost gets the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import FrameError, MXNetError
from .key_table import KeyTable

Message = dict[str, Any]
Sends = list[tuple[Any, Message]]
Then = Callable[[str], Sends]  # its argument: the error of a server, or ""


@dataclass
class _WorkerEntry:
    """A rank: present, not joined yet (incarnation 0), or gone.

    gone:          "died"; "left", when its work was complete; "ended", if that is not known: a replacement or the launcher's
                   report may follow; or "out": not a member any more.
    optimizers:    calls of set_optimizer.
    barriers:      barriers it has passed.
    was_dead:      true after its first death. The servers have dropped its incomplete messages then.
    gone_before:   value of `gone` before it came back or was replaced.
    return_epoch:  epoch of the message that announces its return to the servers. When it is acknowledged, workers are notified.
    attempt:       number of its last "join" or "back". A smaller number is from a connection that has ended.
    """

    peer: Any = None
    incarnation: int = 0
    public: str = ""
    gone: str = ""
    optimizers: int = 0
    barriers: int = 0
    was_dead: bool = False
    gone_before: str = ""
    return_epoch: int = 0
    attempt: int = 0


@dataclass
class _ServerEntry:
    """A server process. attempt: as for a worker."""

    peer: Any = None
    address: str = ""
    public: str = ""
    incarnation: int = 0
    attempt: int = 0


_NAMED = 5  # keys that an error message lists


class Coordinator:
    """One job with `workers` ranks and `servers` servers.

    policy:         the reaction to a worker's death: "fail", "wait" or "shrink" (rounds.py).
    max_staleness:  dist_async: contributions to a key by which a worker may be ahead of the slowest when it pulls; None: no
                    limit.
    changed:        `state()` has changed.
    """

    def __init__(self, workers: int, servers: int, policy: str = "fail", max_staleness: int | None = None):
        self.policy, self.max_staleness = policy, max_staleness
        self.changed = True
        self.kind = ""  # "sync" or "async": given by the first worker
        self._workers = {r: _WorkerEntry() for r in range(workers)}
        self._servers = [_ServerEntry() for _ in range(servers)]
        self._keys = KeyTable(servers)
        self._optimizers: list[Any] = []
        self._optimizers_installed = 0  # optimizers that the servers have
        self._optimizer_errors: dict[int, str] = {}  # number of an optimizer -> why servers cannot use it
        self._generation = 0
        self._epoch = 0
        self._unacknowledged: list[tuple[set[int], int, Then]] = []  # (servers that have not sent ack, epoch, what follows)
        self._server_errors: dict[int, str] = {}  # epoch -> error of a server
        self._expected_servers: set[int] = set()  # after a restart: not back yet
        self._expected_workers: set[int] = set()
        self._missing_servers: set[int] = set()  # not back in time
        self._deferred: list[tuple[Any, Message]] = []  # requests of workers while a server is expected
        self._joining: list[tuple[Any, Message]] = []  # workers that wait for a barrier to join
        self._waiting: list[tuple[int, Message]] = []  # requests that wait for other workers: (rank, message)
        self._at_barrier: dict[int, list[Message]] = {}
        self._handlers: dict[tuple[str, Any], Callable[[Any, Message], Sends]] = {
            ("server", "join"): self._server_join, ("server", "back"): self._server_back, ("server", "ack"): self._server_ack,
            ("worker", "join"): self._worker_join, ("worker", "back"): self._worker_back, ("worker", "leave"): self._worker_leave,
            ("worker", "ended"): self._worker_ended, ("worker", "init"): self._worker_init,
            ("worker", "filled"): self._worker_filled, ("worker", "missing"): self._worker_missing,
            ("worker", "forget"): self._worker_forget, ("worker", "barrier"): self._worker_barrier,
            ("worker", "optimizer"): self._worker_optimizer, ("worker", "info"): self._worker_info}

    # ---- events -------------------------------------------------------------------------------------------------------
    def receive(self, peer: Any, role: str, message: Message) -> Sends:
        """Handle a message. An invalid message is answered with an error and changes nothing."""
        op = message.get("op")
        handler = self._handlers.get((role, op)) if isinstance(op, str) else None
        if handler is None:
            return [(peer, {"id": message.get("id"), "error": f"unknown request {op!r} of a {role}"})]
        if role == "worker" and not self._servers_are_present():
            self._deferred.append((peer, message))
            return []
        try:
            return handler(peer, message)
        except (MXNetError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as e:
            return [(peer, {"id": message.get("id"), "error": f"{op}: {type(e).__name__}: {e}"})]

    def lost(self, peer: Any) -> Sends:
        """Handle the end of a peer's connection."""
        self._deferred = [d for d in self._deferred if d[0] != peer]
        self._joining = [j for j in self._joining if j[0] != peer]
        for i, server in enumerate(self._servers):
            if server.peer == peer and peer is not None:
                server.peer = None
                return self._notify_workers({"op": "shard", "index": i, "down": True})
        rank = self._rank_of(peer)
        return [] if rank is None else self._set_gone(rank, "died")

    def end_grace_period(self) -> Sends:
        """Give up on the servers and workers from before a restart that have not come back."""
        sends: Sends = []
        for rank in sorted(self._expected_workers):
            sends += self._set_gone(rank, "died")
        for index in sorted(self._expected_servers):
            self._missing_servers.add(index)
            sends += self._acknowledge(index, self._epoch) + self._notify_workers({"op": "shard", "index": index, "down": True})
            sends += self._stop_expecting(index)
        self._expected_workers.clear()
        return sends

    # ---- servers --------------------------------------------------------------------------------------------------------
    def _server_join(self, peer: Any, m: Message) -> Sends:
        index, address, public = int(m["index"]), str(m["address"]), str(m["public"])
        if not 0 <= index < len(self._servers):
            raise FrameError(f"unknown server {index}: the job has {len(self._servers)}")
        server, n = self._servers[index], int(m.get("n", 0))
        if public == server.public and n < server.attempt:
            return []
        server.attempt = n
        server.peer, server.address, server.public, server.incarnation = peer, address, public, server.incarnation + 1
        self.changed = True
        sends: Sends = [(peer, {"id": m.get("id"), "policy": self.policy, "staleness": self.max_staleness,
                                **self._members_and_keys(index), **self._last_optimizer(), "incarnation": server.incarnation})]
        # the answer contains everything that was to be acknowledged; what follows from that goes to the new process
        sends += self._acknowledge(index, self._epoch)
        sends += self._notify_workers({"op": "shard", **self._location(index)})
        return sends + self._server_is_ready(index)

    def _server_back(self, peer: Any, m: Message) -> Sends:
        """Handle a server that has connected again. It may have missed messages."""
        index = int(m["index"])
        server = self._servers[index]
        if (server.incarnation, server.public) != (int(m["incarnation"]), m["public"]):
            raise FrameError(f"server {index} has been restarted in the meantime")
        n = int(m.get("n", 0))
        if n < server.attempt:
            return []
        server.peer, server.attempt = peer, n
        self._epoch += 1
        self._unacknowledged.append(({index}, self._epoch, lambda _: self._server_is_ready(index)))
        missed = self._last_optimizer() if int(m.get("optimizers", 0)) < len(self._optimizers) else {}
        return [(peer, {"op": "members", **self._members_and_keys(index), **missed, "epoch": self._epoch}),
                *self._notify_workers({"op": "shard", **self._location(index)})]

    def _members_and_keys(self, index: int) -> Message:
        """Return everything a server must know except the optimizer, which would reset its states."""
        return {"kind": self.kind, "members": self._members(), "keys": [e.message() for e in self._keys.on_server(index)]}

    def _last_optimizer(self) -> Message:
        """Return the last optimizer and its number. A server that has that number ignores it."""
        return {"optimizer": self._optimizers[-1] if self._optimizers else None, "optimizers": len(self._optimizers)}

    def _servers_are_present(self) -> bool:
        return not self._expected_servers and all(s.incarnation for s in self._servers)

    def _server_is_ready(self, index: int) -> Sends:
        self._missing_servers.discard(index)
        return self._stop_expecting(index)

    def _stop_expecting(self, index: int) -> Sends:
        """Stop waiting for a server, and handle deferred requests if it was the last."""
        self._expected_servers.discard(index)
        if not self._servers_are_present():
            return []
        deferred, self._deferred = self._deferred, []
        return [send for peer, message in deferred for send in self.receive(peer, "worker", message)]

    def _server_ack(self, peer: Any, m: Message) -> Sends:
        index = next((i for i, s in enumerate(self._servers) if s.peer == peer), None)
        if index is None:
            raise FrameError("this server has not joined")
        if m.get("error"):
            self._server_errors[int(m["epoch"])] = str(m["error"])
        return self._acknowledge(index, int(m["epoch"]))

    def _acknowledge(self, index: int, epoch: int) -> Sends:
        """Mark all messages up to an epoch as acknowledged by a server."""
        for missing, at, _ in self._unacknowledged:
            if at <= epoch:
                missing.discard(index)
        complete = [(at, then) for missing, at, then in self._unacknowledged if not missing]
        self._unacknowledged = [u for u in self._unacknowledged if u[0]]
        sends = [send for at, then in complete for send in then(self._server_errors.get(at, ""))]
        epochs = {at for _, at, _ in self._unacknowledged}
        self._server_errors = {at: why for at, why in self._server_errors.items() if at in epochs}
        return sends

    def _notify_servers(self, message: Message, then: Then) -> Sends:
        """Send a message to all servers, and run `then` when all have acknowledged it, also those that are away now."""
        self._epoch += 1
        servers = {i: s.peer for i, s in enumerate(self._servers) if s.incarnation and i not in self._missing_servers}
        if not servers:
            return then("")
        self._unacknowledged.append((set(servers), self._epoch, then))
        return [(peer, {**message, "epoch": self._epoch}) for peer in servers.values() if peer is not None]

    def _location(self, index: int) -> Message:
        s = self._servers[index]
        return {"index": index, "address": s.address, "public": s.public, "incarnation": s.incarnation, "down": s.peer is None}

    def _locations(self) -> list[Message]:
        return [self._location(i) for i in range(len(self._servers))]

    # ---- members --------------------------------------------------------------------------------------------------------
    def _worker_join(self, peer: Any, m: Message) -> Sends:
        """Handle a request to join.

        rank:  the requested rank; None: any free one; "new": one more than the job has, from the next barrier on.
        n:     increased each time the request is sent again because the connection was lost.
        """
        kind, public, wanted, n = str(m["kind"]), str(m["public"]), m.get("rank"), int(m.get("n", 0))
        if self.kind and kind != self.kind:
            raise FrameError(f"the job is dist_{self.kind}, this worker asks for dist_{kind}")
        attempts = {r: w.attempt for r, w in self._workers.items() if w.public == public}
        if n < max([*attempts.values(), *(int(j.get("n", 0)) for _, j in self._joining if j["public"] == public)], default=0):
            return []
        again = next((r for r in attempts if not self._workers[r].gone), None)
        if again is not None:  # the answer to its first request was lost
            self._workers[again].peer, self._workers[again].attempt = peer, n
            self._expected_workers.discard(again)
            return self._notify_members(lambda _: [*self._notify_gone(), (peer, self._join_answer(again, m))])
        if wanted == "new" or (isinstance(wanted, int) and wanted in self._workers and self._workers[wanted].gone == "out"):
            self._joining = [(p, j) for p, j in self._joining if j["public"] != public] + [(peer, m)]
            return []
        free = [r for r, w in self._workers.items() if w.peer is None and w.gone != "out" and (wanted is None or r == wanted)]
        if not free:
            subject = f"all {len(self._workers)} workers have" if wanted is None else f"worker {wanted} has"
            raise FrameError(f"{subject} joined already")
        self.kind = kind
        self._admit(free[0], peer, m)
        return self._notify_members(lambda _: [*self._notify_gone(), (peer, self._join_answer(free[0], m))])

    def _admit(self, rank: int, peer: Any, m: Message) -> None:
        before = self._workers.get(rank, _WorkerEntry())
        self._workers[rank] = _WorkerEntry(peer, before.incarnation + 1, str(m["public"]), gone_before=before.gone,
                                           return_epoch=self._epoch + 1, attempt=int(m.get("n", 0)))
        self._expected_workers.discard(rank)
        self._generation += 1
        self.changed = True

    def _join_answer(self, rank: int, m: Message) -> Message:
        return {"id": m.get("id"), "rank": rank, "incarnation": self._workers[rank].incarnation, "ranks": self._ranks(),
                "shards": self._locations()}

    def _worker_back(self, peer: Any, m: Message) -> Sends:
        """Handle a worker that has connected again. `dead` in the answer: servers had dropped its incomplete messages."""
        rank = int(m["rank"])
        w = self._workers[rank]
        if (w.incarnation, w.public) != (int(m["incarnation"]), m["public"]) or (w.gone and (
                w.gone != "died" or self.policy == "shrink")):
            raise FrameError(f"worker {rank} was declared dead, and the job does not wait for it any more")
        if int(m["id"]) < w.attempt:
            return []
        w.attempt = int(m["id"])
        w.peer, w.gone, w.gone_before, w.return_epoch = peer, "", w.gone or w.gone_before, self._epoch + 1
        self._expected_workers.discard(rank)
        self._generation += 1
        self.changed = True
        # the answer is built when the servers have acknowledged: it may change until then
        return self._notify_members(lambda _: [*self._notify_gone(), (peer, {"id": m.get("id"), "dead": w.was_dead,
                                                                             "shards": self._locations()})])

    def _worker_leave(self, peer: Any, m: Message) -> Sends:
        """Handle a worker that closes its store. well: its work is complete; otherwise the launcher may still report that."""
        rank = self._own_rank(peer)
        return [(peer, {"id": m.get("id")})] + self._set_gone(rank, "left" if m.get("well", True) else "ended")

    def _worker_ended(self, peer: Any, m: Message) -> Sends:
        """Handle the launcher's report that the process of a rank has ended with success: no one waits for it any more."""
        rank, answer = int(m["rank"]), (peer, {"id": m.get("id")})
        return [answer] if self._workers[rank].gone in ("left", "out") else [*self._set_gone(rank, "left"), answer]

    def _set_gone(self, rank: int, why: str) -> Sends:
        w = self._workers[rank]
        w.peer, w.gone, w.was_dead = None, why, True
        self._generation += 1
        self.changed = True
        self._at_barrier.pop(rank, None)
        self._waiting = [(r, m) for r, m in self._waiting if r != rank]
        return self._notify_gone() + self._notify_members(lambda _: []) + self._promote_first() + self._answer_waiting()

    def _first_rank(self) -> int:
        """Return the rank whose values and optimizer are used: the lowest that has not left. A dead worker may be replaced."""
        return next((r for r in self._ranks() if self._workers[r].gone != "left"), self._ranks()[0])

    def _promote_first(self) -> Sends:
        """If the new first rank waits in init for the initial values of another, handle its call again."""
        first = self._first_rank()
        inits = [m for r, m in self._waiting if r == first and m["op"] == "init" and "big" in m]
        self._waiting = [w for w in self._waiting if w[1] not in inits]
        peer = self._workers[first].peer
        return [send for m in inits for send in self.receive(peer, "worker", m)]

    def _notify_members(self, then: Then) -> Sends:
        return self._notify_servers({"op": "members", "kind": self.kind, "members": self._members()}, then)

    def _members(self) -> Message:
        return {"generation": self._generation,
                "ranks": {str(r): self._workers[r].incarnation for r in self._ranks()},
                "gone": self._gone(),
                "public": {w.public: r for r, w in self._workers.items() if w.public and not w.gone}}

    def _notify_workers(self, message: Message) -> Sends:
        return [(w.peer, message) for w in self._workers.values() if w.peer is not None]

    def _notify_gone(self) -> Sends:
        """Send the workers that are away to all workers.

        A worker that is back counts as away until the servers know of its return, so that a push that follows is not rejected.
        """
        epochs = {at for _, at, _ in self._unacknowledged}
        returning = {str(r): w.gone_before for r, w in self._workers.items()
                     if w.gone_before not in ("", "out") and w.return_epoch in epochs}
        return self._notify_workers({"op": "gone", "gone": returning | self._gone(), "generation": self._generation})

    def _gone(self) -> dict[str, str]:
        return {str(r): w.gone for r, w in self._workers.items() if w.gone not in ("", "out")}

    def _ranks(self) -> list[int]:
        """Return the ranks of the members."""
        return sorted(r for r, w in self._workers.items() if w.gone != "out")

    def _rank_of(self, peer: Any) -> int | None:
        return next((r for r, w in self._workers.items() if w.peer == peer and peer is not None), None)

    def _own_rank(self, peer: Any) -> int:
        rank = self._rank_of(peer)
        if rank is None:
            raise FrameError("this worker has not joined, or was declared dead")
        return rank

    # ---- keys -----------------------------------------------------------------------------------------------------------
    def _worker_init(self, peer: Any, m: Message) -> Sends:
        rank, first = self._own_rank(peer), self._first_rank()
        if rank != first:
            keys = [[str(k[0]), [int(n) for n in k[1]], str(k[2])] for k in m["keys"]]
            self._waiting.append((rank, {"op": "init", "id": m.get("id"), "keys": keys, "big": m["big"]}))
            return self._answer_waiting()
        for k in m["keys"]:
            self._keys.check(rank, k, first)
        new = self._keys.add(m["keys"], int(m["big"]))
        self.changed = self.changed or bool(new)
        entries = [self._keys[k[0]] for k in m["keys"]]
        answer = {"id": m.get("id"), "first": True, "fill": [e.message() for e in entries if not e.filled],
                  "keys": [e.message() for e in entries]}
        if not new:
            return [(peer, answer)]

        def created(error: str) -> Sends:
            if not error:
                return [(peer, answer)]
            self._keys.remove(new)
            self.changed = True
            names = {e.key for e in new}
            return [(peer, {"id": m.get("id"), "error": error}), *self._reject_inits(
                error, lambda keys: not names.isdisjoint(k[0] for k in keys))]

        return self._notify_servers({"op": "keys", "keys": [e.message() for e in new]}, created)

    def _reject_mismatches(self) -> Sends:
        """Reject waiting calls of init whose shapes or dtypes differ from those of the first rank."""
        sends: Sends = []
        for rank, m in list(self._waiting):
            try:
                for k in m.get("keys", ()):
                    self._keys.check(rank, k, self._first_rank())
            except FrameError as e:
                self._waiting.remove((rank, m))
                sends.append((self._workers[rank].peer, {"id": m.get("id"), "error": str(e)}))
        return sends

    def _reject_inits(self, error: str, concerns: Callable[[list[Any]], bool]) -> Sends:
        """Answer those waiting calls of init with an error whose keys it concerns."""
        ended = [(r, m) for r, m in self._waiting if m["op"] == "init" and concerns(m["keys"])]
        self._waiting = [w for w in self._waiting if w not in ended]
        return [(self._workers[r].peer, {"id": m["id"], "error": error}) for r, m in ended]

    def _worker_filled(self, peer: Any, m: Message) -> Sends:
        """Handle the first rank's report that initial values are on the servers. Answered when every worker has called init."""
        rank = self._own_rank(peer)
        for e in [self._keys[k] for k in m["keys"]]:
            e.filled = True
        self._waiting.append((rank, {"op": "init", "id": m.get("id"), "keys": [[k] for k in m["keys"]]}))
        return self._answer_waiting()

    # ---- waiting for other workers --------------------------------------------------------------------------------------
    def _awaited(self) -> set[int]:
        """Return the ranks that requests wait for: all but those that have left, or died if the policy is not "wait"."""
        return {r for r, w in self._workers.items() if not w.gone or (w.gone in ("died", "ended") and self.policy == "wait")}

    def _worker_missing(self, peer: Any, m: Message) -> Sends:
        """Answer which ranks a request of kind `of` waits for. `why` in the answer names the keys."""
        awaited, of, why = self._awaited(), m["of"], ""
        ranks = {self._first_rank()} if of == "optimizer" else set[int]()
        if of == "barrier" or of == "join":
            ranks = awaited - self._at_barrier.keys()
        elif of in ("init", "filled"):
            called = {(r, k[0]) for r, w in self._waiting if w["op"] == "init" for k in w["keys"]}
            called |= {(r, e.key) for e in self._keys.values() for r in e.called}
            own = self._own_rank(peer)
            lacking = {(r, key) for r in awaited for rank, key in called if rank == own and (r, key) not in called}
            ranks, why = {r for r, _ in lacking}, f": {self._describe_inits(sorted(awaited))}" if lacking else ""
        return [(peer, {"id": m.get("id"), "ranks": sorted(ranks), "why": why})]

    def _worker_forget(self, peer: Any, m: Message) -> Sends:
        rank = self._own_rank(peer)
        self._waiting = [w for w in self._waiting if w[0] != rank or w[1].get("id") != m["of"]]
        return [(peer, {"id": m.get("id")})]

    def _describe_inits(self, ranks: list[int]) -> str:
        """Return the keys that each of the ranks waits for in init, except those common to all."""
        keys = {r: list(dict.fromkeys(k[0][2:] for rank, m in self._waiting if rank == r and m["op"] == "init"
                                      for k in m["keys"])) for r in ranks}
        common = set.intersection(*(set(k) for k in keys.values())) if keys else set()
        texts = []
        for r, names in keys.items():
            names = [n for n in names if n not in common]
            where = "is at a barrier" if r in self._at_barrier else "has not called init"
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            texts.append(f"worker {r} initializes {', '.join(map(repr, names[:_NAMED]))}{more}" if names else
                         f"worker {r} {where}")
        return "; ".join(texts)

    def _reject_deadlock(self) -> Sends:
        """Reject all calls of init if every worker waits, and for different keys: none of them could ever continue."""
        awaited = self._awaited()
        waiting = {r for r, _ in self._waiting} | self._at_barrier.keys()
        if self._first_rank() not in awaited or not awaited <= waiting or all(m["op"] != "init" for _, m in self._waiting):
            return []
        return self._reject_inits(f"workers wait for each other, because they initialize different keys: "
                                  f"{self._describe_inits(sorted(awaited))}. All workers must call init for the same keys, in "
                                  f"the same order", lambda _: True)

    def _answer_waiting(self) -> Sends:
        """Answer every request that need not wait any longer."""
        sends = self._reject_mismatches()
        awaited = self._awaited()
        for rank, m in self._waiting:
            if m["op"] == "init":
                for k in m["keys"]:
                    if k[0] in self._keys:
                        self._keys[k[0]].called.add(rank)
        still = []
        for rank, m in self._waiting:
            peer = self._workers[rank].peer
            if m["op"] == "init":
                entries = [self._keys.get(k[0]) for k in m["keys"]]
                if all(e is not None and e.filled and e.called >= awaited for e in entries):
                    self.changed = True  # `called` is written only now: until now every worker would ask again
                    keys = [e.message() for e in entries if e is not None]
                    sends.append((peer, {"id": m.get("id"), "fill": [], "keys": keys}))
                    continue
            elif (n := self._workers[rank].optimizers) <= self._optimizers_installed:
                error = {"error": self._optimizer_errors[n]} if n in self._optimizer_errors else {}
                sends.append((peer, {"id": m.get("id"), **error}))
                continue
            still.append((rank, m))
        self._waiting = still
        dead = [r for r, w in self._workers.items() if w.gone == "died"]
        if dead and self.policy == "fail":
            error = f"barrier: worker {', '.join(map(str, dead))} died"
            sends += [(self._workers[rank].peer, {"id": m.get("id"), "error": error})
                      for rank, messages in self._at_barrier.items() for m in messages]
            self._at_barrier = {}
        elif self._at_barrier and self._at_barrier.keys() >= awaited:
            sends += self._pass_barrier()
        return sends + self._reject_deadlock()

    def _pass_barrier(self) -> Sends:
        """Let members join and leave, then answer every worker at the barrier."""
        present, self._at_barrier = self._at_barrier, {}
        joining, self._joining = self._joining, []
        peers = {rank: self._workers[rank].peer for rank in present}
        self.changed = True
        for rank, messages in present.items():
            self._workers[rank].barriers = max(int(m.get("n", 0)) for m in messages)
        leaving = {rank for rank, messages in present.items() if any(m.get("leave") for m in messages)}
        leaving |= {r for r, w in self._workers.items() if w.gone == "died"} if self.policy == "shrink" else set()
        for rank in leaving:
            self._workers[rank].peer, self._workers[rank].gone = None, "out"
        joined: dict[int, tuple[Any, Message]] = {}
        for peer, m in joining:
            wanted = m.get("rank")
            rank = wanted if isinstance(wanted, int) and self._workers[wanted].gone == "out" else max(self._workers) + 1
            self._admit(rank, peer, m)
            joined[rank] = peer, m

        def answer(_: str) -> Sends:
            ranks = self._ranks()
            return [*((peers[rank], {"id": m.get("id"), "ranks": ranks}) for rank, messages in present.items() for m in messages),
                    *((peer, self._join_answer(rank, m)) for rank, (peer, m) in joined.items())]

        if not leaving and not joined:
            return answer("")
        self._generation += 1
        return self._notify_members(answer) + self._notify_gone()

    def _worker_barrier(self, peer: Any, m: Message) -> Sends:
        """Handle a worker at its n-th barrier; n shows a request that is sent again. leave: the worker leaves with it."""
        rank = self._own_rank(peer)
        if 0 < int(m.get("n", 0)) <= self._workers[rank].barriers:
            return [(peer, {"id": m.get("id"), "ranks": self._ranks()})]
        self._at_barrier.setdefault(rank, []).append(m)
        return self._answer_waiting()

    def _worker_optimizer(self, peer: Any, m: Message) -> Sends:
        """Send the first rank's optimizer to the servers. The calls of other workers, or of a replacement, wait for it."""
        rank = self._own_rank(peer)
        w = self._workers[rank]
        w.optimizers = int(m.get("n", w.optimizers + 1))
        if rank != self._first_rank() or w.optimizers <= len(self._optimizers):
            self._waiting.append((rank, {"op": "optimizer", "id": m.get("id")}))
            return self._answer_waiting()
        spec = m["spec"]
        self._keys.never_split = self._keys.never_split or not spec.get("elementwise", True)
        split = self._keys.split()
        if self._keys.never_split and split:
            w.optimizers -= 1
            raise FrameError(f"{spec.get('name')} needs norms of whole values, and key {split[0]!r} is split over servers. Call "
                             f"set_optimizer before init")
        self._optimizers.append(spec)
        self.changed = True
        count = len(self._optimizers)

        def installed(error: str) -> Sends:
            self._optimizers_installed = max(self._optimizers_installed, count)
            if error:  # servers that start later must not get it either
                self._optimizers[count - 1] = self._optimizers[count - 2] if count > 1 else None
                self._optimizer_errors[count], self.changed = error, True
            return [(peer, {"id": m.get("id"), **({"error": error} if error else {})}), *self._answer_waiting()]

        return self._notify_servers({"op": "optimizer", **self._last_optimizer()}, installed)

    def _worker_info(self, peer: Any, m: Message) -> Sends:
        return [(peer, {"id": m.get("id"), "members": {k: v for k, v in self._members().items() if k != "public"},
                        "shards": self._locations(), "keys": len(self._keys), "growing": len(self._joining)})]

    # ---- surviving a restart --------------------------------------------------------------------------------------------
    def state(self) -> Message:
        """Return everything that must not be lost, as JSON values."""
        self.changed = False
        return {"kind": self.kind, "loads": self._keys.loads, "optimizers": self._optimizers, "whole": self._keys.never_split,
                "generation": self._generation, "epoch": self._epoch,
                "workers": [[r, w.incarnation, w.public, w.gone, w.optimizers, w.barriers, w.was_dead]
                            for r, w in self._workers.items()],
                "servers": [[s.address, s.public, s.incarnation] for s in self._servers], "keys": self._keys.state()}

    def resume(self, state: Message) -> None:
        """Restore `state()`. Nothing is connected; the servers and workers of before are expected back."""
        self.kind, self._optimizers = state["kind"], state["optimizers"]
        self._generation, self._epoch = state["generation"], state["epoch"]
        self._optimizers_installed = len(self._optimizers)  # or will be, before a worker is answered
        self._workers = {r: _WorkerEntry(None, *rest) for r, *rest in state["workers"]}
        self._servers = [_ServerEntry(None, *rest) for rest in state["servers"]]
        self._keys.resume(state["keys"], state["loads"], state["whole"])
        self._expected_servers = {i for i, s in enumerate(self._servers) if s.incarnation}
        self._expected_workers = {r for r, w in self._workers.items() if w.incarnation and not w.gone}
