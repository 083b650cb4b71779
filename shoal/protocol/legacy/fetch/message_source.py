"""What gives the messages of one entry of a record set, piece by piece, wrapped where the pieces are compressed."""

from abc import ABC, abstractmethod

from shoal.protocol.legacy.fetch.counts import Counts
from shoal.protocol.legacy.fetch.working import WantsMore
from shoal.protocol.legacy.lz4_header import as_magic_0
from shoal.protocol.legacy.message import write_message
from shoal.protocol.wire.compression import Codec, compress_quickly
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["MessageSource"]


class MessageSource(ABC):
    """`next_offset`: where a client reads on after what was given or skipped so far. `done`: nothing is left, and all was in order.
    `full`: the last `take` ended because there was no room."""

    def __init__(self, counts: Counts, *, magic: int, codec: Codec, attributes: int, newest: int) -> None:
        """`codec`: of the wrappers, NONE for plain messages; `attributes` and `newest` (timestamp, ms) stand in the wrappers."""
        self.codec = codec
        self.done = False
        self.full = False
        self._counts = counts
        self._magic = magic
        self._attributes = attributes
        self._newest = newest
        self._error: RemoteProtocolError | None = None

    @property
    @abstractmethod
    def next_offset(self) -> int: ...

    @property
    @abstractmethod
    def given(self) -> int:
        """Behind the last message given."""

    @abstractmethod
    def _gather(self, messages: list[bytes], room: int, must: bool) -> None:
        """Appends the parts of messages, two for each."""

    @property
    def share_left(self) -> float:
        """About how much of the entry is not given yet, of 1."""
        return 1.0

    @property
    def working_bytes(self) -> int:
        """About what is held between pieces."""
        return 0

    def take(self, out: list[bytes], room: int, must: bool) -> int:
        """Appends what fits into `room` bytes before compression (with `must`, one message at least); returns their bytes.

        0 also where only skipping was done. Damage: RemoteProtocolError, and WantsMore, once what stands before it has been given.
        """
        if self._error:
            raise self._error
        parts: list[bytes] = []
        try:
            self._gather(parts, room, must)
        except WantsMore:
            if not parts:
                raise
        except RemoteProtocolError as error:
            if not parts:
                raise
            self._error = error
        used = sum(map(len, parts))
        self._counts.messages += len(parts) // 2
        out += [self._wrapped(parts)] if parts and self.codec else parts
        return used

    def _wrapped(self, parts: list[bytes]) -> bytes:
        packed = compress_quickly(self.codec, b"".join(parts))
        if self.codec is Codec.LZ4 and not self._magic:
            packed = as_magic_0(packed)
        attributes = self._attributes | self.codec
        return write_message(self._magic, self.given - 1, self._newest, attributes, None, packed)
