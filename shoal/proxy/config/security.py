"""Settings of TLS, SASL and access.

No value here is a secret: a `Secret` names the file or the environment variable that holds it. Free texts in which an
operator may have written one nevertheless are not in `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal

__all__ = [
    "AccessSettings",
    "ClientAuth",
    "ClusterTls",
    "File",
    "ListenerSasl",
    "ListenerTls",
    "Mechanism",
    "NamedCredentials",
    "Network",
    "Routing",
    "SaslSettings",
    "Secret",
    "Tags",
    "TlsVersion",
]

File = Annotated[Path, "file"]  # relative to the directory of shoal.toml
Network = IPv4Network | IPv6Network
TlsVersion = Literal["1.2", "1.3"]
Tags = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """Exactly one is set. The file is refused if others than its owner and group can read it."""

    file: File | None = None
    env: str | None = None  # the name of an environment variable


class ClientAuth(StrEnum):
    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerTls:
    """TLS to clients. Files are PEM; they are read again when they change."""

    certificate: File  # the server's, then its chain
    key: File | None = None  # None: in the same file
    key_password: Secret | None = None
    client_ca: File | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    principal: Literal["subject", "common-name"] = "subject"  # of a client with a certificate
    min_version: TlsVersion = "1.2"
    ciphers: str | None = None  # of TLS 1.2, in OpenSSL's form; None: OpenSSL's secure default


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTls:
    """TLS to brokers."""

    ca: File | None = None  # None: the system's
    certificate: File | None = None  # Shoal's own, for brokers that demand one
    key: File | None = None
    key_password: Secret | None = None
    verify_host_name: bool = True
    server_name: str | None = None  # expected in the certificate, and sent as SNI, instead of the broker's host
    min_version: TlsVersion = "1.2"
    ciphers: str | None = None


class Mechanism(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"
    GSSAPI = "GSSAPI"
    AWS_MSK_IAM = "AWS_MSK_IAM"  # OAUTHBEARER with a token that AWS credentials sign


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """Credentials of Shoal's own at the brokers."""

    mechanism: Mechanism
    username: str | None = None  # PLAIN, SCRAM
    password: Secret | None = None
    token: Secret | None = None  # OAUTHBEARER: one of token, token-command, token-endpoint
    token_command: tuple[str, ...] = field(default=(), repr=False)  # prints the token
    token_endpoint: str | None = field(default=None, repr=False)  # client credentials (RFC 6749, 4.4)
    token_endpoint_ca: File | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    scope: str | None = None
    extensions: Tags | None = field(default=None, repr=False)  # SASL extensions (KIP-342)
    keytab: File | None = None  # GSSAPI
    principal: str | None = None
    service: str = "kafka"
    region: str | None = None  # AWS_MSK_IAM
    profile: str | None = None
    role_arn: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCredentials(SaslSettings):
    """Further credentials, used for the client principals that a listener maps to this name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSasl:
    """Clients log in at Shoal, not at the broker."""

    mechanisms: tuple[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], ...]
    users: File | None = None  # salted hashes, made by `shoal users add`
    jwks: File | None = None  # OAUTHBEARER: keys of the issuer
    jwks_endpoint: str | None = field(default=None, repr=False)
    jwks_endpoint_ca: File | None = None
    issuer: str | None = None
    audience: str | None = None
    principal_claim: str = "sub"
    session_seconds: float | None = None  # clients must log in again (KIP-368), a token's expiry counts too


class Routing(StrEnum):
    PORTS = "ports"  # one port per broker
    SNI = "sni"  # one port for all; the name that a TLS client asks for says which broker


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """Which clients a listener lets in. An empty list lets all in."""

    addresses: tuple[Network, ...] = ()  # those of PROXY protocol headers, where there are any
    principals: tuple[str, ...] = ()
    client_ids: tuple[Annotated[str, "regular expression"], ...] = ()  # of the whole client id
    connections_per_address: int | None = None
    new_connections_per_second: float | None = None  # of one address
    bytes_per_second: Annotated[int, "size"] | None = None  # from all clients of the listener
    client_bytes_per_second: Annotated[int, "size"] | None = None  # from one client id
