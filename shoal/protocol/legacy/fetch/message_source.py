"""Base class of the converters: they return the messages of one entry piece by piece, wrapped if compressed."""

from abc import ABC, abstractmethod

from shoal.protocol.legacy.fetch.counts import Counts
from shoal.protocol.legacy.fetch.working import WantsMore
from shoal.protocol.legacy.lz4_header import as_magic_0
from shoal.protocol.legacy.message import write_message
from shoal.protocol.wire.compression import Codec, compress_quickly
from shoal.protocol.wire.errors import RemoteProtocolError

__all__ = ["MessageSource"]


class MessageSource(ABC):
    """`next_offset`: the client's next offset after the messages returned or skipped so far. `done`: nothing is left,
    and no error was found. `full`: the last `take` ended for lack of room."""

    def __init__(self, counts: Counts, *, magic: int, codec: Codec, attributes: int, newest: int) -> None:
        """`codec`: of the wrappers, NONE for plain messages; `attributes` and `newest` (timestamp, ms) are those of the
        wrappers."""
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
        """The offset after the last message returned."""

    @abstractmethod
    def _gather(self, messages: list[bytes], room: int, must: bool) -> None:
        """Appends the parts of messages, two for each."""

    @property
    def share_left(self) -> float:
        """An estimate of the share of the entry that is left, 0 to 1."""
        return 1.0

    @property
    def working_bytes(self) -> int:
        """About the bytes held between pieces."""
        return 0

    def take(self, out: list[bytes], room: int, must: bool) -> int:
        """Appends messages of up to `room` bytes before compression (with `must`, at least one message); returns their
        bytes.

        Returns 0 also after only skipping. Raises RemoteProtocolError for damage, and WantsMore, after returning all
        messages before that point.
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
