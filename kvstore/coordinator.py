"""Coordinator: who takes part in a job, where each key lives, and who waits for whom. Messages in, messages out.

It sees no values and has no sockets, threads or clock: `receive(peer, role, message)` and `lost(peer)` return (peer, message)
pairs to be sent. Whoever calls it has authenticated the peer; `role` is "worker" or "shard". A request carries "id"; its answer
carries the same. What shards must know before a worker may act on it is sent to them first, and the worker is answered once all
have said "ack" (`_tell_shards`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import FrameError, MXNetError
from .placement import number, place

Message = dict[str, Any]
Sends = list[tuple[Any, Message]]
Then = Callable[[], Sends]


@dataclass
class _Worker:
    """A rank: alive, died, left, or not here yet (incarnation 0)."""

    peer: Any = None
    incarnation: int = 0
    public: str = ""
    gone: str = ""
    optimizers: int = 0  # how often it called set_optimizer


@dataclass
class _Shard:
    peer: Any = None
    address: str = ""
    public: str = ""
    incarnation: int = 0


@dataclass
class _Entry:
    """A key: what it is, where its parts are, and how far its making has come."""

    id: int
    key: str
    shape: list[int]
    dtype: str
    parts: list[list[int]]
    filled: bool = False
    called: set[int] = field(default_factory=set)

    def public(self) -> Message:
        return {"id": self.id, "key": self.key, "shape": self.shape, "dtype": self.dtype, "parts": self.parts}


class Coordinator:
    """One job of `workers` ranks and `shards` shards.

    policy:  what a worker's death means: "fail", "wait" or "shrink" (rounds.py).
    """

    def __init__(self, workers: int, shards: int, policy: str = "fail"):
        self.policy = policy
        self.kind = ""  # "sync" or "async": as the first worker says
        self._workers = {r: _Worker() for r in range(workers)}
        self._shards = [_Shard() for _ in range(shards)]
        self._keys: dict[str, _Entry] = {}
        self._numbers: dict[int, str] = {}
        self._loads = [0] * shards
        self._optimizers: list[Any] = []
        self._whole = False
        self._compression: Any = None
        self._generation = 0
        self._epoch = 0
        self._after: list[tuple[set[int], int, Then]] = []  # (shards that have not said ack, epoch, what to do then)
        self._joining: list[tuple[Any, Message]] = []
        self._waiting: list[tuple[int, Message]] = []  # requests that wait for other workers: (rank, message)
        self._at_barrier: dict[int, list[Message]] = {}

    # ---- what comes in ------------------------------------------------------------------------------------------------
    def receive(self, peer: Any, role: str, message: Message) -> Sends:
        """What to send because of a message. A message that makes no sense is answered with an error, and changes nothing."""
        op = message.get("op")
        handler = getattr(self, f"_{role}_{op}", None) if isinstance(op, str) and op.isalpha() else None
        if handler is None:
            return [(peer, {"id": message.get("id"), "error": f"there is no request {op!r} of a {role}"})]
        try:
            return handler(peer, message)
        except (MXNetError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as e:
            return [(peer, {"id": message.get("id"), "error": f"{op}: {type(e).__name__}: {e}"})]

    def lost(self, peer: Any) -> Sends:
        """What to send because a peer's connection is gone."""
        for i, shard in enumerate(self._shards):
            if shard.peer == peer and peer is not None:
                shard.peer = None
                out = self._drop_acks(i)
                return out + self._tell_workers({"op": "shard", "index": i, "down": True})
        rank = self._rank_of(peer)
        return [] if rank is None else self._away(rank, "died")

    # ---- shards ---------------------------------------------------------------------------------------------------------
    def _shard_join(self, peer: Any, m: Message) -> Sends:
        index, address, public = int(m["index"]), str(m["address"]), str(m["public"])
        if not 0 <= index < len(self._shards):
            raise FrameError(f"there is no shard {index}")
        shard = self._shards[index]
        out = self._drop_acks(index)
        shard.peer, shard.address, shard.public, shard.incarnation = peer, address, public, shard.incarnation + 1
        out.append((peer, {"id": m.get("id"), "policy": self.policy, "kind": self.kind, "members": self._members(),
                           "keys": [e.public() for e in self._keys.values() if index in {p[0] for p in e.parts}],
                           "optimizer": self._optimizers[-1] if self._optimizers else None, "incarnation": shard.incarnation}))
        out += self._tell_workers({"op": "shard", **self._where(index)})
        if all(s.incarnation for s in self._shards):
            joining, self._joining = self._joining, []
            for waiting, message in joining:
                out += self.receive(waiting, "worker", message)
        return out

    def _shard_ack(self, peer: Any, m: Message) -> Sends:
        index = next((i for i, s in enumerate(self._shards) if s.peer == peer), None)
        if index is None:
            raise FrameError("this shard has not joined")
        return self._acked(index, int(m["epoch"]))

    def _acked(self, index: int, epoch: int) -> Sends:
        for missing, at, _ in self._after:
            if at <= epoch:
                missing.discard(index)
        done = [then for missing, _, then in self._after if not missing]
        self._after = [a for a in self._after if a[0]]
        return [send for then in done for send in then()]

    def _drop_acks(self, index: int) -> Sends:
        return self._acked(index, self._epoch)  # a shard that is away learns all when it is back

    def _tell_shards(self, message: Message, then: Then) -> Sends:
        self._epoch += 1
        there = {i for i, s in enumerate(self._shards) if s.peer is not None}
        if not there:
            return then()
        self._after.append((set(there), self._epoch, then))
        return [(self._shards[i].peer, {**message, "epoch": self._epoch}) for i in sorted(there)]

    def _where(self, index: int) -> Message:
        s = self._shards[index]
        return {"index": index, "address": s.address, "public": s.public, "incarnation": s.incarnation, "down": s.peer is None}

    # ---- members --------------------------------------------------------------------------------------------------------
    def _worker_join(self, peer: Any, m: Message) -> Sends:
        if not all(s.incarnation for s in self._shards):
            self._joining.append((peer, m))
            return []
        kind, public, wanted = str(m["kind"]), str(m["public"]), m.get("rank")
        if self.kind and kind != self.kind:
            raise FrameError(f"the job is dist_{self.kind}; this worker wants dist_{kind}")
        free = [r for r, w in self._workers.items() if w.peer is None and (wanted is None or r == wanted)]
        if not free:
            who = f"all {len(self._workers)} workers are" if wanted is None else f"worker {wanted} is"
            raise FrameError(f"{who} here already")
        self.kind = kind
        rank = free[0]
        w = self._workers[rank]
        w.peer, w.incarnation, w.public, w.gone, w.optimizers = peer, w.incarnation + 1, public, "", 0
        self._generation += 1
        answer = {"id": m.get("id"), "rank": rank, "incarnation": w.incarnation, "workers": len(self._workers),
                  "policy": self.policy, "shards": [self._where(i) for i in range(len(self._shards))]}
        return self._tell_members(lambda: [(peer, answer)]) + self._tell_gone()

    def _worker_leave(self, peer: Any, m: Message) -> Sends:
        rank = self._own_rank(peer)
        return [(peer, {"id": m.get("id")})] + self._away(rank, "left")

    def _away(self, rank: int, why: str) -> Sends:
        w = self._workers[rank]
        w.peer, w.gone = None, why
        self._generation += 1
        self._at_barrier.pop(rank, None)
        self._waiting = [(r, m) for r, m in self._waiting if r != rank]
        return self._tell_members(list) + self._tell_gone() + self._release()

    def _tell_members(self, then: Then) -> Sends:
        return self._tell_shards({"op": "members", "kind": self.kind, "members": self._members()}, then)

    def _members(self) -> Message:
        return {"generation": self._generation,
                "ranks": {str(r): w.incarnation for r, w in self._workers.items()},
                "gone": {str(r): w.gone for r, w in self._workers.items() if w.gone},
                "public": {w.public: r for r, w in self._workers.items() if w.peer is not None}}

    def _tell_workers(self, message: Message) -> Sends:
        return [(w.peer, message) for w in self._workers.values() if w.peer is not None]

    def _tell_gone(self) -> Sends:
        return self._tell_workers({"op": "gone", "gone": {str(r): w.gone for r, w in self._workers.items() if w.gone}})

    def _rank_of(self, peer: Any) -> int | None:
        return next((r for r, w in self._workers.items() if w.peer == peer and peer is not None), None)

    def _own_rank(self, peer: Any) -> int:
        rank = self._rank_of(peer)
        if rank is None:
            raise FrameError("this worker has not joined, or was taken for dead")
        return rank

    # ---- keys -----------------------------------------------------------------------------------------------------------
    def _worker_init(self, peer: Any, m: Message) -> Sends:
        rank = self._own_rank(peer)
        if rank:
            self._note(rank, m)
            self._waiting.append((rank, {"op": "init", "id": m.get("id"), "keys": [[str(k[0])] for k in m["keys"]]}))
            return self._release()
        fresh = [self._new_key(k[0], k[1], k[2], int(m["big"])) for k in m["keys"] if k[0] not in self._keys]
        for e in fresh:
            self._keys[e.key], self._numbers[e.id] = e, e.key
        self._note(rank, m)
        empty = [e.public() for k in m["keys"] if not (e := self._keys[k[0]]).filled]
        answer = {"id": m.get("id"), "fill": empty, "keys": [self._keys[k[0]].public() for k in m["keys"]]}
        if not fresh:
            return [(peer, answer)]
        return self._tell_shards({"op": "keys", "keys": [e.public() for e in fresh]}, lambda: [(peer, answer)])

    def _note(self, rank: int, m: Message) -> None:
        for k in m["keys"]:
            if k[0] in self._keys:
                e = self._keys[k[0]]
                if [list(k[1]), k[2]] != [e.shape, e.dtype]:
                    raise FrameError(f"key {k[0][2:]!r} is {e.dtype}{e.shape} for rank 0, {k[2]}{list(k[1])} for rank {rank}")

    def _new_key(self, key: str, shape: list[int], dtype: str, big: int) -> _Entry:
        shape = [int(n) for n in shape]
        size, itemsize = math.prod(shape), np.dtype(dtype).itemsize
        if size < 0 or size >= 1 << 40 or key[:2] not in ("s:", "i:"):
            raise FrameError(f"key {key!r} of shape {shape} cannot be")
        n = number(key)
        while n in self._numbers:  # two keys of one number: the later one takes the next that is free
            n = (n + 1) & 0x7FFFFFFF
        parts = place(size, itemsize, self._loads, big, self._whole)
        for p in parts:
            self._loads[p.shard] += (p.stop - p.start) * itemsize
        return _Entry(n, key, shape, dtype, [list(p) for p in parts])

    def _worker_filled(self, peer: Any, m: Message) -> Sends:
        """Rank 0 has given the keys their values; its request is answered when every worker has called init for them."""
        rank = self._own_rank(peer)
        for e in [self._keys[k] for k in m["keys"]]:
            e.filled = True
        self._waiting.append((rank, {"op": "init", "id": m.get("id"), "keys": [[k] for k in m["keys"]]}))
        return self._release()

    # ---- waiting for each other -----------------------------------------------------------------------------------------
    def _needed(self) -> set[int]:
        """The ranks that others wait for: all but those that have left, or died where nobody waits for a replacement."""
        return {r for r, w in self._workers.items() if not w.gone or (w.gone == "died" and self.policy == "wait")}

    def _release(self) -> Sends:
        """Answers to everything that need not wait any longer."""
        out: Sends = []
        needed = self._needed()
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
                if all(e is not None and e.filled and e.called >= needed for e in entries):
                    out.append((peer, {"id": m.get("id"), "fill": [], "keys": [e.public() for e in entries if e is not None]}))
                    continue
            elif self._workers[rank].optimizers <= len(self._optimizers):
                out.append((peer, {"id": m.get("id")}))
                continue
            still.append((rank, m))
        self._waiting = still
        broken = self._broken()
        if not broken and not self._at_barrier.keys() >= needed:
            return out
        for rank, messages in self._at_barrier.items():
            error = {"error": broken} if broken else {}
            out += [(self._workers[rank].peer, {"id": m.get("id"), **error}) for m in messages]
        self._at_barrier = {}
        return out

    def _broken(self) -> str:
        dead = [r for r, w in self._workers.items() if w.gone == "died"]
        return f"barrier: worker {', '.join(map(str, dead))} died" if dead and self.policy == "fail" else ""

    def _worker_barrier(self, peer: Any, m: Message) -> Sends:
        self._at_barrier.setdefault(self._own_rank(peer), []).append(m)
        return self._release()

    def _worker_optimizer(self, peer: Any, m: Message) -> Sends:
        """Rank 0's optimizer goes to the shards; the others' calls wait for it. A replacement's call finds it there."""
        rank = self._own_rank(peer)
        w = self._workers[rank]
        w.optimizers += 1
        if rank or w.optimizers <= len(self._optimizers):
            self._waiting.append((rank, {"op": "optimizer", "id": m.get("id")}))
            return self._release()
        spec = m["spec"]
        self._whole = self._whole or not spec.get("elementwise", True)
        split = [e.key[2:] for e in self._keys.values() if len(e.parts) > 1]
        if self._whole and split:
            w.optimizers -= 1
            raise FrameError(f"{spec.get('name')} takes norms of whole values, and key {split[0]!r} is split over servers. Call "
                             f"set_optimizer before init")

        def known() -> Sends:
            self._optimizers.append(spec)
            return [(peer, {"id": m.get("id")}), *self._release()]

        return self._tell_shards({"op": "optimizer", "spec": spec}, known)

    def _worker_info(self, peer: Any, m: Message) -> Sends:
        return [(peer, {"id": m.get("id"), "members": {k: v for k, v in self._members().items() if k != "public"},
                        "shards": [self._where(i) for i in range(len(self._shards))], "keys": len(self._keys)})]
