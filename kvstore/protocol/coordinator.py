"""Coordinator: the members of a job, the placement of its keys, and the calls of workers that wait for other workers.

It sees no values and has no sockets, threads or clock. `receive(peer, role, message)` and `lost(peer)` return (peer, message)
pairs to send. The caller has authenticated the peer; `role` is "worker" or "server". A request carries "id", and so does its
answer. Messages to workers call a server "shard". What servers must know before a worker may act on it is sent to
them first: the worker is answered when all servers have sent "ack" (`Servers.announce`).

Membership changes at barriers. Workers beyond the job's first number are admitted there, workers that asked to leave are let go,
and with policy "shrink" dead workers are removed. A death, and a replacement that takes the rank of a dead worker, take effect at
once.

`state()` is everything that must survive a restart. It is written before any message is sent. A coordinator that resumes from it
waits until its servers are "back". A request that is sent again because its answer was lost gets the same answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import FrameError, MXNetError
from .key_table import KeyTable
from .messages import wrong_in
from .processes import Message, Servers, Then, Workers
from .waiting_calls import Call, WaitingCalls

Sends = list[tuple[Any, Message]]
_log = logging.getLogger(__name__)


class Coordinator:
    """One job with `workers` ranks and `servers` servers. The methods `_worker_...` and `_server_...` handle their messages.

    policy:   the reaction to a worker's death: "fail", "wait" or "shrink" (rounds.py).
    changed:  `state()` has changed.
    """

    def __init__(self, workers: int, servers: int, policy: str = "fail"):
        self.policy = policy
        self.changed = True
        self.kind = ""  # "sync" or "async": given by the first worker
        self._sends: Sends = []
        self._workers = Workers(workers, policy)
        self._servers = Servers(servers, self._send)
        self._keys = KeyTable(servers)
        self._optimizers: list[Any] = []  # descriptions of those that the servers have been given, one after the other, or None
        self._installed: list[Message] = []  # answers about those that are on the servers, or were rejected by one
        self._deferred: list[tuple[Any, Message]] = []  # requests of workers while a server is expected
        self._joining: dict[str, tuple[Any, Message]] = {}  # by public names: workers that wait for a barrier to join
        self._waiting = WaitingCalls(self._workers, self._keys)

    def receive(self, peer: Any, role: str, message: Message) -> Sends:
        """Handle a message. An invalid message is answered with an error and changes nothing."""
        self._handle(peer, role, message)
        return self._take_sends()

    def lost(self, peer: Any) -> Sends:
        self._deferred = [d for d in self._deferred if d[0] != peer]
        self._joining = {public: j for public, j in self._joining.items() if j[0] != peer}
        if (index := self._servers.rank_of(peer)) is not None:
            self._servers.disconnect(index)
            self._notify_of_server(index)
        elif (rank := self._workers.rank_of(peer)) is not None:
            self._set_gone(rank, "died")
        return self._take_sends()

    def end_grace_period(self) -> Sends:
        """Give up on the servers and workers from before a restart that have not come back."""
        for rank in sorted(self._workers.expected):
            self._set_gone(rank, "died")
        for index in sorted(self._servers.expected):
            self._notify_of_server(index)
            self._arrived(index, in_time=False)
        return self._take_sends()

    def _handle(self, peer: Any, role: str, m: Message) -> None:
        before = len(self._sends)
        if wrong := wrong_in(role, m):
            self.warn(peer, role, wrong)
            self._answer(peer, m, error=wrong)
        elif role == "worker" and not self._servers.complete():
            self._deferred.append((peer, m))
        else:
            try:
                getattr(self, f"_{role}_{m['op']}")(peer, m)
            except Exception as e:
                if not isinstance(e, MXNetError):
                    _log.error("kvstore: unexpected error in the coordinator: %s of a %s", m["op"], role, exc_info=e)
                del self._sends[before:]
                self._answer(peer, m, error=f"{m['op']}: {type(e).__name__}: {e}")

    def warn(self, peer: Any, role: str, text: str) -> None:
        """Log an invalid message of a peer."""
        rank = (self._workers if role == "worker" else self._servers).rank_of(peer)
        sender = f"a {role} that has not joined" if rank is None else f"{role} {rank}"
        _log.warning("kvstore: the coordinator has an invalid message from %s: %s", sender, text)

    # ---- sending --------------------------------------------------------------------------------------------------------
    def _take_sends(self) -> Sends:
        sends, self._sends = self._sends, []
        return sends

    def _send(self, peer: Any, message: Message) -> None:
        if peer is not None:  # otherwise it asks again when it is back
            self._sends.append((peer, message))

    def _answer(self, peer: Any, request: Message, **fields: Any) -> None:
        self._send(peer, {"id": request.get("id"), **fields})

    def _answer_calls(self, calls: Sequence[Call], **fields: Any) -> None:
        for rank, m in calls:
            self._answer(self._workers[rank].peer, m, **fields)

    def _notify_of_server(self, index: int) -> None:
        for w in self._workers.values():
            self._send(w.peer, {"op": "shard", **self._servers.location(index)})

    def _notify_gone(self, *arrived: Any) -> None:
        """Send the workers that are away to all workers if they are others than before, otherwise to those that have arrived."""
        message, changed = self._workers.news()
        for peer in [w.peer for w in self._workers.values()] if changed else arrived:
            self._send(peer, message)

    def _announce_members(self, then: Then = lambda _: None, at_once: bool = False) -> None:
        """Tell the servers who the members are. `then` follows when they know."""
        self._servers.announce_members(lambda: {"op": "members", **self._members()}, then, at_once)

    # ---- servers --------------------------------------------------------------------------------------------------------
    def _server_join(self, peer: Any, m: Message) -> None:
        index = self._servers.arrive(peer, m)
        if index is None:
            return
        self.changed = True
        self._answer(peer, m, incarnation=self._servers[index].incarnation, **self._members_and_keys(index),
                     **self._last_optimizer())
        # the answer contains everything that was to be acknowledged; what follows from that goes to the new process
        self._servers.acknowledge(index, self._servers.epoch)
        self._notify_of_server(index)
        self._arrived(index)

    def _server_back(self, peer: Any, m: Message) -> None:
        """Handle a server that has connected again. It may have missed messages."""
        index = self._servers.arrive(peer, m)
        if index is None:
            return
        missed = self._last_optimizer() if m.get("optimizers", 0) < len(self._optimizers) else {}
        message = {"op": "members", **self._members_and_keys(index), **missed}
        self._servers.announce(message, lambda _: self._arrived(index), only=index)
        self._notify_of_server(index)

    def _server_ack(self, peer: Any, m: Message) -> None:
        self._servers.acknowledge(self._servers.own_rank(peer), m["epoch"], str(m.get("error") or ""))

    def _arrived(self, index: int, in_time: bool = True) -> None:
        self._servers.arrived(index, in_time)
        if self._servers.complete():
            deferred, self._deferred = self._deferred, []
            for peer, message in deferred:
                self._handle(peer, "worker", message)

    def _members(self) -> Message:
        return {"kind": self.kind, "members": self._workers.message()}

    def _members_and_keys(self, index: int) -> Message:
        """Return everything a server must know except the optimizer, which would reset its states."""
        return {**self._members(), "keys": [e.message() for e in self._keys.on_server(index)]}

    # ---- members --------------------------------------------------------------------------------------------------------
    def _worker_join(self, peer: Any, m: Message) -> None:
        """Handle a request to join.

        rank:  the requested rank; None: any free one; "new": one more than the job has, from the next barrier on.
        n:     increased each time the request is sent again because the connection was lost.
        """
        kind, public, wanted, n = m["kind"], m["public"], m.get("rank"), m.get("n", 0)
        if self.kind and kind != self.kind:
            raise FrameError(f"the job is dist_{self.kind}, this worker asks for dist_{kind}")
        rank, waiting = self._workers.rank_with(public), self._joining.get(public)
        if (rank is not None and n < self._workers[rank].attempt) or (waiting and n < waiting[1].get("n", 0)):
            return
        if rank is not None and not self._workers[rank].gone:  # the answer to its first request was lost
            self._workers.connect(rank, peer, n)
        elif wanted == "new" or self._workers.is_out(wanted):
            self._joining[public] = peer, m
            return
        else:
            rank = self._workers.free(wanted)
            self._workers.admit(rank, peer, public, n)
            self.kind, self.changed = kind, True
        self._announce_arrival(rank, lambda: self._answer(peer, m, **self._joined(rank)))

    def _announce_arrival(self, rank: int, then: Callable[[], None]) -> None:
        """Tell the servers that a worker is there, and then the workers, whose pushes would be rejected before."""
        peer = self._workers[rank].peer

        def known(_: str) -> None:
            w = self._workers[rank]
            if w.peer == peer:  # otherwise it was away once more
                w.told = w.gone
            self._notify_gone(peer)
            then()

        self._announce_members(known)

    def _joined(self, rank: int) -> Message:
        return {"rank": rank, "incarnation": self._workers[rank].incarnation, "ranks": self._workers.ranks,
                "shards": self._servers.locations()}

    def _worker_back(self, peer: Any, m: Message) -> None:
        """Handle a worker that has connected again. `dead` in the answer: servers had dropped its incomplete messages."""
        w = self._workers[rank := m["rank"]]
        if (w.incarnation, w.public) != (m["incarnation"], m["public"]) or (w.gone and (
                w.gone != "died" or self.policy == "shrink")):
            raise FrameError(f"worker {rank} was declared dead, and the job does not wait for it any more")
        if m["id"] < w.attempt:
            return
        self._workers.connect(rank, peer, m["id"])
        self.changed = True
        # the answer is made when the servers have acknowledged: it may change until then
        self._announce_arrival(rank, lambda: self._answer(peer, m, dead=w.was_dead, shards=self._servers.locations()))

    def _worker_leave(self, peer: Any, m: Message) -> None:
        """Handle a worker that closes its store. well: its work is complete; otherwise the launcher may still report that."""
        rank = self._workers.own_rank(peer)
        self._answer(peer, m)
        self._set_gone(rank, "left" if m.get("well", True) else "ended")

    def _worker_ended(self, peer: Any, m: Message) -> None:
        """Handle the launcher's report that the process of a rank has ended with success: no one waits for it any more."""
        if self._workers[m["rank"]].gone not in ("left", "out"):
            self._set_gone(m["rank"], "left")
        self._answer(peer, m)

    def _set_gone(self, rank: int, why: str) -> None:
        self._workers.set_gone(rank, why)
        self.changed = True
        for op in self._waiting:
            self._waiting.take(op, lambda r, _: r == rank)
        self._notify_gone()
        self._announce_members(at_once=why == "died")
        # a new first rank may wait for the initial values of another
        for r, m in self._waiting.take("init", lambda r, m: r == self._workers.first and "big" in m):
            self._handle(self._workers[r].peer, "worker", m)
        self._answer_waiting()

    def _worker_info(self, peer: Any, m: Message) -> None:
        self._answer(peer, m, gone=self._workers.message()["gone"], growing=len(self._joining))

    # ---- keys -----------------------------------------------------------------------------------------------------------
    def _worker_init(self, peer: Any, m: Message) -> None:
        rank, first, keys = self._workers.own_rank(peer), self._workers.first, m["keys"]
        if rank != first:
            if self._waiting.add_init(rank, m):
                self._answer_waiting()
            return
        self._keys.check(rank, keys, first)
        new = self._keys.add(keys, m["big"])
        for (r, _), call in self._waiting["init"].items():
            self._keys.note_call(r, call["keys"])
        entries = [self._keys[k[0]] for k in keys]

        def created(error: str) -> None:
            if error:
                for e in new:
                    del self._keys[e.key]
                self.changed = True
                self._answer(peer, m, error=error)
                names = {e.key for e in new}
                others = self._waiting.take("init", lambda _, call: not names.isdisjoint(k[0] for k in call["keys"]))
                self._answer_calls(others, error=error)
            else:
                self._answer(peer, m, first=True, fill=[e.message() for e in entries if not e.filled],
                             keys=[e.message() for e in entries])

        if new:
            self.changed = True
            self._servers.announce({"op": "keys", "keys": [e.message() for e in new]}, created)
        else:
            created("")

    def _worker_filled(self, peer: Any, m: Message) -> None:
        """Handle the first rank's report that initial values are on the servers. Answered when every worker has called init."""
        for e in [self._keys[k] for k in m["keys"]]:
            e.filled = True
        self._waiting.add_init(self._workers.own_rank(peer), {**m, "keys": [(k,) for k in m["keys"]]})
        self._answer_waiting()

    # ---- optimizers -----------------------------------------------------------------------------------------------------
    def _worker_optimizer(self, peer: Any, m: Message) -> None:
        """Send the first rank's optimizer to the servers. The calls of other workers, or of a replacement, wait for it."""
        w = self._workers[rank := self._workers.own_rank(peer)]
        w.optimizers = m.get("n", w.optimizers + 1)
        if rank != self._workers.first or w.optimizers <= len(self._optimizers):
            self._waiting.add("optimizer", rank, m)
            return self._answer_waiting()
        spec = m["spec"]
        self._keys.never_split = self._keys.never_split or not spec.get("elementwise", True)
        split = [e.key[2:] for e in self._keys.values() if len(e.slices) > 1]
        if self._keys.never_split and split:
            w.optimizers -= 1
            raise FrameError(f"{spec.get('name')} needs norms of whole values, and key {split[0]!r} is split over servers. Call "
                             f"set_optimizer before init")
        self._optimizers.append(spec)
        self._waiting.add("optimizer", rank, m)
        self.changed = True

        def installed(error: str) -> None:
            if error:  # servers that start later do not get it
                self._optimizers[len(self._installed)] = self._optimizers[len(self._installed) - 1] if self._installed else None
            self._installed.append({"error": error} if error else {})
            self.changed = True
            self._answer_waiting()

        self._servers.announce({"op": "optimizer", **self._last_optimizer()}, installed)

    def _last_optimizer(self) -> Message:
        """Return the fields of messages to servers. A server that has the optimizer with that number ignores it."""
        return {"optimizer": self._optimizers[-1] if self._optimizers else None, "optimizers": len(self._optimizers)}

    # ---- waiting for other workers --------------------------------------------------------------------------------------
    def _answer_waiting(self) -> None:
        for (rank, _), m in list(self._waiting["init"].items()):
            if (result := self._waiting.result_of_init(rank, m)) is not None:
                self.changed = True  # who has called is written only now: until now every worker would ask again
                del self._waiting["init"][rank, m.get("id")]
                self._answer(self._workers[rank].peer, m, **result)
        for call in self._waiting.take("optimizer", lambda r, _: self._workers[r].optimizers <= len(self._installed)):
            self._answer_calls([call], **self._installed[self._workers[call[0]].optimizers - 1])
        if dead := self._workers.dead if self.policy == "fail" else []:
            self._answer_calls(self._waiting.take("barrier"), error=f"barrier: worker {', '.join(map(str, dead))} died")
        elif self._waiting.all_at_barrier():
            self._pass_barrier(self._waiting.take("barrier"))
        if error := self._waiting.deadlock():
            self._answer_calls(self._waiting.take("init"), error=error)

    def _worker_barrier(self, peer: Any, m: Message) -> None:
        """Handle a worker at its n-th barrier; n shows a request that is sent again. leave: the worker leaves with it."""
        rank, n = self._workers.own_rank(peer), m.get("n", 0)
        if 0 < n <= self._workers[rank].barriers:
            return self._answer(peer, m, ranks=self._workers.ranks)
        self._waiting.add("barrier", rank, m)
        self._answer_waiting()

    def _pass_barrier(self, present: list[tuple[int, Message]]) -> None:
        """Let members join and leave, then answer every worker at the barrier."""
        joining, self._joining = self._joining, {}
        peers = {rank: self._workers[rank].peer for rank, _ in present}
        self.changed = True
        for rank, m in present:
            self._workers[rank].barriers = max(self._workers[rank].barriers, m.get("n", 0))
        leaving = {rank for rank, m in present if m.get("leave")}
        leaving.update(self._workers.dead if self.policy == "shrink" else ())
        for rank in leaving:
            self._workers.set_gone(rank, "out")
        joined: dict[int, tuple[Any, Message]] = {}
        for public, (peer, m) in joining.items():
            rank = m["rank"] if self._workers.is_out(m["rank"]) else max(self._workers) + 1
            self._workers.admit(rank, peer, public, m.get("n", 0))
            joined[rank] = peer, m

        def answer(_: str) -> None:
            for rank, m in present:
                self._answer(peers[rank], m, ranks=self._workers.ranks)
            for rank, (peer, m) in joined.items():
                self._answer(peer, m, **self._joined(rank))

        if not leaving and not joined:
            return answer("")
        self._announce_members(answer, at_once=True)
        self._notify_gone(*(peer for peer, _ in joined.values()))

    def _worker_forget(self, peer: Any, m: Message) -> None:
        """Handle a worker that has given up the request with number `of`."""
        for calls in self._waiting.values():
            calls.pop((self._workers.own_rank(peer), m["of"]), None)
        self._answer(peer, m)

    def _worker_missing(self, peer: Any, m: Message) -> None:
        """Answer which ranks a request of kind `of` waits for. `why` in the answer names the keys."""
        ranks, why = self._waiting.missing(m["of"], self._workers.own_rank(peer))
        self._answer(peer, m, ranks=sorted(ranks), why=why)

    # ---- surviving a restart --------------------------------------------------------------------------------------------
    def state(self) -> Message:
        """Return everything that must not be lost, as JSON values."""
        self.changed = False
        return {"kind": self.kind, "optimizers": self._optimizers, "never_split": self._keys.never_split,
                "created": self._keys.created, "generation": self._workers.generation, "epoch": self._servers.epoch,
                "workers": self._workers.state(), "servers": self._servers.state(), "keys": self._keys.state()}

    def resume(self, state: Message) -> None:
        """Restore `state()`. Nothing is connected; the servers and workers of before are expected back."""
        self.kind, self._optimizers = state["kind"], state["optimizers"]
        self._installed = [{} for _ in self._optimizers]  # or they will be before a worker is answered
        self._workers.resume(state["workers"])
        self._servers.resume(state["servers"])
        self._keys.resume(state["keys"])
        self._workers.generation, self._servers.epoch = state["generation"], state["epoch"]
        self._keys.created, self._keys.never_split = state["created"], state["never_split"]
