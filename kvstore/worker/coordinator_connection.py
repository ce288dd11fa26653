"""CoordinatorConnection: a worker's connection to the coordinator. Requests and their answers, and news.

When the connection is lost, the worker makes another one, on which it says that it is "back" and sends its unanswered requests
again. A worker that has not joined yet sends its join request again, with a greater number.
"""

from __future__ import annotations

import itertools
import logging
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import KVStoreError
from ..wire import sockets
from ..wire.frame import pack, unpack
from ..wire.stream import Stream

if TYPE_CHECKING:
    from .client import Client

_DIAGNOSIS_TIMEOUT = 2.0  # seconds for the coordinator to say which workers a request has waited for
_log = logging.getLogger(__name__)


class _Request(NamedTuple):
    message: dict[str, Any]
    answer: Future[dict[str, Any]]


class CoordinatorConnection:
    """`request` may be called by any thread, the other methods where the loop's sockets may be used.

    lost_since:  time.monotonic() at which the coordinator was lost; None: it is connected.
    patience:    seconds that it may be away before requests fail.
    gone:        {rank: why} of the workers that are away.
    ranks:       the members, as of the last barrier.
    lost:        the error that ends every request; None: the job can be used. This worker was declared dead, and the job did not
                 wait for it; or one end rejects the certificate of the other; or the store is closed.
    locations:   the last location of each server, as the coordinator describes it.
    """

    busy = False  # its requests do not keep those to servers waiting

    def __init__(self, client: Client):
        self._client = client
        self.lost_since: float | None = None
        self.patience = 60.0
        self.gone: dict[int, str] = {}
        self._generation = 0  # of `gone`
        self.lost: KVStoreError | None = None
        self.locations: dict[int, dict[str, Any]] = {}
        self.ranks: list[int] = []
        self._identity: dict[str, Any] | None = None  # of this worker, after it has joined
        self._ids = itertools.count(1)
        self._requests: dict[int, _Request] = {}  # by their numbers: those that are not answered
        self._report = 0  # number of the report of being back that is not answered; 0: none
        self.stream: Stream | None = None
        client.loop.connections.append(self)
        client.loop.call_soon(self._connect)

    def _connect(self) -> None:
        try:
            self.stream = sockets.connect_to_coordinator(
                self._client.loop.poller, self._client.job, on_end=self._on_lost,
                on_message=lambda _, payload: self.handle(unpack(payload)))
        except OSError as e:
            self._on_lost(e)

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    # ---- requests -------------------------------------------------------------------------------------------------------
    def request(self, op: str, timeout: float, **fields: Any) -> dict[str, Any]:
        """Send a request and wait. Raises KVStoreError for a rejection or a timeout. Long waits are reported."""
        name = "init" if op == "filled" else op  # the caller knows only init
        request = self._start(op, **fields)
        end = time.monotonic() + timeout
        while not wait([request.answer], min(self._client.stall, end - time.monotonic())).done:
            ranks, why = self._missing(op) if self.lost_since is None else ([], "")
            if time.monotonic() >= end:
                # the confirmation is waited for, so that later requests of others do not meet the withdrawn one
                wait([self._start("forget", of=request.message["id"]).answer], _DIAGNOSIS_TIMEOUT)
                why = f"worker {', '.join(map(str, ranks))} did not arrive{why}" if ranks else "the coordinator did not answer"
                raise KVStoreError(f"KVStore: {name}: {why} within {timeout:.0f} s. TRITIUM_KV_TIMEOUT sets the limit.")
            _log.warning("kvstore: %s: %s waits for %s%s",
                         f"worker {self._identity['rank']}" if self._identity is not None else "a joining worker", op,
                         f"workers {ranks}" if self.lost_since is None else "the coordinator, which is away", why)
        m = request.answer.result()
        if "error" in m:
            raise KVStoreError(f"KVStore.{name}: {m['error'].rstrip('.')}.")
        if op in ("join", "barrier"):
            self.ranks = m["ranks"]
        return m

    def _start(self, op: str, **fields: Any) -> _Request:
        request = _Request({"op": op, "id": next(self._ids), **fields}, Future())
        self._client.loop.call_soon(lambda: self.send(request))
        return request

    def send(self, request: _Request) -> None:
        """Send a request, now or when the coordinator is back."""
        if self.lost is not None:
            request.answer.set_exception(self.lost)
            return
        self._requests[request.message["id"]] = request
        if self.lost_since is None:
            self._send(request.message)

    def _send(self, message: dict[str, Any]) -> None:
        if self.stream is not None:
            self.stream.put(b"", pack(message))

    def _missing(self, op: str) -> tuple[list[int], str]:
        """Return the workers that a request waits for, and why; none if the coordinator does not say."""
        answer = self._start("missing", of=op).answer
        if not wait([answer], _DIAGNOSIS_TIMEOUT).done or answer.exception() is not None:
            return [], ""
        m = answer.result()
        return m.get("ranks", []), m.get("why", "")

    # ---- messages of the coordinator ------------------------------------------------------------------------------------
    def flush(self) -> None: ...  # messages are sent at once

    def check(self, now: float) -> None:
        """Connect again if the connection was lost. Fail all requests if the coordinator has been away too long."""
        if self.stream is None and self.lost is None:
            self._connect()
            if self.stream is not None:
                self._introduce()
        if self.lost_since is not None and now - self.lost_since > self.patience:
            self._fail(_unreachable())

    def _fail(self, error: KVStoreError) -> None:
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.answer.set_exception(error)

    def end(self, error: KVStoreError) -> None:
        """Fail all requests with error, now and from now on."""
        self.lost = self.lost or error
        self._fail(error)

    def handle(self, m: dict[str, Any]) -> None:
        request = self._requests.pop(m["id"], None) if m.get("id") is not None else None
        for location in m.get("shards", ()):
            self.locations[location["index"]] = location
        if self._report and m.get("id") == self._report:
            self._on_returned(m)
        elif request is not None:
            if request.message.get("op") == "join" and "error" not in m:
                self._identity = {"rank": m["rank"], "incarnation": m["incarnation"], "public": request.message["public"]}
            request.answer.set_result(m)
        elif m.get("op") == "gone" and m["generation"] >= self._generation:  # otherwise a newer one follows
            self.gone, self._generation = {int(r): why for r, why in m["gone"].items()}, m["generation"]
        elif m.get("op") == "shard":
            self.locations[m["index"]] = m
            for server in self._client.servers:
                if server.index == m["index"]:
                    server.moved()

    def learn_gone(self, gone: Mapping[int, str], generation: int) -> None:
        """Add ranks that a server's rejection reports as gone. A server may know of a death before this worker does.

        A program that waits until no worker is dead must see such a death at once.
        """
        if gone and generation > self._generation:
            self.gone, self._generation = {**self.gone, **gone}, generation

    def _on_lost(self, error: OSError) -> None:
        """Note the end of the connection. Transfers with servers continue; requests wait until `check` connects again."""
        self.stream = None
        if self._identity is not None:
            self.lost_since = self.lost_since or time.monotonic()
        elif isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            self.end(_unreachable())

    def _introduce(self) -> None:
        """Report back on a new connection, or ask again to join."""
        if self._identity is None:
            for request in self._requests.values():
                self._send({**request.message, "n": next(self._ids)})
            return
        self._report = next(self._ids)
        self._send({"op": "back", "id": self._report, **self._identity})

    def _on_returned(self, m: dict[str, Any]) -> None:
        self._report = 0
        if "error" in m:
            error = KVStoreError(f"KVStore: {m['error']}.")
            for ended in (self, *self._client.servers):
                ended.end(error)
            return
        self.lost_since = None
        for server in self._client.servers:
            server.moved(reconnect=m["dead"])
        for request in self._requests.values():
            self._send(request.message)


def _unreachable() -> KVStoreError:
    return KVStoreError("KVStore: the job's coordinator cannot be reached, or rejects this worker's credentials. Transfers in "
                        "flight continue; join, leave, init and barrier need it.")
