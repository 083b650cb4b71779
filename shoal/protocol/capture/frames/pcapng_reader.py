"""Reads files of `pcapng.Encoder`: packets become frames again. Nothing in a file is trusted.

Only raw captures of Shoal are read (also joined ones, and those saved by Wireshark): another link type, byte order or
clock is an error, and so is damage. A file's end may be torn: everything complete before it is read. A frame with
missing segments (filtered packets) is counted and left out; the next frame begins after a PSH.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from shoal.protocol.capture.frames import pcapng
from shoal.protocol.capture.frames.pcapng import BROKER_PORT, CapturedFrame, Sender, connection_of
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["MAX_HELD", "Decoder"]

MAX_HELD: Final = 256 * 1024 * 1024
"""Bytes of incomplete frames of all connections: a hostile file could start any number of them."""
_MAX_BLOCK: Final = 1024 * 1024
_MAX_HALVES: Final = 200_000
_PROXY: Final = b"proxy "
_WITHOUT_FRAME: Final = pcapng.SYN | pcapng.FIN


@dataclass(slots=True)
class _Half:
    """One direction of a connection: next sequence number, incomplete frame, and whether its start is known."""

    following: int | None = None
    frame: bytearray = field(default_factory=bytearray)
    is_whole: bool = True


class Decoder:
    """Feed it a file piece by piece. `incomplete` counts frames that were left out."""

    def __init__(self, *, max_held: int = MAX_HELD) -> None:
        self.incomplete = 0
        self._max_held = max_held
        self._data = bytearray()
        self._at = 0  # position of `_data` in the file
        self._proxy: str | None = None
        self._has_interface = False
        self._halves: dict[tuple[str, int, Sender], _Half] = {}
        self._held = 0

    @property
    def torn(self) -> int:
        """Bytes at the end that are not a complete block (so far)."""
        return len(self._data)

    def feed(self, data: Buffer) -> Iterator[CapturedFrame]:
        """The frames that are complete now. Raises RemoteProtocolError; then nothing more can be read."""
        self._data += data
        pos = 0
        try:
            while (size := self._block_size(pos)) is not None and pos + size <= len(self._data):
                kind, _ = pcapng.BLOCK.unpack_from(self._data, pos)
                body = bytes(self._data[pos + pcapng.BLOCK.size : pos + size - pcapng.LENGTH.size])
                if pcapng.LENGTH.unpack_from(self._data, pos + size - pcapng.LENGTH.size)[0] != size:
                    raise self._error(pos, "a block's two lengths differ")
                captured = self._block(kind, body, pos)
                pos += size
                if captured is not None:
                    yield captured
        finally:
            del self._data[:pos]
            self._at += pos

    def _error(self, pos: int, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"at byte {self._at + pos}: {what}")

    def _block_size(self, pos: int) -> int | None:
        if len(self._data) - pos < pcapng.BLOCK.size:
            return None
        kind, size = pcapng.BLOCK.unpack_from(self._data, pos)
        if self._proxy is None and kind != pcapng.SHB:
            raise self._error(pos, "this is no pcapng file")
        if not pcapng.BLOCK.size + pcapng.LENGTH.size <= size <= _MAX_BLOCK or size % 4:
            raise self._error(pos, f"a block of {size} bytes")
        return int(size)

    def _block(self, kind: int, body: bytes, pos: int) -> CapturedFrame | None:
        if kind == pcapng.SHB:
            self._section(body, pos)
        elif kind == pcapng.IDB:
            self._interface(body, pos)
        elif kind == pcapng.EPB:
            return self._packet(body, pos)
        return None

    def _section(self, body: bytes, pos: int) -> None:
        if len(body) < pcapng.SECTION.size or pcapng.SECTION.unpack_from(body)[0] != pcapng.BYTE_ORDER:
            raise self._error(pos, "a section in a byte order that Shoal does not write")
        comment = _options(body, pcapng.SECTION.size).get(pcapng.COMMENT, b"")
        self._proxy = str(comment[len(_PROXY) :], "utf-8", "replace") if comment.startswith(_PROXY) else ""
        self._has_interface = False

    def _interface(self, body: bytes, pos: int) -> None:
        is_ours = len(body) >= pcapng.INTERFACE.size and not self._has_interface
        if not is_ours or pcapng.INTERFACE.unpack_from(body)[0] != pcapng.LINKTYPE_IPV4:
            raise self._error(pos, "this is no raw capture of Shoal: packets of another kind")
        if _options(body, pcapng.INTERFACE.size).get(pcapng.IF_TSRESOL) != b"\x09":
            raise self._error(pos, "this is no raw capture of Shoal: times are not in nanoseconds")
        self._has_interface = True

    def _packet(self, body: bytes, pos: int) -> CapturedFrame | None:
        if not self._has_interface or len(body) < pcapng.PACKET.size:
            raise self._error(pos, "a packet of no interface")
        interface, high, low, size, _ = pcapng.PACKET.unpack_from(body)
        end = pcapng.PACKET.size + size
        if interface or size < pcapng.HEADERS or end > len(body):
            raise self._error(pos, "a packet that is shorter than it says")
        ip = pcapng.IP.unpack_from(body, pcapng.PACKET.size)
        tcp = pcapng.TCP.unpack_from(body, pcapng.PACKET.size + pcapng.IP.size)
        if ip[0] != 0x45 or ip[6] != 6 or tcp[4] != pcapng.TCP.size // 4 << 4 or ip[2] != size:
            raise self._error(pos, "a packet that Shoal did not write")
        sender = Sender.BROKER if tcp[0] == BROKER_PORT else Sender.CLIENT
        number = connection_of(*((ip[9], tcp[1]) if sender is Sender.BROKER else (ip[8], tcp[0])))
        data = body[pcapng.PACKET.size + pcapng.HEADERS : end]
        key = (self._proxy or "", number, sender)
        if tcp[5] & _WITHOUT_FRAME:
            self._begin_anew(key, tcp[5])
            return None
        frame = self._segment(key, tcp[2], tcp[5], data, pos)
        if frame is None:
            return None
        comment = _options(body, end + -end % 4).get(pcapng.COMMENT)
        return CapturedFrame(
            high << 32 | low,
            key[0],
            number,
            sender,
            frame,
            None if comment is None else str(comment, "utf-8", "replace"),
            _node(ip[8] if sender is Sender.BROKER else ip[9]),
        )

    def _begin_anew(self, key: tuple[str, int, Sender], flags: int) -> None:
        """Sequence numbers count from the SYN; nothing follows the FIN."""
        for sender in (key[2],) if flags & pcapng.SYN else Sender:
            half = self._halves.pop((*key[:2], sender), None)
            if half is not None:
                self._held -= len(half.frame)
                self.incomplete += bool(half.frame)

    def _segment(self, key: tuple[str, int, Sender], number: int, flags: int, data: bytes, pos: int) -> bytes | None:
        half = self._halves.setdefault(key, _Half())
        if len(self._halves) > _MAX_HALVES:
            raise self._error(pos, f"more than {_MAX_HALVES} directions of connections that do not end")
        if half.following is not None and half.following != number:
            half.is_whole = False
        half.following = number + len(data) & 0xFFFFFFFF
        half.frame += data
        self._held += len(data)
        if self._held > self._max_held:
            raise self._error(pos, f"more than {self._max_held} bytes of frames that do not end")
        if not flags & pcapng.PSH:
            return None
        frame, is_whole = bytes(half.frame), half.is_whole
        self._held -= len(frame)
        half.frame, half.is_whole = bytearray(), True
        if not is_whole or (frame and frame[:4] != (len(frame) - 4).to_bytes(4, "big", signed=True)):
            self.incomplete += 1
            return None
        return frame


def _node(broker: int) -> int:
    node = broker & pcapng.BROKER_BITS
    return pcapng.UNKNOWN_NODE if node == pcapng.BROKER_BITS else node


def _options(body: bytes, pos: int) -> dict[int, bytes]:
    """Up to their end, or to the first invalid one."""
    options: dict[int, bytes] = {}
    while pos + pcapng.OPTION.size <= len(body):
        code, size = pcapng.OPTION.unpack_from(body, pos)
        pos += pcapng.OPTION.size
        if code == pcapng.END_OF_OPTIONS or pos + size > len(body):
            break
        options.setdefault(code, body[pos : pos + size])
        pos += size + -size % 4
    return options
