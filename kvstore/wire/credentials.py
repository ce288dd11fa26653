"""Credentials of the processes of a job, and the files that hold them.

Every process has a name that others know, `public`, and proves it when it connects. On one host `public` is the SHA-256 of a
secret; between machines it is the fingerprint of a certificate (certificates.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from ...atomic_file import write_atomic
from ...errors import KVStoreError
from . import certificates

SECRET_BYTES = 32


class Credentials(NamedTuple):
    """A process's name and its proof. secret: hexadecimal text, or the key of the certificate; both of them as PEM."""

    public: str
    secret: str
    certificate: str = ""

    @staticmethod
    def new(authority: certificates.Authority | None) -> Credentials:
        """Return new credentials: with a certificate of the job's authority, or a secret for one host if there is none."""
        if authority is not None:
            return Credentials(*certificates.issue(authority))
        secret = secrets.token_bytes(SECRET_BYTES)
        return Credentials(public_of(secret), secret.hex())

    def tls(self, authority: str, server: bool) -> Any:
        """Return the context of connections that accept the certificates of an authority only."""
        return certificates.context(self.certificate, self.secret, authority, server)


def public_of(secret: bytes) -> str:
    """Return the public name of the owner of a secret."""
    return hashlib.sha256(secret).hexdigest()


def write_secret(path: Path, content: dict[str, Any]) -> None:
    """Write JSON that only this user can read. A reader never sees a partly written file."""
    write_atomic(path, json.dumps(content), mode=0o600, sync=False)


def read_secret(path: Path) -> dict[str, Any]:
    """Return the content of a file from `write_secret`. Raises KVStoreError if others can read it, or it is missing or
    invalid."""
    try:
        status = path.stat()
        if status.st_mode & 0o077 or status.st_uid != os.getuid():
            raise KVStoreError(f"{path}: the keys of a job must be readable by this user alone: mode {status.st_mode & 0o777:o}. "
                               f"Run chmod 600 on it.")
        content = json.loads(path.read_text())
    except (OSError, ValueError) as e:
        raise KVStoreError(f"{path}: the keys of the job cannot be read: {e}. Start workers with `tritium launch`.") from e
    if not isinstance(content, dict):
        raise KVStoreError(f"{path}: not a job file: JSON of a {type(content).__name__}, not an object.")
    return content
