"""The PROXY protocol's header, versions 1 and 2: the client's real address, sent first by a load balancer.

    v1   "PROXY TCP4 192.0.2.1 192.0.2.9 51000 9092" CR LF, at most 107 bytes
    v2   signature (12), version and command, family, length (2), addresses, TLVs

A header without an address of the client (LOCAL, as in health checks; UNKNOWN; Unix sockets) says: use that of the
connection.
"""

import ipaddress
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.wire.crc import crc32c
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["LONGEST", "ProxyHeader", "read_proxy_header"]

_V1_LONGEST: Final = 107  # with CR LF (specification, 2.1)
_V2_FIXED = Struct(">12sBBH")
LONGEST: Final = 4096
"""Bytes of a v2 header: addresses take 216 at most, the TLVs of a TLS client some hundred."""

_V1: Final = b"PROXY "
_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_COMMANDS: Final = {0x20: "LOCAL", 0x21: "PROXY"}
_TCP: Final = {0x11: Struct(">4s4sHH"), 0x21: Struct(">16s16sHH")}
_WITHOUT_ADDRESS: Final = {0x00, 0x31}  # unspecified; a Unix stream socket
_TLV = Struct(">BH")
_CRC: Final = 0x03  # PP2_TYPE_CRC32C


class ProxyHeader(NamedTuple):
    size: int  # of the header
    host: str | None  # of the client; None: that of the connection
    port: int


def read_proxy_header(data: Buffer) -> ProxyHeader | None:
    """From the first bytes of a connection; None: the header is longer than these. Raises RemoteProtocolError."""
    head = bytes(data[:LONGEST])
    if head.startswith(_V2):
        return _read_v2(head)
    if head.startswith(_V1):
        return _read_v1(head)
    if _V1.startswith(head) or _V2.startswith(head):
        return None
    raise RemoteProtocolError(f"no PROXY protocol header (first bytes {head[:12].hex(' ')})")


def _read_v1(head: bytes) -> ProxyHeader | None:
    end = head.find(b"\n", 0, _V1_LONGEST)
    if end < 0:
        if len(head) < _V1_LONGEST:
            return None
        raise _wrong(f"a first line of more than {_V1_LONGEST} bytes")
    line = head[: end - 1]
    words = line.split(b" ")
    if head[end - 1 : end] != b"\r":
        raise _wrong("a first line that does not end in CR LF")
    if words[1] == b"UNKNOWN":
        return ProxyHeader(end + 1, None, 0)
    version = {b"TCP4": 4, b"TCP6": 6}.get(words[1])
    if version is None or len(words) != 6:
        raise _wrong(repr(line))
    host, _ = (_address(word, version, line) for word in words[2:4])
    port, _ = (_port(word, line) for word in words[4:6])
    return ProxyHeader(end + 1, host, port)


def _address(word: bytes, version: int, line: bytes) -> str:
    try:
        address = ipaddress.ip_address(word.decode("ascii"))
    except ValueError:
        raise _wrong(repr(line)) from None
    if address.version != version or b"%" in word:
        raise _wrong(repr(line))
    return str(address)


def _port(word: bytes, line: bytes) -> int:
    if not (word.isdigit() and len(word) <= 5 and int(word) <= 0xFFFF):
        raise _wrong(repr(line))
    return int(word)


def _read_v2(head: bytes) -> ProxyHeader | None:
    if len(head) < _V2_FIXED.size:
        return None
    _, command, family, length = _V2_FIXED.unpack_from(head)
    end = _V2_FIXED.size + length
    if end > LONGEST:
        raise _wrong(f"{end} bytes: at most {LONGEST} are allowed")
    if command not in _COMMANDS:
        raise _wrong(f"version and command {command:#04x}")
    addresses = _TCP.get(family)
    if addresses is None and family not in _WITHOUT_ADDRESS and command == 0x21:
        raise _wrong(f"address family and protocol {family:#04x}: only TCP is possible")
    if len(head) < end:
        return None
    if command == 0x20 or addresses is None:
        return ProxyHeader(end, None, 0)
    first_tlv = _V2_FIXED.size + addresses.size
    if first_tlv > end:
        raise _wrong(f"{length} bytes are too few for its addresses")
    _check_tlvs(head[:end], first_tlv)
    source, _, port, _ = addresses.unpack_from(head, _V2_FIXED.size)
    return ProxyHeader(end, str(ipaddress.ip_address(source)), port)


def _check_tlvs(head: bytes, pos: int) -> None:
    """All have their length; a checksum is right."""
    while pos < len(head):
        if pos + _TLV.size > len(head):
            raise _wrong("an incomplete TLV")
        kind, length = _TLV.unpack_from(head, pos)
        pos += _TLV.size
        if pos + length > len(head):
            raise _wrong(f"TLV {kind:#04x} of {length} bytes is longer than the header")
        if kind == _CRC:
            blank = head[:pos] + bytes(length) + head[pos + length :]
            if length != 4 or int.from_bytes(head[pos : pos + 4], "big") != crc32c(blank):
                raise _wrong("its checksum is wrong")
        pos += length


def _wrong(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"PROXY protocol header: {what}")
