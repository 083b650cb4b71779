"""Raw captures: whole frames as packets of a pcapng file, in which Wireshark and tshark show topic, client and batch.

    file    := section ...            a new one every few MB, where readers can start; files may be joined with `cat`
    section := SHB (who wrote it), IDB (raw IPv4, nanoseconds), EPB ...
    EPB     := time, IPv4 header, TCP header, at most MAX_SEGMENT bytes of a frame; direction; a comment

Wireshark finds Kafka by TCP port 9092, reassembles segments, and matches answers to requests by connection. So every
client connection is one TCP connection, from 10.x.x.x (its number) to port 9092 of 172.16-31.x.x (the broker's node
id), with sequence numbers that count the bytes in the file. They restart with a SYN in every file. PSH is set only on
the last segment of a frame, so after damage a reader finds the start of the next frame. TCP checksums are 0, as in
captures on the sending machine.

Link type 252 (upper PDU) would need no fake headers, but does not give the direction to Wireshark's Kafka dissector,
which then shows no fields.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

__all__ = ["BROKER_PORT", "MAX_SEGMENT", "SECTION_EVERY", "CapturedFrame", "Encoder", "Sender", "connection_of"]

BROKER_PORT: Final = 9092
MAX_SEGMENT: Final = 65_495
"""Bytes: an IPv4 packet has 65,535, with its headers."""
SECTION_EVERY: Final = 4 * 1024 * 1024
"""Bytes between two section headers."""
UNKNOWN_NODE: Final = -1
"""Node ids are distinct below 2^20 - 1."""

SHB, IDB, EPB = 0x0A0D0D0A, 1, 6
LINKTYPE_IPV4: Final = 228
COMMENT, END_OF_OPTIONS = 1, 0
SHB_USERAPPL: Final = 4
IF_TSRESOL: Final = 9
_EPB_FLAGS: Final = 2
BLOCK: Final = Struct("<II")
LENGTH: Final = Struct("<I")
SECTION: Final = Struct("<IHHq")  # byte order magic, version, section length
BYTE_ORDER: Final = 0x1A2B3C4D
INTERFACE: Final = Struct("<HHI")
PACKET: Final = Struct("<IIIII")  # interface, time (high, low), captured length, original length
OPTION: Final = Struct("<HH")
_MAX_COMMENT: Final = 4096

IP: Final = Struct(">BBHHHBBHII")
TCP: Final = Struct(">HHIIBBHHH")
HEADERS: Final = IP.size + TCP.size
FIN, SYN, PSH, ACK = 0x01, 0x02, 0x08, 0x10
_CLIENT_NET: Final = 10 << 24
_CLIENT_BITS: Final = 24
_CLIENT_PORT: Final = 20_000
_CLIENT_PORTS: Final = 40_000
_BROKER_NET: Final = 172 << 24 | 16 << 16
BROKER_BITS: Final = (1 << 20) - 1


class Sender(IntEnum):
    """The values of pcapng's direction flag, as seen by Shoal."""

    CLIENT = 1
    BROKER = 2
    """Or Shoal on its behalf."""


class CapturedFrame(NamedTuple):
    """`frame`: as the client sent or received it, with its size. `withheld`: why it is cut (`redaction.py`), or None.

    `proxy`: id of the process; `connection`: its number there; `node`: the broker at its end.
    """

    time_ns: int
    proxy: str
    connection: int
    sender: Sender
    frame: bytes
    withheld: str | None = None
    node: int = UNKNOWN_NODE


class _Flow:
    """A connection in one file: its addresses, and the bytes sent by each side."""

    __slots__ = ("broker", "client", "port", "sent")

    def __init__(self, connection: int, node: int) -> None:
        self.client = _CLIENT_NET | connection & ((1 << _CLIENT_BITS) - 1)
        self.port = _CLIENT_PORT + (connection >> _CLIENT_BITS) % _CLIENT_PORTS
        self.broker = _BROKER_NET | node & BROKER_BITS
        self.sent = {Sender.CLIENT: 0, Sender.BROKER: 0}


def connection_of(client: int, port: int) -> int:
    """The number that has this address (below 2^24 * 40,000)."""
    return (port - _CLIENT_PORT) % _CLIENT_PORTS << _CLIENT_BITS | client & ((1 << _CLIENT_BITS) - 1)


class Encoder:
    """Writes one file: each method returns the next bytes. `about`: the software's name and version."""

    def __init__(self, proxy: str, about: str = "Shoal") -> None:
        self._section = _section(proxy, about)
        self._since_section = SECTION_EVERY
        self._flows: dict[int, _Flow] = {}

    def opened(self, time_ns: int, connection: int, node: int = UNKNOWN_NODE, about: str = "") -> bytes:
        """A connection begins in this file. `about` is the comment of its first packet."""
        flow = self._flows[connection] = _Flow(connection, node)
        flow.sent = {Sender.CLIENT: 1, Sender.BROKER: 1}  # a SYN counts
        syn = _packet(time_ns, Sender.CLIENT, _headers(flow, Sender.CLIENT, 0, (0, 0), SYN), b"", about)
        answer = _packet(time_ns, Sender.BROKER, _headers(flow, Sender.BROKER, 0, (0, 1), SYN | ACK), b"", "")
        return self._counted(syn + answer)

    def closed(self, time_ns: int, connection: int) -> bytes:
        """The connection has ended. Empty if it is not in this file."""
        flow = self._flows.pop(connection, None)
        if flow is None:
            return b""
        numbers = (flow.sent[Sender.CLIENT], flow.sent[Sender.BROKER])
        head = _headers(flow, Sender.CLIENT, 0, numbers, FIN | ACK)
        return self._counted(_packet(time_ns, Sender.CLIENT, head, b"", ""))

    def knows(self, connection: int) -> bool:
        return connection in self._flows

    def frame(self, frame: CapturedFrame) -> bytes:
        """A frame of any size, in as many packets as needed. An unknown connection is opened, without a comment."""
        before = b"" if frame.connection in self._flows else self.opened(frame.time_ns, frame.connection, frame.node)
        flow, other = self._flows[frame.connection], Sender(3 - frame.sender)
        pieces = [before]
        for start in range(0, len(frame.frame) or 1, MAX_SEGMENT):
            data = frame.frame[start : start + MAX_SEGMENT]
            flags = ACK | (PSH if start + MAX_SEGMENT >= len(frame.frame) else 0)
            head = _headers(flow, frame.sender, len(data), (flow.sent[frame.sender], flow.sent[other]), flags)
            pieces.append(_packet(frame.time_ns, frame.sender, head, data, frame.withheld or ""))
            flow.sent[frame.sender] += len(data)
        return self._counted(b"".join(pieces))

    def _counted(self, packets: bytes) -> bytes:
        due = self._since_section >= SECTION_EVERY
        self._since_section = len(packets) if due else self._since_section + len(packets)
        return self._section + packets if due else packets


def _block(kind: int, body: bytes) -> bytes:
    size = BLOCK.size + len(body) + LENGTH.size
    return b"".join((BLOCK.pack(kind, size), body, LENGTH.pack(size)))


def _option(code: int, value: bytes) -> bytes:
    return OPTION.pack(code, len(value)) + value + bytes(-len(value) % 4)


_NO_MORE: Final = OPTION.pack(END_OF_OPTIONS, 0)


def _section(proxy: str, about: str) -> bytes:
    options = _option(COMMENT, f"proxy {proxy}".encode()[:_MAX_COMMENT]) + _option(
        SHB_USERAPPL, about.encode()[:_MAX_COMMENT]
    )
    section = _block(SHB, SECTION.pack(BYTE_ORDER, 1, 0, -1) + options + _NO_MORE)
    nanoseconds = _option(IF_TSRESOL, b"\x09")
    return section + _block(IDB, INTERFACE.pack(LINKTYPE_IPV4, 0, 0) + nanoseconds + _NO_MORE)


_DIRECTIONS: Final = {sender: _option(_EPB_FLAGS, LENGTH.pack(sender)) for sender in Sender}


def _packet(time_ns: int, sender: Sender, head: bytes, data: bytes, comment: str) -> bytes:
    size = len(head) + len(data)
    fixed = PACKET.pack(0, time_ns >> 32 & 0xFFFFFFFF, time_ns & 0xFFFFFFFF, size, size)
    noted = _option(COMMENT, comment.encode("utf-8", "replace")[:_MAX_COMMENT]) if comment else b""
    return _block(EPB, b"".join((fixed, head, data, bytes(-size % 4), _DIRECTIONS[sender], noted, _NO_MORE)))


def _headers(flow: _Flow, sender: Sender, size: int, numbers: tuple[int, int], flags: int) -> bytes:
    """`numbers`: sequence and acknowledgement. The IPv4 header has a correct checksum."""
    from_client = sender is Sender.CLIENT
    source, target = (flow.client, flow.broker) if from_client else (flow.broker, flow.client)
    ports = (flow.port, BROKER_PORT) if from_client else (BROKER_PORT, flow.port)
    length = HEADERS + size
    total = 0x4500 + length + 0x4000 + 0x4006 + (source >> 16) + (source & 0xFFFF) + (target >> 16) + (target & 0xFFFF)
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    ip = IP.pack(0x45, 0, length, 0, 0x4000, 64, 6, checksum, source, target)
    sequence, acknowledged = (number & 0xFFFFFFFF for number in numbers)
    return ip + TCP.pack(*ports, sequence, acknowledged, TCP.size // 4 << 4, flags, 0xFFFF, 0, 0)
