"""What repeated requests share: the values of a request that waits for its answer, and the packing of its row.

After the walkers have read a request, a template of it is kept: the bytes in which the next requests are probably equal
(`produce_template`, `request_template`). A frame that has these bytes is read in one step, and so is its answer. Every
byte that a row depends on is compared, and any other frame is left to the walkers: the rows are the same.

This is fast (`bench/overhead/index.py`) because of one `unpack` per frame and one `pack` per row, with constants in one
piece; plain tuples instead of objects; and lengths that are compared with the expected value instead of decoded.
"""

from functools import lru_cache
from struct import Struct
from typing import ClassVar, Final

from shoal.protocol.capture.index.columns import CONTEXT, ROW_SIZE, Direction, Handling, Kind
from shoal.protocol.capture.index.pending import Request, RequestAnnotation
from shoal.protocol.wire.types import Topic

__all__ = ["ALWAYS", "API", "NOT_LOOKED", "NO_SOURCE", "Frame", "RowTemplate", "Sent", "Treated", "shared"]

Frame = bytes | bytearray | memoryview

Sent = tuple["RowTemplate", int, int, int, int, int, bytes, RequestAnnotation]
"""A request that waits for its answer: template, correlation id, time (ns), number, frame size, uncompressed size of
the records, batch header, annotation. Not a NamedTuple: creating one takes three times as long."""

Treated = tuple[bytes, bytes, bytes]
"""`names`, kind to spare, and offsets in the source, of an annotated request."""

_LAYOUT: Final = Struct("<qqII44si12s4sq16sib61s")
_pack: Final = _LAYOUT.pack
"""CONTEXT, BATCH and the header; constant fields are one piece."""
API: Final = Struct("<hhh")  # key, version, acks
ALWAYS: Final = Struct("<i6sh")  # size of the answer; API; error
NO_SOURCE: Final = Struct("<qq").pack(-1, -1)
NOT_LOOKED: Final = -1  # keys not inspected
assert _LAYOUT.size == ROW_SIZE
assert Struct("<qqII44si12s4s").size == CONTEXT.size


_LONGEST_SHARED: Final = 512
"""Bytes: a client id may have 32,767, and 4,096 of these would be 134 MB that stay."""


def shared(data: bytes) -> bytes:
    """Equal bytes that the templates of all connections use: they stay in the caches of the CPU."""
    return _shared(data) if len(data) <= _LONGEST_SHARED else data


@lru_cache(maxsize=4096)
def _shared(data: bytes) -> bytes:
    return data


class RowTemplate:
    """`RowMaker.name` sets `names` and `connection`, valid in the sink's `epoch`. `batches`: of each request."""

    __slots__ = ("_what", "batches", "client", "connection", "epoch", "index", "names", "topic")
    kind_and_direction: ClassVar[tuple[Kind, Direction]]

    def __init__(self, client: bytes, topic: Topic, index: int, batches: int) -> None:
        self.client, self.topic, self.index, self.batches = shared(client), topic, index, batches
        self.epoch, self.connection, self.names = -1, 0, b""
        self._what = shared(bytes((*self.kind_and_direction, Handling.PASSED, 0)))

    def row(self, sent: Sent, frame: Frame, now_ns: int, treated: Treated | None) -> bytes | None:
        """`treated`: of an annotated request. None: `frame` is not the answer to this one, or unusual."""
        raise NotImplementedError

    def _row(self, sent: Sent, now_ns: int, always: bytes, base_offset: int, treated: Treated | None) -> bytes:
        _, _, sent_ns, number, size, raw, header, _ = sent
        names, what, source = treated or (self.names, self._what, NO_SOURCE)
        latency = now_ns - sent_ns if now_ns > sent_ns else 0
        connection = self.connection
        return _pack(
            sent_ns,
            latency,
            connection,
            number,
            names,
            size,
            always,
            what,
            base_offset,
            source,
            raw,
            NOT_LOOKED,
            header,
        )

    def as_request(self, sent: Sent) -> Request:
        """The request as an object, for the walkers of its answer."""
        raise NotImplementedError
