"""Down-conversion (KIP-283): converts one partition's record set for an old client, piece by piece while it is sent.

Kafka's own (RecordsUtil.downConvert, LazyDownConversionRecords) converts whole batches, so it needs memory for the
largest. Here a piece is a number of messages: a batch is decompressed only as far as needed, and a large one becomes
several wrappers.

Rules
- No message below the fetch offset; messages in ascending order; offsets (and gaps) unchanged.
- Control batches are left out (old clients do not know them), and batches of transactions that the response lists as
  aborted.
- Headers are left out, and counted: the old formats have none. Key, value and timestamp are kept, null is null.
- Messages of magic 0 and 1 in the log are unchanged if the client knows their magic: then a wrapper may begin below the
  fetch offset, as from an old broker, and clients skip.
- A batch that cannot be converted is a `Failure`, found before any of its messages is returned: every batch's CRC is
  checked before it is opened.
- An incomplete batch at the end of the set is left for the next Fetch.

A conversion holds its source frame, and beside it at most what it was allowed (`working.py`): its stream's memory
(`plain_stream`), two pieces, and a few copies of a record that is larger than a piece, which is at most `largest`.
Small buffers (a piece and its compression) are not counted. It may be dropped at any time, which frees all of this, and
recreated from any later response at `next_offset`; it then skips the earlier records of the batch by their lengths
(some millions of records a second, plus decompression).
"""

from collections.abc import Sequence
from itertools import islice
from math import ceil
from typing import Final

from shoal.protocol.legacy.fetch.batch_messages import BatchMessages
from shoal.protocol.legacy.fetch.counts import Counts
from shoal.protocol.legacy.fetch.failure import Failure, UnreadableCodec
from shoal.protocol.legacy.fetch.message_source import MessageSource
from shoal.protocol.legacy.fetch.old_entry import OldEntry, OldMessages
from shoal.protocol.legacy.fetch.working import WantsMore, Working
from shoal.protocol.legacy.message import ATTRIBUTES_AT
from shoal.protocol.records.aborted import AbortedTransactions
from shoal.protocol.records.batch import CODEC_MASK, HEADER_SIZE, read_batch_header, require_crc
from shoal.protocol.records.recordset import entries
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Buffer

__all__ = ["CHUNK", "LARGEST", "DownConversion"]

CHUNK: Final = 128 * 1024
"""Decompressed bytes of a piece, as in Kafka (LazyDownConversionRecordsSend.MAX_READ_SIZE)."""
LARGEST: Final = 32 * 1024 * 1024
"""Maximum bytes of a record in a compressed batch. Brokers limit the compressed batch (max.message.bytes, 1 MiB), not
this."""

_ENTRIES_AT_ONCE: Final = 2000
_PLAIN_AT_ONCE: Final = 8  # pieces
_WORTH_A_WRAPPER: Final = 2  # divides the size of a piece
_COUNTED: Final = 64  # entries
_GROWTH: Final = 4  # divides the size of the source
_NO_OFFSET: Final = 2**63 - 1  # no consumer could continue after it
_UNBOUNDED: Final = 2**63 - 1


class DownConversion:
    """The record set `buf[start:end]` for a client that reads `magic` (0, 1) and fetched from `offset`.

    `aborted`: (producer id, first offset) of the response's aborted transactions, () to include them. `keep_codec`:
    wrappers use the batch's codec (zstd is then a Failure); otherwise messages are not compressed.

    `next_offset`: the consumer's next offset after the pieces so far, past left-out entries, too. `given`: the next
    offset of a client that has seen only the messages. `failure`: why there is no further piece. `wants`: the working
    bytes that the next piece needs; call again with as many. `counts`: the work done.
    """

    def __init__(
        self,
        buf: Buffer,
        start: int,
        end: int,
        *,
        magic: int,
        offset: int,
        aborted: Sequence[tuple[int, int]] = (),
        keep_codec: bool = True,
        chunk: int = CHUNK,
        largest: int = LARGEST,
    ) -> None:
        self._source = memoryview(buf)
        self._entries = entries(buf, start, end)
        self._at = self._next_at = start
        self._end = _end_of_whole_entries(buf, start, end)
        self._offset = offset  # of the current entry
        self._magic = magic
        self._keep_codec = keep_codec
        self._chunk = chunk
        self._largest = largest
        self._aborted = AbortedTransactions(aborted)
        self._open: MessageSource | None = None
        self._working = Working()
        self._last = -1  # the last offset of the entries so far
        self.given = offset
        self.next_offset = offset
        self.failure: Failure | None = None
        self.wants = 0
        self.ended = False
        self.counts = Counts()

    @property
    def left(self) -> int:
        """An estimate of the bytes still to come; 0 if no whole entry is left.

        From the bytes of the source, and the records of the current entry; plus a quarter, since pieces are larger than
        their source: an estimate too high costs padding, one too low costs the client another Fetch for the end of a
        batch.
        """
        if self.ended:
            return 0
        of_the_open = ceil((self._next_at - self._at) * self._open.share_left) if self._open else 0
        source = max(self._end - self._next_at, 0) + of_the_open
        return source + source // _GROWTH

    @property
    def working_bytes(self) -> int:
        """About the bytes held between pieces, without the source."""
        return self._open.working_bytes if self._open else 0

    @property
    def needed_bytes(self) -> int:
        """The peak of bytes held at once so far, without the source."""
        return self._working.most

    def resumes(self, offset: int) -> bool:
        """True if a client that has read all pieces may fetch from `offset`: from `given` to `next_offset`."""
        return self.given <= offset <= self.next_offset

    def piece(self, most: int = CHUNK, working: int = _UNBOUNDED) -> bytes | None:
        """The next messages, of at most `most` (and at most `chunk`) bytes before compression, at least one message.

        The result is a copy without references to the source. At most `working` bytes are held for it. b"": only
        skipping was done, call again. None: no further piece; check `failure` and `wants`. Never raises for any content
        of the source. Takes some milliseconds.
        """
        parts: list[bytes] = []
        self._working.limit, self.wants = working, 0
        if not self.ended:
            try:
                self._fill(parts, min(most, self._chunk))
            except WantsMore as more:
                self.wants = 0 if parts else more.size
            except RemoteProtocolError as error:
                self._stop(Failure.of(error, self.next_offset, f"entry at offset {self._offset}"))
        return None if self.wants or (self.ended and not parts) else b"".join(parts)

    def _stop(self, failure: Failure | None = None) -> None:
        """Drops all references to the source."""
        self.failure = failure
        self.ended = True
        self._open = None
        self._entries = iter(())
        self._source = memoryview(b"")

    def _fill(self, parts: list[bytes], room: int) -> None:
        enough = self.counts.plain_bytes + _PLAIN_AT_ONCE * self._chunk
        for _ in range(_ENTRIES_AT_ONCE):
            if not self._open and not self._next_entry():
                return
            if self._open:
                room -= self._take(self._open, parts, room)
                if self._open or self.counts.plain_bytes > enough:  # not finished: no room is left, or it took time
                    return

    def _take(self, source: MessageSource, parts: list[bytes], room: int) -> int:
        if parts and source.codec and room < self._chunk // _WORTH_A_WRAPPER:
            return 0
        used = source.take(parts, room, not parts)
        self.next_offset = max(self.next_offset, source.next_offset)
        if used:
            self.given = source.given
        if source.done:
            self._close()
        return used

    def _close(self) -> None:
        self._open = None
        self._at = self._next_at

    def _next_entry(self) -> bool:
        """Opens the next entry, or leaves it out; False at the end of the set."""
        self._offset = self.next_offset
        entry = next(self._entries, None)
        if entry is None:
            self._stop()
            return False
        start, self._next_at, magic, self._offset = entry
        self._open = self._batch(start) if magic == 2 else self._old(start, magic)
        if not self._open:
            self._close()
        return True

    def _batch(self, start: int) -> MessageSource | None:
        header = read_batch_header(self._source, start, self._next_at)
        require_crc(header, self._source, start, self._next_at)
        self._require_order(header.base_offset, header.last_offset)
        payload = self._source[start + HEADER_SIZE : self._next_at]
        if self._aborted.includes(header, payload) or header.is_control:
            self.counts.left_out += 1
        elif header.record_count and header.last_offset >= self.next_offset:
            return BatchMessages(
                header,
                payload,
                self.counts,
                magic=self._magic,
                codec=self._codec(header.attributes),
                floor=self.next_offset,
                step=self._chunk,
                largest=self._largest,
                working=self._working,
            )
        self.next_offset = max(self.next_offset, header.last_offset + 1)
        return None

    def _old(self, start: int, magic: int) -> MessageSource | None:
        data = self._source[start : self._next_at]
        self._require_order(self._offset, self._offset)
        if self._offset < self.next_offset:
            return None
        if magic <= self._magic:
            return OldEntry(data, self.counts, self._working)
        codec = self._codec(data[ATTRIBUTES_AT])
        floor, largest = self.next_offset, self._largest
        return OldMessages(data, self.counts, codec=codec, floor=floor, largest=largest, working=self._working)

    def _codec(self, attributes: int) -> Codec:
        """The codec of the wrappers to be made."""
        codec = attributes & CODEC_MASK
        if codec > Codec.ZSTD:
            raise UnreadableCodec(f"unknown codec {codec}")
        if codec == Codec.ZSTD and self._keep_codec:
            raise UnreadableCodec("zstd, which clients of Kafka before 2.1 cannot read")
        return Codec(codec) if self._keep_codec else Codec.NONE

    def _require_order(self, first: int, last: int) -> None:
        """Raises for offsets out of order. Negative ones are impossible: the header was checked."""
        if first <= self._last or last >= _NO_OFFSET:
            raise RemoteProtocolError(f"offsets {first} to {last} after {self._last}")
        self._last = last


def _end_of_whole_entries(buf: Buffer, start: int, end: int) -> int:
    """`end` if there are many entries, or if the next is damaged: one cut-off entry after many is small."""
    try:
        stops = [stop for _, stop, _, _ in islice(entries(buf, start, end), _COUNTED)]
    except RemoteProtocolError:
        return end
    return end if len(stops) == _COUNTED else max(stops, default=start)
