"""Keys and certificates of one run, for 127.0.0.1, in the form that every peer reads: PEM, PKCS #8."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from bench.proxies.placements import KeyType
from shoal.scenarios.kafka.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Materials"]

_KEY_TYPES = {KeyType.ECDSA: trustme.KeyType.ECDSA, KeyType.RSA: trustme.KeyType.RSA}


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    ca: Path
    servers: Mapping[KeyType, Path]  # the private key, then the certificate

    @classmethod
    def make(cls, directory: Path) -> Materials:
        directory.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        ca = directory / "ca.pem"
        authority.cert_pem.write_to_path(str(ca))
        return cls(ca=ca, servers={kind: _server(authority, kind, directory) for kind in KeyType})

    def client(self) -> ssl.SSLContext:
        """A context of the load client: TLS 1.3, and it verifies."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context


def _server(authority: trustme.CA, kind: KeyType, directory: Path) -> Path:
    issued = authority.issue_cert(LOOPBACK, key_type=_KEY_TYPES[kind])
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = directory / f"{kind.name.lower()}.pem"
    path.touch(mode=0o600)
    path.write_bytes(encoded + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return path
