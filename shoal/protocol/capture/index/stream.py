"""Splits a stream of chunks of any size into frames, and parses them while they pass.

The proxy moves bytes in chunks as the kernel delivers them. Usually a frame is complete in a chunk, which is the fast
case; it may also span a hundred chunks, because a Fetch answer has up to 50 MB. No frame is held. The walk is a
sequence of *steps*:

    step(view, pos, stop) -> its end, which may be after `stop`: the bytes between are skipped

A step reads a small, contiguous piece (the head of a partition, the header of a batch) and selects the next step. If
the piece is incomplete, reading it fails as at the end of a buffer (IndexError, struct.error, or `More`), and its
beginning is carried to the next chunk. So a step is retried from its beginning, and must change nothing before it has
read everything. Pieces and carried bytes have at most MAX_PIECE bytes; a frame with longer ones is abandoned.

Rejected: generators that are sent one byte at a time (transform/skim.py does that for answers too large to hold: 30
times slower), and holding each frame (unbounded memory, or no view of large answers).

Unreadable frames never affect the traffic: the frame is skipped to its end (counted as `abandoned`). If even the
frame's size is invalid, the walker is `lost` and parses nothing more.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import Final

from shoal.protocol.schema.headers import SIZE_BYTES, read_size

__all__ = [
    "MAX_PIECE",
    "Abandon",
    "FrameWalker",
    "More",
    "Step",
    "is_several",
    "read_length",
    "read_name",
    "read_tags",
    "size_of",
    "whole_frames",
]

MAX_PIECE: Final = 2048
"""Bytes. The longest piece is the head of a request: two names of MAX_NAME and some numbers."""
MAX_NAME: Final = 512
"""Bytes of a client id, a transactional id or a topic's name (at most 249); a frame with a longer one is abandoned."""

Step = Callable[[memoryview, int, int], int]
_INT32: Final = Struct(">i").unpack_from
_LEAST: Final = 8
"""Bytes of the smallest frame with its size: an answer may have only the correlation id."""


class More(Exception):
    """The piece is incomplete."""


class Abandon(Exception):
    """The rest of this frame cannot be read."""


_SHORT: Final = (More, IndexError, struct_error)


class FrameWalker:
    """`begin` and `ended` are called at a frame's start and end; a subclass selects the first step in `begin`."""

    __slots__ = ("_carry", "_left", "_skip", "_step", "abandoned", "lost", "prefix")

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix  # bytes that `begin` needs
        self.abandoned = 0
        self.lost = False
        self._carry = b""
        self._left = 0  # bytes of the frame from the current position on
        self._skip = 0  # of these, to skip
        self._step: Step = self._pass

    def begin(self, view: memoryview, pos: int) -> int:
        """-> the size of the frame at `pos`, including its length field; 0: lost. The walk continues at `pos`."""
        raise NotImplementedError

    def ended(self) -> None:
        """The frame is complete."""
        raise NotImplementedError

    @property
    def is_between_frames(self) -> bool:
        return not (self._left or self._carry or self.lost)

    def feed(self, chunk: memoryview) -> None:
        """The next bytes of the stream. The chunk is borrowed."""
        if self.lost:
            return
        pos = self._bridge(chunk) if self._carry else 0
        if pos < len(chunk) and not self.lost:
            self._go_on(chunk, pos)

    def _go_on(self, view: memoryview, pos: int) -> None:
        end = len(view)
        while end - (pos := self._walk(view, pos, end)) > MAX_PIECE and not self.lost:
            self.abandon()
        self._carry = b"" if self.lost else bytes(view[pos:end])

    def _bridge(self, chunk: memoryview) -> int:
        """Finish the carried piece. Returns the number of consumed bytes."""
        carried = len(self._carry)
        joint = memoryview(self._carry + bytes(chunk[:MAX_PIECE]))
        self._carry = b""
        if len(chunk) <= MAX_PIECE:
            self._go_on(joint, 0)
            return len(chunk)
        pos = 0
        while (pos := self._walk(joint, pos, len(joint))) < carried and not self.lost:
            self.abandon()
        return pos - carried

    def _walk(self, view: memoryview, pos: int, end: int) -> int:
        while pos < end:
            left = self._left
            if not left:
                if end - pos < self.prefix:
                    return pos
                self._left = self.begin(view, pos)
                if not self._left:
                    self.lost = True
                    return pos
                continue
            stop = end if end - pos < left else pos + left
            if self._skip:
                passed = self._skip
            else:
                try:
                    following = self._step(view, pos, stop)
                    passed = following - pos
                    if passed > left:
                        raise Abandon
                except _SHORT:
                    if stop - pos < left:
                        return pos
                    passed = self.abandon()
                except Abandon:
                    passed = self.abandon()
            here = stop - pos
            if passed > here:
                self._skip = passed - here
                passed = here
            else:
                self._skip = 0
            self._left = left - passed
            pos += passed
            if not self._left:
                self.ended()
        return pos

    def abandon(self) -> int:
        """Skip the rest of the frame. Returns its size."""
        self.abandoned += 1
        self._step = self._pass
        return self._left

    def _pass(self, view: memoryview, pos: int, stop: int) -> int:
        return pos + self._left


def is_several(chunk: bytes | bytearray | memoryview) -> bool:
    """True if it starts with a complete frame and continues."""
    return len(chunk) > _LEAST and _LEAST < size_of(chunk) < len(chunk)


def size_of(chunk: bytes | bytearray | memoryview) -> int:
    """Bytes of the frame at the start of `chunk`."""
    size: int = read_size(chunk)[0]
    return size + SIZE_BYTES


def whole_frames(chunk: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    """Frame by frame; the last may be incomplete."""
    view = memoryview(chunk)
    while is_several(view):
        size = size_of(view)
        yield view[:size]
        view = view[size:]
    yield view


def read_length(view: memoryview, pos: int, *, compact: bool) -> tuple[int, int]:
    """The length of an array or record set (four bytes if not compact; null: 0), and its end."""
    if not compact:
        return max(_INT32(view, pos)[0], 0), pos + 4
    value, pos = _uvarint(view, pos)
    return max(value - 1, 0), pos


def read_tags(view: memoryview, pos: int) -> int:
    """-> the end of tagged fields."""
    count = view[pos]
    if not count:
        return pos + 1
    count, pos = _uvarint(view, pos)
    if count > MAX_PIECE:
        raise Abandon
    for _ in range(count):
        _, pos = _uvarint(view, pos)
        size, pos = _uvarint(view, pos)
        if size > MAX_PIECE:
            raise Abandon
        pos += size
    return pos


def read_name(view: memoryview, pos: int, *, compact: bool) -> tuple[bytes, int]:
    """A string of at most MAX_NAME bytes (null: none)."""
    if compact:
        size, pos = _uvarint(view, pos)
        size -= 1
    else:
        size, pos = int.from_bytes(view[pos : pos + 2], "big", signed=True), pos + 2
        if pos > len(view):
            raise More
    if size > MAX_NAME:
        raise Abandon
    end = pos + max(size, 0)
    if end > len(view):
        raise More
    return bytes(view[pos:end]), end


def _uvarint(view: memoryview, pos: int) -> tuple[int, int]:
    first = view[pos]
    if first < 0x80:
        return first, pos + 1
    value = first & 0x7F
    for shift in range(7, 35, 7):
        pos += 1
        byte = view[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos + 1
    raise Abandon
