"""Credentials of the processes of a job, and the files that hold them.

Every process has a name that others know, `public`, and proves it when it connects. On one host `public` is the SHA-256 of a
secret; between machines it is the fingerprint of a certificate for TLS 1.3. Each job has an authority of its own, made at its
start and forgotten at its end, and each process a certificate of it. So a stranger, or a process of another job, fails in the
handshake. A certificate that is accepted there is then compared with the fingerprints that are expected of this peer. The keys
exist in memory and in the job files only. Source: RFC 5280, RFC 8446.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import secrets
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...atomic_file import write_atomic
from ...errors import KVStoreError

SECRET_BYTES = 32
_NAME = "tritium job"
_FROM, _TO = datetime.datetime(2000, 1, 1), datetime.datetime(2200, 1, 1)  # clocks differ; the keys end with their job


class Credentials(NamedTuple):
    """The name of a process, or of a job's authority, and its proof.

    secret:     hexadecimal text, or the key of the certificate, as PEM.
    authority:  certificate of the job's authority, which other processes must show certificates of; "" on one host.
    """

    public: str
    secret: str
    certificate: str = ""
    authority: str = ""

    @staticmethod
    def new(authority: Sequence[str] | None) -> Credentials:
        """Return new credentials: with a certificate of the job's authority, or a secret for one host if there is none."""
        if authority is not None:
            return _make(Credentials(*authority))
        secret = secrets.token_bytes(SECRET_BYTES)
        return Credentials(public_of(secret), secret.hex())

    def tls(self, server: bool) -> ssl.SSLContext:
        """Return a context for TLS 1.3, in which both ends must show certificates of the authority."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.check_hostname, made.verify_mode = False, ssl.CERT_REQUIRED
        made.load_verify_locations(cadata=self.authority)
        if server:
            made.num_tickets = 0
        file = os.memfd_create("certificate", os.MFD_CLOEXEC)  # the module reads keys from files only; this one has no name
        try:
            os.write(file, (self.certificate + self.secret).encode())
            made.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
        return made


def public_of(proof: bytes) -> str:
    """Return the public name of the process with a secret or a certificate."""
    return hashlib.sha256(proof).hexdigest()


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


def new_authority() -> Credentials:
    """Return a new authority. Raises KVStoreError if the package `cryptography` is missing."""
    return _make(None)


def _make(authority: Credentials | None) -> Credentials:
    """Return credentials with a new certificate. authority: its issuer; None: itself."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as e:
        raise KVStoreError('KVStore: connections between machines need certificates, and the package cryptography is not '
                           'installed. pip install "tritium[dist]".') from e

    def name(text: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    key: Any = ec.generate_private_key(ec.SECP256R1())
    signer: Any = key if authority is None else serialization.load_pem_private_key(authority.secret.encode(), None)
    serial = x509.random_serial_number()
    subject = name(_NAME if authority is None else f"{_NAME} {serial:x}"[:64])
    made = (x509.CertificateBuilder().subject_name(subject).issuer_name(name(_NAME)).public_key(key.public_key())
            .serial_number(serial).not_valid_before(_FROM).not_valid_after(_TO)
            .add_extension(x509.BasicConstraints(ca=authority is None, path_length=0 if authority is None else None), True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False)
            .sign(signer, hashes.SHA256()))
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    return Credentials(public_of(made.public_bytes(serialization.Encoding.DER)), secret, made.public_bytes(pem).decode(),
                       "" if authority is None else authority.certificate)
