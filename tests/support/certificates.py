"""Certificates for tests of TLS, made in a moment: a CA, certificates of servers and clients, and wrong ones."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, NamedTuple

from cryptography.hazmat.primitives import serialization

if TYPE_CHECKING:
    from pathlib import Path

    import trustme

__all__ = ["DAY", "Pair", "ca_file", "encrypted", "pair", "write_key"]

DAY = 86_400.0


class Pair(NamedTuple):
    certificate: Path
    key: Path

    @property
    def key_bytes(self) -> bytes:
        return self.key.read_bytes()


def pair(
    directory: Path,
    ca: trustme.CA,
    *names: str,
    name: str = "server",
    start: float | None = None,
    end: float | None = None,
    common_name: str | None = None,
) -> Pair:
    """A certificate with its chain, and its key. `start`, `end`: seconds since 1970."""
    leaf = ca.issue_cert(
        *(names or ("localhost", "127.0.0.1")),
        common_name=common_name or name,
        not_before=None if start is None else datetime.datetime.fromtimestamp(start, datetime.UTC),
        not_after=None if end is None else datetime.datetime.fromtimestamp(end, datetime.UTC),
    )
    made = Pair(directory / f"{name}.pem", directory / f"{name}.key")
    made.certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    write_key(made.key, leaf.private_key_pem.bytes())
    return made


def write_key(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)


def encrypted(key: bytes, password: str) -> bytes:
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )


def ca_file(directory: Path, ca: trustme.CA, name: str = "ca") -> Path:
    path = directory / f"{name}.pem"
    path.write_bytes(ca.cert_pem.bytes())
    return path
