"""`mx.kvstore.kvstore_server`: MXNet's process that holds keys. Here `tritium launch` starts servers."""

from __future__ import annotations

from typing import Any

from ...errors import NotAvailableError


class KVStoreServer:
    """A server of a distributed store. Not available: raises NotAvailableError that says how servers start here."""

    def __init__(self, kvstore: Any):
        raise NotAvailableError("KVStoreServer: a script does not become a server here. `tritium launch -n WORKERS -s SERVERS "
                                "python SCRIPT` starts the servers beside the workers: see docs/kvstore.md.")
