"""Down-conversion (KIP-283): the record set of one partition, as an old client reads it, made piece by piece as it is sent.

Kafka's own (RecordsUtil.downConvert, LazyDownConversionRecords) converts whole batches, so its memory is that of the largest. Here a piece is a
number of messages: a batch is decompressed as far as its messages are wanted, and a large one becomes several wrappers.

Rules
- Nothing below the offset that was asked for; messages in ascending order; no offset changed, so holes stay.
- Control batches are left out (no old client knows them), and batches of the transactions that the answer lists as aborted.
- Headers are left out, and counted: there is no place for them. Key, value and timestamp are kept, null is null.
- Messages of magic 0 and 1 that are in the log go as they are where the client knows their magic: then a wrapper may begin below the
  offset asked for, as it did from an old broker, and clients skip.
- What cannot be given is a `Failure`, met before any of it was given: every batch's CRC is checked before it is opened.
- An unfinished batch at the end of the set is left for the next Fetch.

A conversion holds the frame it reads from, and beside it at most what it was allowed (`working.py`): what its stream holds (`plain_stream`), two
pieces, and some copies of a record that is larger than a piece, which is at most `largest`; what is small (a piece and its compression)
is not counted. It may be dropped at any time, which frees all of this, and made anew from any later answer at `next_offset`; it then goes over what stands before that in the batch by
record lengths alone (some millions of records a second, and what decompressing costs).
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
"""Plain bytes of a piece, as in Kafka (LazyDownConversionRecordsSend.MAX_READ_SIZE)."""
LARGEST: Final = 32 * 1024 * 1024
"""Bytes of one record of a compressed batch. Brokers bound the batch as it is compressed (max.message.bytes, 1 MiB), not this."""

_ENTRIES_AT_ONCE: Final = 2000
_PLAIN_AT_ONCE: Final = 8  # pieces
_WORTH_A_WRAPPER: Final = 2  # a part of a piece
_COUNTED: Final = 64  # entries
_GROWTH: Final = 4  # a part of it
_NO_OFFSET: Final = 2**63 - 1  # nobody could read on behind it
_UNBOUNDED: Final = 2**63 - 1


class DownConversion:
    """The record set `buf[start:end]` for a client that reads `magic` (0, 1) and asked for `offset`.

    `aborted`: (producer id, first offset) of the answer's aborted transactions, () to give them. `keep_codec`: wrappers have the
    codec of the batch (zstd is then a Failure); else messages are not compressed.

    `next_offset`: where a consumer reads on after the pieces so far; it also lies behind what was left out. `given`: where a client reads
    on, who knows only of the messages. `failure`: why there will be no further piece. `wants`: bytes of working memory without which
    there was no piece; ask again with as many. `counts`: what was done.
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
        self._offset = offset  # of the entry that is being read
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
        """About how many bytes there are still to come; 0 where nothing whole is left. By the bytes of the source, of the entry that is being
        read by its records; and a quarter more, since pieces are larger than what they are made of: too much is padding, with too
        little a client has to ask once more for the end of a batch."""
        if self.ended:
            return 0
        of_the_open = ceil((self._next_at - self._at) * self._open.share_left) if self._open else 0
        source = max(self._end - self._next_at, 0) + of_the_open
        return source + source // _GROWTH

    @property
    def working_bytes(self) -> int:
        """About what is held beside the source, between pieces."""
        return self._open.working_bytes if self._open else 0

    @property
    def needed_bytes(self) -> int:
        """The most that was taken beside the source at once, so far."""
        return self._working.most

    def resumes(self, offset: int) -> bool:
        """Is `offset` where a client asks on who has read all pieces? Anything from `given` to `next_offset`."""
        return self.given <= offset <= self.next_offset

    def piece(self, most: int = CHUNK, working: int = _UNBOUNDED) -> bytes | None:
        """The next messages, of at most `most` (and at most `chunk`) bytes before compression, one message at least. It is a copy: nothing in
        it refers to the source. At most `working` bytes are held for it.

        b"": work was done (skipping), ask again. None: there is nothing more; then look at `failure` and `wants`. Never raises for what
        the source holds. Takes some milliseconds.
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
        """What refers to the source is dropped."""
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
                if self._open or self.counts.plain_bytes > enough:  # not used up: there is no room, or it took time
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
        """Of the wrappers to be made."""
        codec = attributes & CODEC_MASK
        if codec > Codec.ZSTD:
            raise UnreadableCodec(f"unknown codec {codec}")
        if codec == Codec.ZSTD and self._keep_codec:
            raise UnreadableCodec("zstd, which clients of Kafka before 2.1 cannot read")
        return Codec(codec) if self._keep_codec else Codec.NONE

    def _require_order(self, first: int, last: int) -> None:
        """Negative offsets cannot be: the header was checked."""
        if first <= self._last or last >= _NO_OFFSET:
            raise RemoteProtocolError(f"offsets {first} to {last} after {self._last}")
        self._last = last


def _end_of_whole_entries(buf: Buffer, start: int, end: int) -> int:
    """`end` where there are many, or what follows is damaged: a cut one behind many is small."""
    try:
        stops = [stop for _, stop, _, _ in islice(entries(buf, start, end), _COUNTED)]
    except RemoteProtocolError:
        return end
    return end if len(stops) == _COUNTED else max(stops, default=start)
