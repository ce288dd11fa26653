"""Control: one worker's connection to the coordinator. Requests and their answers, and what it tells unasked.

When the connection is lost, libzmq makes another one, on which the worker says that it is back; what is not answered is asked
again. libzmq may be faster than the news of the loss: what is asked then is refused, since nobody knows whose the connection is.
A worker that has not joined yet asks to join once more, with a greater number.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

import zmq

from ...errors import KVStoreError
from ..wire import sockets
from ..wire.frame import pack, unpack

if TYPE_CHECKING:
    from .client import Client

_LARGEST = 64 << 20  # bytes of a message
_SAYS_WITHIN = 2.0  # seconds for the coordinator to say for whom a request has waited
_log = logging.getLogger(__name__)


class _Request(NamedTuple):
    """message: what is asked; empty for being back, which nobody waits for."""

    message: dict[str, Any]
    answer: Future[dict[str, Any]]


class Control:
    """job: what the job's key file says. `request` may be called by any thread, the rest by who may use the client's sockets.

    lost:    since when (time.monotonic) there is no coordinator; None: it is there.
    within:  seconds it may be away before requests are errors.
    gone:    ranks that are away, and why.    ranks: those that take part, since the last barrier.
    over:    why this worker is none any more: it was taken for dead, and not waited for.
    shards:  what was said of each server last.
    """

    def __init__(self, client: Client, job: dict[str, Any]):
        self.client, self.job = client, job
        self.lost: float | None = None
        self.within = 60.0
        self.gone: dict[int, str] = {}
        self._generation = 0  # of what `gone` says
        self._refused: tuple[int, dict[int, str]] = 0, {}  # the last generation of which a refusal told; who was away
        self.over: KVStoreError | None = None
        self.shards: dict[int, dict[str, Any]] = {}
        self.ranks: list[int] = []
        self._me: dict[str, Any] | None = None  # who this is, once it has joined
        self._ids = itertools.count(1)
        self._asked: dict[int, _Request] = {}
        self._connect()

    def _connect(self) -> None:
        job = self.job
        self.socket = sockets.connect(self.client._context, sockets.Keys(job["public"], job["secret"]), job["server"],
                                      job["address"], _LARGEST)
        self._watch = sockets.Watch(self.socket)
        for fd in self._fds():
            self.client.watch(fd)

    def _fds(self) -> tuple[int, int]:
        return self.socket.fd, self._watch.socket.fd  # type: ignore[return-value]

    def close(self) -> None:
        """Close the sockets."""
        for fd in self._fds():
            self.client.unwatch(fd)
        self._watch.close()
        self.socket.close(0)

    # ---- asking ---------------------------------------------------------------------------------------------------------
    def request(self, op: str, within: float, **fields: Any) -> dict[str, Any]:
        """Ask and wait. Raises KVStoreError if it is refused, or there is no answer in time. Long waits are reported."""
        called = "init" if op == "filled" else op  # what the caller knows of
        ask = _Request({"op": op, "id": next(self._ids), **fields}, Future())
        self.client._hand(lambda: self._ask(ask))
        end = time.monotonic() + within
        while not _done(ask.answer, min(self.client.stall, end - time.monotonic())):
            if time.monotonic() >= end:
                why = self._waits_for(op) or "the coordinator's answer did not come"
                self._forget(ask)
                raise KVStoreError(f"KVStore: {called}: {why} within {within:.0f} s. TRITIUM_KV_TIMEOUT sets the limit.")
            self.client._hand(lambda: self._report(op))
        m = ask.answer.result()
        if "error" in m:
            raise KVStoreError(f"KVStore.{called}: {m['error'].rstrip('.')}.")
        if op in ("join", "barrier"):
            self.ranks = m["ranks"]
        return m

    def _ask(self, ask: _Request) -> None:
        if self.over is not None or self._watch.refused:
            ask.answer.set_exception(self.over or _none())
            return
        self._asked[ask.message["id"]] = ask
        if self.lost is None:
            self._send(ask.message)

    def _send(self, message: dict[str, Any]) -> None:
        self.client.stirred = True
        with contextlib.suppress(zmq.Again):  # refused, and libzmq tries no more: `_watch` will tell
            self.socket.send(pack(message), zmq.NOBLOCK)

    def _forget(self, ask: _Request) -> None:
        """Withdraw a request. Returns when the coordinator knows, or is silent: what others ask next must not meet it."""
        told = _Request({"op": "forget", "id": next(self._ids), "of": ask.message["id"]}, Future())
        self.client._hand(lambda: self._ask(told))
        _done(told.answer, _SAYS_WITHIN)

    def _waits_for(self, op: str) -> str:
        """For whom a request has waited; the empty string if the coordinator does not say."""
        ask = _Request({"op": "missing", "id": next(self._ids), "of": op}, Future())
        self.client._hand(lambda: self._ask(ask))
        if not _done(ask.answer, _SAYS_WITHIN) or ask.answer.exception() is not None:
            return ""
        m = ask.answer.result()
        return f"worker {', '.join(map(str, m['ranks']))} did not come{m.get('why', '')}" if m.get("ranks") else ""

    def _report(self, op: str) -> None:
        """Say for whom a request waits."""
        answer: Future[dict[str, Any]] = Future()

        me = f"worker {self._me['rank']}" if self._me is not None else "a worker that joins"

        def tell(f: Future[dict[str, Any]]) -> None:
            if f.exception() is None and "ranks" in f.result():
                _log.warning("kvstore: %s: %s waits for workers %s%s", me, op, f.result()["ranks"], f.result().get("why", ""))

        if self.lost is not None:
            _log.warning("kvstore: %s: %s waits for the coordinator, which is away", me, op)
            return
        answer.add_done_callback(tell)
        self._ask(_Request({"op": "missing", "id": next(self._ids), "of": op}, answer))

    # ---- hearing ----------------------------------------------------------------------------------------------------------
    def news(self) -> bool:
        """Whether there is something to receive."""
        return sockets.readable(self.socket)

    def turn(self) -> None:
        """Take what has come."""
        for (frame,) in sockets.receive(self.socket):
            self._hear(unpack(frame.buffer))
        if list(self._watch.lost()):
            self._lose()

    def check(self, now: float) -> None:
        """End what waits for a coordinator that has been away too long."""
        if self.lost is not None and now - self.lost > self.within:
            self.fail(_none())

    def fail(self, error: KVStoreError) -> None:
        """End all that is asked with error."""
        asked = self._asked
        self._asked = {n: a for n, a in asked.items() if not a.message}
        for ask in asked.values():
            if ask.message:
                ask.answer.set_exception(error)

    def _hear(self, m: dict[str, Any]) -> None:
        if m.get("unknown") and self._me is not None:
            if self.lost is None:
                self._lose()
            return
        ask = self._asked.pop(m["id"], None) if m.get("id") is not None else None
        for where in m.get("shards", ()):
            self.shards[where["index"]] = where
        if ask is not None:
            if ask.message.get("op") == "join" and "error" not in m:
                self._me = {"rank": m["rank"], "incarnation": m["incarnation"], "public": ask.message["public"]}
            ask.answer.set_result(m)
        elif m.get("op") == "gone":
            older = m["generation"] < self._refused[0]
            self.gone = {int(r): why for r, why in m["gone"].items()} | (self._refused[1] if older else {})
            self._generation = m["generation"]
        elif m.get("op") == "shard":
            self.shards[m["index"]] = m
            if m["index"] < len(self.client.links):
                self.client.links[m["index"]].where(m)

    def heard_of(self, gone: Mapping[int, str], generation: int) -> None:
        """A server says that ranks are away, which it may have learned sooner: who waits for them to be back must know."""
        if generation > self._generation:
            self.gone = {**self.gone, **gone}
            if gone and generation >= self._refused[0]:
                self._refused = generation, dict(gone)

    def _lose(self) -> None:
        """Transfers go on; whoever waits for the coordinator waits until it is back."""
        if self._me is None:
            self._ask_anew()
            return
        self.lost = self.lost or time.monotonic()
        back: Future[dict[str, Any]] = Future()
        back.add_done_callback(self._is_back)
        number = next(self._ids)
        asked, self._asked = self._asked, {number: _Request({}, back)}
        self._asked.update((n, a) for n, a in asked.items() if a.message)  # all but an earlier attempt to be back
        self._send({"op": "back", "id": number, **self._me})

    def _ask_anew(self) -> None:
        """Who has not joined has nobody to be back as."""
        if self._watch.refused:
            self.fail(_none())
        for ask in self._asked.values():
            self._send({**ask.message, "n": next(self._ids)})

    def _is_back(self, answer: Future[dict[str, Any]]) -> None:
        m = answer.result()
        if "error" in m:
            self.over = KVStoreError(f"KVStore: {m['error']}.")
            self.fail(self.over)
            for link in self.client.links:
                link.end(self.over)
            return
        self.lost = None
        for link, where in zip(self.client.links, m["shards"]):  # of those that are made already
            link.where(where, anew=m["dead"])  # servers have dropped what they had of the dead
        for ask in self._asked.values():
            self._send(ask.message)


def _done(future: Future[Any], within: float) -> bool:
    try:
        future.exception(max(within, 0))
    except TimeoutError:
        return False
    return True


def _none() -> KVStoreError:
    return KVStoreError("KVStore: the job's coordinator is gone, or refuses this worker's key. Transfers under way go on; "
                        "joining, leaving, init and barriers need it.")
