"""Coordinator: who takes part in a job, where each key lives, and who waits for whom. Messages in, messages out.

It sees no values and has no sockets, threads or clock: `receive(peer, role, message)` and `lost(peer)` return (peer, message)
pairs to be sent. Whoever calls it has authenticated the peer; `role` is "worker" or "shard". A request carries "id"; its answer
carries the same. What shards must know before a worker may act on it is sent to them first, and the worker is answered once all
have said "ack" (`_tell_shards`).

Members change at barriers: who asked to join beyond the job's first number is let in, who asked to leave is let go, and so are
the dead where the policy is "shrink". A death, and a replacement that takes a dead worker's rank, are known at once.

`state()` is all that must outlive this process, to be written before anything is sent. A coordinator that resumes from it waits
for its shards to come "back", then goes on; a request that is sent again because its answer was lost gives the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import FrameError, MXNetError
from .placement import number, place

Message = dict[str, Any]
Sends = list[tuple[Any, Message]]
Then = Callable[[str], Sends]  # given what a shard could not do of what it was told, if anything


@dataclass
class _Worker:
    """A rank: here, not here yet (incarnation 0), or gone.

    gone:  "died"; "left", when all was done; "ended", in a way that is not known to be well: its process may be replaced, or
           whoever started it will say that it ended well; or "out", which is no member any more.
    """

    peer: Any = None
    incarnation: int = 0
    public: str = ""
    gone: str = ""
    optimizers: int = 0  # how often it called set_optimizer
    barriers: int = 0  # how many it has passed
    was_dead: bool = False  # once: shards have dropped what it had not said to the end
    was: str = ""  # what it was `gone` as before it came back, or was replaced
    known_at: int = 0  # epoch of telling shards that it is back; until they have said ack, workers are not told
    said: int = 0  # number of its last "join" or "back": an earlier one is of a connection that has ended, or will


@dataclass
class _Shard:
    peer: Any = None
    address: str = ""
    public: str = ""
    incarnation: int = 0
    said: int = 0  # as a worker's


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


class _UnknownError(FrameError):
    """Nobody has said on this connection who is there."""


_NAMED = 5  # keys that a message names


class Coordinator:
    """One job of `workers` ranks and `shards` shards.

    policy:     what a worker's death means: "fail", "wait" or "shrink" (rounds.py).
    staleness:  dist_async: how many contributions to a key a worker may be ahead of the slowest when it pulls; None: any number.
    changed:    there is a new `state()`.
    """

    def __init__(self, workers: int, shards: int, policy: str = "fail", staleness: int | None = None):
        self.policy, self.staleness = policy, staleness
        self.changed = True
        self.kind = ""  # "sync" or "async": as the first worker says
        self._workers = {r: _Worker() for r in range(workers)}
        self._shards = [_Shard() for _ in range(shards)]
        self._keys: dict[str, _Entry] = {}
        self._numbers: dict[int, str] = {}
        self._loads = [0] * shards
        self._optimizers: list[Any] = []
        self._optimizers_there = 0  # how many of them the shards have
        self._whole = False
        self._compression: Any = None
        self._generation = 0
        self._epoch = 0
        self._after: list[tuple[set[int], int, Then]] = []  # (shards that have not said ack, epoch, what to do then)
        self._troubles: dict[int, str] = {}  # epoch -> what a shard could not do of what it was told
        self._refused: dict[int, str] = {}  # number of an optimizer -> why shards cannot have it
        self._away_shards: set[int] = set()  # after a restart: those that have not come back
        self._away_workers: set[int] = set()
        self._lost_shards: set[int] = set()  # those that did not come back in time
        self._held: list[tuple[Any, Message]] = []  # what workers asked before all shards were there
        self._growing: list[tuple[Any, Message]] = []  # workers that wait for a barrier to join
        self._waiting: list[tuple[int, Message]] = []  # requests that wait for other workers: (rank, message)
        self._at_barrier: dict[int, list[Message]] = {}

    # ---- what comes in ------------------------------------------------------------------------------------------------
    def receive(self, peer: Any, role: str, message: Message) -> Sends:
        """What to send because of a message. A message that makes no sense is answered with an error, and changes nothing."""
        op = message.get("op")
        handler = getattr(self, f"_{role}_{op}", None) if isinstance(op, str) and op.isalpha() else None
        if handler is None:
            return [(peer, {"id": message.get("id"), "error": f"there is no request {op!r} of a {role}"})]
        if role == "worker" and (self._away_shards or not all(s.incarnation for s in self._shards)):
            self._held.append((peer, message))
            return []
        try:
            return handler(peer, message)
        except (MXNetError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as e:
            unknown = {"unknown": True} if isinstance(e, _UnknownError) else {}
            return [(peer, {"id": message.get("id"), "error": f"{op}: {type(e).__name__}: {e}", **unknown})]

    def lost(self, peer: Any) -> Sends:
        """What to send because a peer's connection is gone."""
        self._held = [h for h in self._held if h[0] != peer]
        self._growing = [g for g in self._growing if g[0] != peer]
        for i, shard in enumerate(self._shards):
            if shard.peer == peer and peer is not None:
                shard.peer = None
                return self._tell_workers({"op": "shard", "index": i, "down": True})
        rank = self._rank_of(peer)
        return [] if rank is None else self._away(rank, "died")

    # ---- shards ---------------------------------------------------------------------------------------------------------
    def _shard_join(self, peer: Any, m: Message) -> Sends:
        index, address, public = int(m["index"]), str(m["address"]), str(m["public"])
        if not 0 <= index < len(self._shards):
            raise FrameError(f"there is no shard {index}")
        shard, n = self._shards[index], int(m.get("n", 0))
        if public == shard.public and n < shard.said:
            return []
        shard.said = n
        out = self._acked(index, self._epoch)  # it is about to learn all
        shard.peer, shard.address, shard.public, shard.incarnation = peer, address, public, shard.incarnation + 1
        self.changed = True
        out.append((peer, {"id": m.get("id"), "policy": self.policy, "staleness": self.staleness, **self._table(index),
                           **self._optimizer(), "incarnation": shard.incarnation}))
        out += self._tell_workers({"op": "shard", **self._where(index)})
        return out + self._shard_is_here(index)

    def _shard_back(self, peer: Any, m: Message) -> Sends:
        """A shard whose connection was lost, by a restart of this process or otherwise. It may have missed something."""
        index = int(m["index"])
        shard = self._shards[index]
        if (shard.incarnation, shard.public) != (int(m["incarnation"]), m["public"]):
            raise FrameError(f"shard {index} has been started again meanwhile")
        n = int(m.get("n", 0))
        if n < shard.said:
            return []
        shard.peer, shard.said = peer, n
        self._epoch += 1
        self._after.append(({index}, self._epoch, lambda _: self._shard_is_here(index)))
        missed = self._optimizer() if int(m.get("optimizers", 0)) < len(self._optimizers) else {}
        return [(peer, {"op": "members", **self._table(index), **missed, "epoch": self._epoch}),
                *self._tell_workers({"op": "shard", **self._where(index)})]

    def _table(self, index: int) -> Message:
        """What a shard must know, but for the optimizer: to set that again would forget its states."""
        return {"kind": self.kind, "members": self._members(),
                "keys": [e.public() for e in self._keys.values() if index in {p[0] for p in e.parts}]}

    def _optimizer(self) -> Message:
        """The last one, and how many there were: a shard that has it must not set it again."""
        return {"optimizer": self._optimizers[-1] if self._optimizers else None, "optimizers": len(self._optimizers)}

    def _shard_is_here(self, index: int) -> Sends:
        self._lost_shards.discard(index)
        return self._go_on(index)

    def _go_on(self, index: int) -> Sends:
        """A shard is not waited for any more."""
        self._away_shards.discard(index)
        held: list[tuple[Any, Message]] = []
        if not self._away_shards and all(s.incarnation for s in self._shards):
            held, self._held = self._held, []
        return [send for waiting, message in held for send in self.receive(waiting, "worker", message)]

    def _shard_ack(self, peer: Any, m: Message) -> Sends:
        index = next((i for i, s in enumerate(self._shards) if s.peer == peer), None)
        if index is None:
            raise FrameError("this shard has not joined")
        if m.get("error"):
            self._troubles[int(m["epoch"])] = str(m["error"])
        return self._acked(index, int(m["epoch"]))

    def _acked(self, index: int, epoch: int) -> Sends:
        for missing, at, _ in self._after:
            if at <= epoch:
                missing.discard(index)
        done = [(at, then) for missing, at, then in self._after if not missing]
        self._after = [a for a in self._after if a[0]]
        sends = [send for at, then in done for send in then(self._troubles.get(at, ""))]
        self._troubles = {at: why for at, why in self._troubles.items() if at in {a for _, a, _ in self._after}}
        return sends

    def _tell_shards(self, message: Message, then: Then) -> Sends:
        """A shard that is away learns all when it is back, and is waited for: workers may reach it meanwhile."""
        self._epoch += 1
        shards = {i: s.peer for i, s in enumerate(self._shards) if s.incarnation and i not in self._lost_shards}
        if not shards:
            return then("")
        self._after.append((set(shards), self._epoch, then))
        return [(peer, {**message, "epoch": self._epoch}) for peer in shards.values() if peer is not None]

    def _where(self, index: int) -> Message:
        s = self._shards[index]
        return {"index": index, "address": s.address, "public": s.public, "incarnation": s.incarnation, "down": s.peer is None}

    # ---- members --------------------------------------------------------------------------------------------------------
    def _worker_join(self, peer: Any, m: Message) -> Sends:
        """rank: the one it wants; None: any that is free; "new": one more, from the next barrier on.

        n:  of who asks again, since its connection was lost before it was answered: greater each time.
        """
        kind, public, wanted, n = str(m["kind"]), str(m["public"]), m.get("rank"), int(m.get("n", 0))
        if self.kind and kind != self.kind:
            raise FrameError(f"the job is dist_{self.kind}; this worker wants dist_{kind}")
        said = {r: w.said for r, w in self._workers.items() if w.public == public}
        if n < max([*said.values(), *(int(g.get("n", 0)) for _, g in self._growing if g["public"] == public)], default=0):
            return []
        again = next((r for r in said if not self._workers[r].gone), None)
        if again is not None:  # it asks again: the answer was lost
            self._workers[again].peer, self._workers[again].said = peer, n
            self._away_workers.discard(again)
            return self._tell_members(lambda _: [*self._tell_gone(), (peer, self._joined(again, m))])
        if wanted == "new" or (isinstance(wanted, int) and wanted in self._workers and self._workers[wanted].gone == "out"):
            self._growing = [(p, g) for p, g in self._growing if g["public"] != public] + [(peer, m)]
            return []
        free = [r for r, w in self._workers.items() if w.peer is None and w.gone != "out" and (wanted is None or r == wanted)]
        if not free:
            who = f"all {len(self._workers)} workers are" if wanted is None else f"worker {wanted} is"
            raise FrameError(f"{who} here already")
        self.kind = kind
        self._let_in(free[0], peer, m)
        return self._tell_members(lambda _: [*self._tell_gone(), (peer, self._joined(free[0], m))])  # it knows, when it is in

    def _let_in(self, rank: int, peer: Any, m: Message) -> None:
        before = self._workers.get(rank, _Worker())
        self._workers[rank] = _Worker(peer, before.incarnation + 1, str(m["public"]), was=before.gone, known_at=self._epoch + 1,
                                      said=int(m.get("n", 0)))
        self._away_workers.discard(rank)
        self._generation += 1
        self.changed = True

    def _joined(self, rank: int, m: Message) -> Message:
        return {"id": m.get("id"), "rank": rank, "incarnation": self._workers[rank].incarnation, "ranks": self._ranks(),
                "policy": self.policy, "shards": [self._where(i) for i in range(len(self._shards))]}

    def _worker_back(self, peer: Any, m: Message) -> Sends:
        """A worker whose connection was lost, by a restart of this process or otherwise. dead: the others were told so."""
        rank = int(m["rank"])
        w = self._workers[rank]
        if (w.incarnation, w.public) != (int(m["incarnation"]), m["public"]) or (w.gone and (
                w.gone != "died" or self.policy == "shrink")):
            raise FrameError(f"worker {rank} was taken for dead, and is not waited for any more")
        if int(m["id"]) < w.said:
            return []
        w.said = int(m["id"])
        w.peer, w.gone, w.was, w.known_at = peer, "", w.gone or w.was, self._epoch + 1
        self._away_workers.discard(rank)
        self._generation += 1
        self.changed = True

        def here(_: str) -> Sends:  # said as it is then: it may change until the shards have said ack
            return [*self._tell_gone(), (peer, {"id": m.get("id"), "dead": w.was_dead,
                                                "shards": [self._where(i) for i in range(len(self._shards))]})]

        return self._tell_members(here)

    def give_up(self) -> Sends:
        """What to send when shards and workers that were here before a restart have had time enough to come back."""
        out: Sends = []
        for rank in sorted(self._away_workers):
            out += self._away(rank, "died")
        for index in sorted(self._away_shards):
            self._lost_shards.add(index)
            out += self._acked(index, self._epoch) + self._tell_workers({"op": "shard", "index": index, "down": True})
            out += self._go_on(index)
        self._away_workers.clear()
        return out

    def _worker_leave(self, peer: Any, m: Message) -> Sends:
        """well: whether all was done; else whoever started the process may say so yet."""
        rank = self._own_rank(peer)
        return [(peer, {"id": m.get("id")})] + self._away(rank, "left" if m.get("well", True) else "ended")

    def _worker_ended(self, peer: Any, m: Message) -> Sends:
        """Whoever started the process of a rank says that it has ended, and well: nobody waits for it."""
        rank, answer = int(m["rank"]), (peer, {"id": m.get("id")})
        return [answer] if self._workers[rank].gone in ("left", "out") else [*self._away(rank, "left"), answer]

    def _away(self, rank: int, why: str) -> Sends:
        w = self._workers[rank]
        w.peer, w.gone, w.was_dead = None, why, True
        self._generation += 1
        self.changed = True
        self._at_barrier.pop(rank, None)
        self._waiting = [(r, m) for r, m in self._waiting if r != rank]
        return self._tell_gone() + self._tell_members(lambda _: []) + self._succeed() + self._release()

    def _first(self) -> int:
        """The rank whose values and optimizer win: the lowest that has not left. A replacement of the dead may come."""
        return next((r for r in self._ranks() if self._workers[r].gone != "left"), self._ranks()[0])

    def _succeed(self) -> Sends:
        """Who has become the first, and waits for another to give keys their values, is to do that itself."""
        first = self._first()
        mine = [m for r, m in self._waiting if r == first and m["op"] == "init" and "big" in m]
        self._waiting = [w for w in self._waiting if w[1] not in mine]
        peer = self._workers[first].peer
        return [send for m in mine for send in self.receive(peer, "worker", m)]

    def _tell_members(self, then: Then) -> Sends:
        return self._tell_shards({"op": "members", "kind": self.kind, "members": self._members()}, then)

    def _members(self) -> Message:
        return {"generation": self._generation,
                "ranks": {str(r): self._workers[r].incarnation for r in self._ranks()},
                "gone": self._gone(),
                "public": {w.public: r for r, w in self._workers.items() if w.public and not w.gone}}

    def _tell_workers(self, message: Message) -> Sends:
        return [(w.peer, message) for w in self._workers.values() if w.peer is not None]

    def _tell_gone(self) -> Sends:
        """Who is away, to workers. Who is back is away until shards know: what is pushed because of the news is not refused."""
        shards_learn = {at for _, at, _ in self._after}
        returning = {str(r): w.was for r, w in self._workers.items() if w.was not in ("", "out") and w.known_at in shards_learn}
        return self._tell_workers({"op": "gone", "gone": returning | self._gone(), "generation": self._generation})

    def _gone(self) -> dict[str, str]:
        return {str(r): w.gone for r, w in self._workers.items() if w.gone not in ("", "out")}

    def _ranks(self) -> list[int]:
        """The members, by number."""
        return sorted(r for r, w in self._workers.items() if w.gone != "out")

    def _rank_of(self, peer: Any) -> int | None:
        return next((r for r, w in self._workers.items() if w.peer == peer and peer is not None), None)

    def _own_rank(self, peer: Any) -> int:
        rank = self._rank_of(peer)
        if rank is None:
            raise _UnknownError("this worker has not joined, or was taken for dead")
        return rank

    # ---- keys -----------------------------------------------------------------------------------------------------------
    def _worker_init(self, peer: Any, m: Message) -> Sends:
        rank = self._own_rank(peer)
        if rank != self._first():
            keys = [[str(k[0]), [int(n) for n in k[1]], str(k[2])] for k in m["keys"]]
            self._waiting.append((rank, {"op": "init", "id": m.get("id"), "keys": keys, "big": m["big"]}))
            return self._release()
        for k in m["keys"]:
            self._compare(rank, k)
        taken = set(self._numbers)
        fresh = [self._new_key(k[0], k[1], k[2], int(m["big"]), taken) for k in m["keys"] if k[0] not in self._keys]
        for e in fresh:
            self._keys[e.key], self._numbers[e.id] = e, e.key
            self.changed = True
        empty = [e.public() for k in m["keys"] if not (e := self._keys[k[0]]).filled]
        answer = {"id": m.get("id"), "first": True, "fill": empty, "keys": [self._keys[k[0]].public() for k in m["keys"]]}
        if not fresh:
            return [(peer, answer)]

        def made(why: str) -> Sends:
            if not why:
                return [(peer, answer)]
            for e in fresh:
                del self._keys[e.key], self._numbers[e.id]
                for shard, start, stop in e.parts:
                    self._loads[shard] -= (stop - start) * np.dtype(e.dtype).itemsize
            self.changed = True
            names = {e.key for e in fresh}
            return [(peer, {"id": m.get("id"), "error": why}), *self._refuse_inits(
                why, lambda rank, keys: not names.isdisjoint(k[0] for k in keys))]

        return self._tell_shards({"op": "keys", "keys": [e.public() for e in fresh]}, made)

    def _refuse_other_shapes(self) -> Sends:
        """Whoever called init before rank 0 did is told now if it makes keys of other shapes."""
        out: Sends = []
        for rank, m in list(self._waiting):
            try:
                for k in m.get("keys", ()):
                    self._compare(rank, k)
            except FrameError as e:
                self._waiting.remove((rank, m))
                out.append((self._workers[rank].peer, {"id": m.get("id"), "error": str(e)}))
        return out

    def _compare(self, rank: int, key: list[Any]) -> None:
        """Raise FrameError where rank makes a key of another shape or dtype."""
        e = self._keys.get(key[0])
        if e is not None and len(key) > 1 and [list(key[1]), key[2]] != [e.shape, e.dtype]:
            raise FrameError(f"key {key[0][2:]!r} is {e.dtype}{e.shape} for rank {self._first()}, {key[2]}{list(key[1])} "
                             f"for rank {rank}")

    def _refuse_inits(self, why: str, concerned: Callable[[int, list[Any]], bool]) -> Sends:
        """Answer those that wait for each other in init with an error."""
        ended = [(r, m) for r, m in self._waiting if m["op"] == "init" and concerned(r, m["keys"])]
        self._waiting = [w for w in self._waiting if w not in ended]
        return [(self._workers[r].peer, {"id": m["id"], "error": why}) for r, m in ended]

    def _new_key(self, key: str, shape: list[int], dtype: str, big: int, taken: set[int]) -> _Entry:
        shape = [int(n) for n in shape]
        size, itemsize = math.prod(shape), np.dtype(dtype).itemsize
        if size < 0 or size >= 1 << 40 or key[:2] not in ("s:", "i:"):
            raise FrameError(f"key {key!r} of shape {shape} cannot be")
        n = number(key)
        while n in taken:  # two keys of one number: the later one takes the next that is free
            n = (n + 1) & 0x7FFFFFFF
        taken.add(n)
        parts = place(shape, itemsize, self._loads, big, self._whole)
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
        return {r for r, w in self._workers.items() if not w.gone or (w.gone in ("died", "ended") and self.policy == "wait")}

    def _worker_missing(self, peer: Any, m: Message) -> Sends:
        """For whom a request of kind `of` waits. why: which keys it is about."""
        needed, of, why = self._needed(), m["of"], ""
        ranks = {self._first()} if of == "optimizer" else set[int]()
        if of == "barrier" or of == "join":
            ranks = needed - self._at_barrier.keys()
        elif of in ("init", "filled"):
            called = {(r, k[0]) for r, w in self._waiting if w["op"] == "init" for k in w["keys"]}
            called |= {(r, e.key) for e in self._keys.values() for r in e.called}
            mine = self._own_rank(peer)
            lacking = {(r, key) for r in needed for rank, key in called if rank == mine and (r, key) not in called}
            ranks, why = {r for r, _ in lacking}, f": {self._who_inits(sorted(needed))}" if lacking else ""
        return [(peer, {"id": m.get("id"), "ranks": sorted(ranks), "why": why})]

    def _worker_forget(self, peer: Any, m: Message) -> Sends:
        """A request is not waited for any more."""
        rank = self._own_rank(peer)
        self._waiting = [w for w in self._waiting if w[0] != rank or w[1].get("id") != m["of"]]
        return [(peer, {"id": m.get("id")})]

    def _who_inits(self, ranks: list[int]) -> str:
        """Which worker waits in init, for which keys."""
        keys = {r: list(dict.fromkeys(k[0][2:] for rank, m in self._waiting if rank == r and m["op"] == "init"
                                      for k in m["keys"])) for r in ranks}
        common = set.intersection(*(set(k) for k in keys.values())) if keys else set()
        said = []
        for r, names in keys.items():
            names = [n for n in names if n not in common]
            where = "is at a barrier" if r in self._at_barrier else "is in no init"
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            said.append(f"worker {r} inits {', '.join(map(repr, names[:_NAMED]))}{more}" if names else f"worker {r} {where}")
        return "; ".join(said)

    def _at_odds(self) -> Sends:
        """Where all wait for each other because they make different keys, nobody ever comes: say so at once."""
        needed = self._needed()
        waiting = {r for r, _ in self._waiting} | self._at_barrier.keys()
        if self._first() not in needed or not needed <= waiting or all(m["op"] != "init" for _, m in self._waiting):
            return []
        return self._refuse_inits(f"workers wait for each other, because they make different keys: "
                                  f"{self._who_inits(sorted(needed))}. All must call init for the same keys, in the same order",
                                  lambda *_: True)

    def _release(self) -> Sends:
        """Answers to everything that need not wait any longer."""
        out = self._refuse_other_shapes()
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
                    self.changed = True  # until now all would ask again
                    out.append((peer, {"id": m.get("id"), "fill": [], "keys": [e.public() for e in entries if e is not None]}))
                    continue
            elif (n := self._workers[rank].optimizers) <= self._optimizers_there:
                out.append((peer, {"id": m.get("id"), **({"error": self._refused[n]} if n in self._refused else {})}))
                continue
            still.append((rank, m))
        self._waiting = still
        broken = self._broken()
        if broken:
            out += [(self._workers[rank].peer, {"id": m.get("id"), "error": broken})
                    for rank, messages in self._at_barrier.items() for m in messages]
            self._at_barrier = {}
        elif self._at_barrier and self._at_barrier.keys() >= needed:
            out += self._pass_barrier()
        return out + self._at_odds()

    def _pass_barrier(self) -> Sends:
        """All are here: members join and leave, then everybody goes on."""
        here, self._at_barrier = self._at_barrier, {}
        growing, self._growing = self._growing, []
        peers = {rank: self._workers[rank].peer for rank in here}
        self.changed = True
        for rank, messages in here.items():
            self._workers[rank].barriers = max(int(m.get("n", 0)) for m in messages)
        out = {rank for rank, messages in here.items() if any(m.get("leave") for m in messages)}
        out |= {r for r, w in self._workers.items() if w.gone == "died"} if self.policy == "shrink" else set()
        for rank in out:
            self._workers[rank].peer, self._workers[rank].gone = None, "out"
        joined: dict[int, tuple[Any, Message]] = {}
        for peer, m in growing:
            wanted = m.get("rank")
            rank = wanted if isinstance(wanted, int) and self._workers[wanted].gone == "out" else max(self._workers) + 1
            self._let_in(rank, peer, m)
            joined[rank] = peer, m

        def go_on(_: str) -> Sends:
            ranks = self._ranks()
            return [*((peers[rank], {"id": m.get("id"), "ranks": ranks}) for rank, messages in here.items() for m in messages),
                    *((peer, self._joined(rank, m)) for rank, (peer, m) in joined.items())]

        if not out and not joined:
            return go_on("")
        self._generation += 1
        return self._tell_members(go_on) + self._tell_gone()

    def _broken(self) -> str:
        dead = [r for r, w in self._workers.items() if w.gone == "died"]
        return f"barrier: worker {', '.join(map(str, dead))} died" if dead and self.policy == "fail" else ""

    def _worker_barrier(self, peer: Any, m: Message) -> Sends:
        """n: its how manieth it is, so that one that is asked for again is not another one. leave: it goes when it is passed."""
        rank = self._own_rank(peer)
        if 0 < int(m.get("n", 0)) <= self._workers[rank].barriers:
            return [(peer, {"id": m.get("id"), "ranks": self._ranks()})]
        self._at_barrier.setdefault(rank, []).append(m)
        return self._release()

    def _worker_optimizer(self, peer: Any, m: Message) -> Sends:
        """Rank 0's optimizer goes to the shards; the others' calls wait for it. A replacement's call finds it there."""
        rank = self._own_rank(peer)
        w = self._workers[rank]
        w.optimizers = int(m.get("n", w.optimizers + 1))
        if rank != self._first() or w.optimizers <= len(self._optimizers):
            self._waiting.append((rank, {"op": "optimizer", "id": m.get("id")}))
            return self._release()
        spec = m["spec"]
        self._whole = self._whole or not spec.get("elementwise", True)
        split = [e.key[2:] for e in self._keys.values() if len(e.parts) > 1]
        if self._whole and split:
            w.optimizers -= 1
            raise FrameError(f"{spec.get('name')} takes norms of whole values, and key {split[0]!r} is split over servers. Call "
                             f"set_optimizer before init")

        self._optimizers.append(spec)
        self.changed = True
        count = len(self._optimizers)

        def known(why: str) -> Sends:
            self._optimizers_there = max(self._optimizers_there, count)
            if why:  # nor shall shards that start later be told of it
                self._optimizers[count - 1] = self._optimizers[count - 2] if count > 1 else None
                self._refused[count], self.changed = why, True
            return [(peer, {"id": m.get("id"), **({"error": why} if why else {})}), *self._release()]

        return self._tell_shards({"op": "optimizer", **self._optimizer()}, known)

    def _worker_info(self, peer: Any, m: Message) -> Sends:
        return [(peer, {"id": m.get("id"), "members": {k: v for k, v in self._members().items() if k != "public"},
                        "shards": [self._where(i) for i in range(len(self._shards))], "keys": len(self._keys),
                        "growing": len(self._growing)})]

    # ---- outliving this process -----------------------------------------------------------------------------------------
    def state(self) -> Message:
        """All that must not be lost, as JSON values."""
        self.changed = False
        return {"kind": self.kind, "loads": self._loads, "optimizers": self._optimizers, "whole": self._whole,
                "generation": self._generation, "epoch": self._epoch,
                "workers": [[r, w.incarnation, w.public, w.gone, w.optimizers, w.barriers, w.was_dead]
                            for r, w in self._workers.items()],
                "shards": [[s.address, s.public, s.incarnation] for s in self._shards],
                "keys": [{**e.public(), "filled": e.filled, "called": sorted(e.called)} for e in self._keys.values()]}

    def resume(self, state: Message) -> None:
        """Go on from `state()`: nobody is connected, and those that were here are expected back."""
        self.kind, self._loads, self._optimizers, self._whole = (state[n] for n in ("kind", "loads", "optimizers", "whole"))
        self._generation, self._epoch = state["generation"], state["epoch"]
        self._optimizers_there = len(self._optimizers)  # or will have, before anybody is answered
        self._workers = {r: _Worker(None, *rest) for r, *rest in state["workers"]}
        self._shards = [_Shard(None, *rest) for rest in state["shards"]]
        self._keys = {e["key"]: _Entry(**{**e, "called": set(e["called"])}) for e in state["keys"]}
        self._numbers = {e.id: e.key for e in self._keys.values()}
        self._away_shards = {i for i, s in enumerate(self._shards) if s.incarnation}
        self._away_workers = {r for r, w in self._workers.items() if w.incarnation and not w.gone}
