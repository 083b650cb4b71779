"""The part of a batch's plain records that is in memory, and the read position in it."""

from collections.abc import Iterator

from shoal.protocol.legacy.fetch.counts import Counts
from shoal.protocol.legacy.fetch.working import COPIES, Working
from shoal.protocol.records.batch import BatchHeader
from shoal.protocol.wire.errors import RemoteProtocolError, TooLarge
from shoal.protocol.wire.types import UVARINT_BYTES, read_varint

__all__ = ["Window"]

_UINT64 = 2**64 - 1


class Window:
    """`plain[pos:]` is not read yet, nor are `left` records of the batch. Timestamps are unsigned, as `Struct` packs
    them.

    `floor`: records below it are left out. `first`: the base of relative offsets, -1 = the next record's. `full`: the
    last loop ended for lack of room.
    """

    __slots__ = (
        "append_timestamp",
        "attributes",
        "base_offset",
        "base_timestamp",
        "counts",
        "first",
        "floor",
        "full",
        "last_offset",
        "left",
        "plain",
        "pos",
        "previous",
        "steps",
    )

    def __init__(
        self, header: BatchHeader, steps: Iterator[bytes], counts: Counts, *, floor: int, attributes: int
    ) -> None:
        self.steps = steps
        self.plain = b""
        self.pos = 0
        self.left = header.record_count
        self.base_offset = header.base_offset
        self.last_offset = header.last_offset
        self.previous = header.base_offset - 1
        self.floor = floor
        self.base_timestamp = header.base_timestamp
        self.append_timestamp = header.max_timestamp & _UINT64 if header.is_log_append_time else None
        self.attributes = attributes
        self.first = 0
        self.full = False
        self.counts = counts

    def refill(self, step: int, largest: int, stream: int, working: Working) -> None:
        """Reads one more step of plain bytes, or as many as the next record has.

        `stream`: bytes that the source of the steps holds. Raises TooLarge for a record of more than `largest` bytes;
        WantsMore for a record of more than a step, and then nothing has changed.
        """
        rest = self.plain[self.pos :]
        needed = self._next_size(rest) if rest else 0
        if needed > largest:
            raise TooLarge(f"a record of {needed} bytes; at most {largest} can be converted")
        if needed > step:
            working.require(stream + COPIES * needed)
        self.pos, self.plain = 0, b""
        steps = [rest, self._step()]
        size = len(rest) + len(steps[1])
        while size < needed:
            steps.append(self._step())
            size += len(steps[-1])
        self.plain = b"".join(steps) if rest else steps[1]

    def require_end(self) -> None:
        """RemoteProtocolError if plain bytes follow the last record."""
        if self.pos < len(self.plain) or next(self.steps, b""):
            raise RemoteProtocolError("bytes after the last record")

    def _next_size(self, rest: bytes) -> int:
        """Bytes of the record that begins with `rest`, including its length; if the length is cut off, the bytes needed
        to read it."""
        try:
            length, pos = read_varint(rest, 0, len(rest))
        except RemoteProtocolError:
            if len(rest) >= UVARINT_BYTES:
                raise
            return UVARINT_BYTES
        if length < 0:
            raise RemoteProtocolError(f"record of {length} bytes")
        return pos + length

    def _step(self) -> bytes:
        step = next(self.steps, b"")
        if not step:
            raise RemoteProtocolError(f"the batch ends {self.left} records too early")
        self.counts.plain_bytes += len(step)
        return step
