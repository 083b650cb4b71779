"""Is this the length of a Kafka frame, or the first bytes of another protocol?

Kafka has no magic number: the first four bytes of a connection are a length, so a client of another protocol looks like
a huge frame that never ends. The first bytes of such clients, read as a length, are at least `SUSPICIOUS_SIZE`, so an
ordinary frame costs one comparison.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["FIRST_BYTES", "check_frame_size"]

FIRST_BYTES: Final = 4
"""Bytes that `check_frame_size` needs: the length itself."""

SUSPICIOUS_SIZE: Final = 0x0D0A0D0A
"""The smallest length that the first bytes of a foreign protocol make: a PROXY protocol v2 header."""

_TLS = "the peer uses TLS; set its security.protocol to PLAINTEXT or SASL_PLAINTEXT, or connect to a plaintext port"
_HTTP = "the peer speaks HTTP: this is a Kafka port"
_PROXY = "the peer sends a PROXY protocol header: turn that off in the load balancer in front of this port"

_FOREIGN: Final[Mapping[bytes, str]] = MappingProxyType(
    {
        b"\x16\x03": f"a TLS hello on a plaintext port: {_TLS}",
        b"\x15\x03": f"a TLS alert on a plaintext port: {_TLS}",
        b"GET ": _HTTP,
        b"POST": _HTTP,
        b"PUT ": _HTTP,
        b"HEAD": _HTTP,
        b"DELE": _HTTP,
        b"OPTI": _HTTP,
        b"PATC": _HTTP,
        b"CONN": _HTTP,
        b"PRI ": f"HTTP/2: {_HTTP}",
        b"HTTP": "an HTTP answer: the address is that of a web server, not of a Kafka broker",
        b"SSH-": "the peer speaks SSH: this is a Kafka port",
        b"PROX": _PROXY,
        b"\r\n\r\n": _PROXY,
    }
)


def check_frame_size(size: int, first_bytes: Buffer, limit: int) -> None:
    """Refuse a frame of `size` bytes (the length as a signed int32) that begins with `first_bytes` (the length itself).

    Raises RemoteProtocolError, with the protocol that the peer seems to speak, or when the size is negative or above
    `limit`.
    """
    if 0 <= size <= limit and size < SUSPICIOUS_SIZE:
        return
    head = bytes(first_bytes[:FIRST_BYTES])
    for start, meaning in _FOREIGN.items():
        if head.startswith(start):
            raise RemoteProtocolError(meaning)
    if not 0 <= size <= limit:
        raise RemoteProtocolError(f"a frame of {size} bytes: 0 to {limit} are allowed (first bytes {head.hex(' ')})")
