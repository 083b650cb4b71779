"""Certificates made on the fly, in PEM files.

    authority = Authority.create(work / "ca")
    broker = authority.server("127.0.0.1", "localhost")
    alice = authority.client("alice", password="locked")
    late = authority.server("localhost", valid=EXPIRED)

Keys are on the curve P-256 (RSA with 2,048 bits on request) in PKCS #8, the only form that Java reads from PEM.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["EXPIRED", "LOCAL_NAMES", "NOT_YET_VALID", "VALID", "Authority", "Identity", "Validity"]

LOCAL_NAMES = ("127.0.0.1", "localhost", "*.localhost")
_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """From when to when a certificate is valid, relative to the moment in which it is made."""

    since: timedelta
    until: timedelta


_DAY = timedelta(days=1)
VALID = Validity(since=-_DAY, until=365 * _DAY)
EXPIRED = Validity(since=-30 * _DAY, until=-_DAY)
NOT_YET_VALID = Validity(since=_DAY, until=30 * _DAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A certificate and its key."""

    subject: str
    """As OpenSSL and Java write it: "CN=alice"."""
    certificate: Path
    """The certificate, then its chain without the root."""
    key: Path
    bundle: Path
    """Key, certificate and chain in one file, for Java. The key is not encrypted: Java 17 reads no PBES2 from PEM."""
    password: str | None
    """Opens the file `key`; None: it is not encrypted."""


class Authority:
    """A certificate authority and the directory of everything that it issues."""

    def __init__(
        self,
        home: Path,
        certificate: x509.Certificate,
        key: _Key,
        *,
        chain: tuple[x509.Certificate, ...] = (),
        root: Path | None = None,
    ) -> None:
        self.home = home
        self._certificate = certificate
        self._key = key
        self._chain = chain
        self._numbers = itertools.count(1)
        home.mkdir(parents=True, exist_ok=True)
        self.certificate = root or home / "ca.pem"
        """For the peers, which trust it: always that of the root."""
        if root is None:
            self.certificate.write_bytes(_pem((certificate,)))

    @classmethod
    def create(cls, home: Path, name: str = "Shoal test authority") -> Authority:
        key = _new_key("ec")
        builder = _builder(_named(name), _named(name), key, key, VALID)
        return cls(home, _ca(builder, path_length=1).sign(key, hashes.SHA256()), key)

    def intermediate(self, name: str = "Shoal test intermediate") -> Authority:
        """An authority whose own certificate is in the chain of those that it issues."""
        key = _new_key("ec")
        builder = _builder(_named(name), self._certificate.subject, key, self._key, VALID)
        certificate = _ca(builder, path_length=0).sign(self._key, hashes.SHA256())
        chain = (certificate, *self._chain)
        return Authority(self._next("intermediate"), certificate, key, chain=chain, root=self.certificate)

    def server(
        self,
        *hosts: str,
        name: str | None = None,
        valid: Validity = VALID,
        password: str | None = None,
        key: Literal["ec", "rsa"] = "ec",
    ) -> Identity:
        """For `hosts`, names and addresses (default: `LOCAL_NAMES`). A broker also connects to brokers with it."""
        hosts = hosts or LOCAL_NAMES
        usages = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issue(name or hosts[0], hosts, usages, valid, password, key)

    def client(
        self,
        name: str,
        *,
        valid: Validity = VALID,
        password: str | None = None,
        key: Literal["ec", "rsa"] = "ec",
    ) -> Identity:
        """With the subject "CN=name", which a broker makes a principal of."""
        return self._issue(name, (), (ExtendedKeyUsageOID.CLIENT_AUTH,), valid, password, key)

    def _issue(
        self,
        name: str,
        hosts: tuple[str, ...],
        usages: tuple[x509.ObjectIdentifier, ...],
        valid: Validity,
        password: str | None,
        kind: Literal["ec", "rsa"],
    ) -> Identity:
        key = _new_key(kind)
        builder = _builder(_named(name), self._certificate.subject, key, self._key, valid)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        chain = _pem((builder.sign(self._key, hashes.SHA256()), *self._chain))
        home = self._next(name.replace("*", "any").replace("/", "-"))
        identity = Identity(
            subject=f"CN={name}",
            certificate=home / "certificate.pem",
            key=home / "key.pem",
            bundle=home / "bundle.pem",
            password=password,
        )
        home.mkdir(parents=True)
        identity.certificate.write_bytes(chain)
        secrets = {identity.key: _key_pem(key, password), identity.bundle: _key_pem(key, None) + chain}
        for path, content in secrets.items():
            path.touch(mode=0o600)
            path.write_bytes(content)
        return identity

    def _next(self, name: str) -> Path:
        return self.home / f"{next(self._numbers)}-{name}"


def _new_key(kind: Literal["ec", "rsa"]) -> _Key:
    if kind == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: _Key, issuer_key: _Key, valid: Validity
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + valid.since)
        .not_valid_after(now + valid.until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _ca(builder: x509.CertificateBuilder, *, path_length: int) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    constraints = x509.BasicConstraints(ca=True, path_length=path_length)
    return builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)


def _pem(certificates: tuple[x509.Certificate, ...]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def _key_pem(key: _Key, password: str | None) -> bytes:
    lock = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
