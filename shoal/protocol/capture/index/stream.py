"""Frames told apart in a stream that comes in chunks of any size, and looked into while they pass.

The proxy moves bytes in chunks as the kernel has them. A frame may lie whole in a chunk, which is the usual case and the fast one;
it may also cross a hundred of them, for a Fetch answer has up to 50 MB. Nothing here holds a frame. The walk is a row of *steps*:

    step(view, pos, stop) -> where it has come to, which may lie behind `stop`: the bytes between are passed unseen

A step reads a small, contiguous piece (the head of a partition, the header of a batch) and says which step comes next. Where the
piece is not there yet, reading it fails as it would at the end of a buffer (IndexError, struct.error, or `More`), and what has
arrived of it is carried until the next chunk: so a step is tried again from its beginning, and must change nothing before it has read
all it needs. Pieces are at most MAX_PIECE bytes, and so is what is carried; whatever is longer is abandoned.

Rejected: generators that are sent one byte at a time (transform/skim.py does that, for answers too large to hold: 30 times slower),
and holding each frame whole (memory without bound, or blindness for large answers).

What cannot be read is the tap's problem alone, never the traffic's: the frame is passed over to its end (`abandoned` counts it). Where
not even the frame's size makes sense, the walker is `lost`, and looks at nothing more.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as struct_error
from typing import Final

__all__ = [
    "MAX_PIECE",
    "Abandon",
    "FrameWalker",
    "More",
    "Step",
    "is_several",
    "is_whole",
    "read_length",
    "read_name",
    "read_tags",
    "size_of",
    "whole_frames",
]

MAX_PIECE: Final = 2048
"""Bytes. The longest is the head of a request: two names of MAX_NAME and some numbers."""
MAX_NAME: Final = 512
"""Bytes of a client id, a transactional id or a topic's name (249 at most); a frame with a longer one is abandoned."""

Step = Callable[[memoryview, int, int], int]
_INT32: Final = Struct(">i").unpack_from
_LEAST: Final = 8
"""Bytes of a frame with its size and, of an answer, no more than the correlation id."""


class More(Exception):
    """The piece is not whole."""


class Abandon(Exception):
    """The rest of this frame cannot be read."""


_SHORT: Final = (More, IndexError, struct_error)


class FrameWalker:
    """`begin` and `ended` are the frame's two ends; a subclass chooses the first step in `begin`."""

    __slots__ = ("_carry", "_left", "_skip", "_step", "abandoned", "lost", "prefix")

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix  # bytes that `begin` wants to see
        self.abandoned = 0
        self.lost = False
        self._carry = b""
        self._left = 0  # of the frame, from where the walk is
        self._skip = 0  # of these, to be passed unseen
        self._step: Step = self._pass

    def begin(self, view: memoryview, pos: int) -> int:
        """-> the size of the frame that begins at `pos`, with its length field; 0: lost. The walk goes on at `pos`."""
        raise NotImplementedError

    def ended(self) -> None:
        """The frame has passed."""
        raise NotImplementedError

    @property
    def is_between_frames(self) -> bool:
        return not (self._left or self._carry or self.lost)

    def feed(self, chunk: memoryview) -> None:
        """The next bytes of the stream. The chunk is only lent."""
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
        """Finish the piece that was carried; -> how far the chunk is done with."""
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

    def pass_over(self, size: int) -> None:
        """The frame's rest are `size` bytes of records that nobody has kept, and then what says that there is no more."""
        if self.lost:
            return
        if self._skip >= size and not self._carry:
            self._skip -= size
            self._left -= size
            if self._left:
                self.feed(memoryview(bytes(self._left)))
            else:
                self.ended()
        else:
            self.abandon()
            self._carry, self._skip, self._left = b"", 0, 0
            self.ended()

    def abandon(self) -> int:
        """Pass over the rest of the frame; -> how much that is."""
        self.abandoned += 1
        self._step = self._pass
        return self._left

    def _pass(self, view: memoryview, pos: int, stop: int) -> int:
        return pos + self._left


def is_several(chunk: bytes | bytearray | memoryview) -> bool:
    """It begins with a whole frame, and goes on."""
    return len(chunk) > _LEAST and _LEAST < size_of(chunk) < len(chunk)


def size_of(chunk: bytes | bytearray | memoryview) -> int:
    """Bytes of the frame that begins there."""
    size: int = _INT32(chunk)[0]
    return size + 4


def is_whole(chunk: bytes | bytearray | memoryview, size: int) -> bool:
    """It has `size` bytes, and these are whole frames."""
    pos = 0
    while size - pos > _LEAST:
        length = _INT32(chunk, pos)[0]
        if length < _LEAST:
            return False
        pos += 4 + length
    return pos == size


def whole_frames(chunk: bytes | bytearray | memoryview) -> Iterator[memoryview]:
    """One by one; the last may be cut off."""
    view = memoryview(chunk)
    while is_several(view):
        size = size_of(view)
        yield view[:size]
        view = view[size:]
    yield view


def read_length(view: memoryview, pos: int, *, compact: bool) -> tuple[int, int]:
    """Of an array or of records, whose length takes four bytes where it is not compact: -> the length (null: 0), where it ends."""
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
