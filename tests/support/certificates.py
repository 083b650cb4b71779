"""Certificates for tests of TLS, made in a moment: a CA, certificates of servers and clients, and wrong ones."""

from __future__ import annotations

import datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

if TYPE_CHECKING:
    from pathlib import Path

    import trustme

__all__ = ["DAY", "Pair", "Strange", "ca_file", "encrypted", "pair", "strange", "write_key"]

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


class Strange(Enum):
    """What OpenSSL takes, and `cryptography` does not."""

    NAMES = auto()  # an alternative name is an x400Address
    SUBJECT = auto()  # its common name is a bit string


def strange(directory: Path, ca: trustme.CA, kind: Strange) -> Pair:
    """The certificate of a client, or of a server at any name, with the subject "CN=strange"."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(ca.private_key_pem.bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate(ca.cert_pem.bytes()).subject
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        subject_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "strange")]),
        issuer_name=issuer,
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=now - datetime.timedelta(days=1),
        not_valid_after=now + datetime.timedelta(days=90),
    )
    if kind is Strange.NAMES:
        names = bytes.fromhex("3004 a302 3000")
        oid = x509.SubjectAlternativeName.oid
        builder = builder.add_extension(x509.UnrecognizedExtension(oid, names), critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    der = certificate.public_bytes(serialization.Encoding.DER)
    if kind is Strange.SUBJECT:
        content = certificate.tbs_certificate_bytes.replace(b"\x0c\x07strange", b"\x03\x07\0trange")
        signature = signer.sign(content, ec.ECDSA(hashes.SHA256()))
        algorithm = bytes.fromhex("300a 06082a8648ce3d040302")  # ecdsa-with-SHA256
        der = _der(0x30, content + algorithm + _der(0x03, b"\0" + signature))
    made = Pair(directory / "strange.pem", directory / "strange.key")
    made.certificate.write_bytes(x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM))
    pkcs8 = serialization.PrivateFormat.PKCS8
    write_key(made.key, key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption()))
    return made


def _der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(octets)]) + octets + content
