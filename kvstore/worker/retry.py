"""Retry: when a worker connects to a server again, and when it reports or gives up what it waits for."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from ...errors import KVStoreError
from ..wire.frame import FrameType, Record
from .requests import Push, Request

if TYPE_CHECKING:
    from .client import Client
    from .remote_server import RemoteServer

_GROUP_DEADLINE = 1.0  # seconds after which a push is abandoned because another one of its call has failed
_log = logging.getLogger(__name__)


class Retry:
    """The deadlines of the requests to one server."""

    def __init__(self, client: Client, server: RemoteServer):
        self._client, self._server, self._warned = client, server, 0.0

    def check(self, now: float) -> None:
        """Connect again if there is no connection. Report requests that take long, and end those that take too long."""
        client, server = self._client, self._server
        if server.connection.stream is None and server.lost is None and not server.location["down"]:
            server.reconnect()
        failing = [(p, p.group.failing[1]) for p in server.session.sent
                   if p.group.failing is not None and now - p.group.failing[0] > _GROUP_DEADLINE]
        if failing:  # the caller can repeat the rejected pushes of the group only when these have ended
            self._abandon(failing)
        requests = [*server.session.sent, *server.queue.sent_pulls, *server.queue.waiting]
        if not requests:
            return
        timeouts, waited = client.timeouts, now - min(r.started for r in requests)
        if waited > timeouts.stall and now - self._warned > timeouts.stall:
            self._warned = now
            keys = ", ".join(f"key {client.name_of(r.key)} round {r.round}" for r in requests[:5])
            _log.warning("kvstore: worker %d has waited %.0f s for server %d: %s%s", client.rank, waited, server.index, keys,
                         "" if server.ready else "; the server is away")
            self._log_missing([r for r in requests if isinstance(r, Push) or client.kind == "async"][:5])
        if waited > timeouts.timeout:
            error = KVStoreError(f"KVStore: worker {client.rank}: server {server.index} did not answer for key "
                                 f"{client.name_of(requests[0].key)} within {timeouts.timeout:.0f} s. TRITIUM_KV_TIMEOUT sets "
                                 f"the limit.")
            self._abandon([(r, error) for r in requests if isinstance(r, Push)])
            server.fail(error)

    def _abandon(self, pushes: Sequence[tuple[Push, BaseException]]) -> None:
        """Fail pushes whose outcome is unknown. The next handshake, on a new connection, shows which of them were applied."""
        server = self._server
        server.session.abandon([p for p, _ in pushes])
        for p, error in pushes:
            if p in server.queue.waiting:
                server.queue.waiting.remove(p)
            p.end(error)
        if server.connection.stream is not None:
            server.reconnect()

    def _log_missing(self, requests: Sequence[Request]) -> None:
        """Log which workers the rounds of requests wait for."""
        if not self._server.ready or not requests:
            return
        future: Future[list[Any]] = Future()
        names = {f"{r.key}.{r.index}": self._client.name_of(r.key) for r in requests}

        def log(answer: Future[list[Any]]) -> None:
            if answer.exception() is None:
                for name, (n, ranks) in json.loads(answer.result()[0][1]).items():
                    _log.warning("kvstore: key %s round %d waits for workers %s", names.get(name), n, ranks)

        future.add_done_callback(log)
        self._server.ask(FrameType.MISSING, [Record(*r.name, 0, 0, 0) for r in requests], b"", future)
