"""Coordinator: the members of a job, the placement of its keys, and the requests that wait for other workers.

It sees no values and has no sockets, threads or clock. `receive(peer, role, message)` and `lost(peer)` return (peer, message)
pairs to send. The caller has authenticated the peer; `role` is "worker" or "server". A request carries "id", and so does its
answer. Messages to workers call a server "shard". What servers must know before a worker may act on it is sent to
them first: the worker is answered when all servers have sent "ack" (`ServerTable.announce`).

Membership changes at barriers. Workers beyond the job's first number are admitted there, workers that asked to leave are let go,
and with policy "shrink" dead workers are removed. A death, and a replacement that takes the rank of a dead worker, take effect at
once.

`state()` is everything that must survive a restart. It is written before any message is sent. A coordinator that resumes from it
waits until its servers are "back". A request that is sent again because its answer was lost gets the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from ...errors import FrameError, MXNetError
from .key_table import KeyTable
from .member_table import MemberTable
from .server_table import Message, Sends, ServerTable, Then
from .waiting_calls import WaitingCalls


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
        self._workers = MemberTable(workers, policy)
        self._servers = ServerTable(servers)
        self._keys = KeyTable(servers)
        self._optimizers: list[Any] = []  # descriptions of those that the servers have been given, one after the other, or None
        self._installed = 0  # so many of them are on the servers, or were rejected by one
        self._optimizer_errors: dict[int, str] = {}  # number of an optimizer -> why servers cannot use it
        self._expected_workers = set[int]()  # after a restart: not back yet
        self._deferred: list[tuple[Any, Message]] = []  # requests of workers while a server is expected
        self._joining: dict[str, tuple[Any, Message]] = {}  # by public names: workers that wait for a barrier to join
        self._waiting = WaitingCalls(self._keys)

    def receive(self, peer: Any, role: str, message: Message) -> Sends:
        """Handle a message. An invalid message is answered with an error and changes nothing."""
        op = message.get("op")
        handler = getattr(self, f"_{role}_{op}", None)
        if handler is None:
            return _answer(peer, message, error=f"unknown request {op!r} of a {role}")
        if role == "worker" and not self._servers.complete():
            self._deferred.append((peer, message))
            return []
        try:
            return handler(peer, message)
        except (MXNetError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as e:
            return _answer(peer, message, error=f"{op}: {type(e).__name__}: {e}")

    def lost(self, peer: Any) -> Sends:
        self._deferred = [d for d in self._deferred if d[0] != peer]
        self._joining = {public: j for public, j in self._joining.items() if j[0] != peer}
        index, rank = self._servers.lost(peer), self._workers.rank_of(peer)
        if index is not None:
            return self._notify_of_server(index)
        return [] if rank is None else self._set_gone(rank, "died")

    def end_grace_period(self) -> Sends:
        """Give up on the servers and workers from before a restart that have not come back."""
        sends = [send for rank in sorted(self._expected_workers) for send in self._set_gone(rank, "died")]
        self._expected_workers.clear()
        for index in sorted(self._servers.expected):
            self._servers.arrived(index, in_time=False)
            sends += self._servers.acknowledge(index, self._servers.epoch) + self._notify_of_server(index)
            sends += self._handle_deferred()
        return sends

    # ---- servers --------------------------------------------------------------------------------------------------------
    def _server_join(self, peer: Any, m: Message) -> Sends:
        index = self._servers.connect(peer, m)
        if index is None:
            return []
        self.changed = True
        incarnation = self._servers.location(index)["incarnation"]
        sends = _answer(peer, m, policy=self.policy, staleness=self.max_staleness, incarnation=incarnation,
                        **self._members_and_keys(index), **self._last_optimizer())
        # the answer contains everything that was to be acknowledged; what follows from that goes to the new process
        sends += self._servers.acknowledge(index, self._servers.epoch)
        return sends + self._notify_of_server(index) + self._is_ready(index)

    def _server_back(self, peer: Any, m: Message) -> Sends:
        """Handle a server that has connected again. It may have missed messages."""
        index = self._servers.connect(peer, m)
        if index is None:
            return []
        missed = self._last_optimizer() if int(m.get("optimizers", 0)) < len(self._optimizers) else {}
        return self._servers.announce({"op": "members", **self._members_and_keys(index), **missed},
                                      lambda _: self._is_ready(index), only=index) + self._notify_of_server(index)

    def _server_ack(self, peer: Any, m: Message) -> Sends:
        index = self._servers.index_of(peer)
        if index is None:
            raise FrameError("this server has not joined")
        return self._servers.acknowledge(index, int(m["epoch"]), str(m.get("error") or ""))

    def _is_ready(self, index: int) -> Sends:
        self._servers.arrived(index, in_time=True)
        return self._handle_deferred()

    def _handle_deferred(self) -> Sends:
        if not self._servers.complete():
            return []
        deferred, self._deferred = self._deferred, []
        return [send for peer, message in deferred for send in self.receive(peer, "worker", message)]

    def _notify_of_server(self, index: int) -> Sends:
        return self._notify_workers({"op": "shard", **self._servers.location(index)})

    def _members_and_keys(self, index: int) -> Message:
        """Return everything a server must know except the optimizer, which would reset its states."""
        return {"kind": self.kind, "members": self._workers.message(), "keys": [e.message() for e in self._keys.on_server(index)]}

    # ---- members --------------------------------------------------------------------------------------------------------
    def _worker_join(self, peer: Any, m: Message) -> Sends:
        """Handle a request to join.

        rank:  the requested rank; None: any free one; "new": one more than the job has, from the next barrier on.
        n:     increased each time the request is sent again because the connection was lost.
        """
        kind, public, wanted, n = str(m["kind"]), str(m["public"]), m.get("rank"), int(m.get("n", 0))
        if self.kind and kind != self.kind:
            raise FrameError(f"the job is dist_{self.kind}, this worker asks for dist_{kind}")
        former, waiting = self._workers.rank_with(public), self._joining.get(public)
        if (former is not None and n < self._workers[former].attempt) or (waiting and n < int(waiting[1].get("n", 0))):
            return []
        if former is not None and not self._workers[former].gone:  # the answer to its first request was lost
            self._workers[former].attempt = n
            self._workers.connect(former, peer)
            return self._announce_arrival(former, lambda: _answer(peer, m, **self._joined(former)))
        if wanted == "new" or (isinstance(wanted, int) and wanted in self._workers and self._workers[wanted].gone == "out"):
            self._joining[public] = peer, m
            return []
        rank = self._workers.free(wanted)
        if rank is None:
            subject = f"all {len(self._workers)} workers have" if wanted is None else f"worker {wanted} has"
            raise FrameError(f"{subject} joined already")
        self.kind = kind
        self._workers.admit(rank, peer, public, n)
        self.changed = True
        return self._announce_arrival(rank, lambda: _answer(peer, m, **self._joined(rank)))

    def _announce_arrival(self, rank: int, then: Callable[[], Sends]) -> Sends:
        """Tell the servers that a worker is there, and then the workers, whose pushes would be rejected before."""
        self._expected_workers.discard(rank)
        peer = self._workers[rank].peer

        def known(_: str) -> Sends:
            w = self._workers[rank]
            if w.peer == peer:  # otherwise it was away once more
                w.told = w.gone
            return self._notify_gone(peer) + then()

        return self._notify_members(known)

    def _joined(self, rank: int) -> Message:
        return {"rank": rank, "incarnation": self._workers[rank].incarnation, "ranks": self._workers.ranks,
                "shards": self._servers.locations()}

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
        self._workers.connect(rank, peer)
        self.changed = True
        # the answer is made when the servers have acknowledged: it may change until then
        return self._announce_arrival(rank, lambda: _answer(peer, m, dead=w.was_dead, shards=self._servers.locations()))

    def _worker_leave(self, peer: Any, m: Message) -> Sends:
        """Handle a worker that closes its store. well: its work is complete; otherwise the launcher may still report that."""
        rank = self._workers.own_rank(peer)
        return _answer(peer, m) + self._set_gone(rank, "left" if m.get("well", True) else "ended")

    def _worker_ended(self, peer: Any, m: Message) -> Sends:
        """Handle the launcher's report that the process of a rank has ended with success: no one waits for it any more."""
        rank = int(m["rank"])
        return ([] if self._workers[rank].gone in ("left", "out") else self._set_gone(rank, "left")) + _answer(peer, m)

    def _set_gone(self, rank: int, why: str) -> Sends:
        self._workers.set_gone(rank, why)
        self.changed = True
        self._waiting.forget(rank)
        return (self._notify_gone() + self._notify_members(at_once=why == "died") + self._promote_first()
                + self._answer_waiting())

    def _promote_first(self) -> Sends:
        """If the new first rank waits in init for the initial values of another, handle its call again."""
        first = self._workers.first
        inits = self._waiting.take("init", lambda r, m: r == first and "big" in m)
        return [send for r, m in inits for send in self.receive(self._workers[r].peer, "worker", m)]

    def _notify_members(self, then: Then = lambda _: [], at_once: bool = False) -> Sends:
        """Tell the servers who the members are. `then` follows when they know."""
        return self._servers.announce_members(
            lambda: {"op": "members", "kind": self.kind, "members": self._workers.message()}, then, at_once)

    def _notify_workers(self, message: Message) -> Sends:
        return [(w.peer, message) for w in self._workers.values() if w.peer is not None]

    def _notify_gone(self, *arrived: Any) -> Sends:
        """Send the workers that are away to all workers if they are others than before, otherwise to those that have arrived."""
        message, changed = self._workers.news()
        return self._notify_workers(message) if changed else [(peer, message) for peer in arrived]

    # ---- keys -----------------------------------------------------------------------------------------------------------
    def _worker_init(self, peer: Any, m: Message) -> Sends:
        rank, first = self._workers.own_rank(peer), self._workers.first
        if rank != first:
            keys = [[str(k[0]), [int(n) for n in k[1]], str(k[2])] for k in m["keys"]]
            self._waiting.add(rank, "init", m, keys=keys, big=m["big"])
            return self._answer_waiting() if self._waiting.may_end(rank, keys, first, self._workers.awaited) else []
        for k in m["keys"]:
            self._keys.check(rank, k, first)
        new = self._keys.add(m["keys"], int(m["big"]))
        entries = [self._keys[k[0]] for k in m["keys"]]
        answer = _answer(peer, m, first=True, fill=[e.message() for e in entries if not e.filled],
                         keys=[e.message() for e in entries])
        if not new:
            return answer
        self.changed = True

        def created(error: str) -> Sends:
            if not error:
                return answer
            self._keys.remove(new)
            self.changed = True
            return _answer(peer, m, error=error) + self._reject_inits(error, {e.key for e in new})

        return self._servers.announce({"op": "keys", "keys": [e.message() for e in new]}, created)

    def _reject_inits(self, error: str, names: Set[str] | None = None) -> Sends:
        """Answer those waiting calls of init with an error that name one of these keys; None: all."""
        ended = self._waiting.take("init", lambda _, m: names is None or not names.isdisjoint(k[0] for k in m["keys"]))
        return [send for r, m in ended for send in _answer(self._workers[r].peer, m, error=error)]

    def _worker_filled(self, peer: Any, m: Message) -> Sends:
        """Handle the first rank's report that initial values are on the servers. Answered when every worker has called init."""
        for e in [self._keys[k] for k in m["keys"]]:
            e.filled = True
        self._waiting.add(self._workers.own_rank(peer), "init", m, keys=[[k] for k in m["keys"]])
        return self._answer_waiting()

    # ---- waiting for other workers --------------------------------------------------------------------------------------
    def _worker_missing(self, peer: Any, m: Message) -> Sends:
        """Answer which ranks a request of kind `of` waits for. `why` in the answer names the keys."""
        ranks, why = self._waiting.missing(m["of"], self._workers.own_rank(peer), self._workers.first, self._workers.awaited)
        return _answer(peer, m, ranks=sorted(ranks), why=why)

    def _worker_forget(self, peer: Any, m: Message) -> Sends:
        """Handle a worker that has given up the request with number `of`."""
        self._waiting.withdraw(self._workers.own_rank(peer), m["of"])
        return _answer(peer, m)

    def _answer_waiting(self) -> Sends:
        awaited, first = self._workers.awaited, self._workers.first
        sends: Sends = []
        for rank, m, error, entries in self._waiting.take_ended_inits(first, awaited):
            self.changed = True  # who has called is written only now: until now every worker would ask again
            result = {"error": error} if error else {"fill": [], "keys": [e.message() for e in entries]}
            sends += _answer(self._workers[rank].peer, m, **result)
        for rank, m in self._waiting.take("optimizer", lambda r, _: self._workers[r].optimizers <= self._installed):
            sends += self._answer_optimizer(self._workers[rank].peer, m, self._workers[rank].optimizers)
        sends += self._answer_barrier(awaited)
        error = self._waiting.deadlock(first, awaited)
        return sends + (self._reject_inits(error) if error else [])

    def _answer_barrier(self, awaited: Set[int]) -> Sends:
        """Let the workers at a barrier pass if all are there, or reject their calls if one has died."""
        dead = self._workers.dead if self.policy == "fail" else []
        if not dead and not self._waiting.all_at_barrier(awaited):
            return []
        present = self._waiting.take("barrier")
        if not dead:
            return self._pass_barrier(present)
        error = f"barrier: worker {', '.join(map(str, dead))} died"
        return [send for r, m in present for send in _answer(self._workers[r].peer, m, error=error)]

    def _pass_barrier(self, present: list[tuple[int, Message]]) -> Sends:
        """Let members join and leave, then answer every worker at the barrier."""
        joining, self._joining = self._joining, {}
        peers = {rank: self._workers[rank].peer for rank, _ in present}
        self.changed = True
        for rank, m in present:
            self._workers[rank].barriers = max(self._workers[rank].barriers, int(m.get("n", 0)))
        leaving = {rank for rank, m in present if m.get("leave")}
        leaving.update(self._workers.dead if self.policy == "shrink" else ())
        for rank in leaving:
            self._workers.set_gone(rank, "out")
        joined: dict[int, tuple[Any, Message]] = {}
        for peer, m in joining.values():
            wanted = m.get("rank")
            rank = wanted if isinstance(wanted, int) and self._workers[wanted].gone == "out" else max(self._workers) + 1
            self._workers.admit(rank, peer, str(m["public"]), int(m.get("n", 0)))
            joined[rank] = peer, m

        def answer(_: str) -> Sends:
            sends = [send for rank, m in present for send in _answer(peers[rank], m, ranks=self._workers.ranks)]
            return sends + [send for rank, (peer, m) in joined.items() for send in _answer(peer, m, **self._joined(rank))]

        if not leaving and not joined:
            return answer("")
        return self._notify_members(answer, at_once=True) + self._notify_gone(*(peer for peer, _ in joined.values()))

    def _worker_barrier(self, peer: Any, m: Message) -> Sends:
        """Handle a worker at its n-th barrier; n shows a request that is sent again. leave: the worker leaves with it."""
        rank = self._workers.own_rank(peer)
        if 0 < int(m.get("n", 0)) <= self._workers[rank].barriers:
            return _answer(peer, m, ranks=self._workers.ranks)
        self._waiting.add(rank, "barrier", m, n=int(m.get("n", 0)), leave=m.get("leave"))
        return self._answer_waiting()

    def _worker_optimizer(self, peer: Any, m: Message) -> Sends:
        """Send the first rank's optimizer to the servers. The calls of other workers, or of a replacement, wait for it."""
        w = self._workers[rank := self._workers.own_rank(peer)]
        w.optimizers = int(m.get("n", w.optimizers + 1))
        if rank != self._workers.first or w.optimizers <= len(self._optimizers):
            self._waiting.add(rank, "optimizer", m)
            return self._answer_waiting()
        spec = m["spec"]
        self._keys.never_split = self._keys.never_split or not spec.get("elementwise", True)
        split = [e.key[2:] for e in self._keys.values() if len(e.slices) > 1]
        if self._keys.never_split and split:
            w.optimizers -= 1
            raise FrameError(f"{spec.get('name')} needs norms of whole values, and key {split[0]!r} is split over servers. Call "
                             f"set_optimizer before init")
        self._optimizers.append(spec)
        self.changed, count = True, len(self._optimizers)

        def installed(error: str) -> Sends:
            self._installed = max(self._installed, count)
            if error:  # servers that start later do not get it
                self._optimizers[count - 1] = self._optimizers[count - 2] if count > 1 else None
                self._optimizer_errors[count] = error
            self.changed = True
            return self._answer_optimizer(peer, m, count) + self._answer_waiting()

        return self._servers.announce({"op": "optimizer", **self._last_optimizer()}, installed)

    def _answer_optimizer(self, peer: Any, m: Message, number: int) -> Sends:
        error = self._optimizer_errors.get(number)
        return _answer(peer, m, error=error) if error else _answer(peer, m)

    def _last_optimizer(self) -> Message:
        """Return the fields of messages to servers. A server that has the optimizer with that number ignores it."""
        return {"optimizer": self._optimizers[-1] if self._optimizers else None, "optimizers": len(self._optimizers)}

    def _worker_info(self, peer: Any, m: Message) -> Sends:
        return _answer(peer, m, members={k: v for k, v in self._workers.message().items() if k != "public"},
                       shards=self._servers.locations(), keys=len(self._keys), growing=len(self._joining))

    # ---- surviving a restart --------------------------------------------------------------------------------------------
    def state(self) -> Message:
        """Return everything that must not be lost, as JSON values."""
        self.changed = False
        return {"kind": self.kind, "optimizers": self._optimizers, "never_split": self._keys.never_split,
                "generation": self._workers.generation, "epoch": self._servers.epoch,
                "workers": self._workers.state(), "servers": self._servers.state(), "keys": self._keys.state()}

    def resume(self, state: Message) -> None:
        """Restore `state()`. Nothing is connected; the servers and workers of before are expected back."""
        self.kind, self._optimizers = state["kind"], state["optimizers"]
        self._installed = len(self._optimizers)  # or they will be before a worker is answered
        self._expected_workers = self._workers.resume(state["workers"], state["generation"])
        self._servers.resume(state["servers"], state["epoch"])
        self._keys.resume(state["keys"])
        self._keys.never_split = state["never_split"]


def _answer(peer: Any, request: Message, **fields: Any) -> Sends:
    return [(peer, {"id": request.get("id"), **fields})]
