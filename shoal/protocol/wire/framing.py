"""Is this the length of a Kafka frame, or the first bytes of another protocol?

Kafka has no magic number: the first four bytes of a connection are a length, so a peer of another protocol looks like
a huge frame that never ends. The first bytes of such peers, read as a length, are at least `SUSPICIOUS_SIZE`, so an
ordinary frame costs one comparison.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["FIRST_BYTES", "TLS_BROKER", "Foreign", "ForeignProtocol", "Sender", "check_frame_size", "foreign_protocol"]

FIRST_BYTES: Final = 4
"""Bytes that `check_frame_size` needs: the length itself."""

SUSPICIOUS_SIZE: Final = 0x0D0A0D0A
"""The smallest length that the first bytes of a foreign protocol make: a PROXY protocol v2 header."""


class ForeignProtocol(RemoteProtocolError):
    """The peer does not speak Kafka."""


class Foreign(Enum):
    TLS = "TLS"  # a hello
    TLS_ALERT = "TLS alert"
    HTTP = "HTTP"
    HTTP_ANSWER = "HTTP answer"
    SSH = "SSH"
    PROXY = "PROXY protocol"


class Sender(Enum):
    """The peer that the bytes are from."""

    CLIENT = "client"
    BROKER = "broker"


_OPENINGS: Final[Mapping[bytes, Foreign]] = MappingProxyType(
    {
        b"\x16\x03": Foreign.TLS,
        b"\x15\x03": Foreign.TLS_ALERT,
        b"GET ": Foreign.HTTP,
        b"POST": Foreign.HTTP,
        b"PUT ": Foreign.HTTP,
        b"HEAD": Foreign.HTTP,
        b"DELE": Foreign.HTTP,
        b"OPTI": Foreign.HTTP,
        b"PATC": Foreign.HTTP,
        b"CONN": Foreign.HTTP,
        b"PRI ": Foreign.HTTP,
        b"HTTP": Foreign.HTTP_ANSWER,
        b"SSH-": Foreign.SSH,
        b"PROX": Foreign.PROXY,
        b"\r\n\r\n": Foreign.PROXY,
    }
)

_CLIENT_TLS = (
    "the client uses TLS; set its security.protocol to PLAINTEXT or SASL_PLAINTEXT, or give the listener a certificate "
    "(listener.tls)"
)
_BROKER_TLS = (
    "the cluster has no tls table: add [cluster.tls] with the brokers' CA, or connect to the port of a plaintext "
    "listener of the broker"
)
TLS_BROKER = f"the broker uses TLS: {_BROKER_TLS}"
_WEB_SERVER = "an HTTP answer: the address is that of a web server, not of a Kafka broker"
_OF_CLIENTS: Final[Mapping[Foreign, str]] = MappingProxyType(
    {
        Foreign.TLS: f"a TLS hello on a plaintext port: {_CLIENT_TLS}",
        Foreign.TLS_ALERT: f"a TLS alert on a plaintext port: {_CLIENT_TLS}",
        Foreign.HTTP: "the peer speaks HTTP: this is a Kafka port",
        Foreign.HTTP_ANSWER: _WEB_SERVER,
        Foreign.SSH: "the peer speaks SSH: this is a Kafka port",
        Foreign.PROXY: (
            "the peer sends a PROXY protocol header: add its address to the listener's proxy-protocol, or turn the "
            "header off in the load balancer"
        ),
    }
)
_OF_BROKERS: Final[Mapping[Foreign, str]] = MappingProxyType(
    {
        Foreign.TLS: TLS_BROKER,
        Foreign.TLS_ALERT: f"the broker answers with a TLS alert, so it uses TLS: {_BROKER_TLS}",
        Foreign.HTTP_ANSWER: _WEB_SERVER,
        Foreign.SSH: "the address is that of an SSH server, not of a Kafka broker",
    }
)
_WORDS: Final[Mapping[Sender, Mapping[Foreign, str]]] = MappingProxyType(
    {Sender.CLIENT: _OF_CLIENTS, Sender.BROKER: _OF_BROKERS}
)


def foreign_protocol(first_bytes: Buffer) -> Foreign | None:
    """The protocol that begins with these bytes; None: none of the known ones."""
    head = bytes(first_bytes[:FIRST_BYTES])
    return next((foreign for opening, foreign in _OPENINGS.items() if head.startswith(opening)), None)


def check_frame_size(size: int, first_bytes: Buffer, limit: int, sender: Sender = Sender.CLIENT) -> None:
    """Refuse a frame of `size` bytes (the length as a signed int32) that begins with `first_bytes` (the length itself).

    Raises ForeignProtocol for the opening of a known protocol, and RemoteProtocolError for a size that is negative or
    above `limit`.
    """
    if 0 <= size <= limit and size < SUSPICIOUS_SIZE:
        return
    foreign = foreign_protocol(first_bytes)
    if foreign is not None and (words := _WORDS[sender].get(foreign)):
        raise ForeignProtocol(words)
    if not 0 <= size <= limit:
        head = bytes(first_bytes[:FIRST_BYTES]).hex(" ")
        raise RemoteProtocolError(f"a frame of {size} bytes: 0 to {limit} are allowed (first bytes {head})")
