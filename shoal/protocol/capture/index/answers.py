"""Answers from the broker: Fetch v0-v18 is parsed as it arrives, Produce is held (it is short), others are counted.

Fetch  v1 throttle time   v4 last stable offset, aborted transactions   v5 log start offset   v7 error and session
       v11 preferred replica   v12 flexible   v13 topics by id
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from shoal.protocol.capture.index.pending import Request
from shoal.protocol.capture.index.record_sets import RecordSetWalker
from shoal.protocol.capture.index.stream import Abandon, More, read_length, read_tags
from shoal.protocol.messages.produce import LikeAnswers
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import RESPONSE_PREFIX, SIZE_BYTES, read_response_prefix, response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import Topic

__all__ = ["AnswerWalker", "ProduceAnswers", "Said", "read_produced"]

_LEAST: Final = 4
_FETCH: Final = int(ApiKey.FETCH)
_PRODUCE: Final = int(ApiKey.PRODUCE)
_NEWEST_FETCH: Final = 18
_COMPACT_FROM: Final = 12
_INT32: Final = Struct(">i")
_ERROR_AND_SESSION: Final = Struct(">hi")
_PARTITION: Final = Struct(">ih")  # index, error code
_ABORTED_BYTES: Final = 16  # producer id, first offset
HELD: Final = 256 * 1024
"""Bytes of a Produce answer; the partitions of a longer one (6000 of them) stay unknown."""
_LONGEST_LIKE: Final = 4096
"""Bytes of an answer that a connection keeps, to read the next ones by it."""
_PRODUCED: Final = Walkers(
    MESSAGES["ProduceResponse"],
    ("ThrottleTimeMs = 0",),
    Rows("Responses.PartitionResponses", ("Name | TopicId", "Index", "ErrorCode", "BaseOffset", "at BaseOffset")),
)

Said = dict[tuple[Topic, int], tuple[int, int]]
"""Topic and partition -> error code and base offset."""


class AnswerWalker(RecordSetWalker):
    """Takes the request of an answer from `due()` in `began`; calls `ended(answer)` when it is complete.

    `held`: the frame of a Produce answer. `throttle_ms`, `partitions`, `error`: of a Fetch answer.
    """

    __slots__ = (
        "_aborted",
        "_before_aborted",
        "_due",
        "_on_answer",
        "_preferred",
        "held",
        "request",
        "size",
        "throttle_ms",
        "unknown",
    )

    def __init__(self, due: Callable[[], Request | None], on_answer: Callable[["AnswerWalker"], None]) -> None:
        super().__init__(RESPONSE_PREFIX)
        self._due = due
        self._on_answer = on_answer
        self.request: Request | None = None
        self.size = 0
        self.throttle_ms = 0
        self.held = b""
        self.unknown = 0
        self._before_aborted = self._preferred = self._aborted = 0

    def begin(self, view: memoryview, pos: int) -> int:
        request = self._due()
        if request is None:
            return 0
        size, correlation_id = read_response_prefix(view, pos)
        if size < 0 or (not request.is_token and (size < _LEAST or correlation_id != request.correlation_id)):
            return 0
        self.request, self.size = request, size + SIZE_BYTES
        self.throttle_ms, self.held, self.partitions, self.error = 0, b"", [], 0
        self._step = self._first_step(request)
        return self.size

    def _first_step(self, request: Request) -> Callable[[memoryview, int, int], int]:
        version = request.api_version
        if request.api_key == _PRODUCE and self.size <= HELD:
            return self._hold
        if request.api_key == _FETCH:
            if 0 <= version <= _NEWEST_FETCH:
                self.begin_topics(version, flexible_from=_COMPACT_FROM)
                # high watermark; last stable offset; log start offset
                self._before_aborted = _PARTITION.size + 8 + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)
                self._preferred = 4 if version >= 11 else 0
                return self._read_fetch
            self.unknown += 1
        return self._pass

    def ended(self) -> None:
        self.finish()
        self._on_answer(self)
        self.request = None

    def _hold(self, view: memoryview, pos: int, stop: int) -> int:
        self.held += bytes(view[pos:stop])
        return stop

    def _read_fetch(self, view: memoryview, pos: int, stop: int) -> int:
        assert self.request is not None
        version = self.request.api_version
        pos += RESPONSE_PREFIX
        if self._compact:
            pos = read_tags(view, pos)
        throttle_ms = error = 0
        if version >= 1:
            (throttle_ms,) = _INT32.unpack_from(view, pos)
            pos += _INT32.size
        if version >= 7:
            error, _ = _ERROR_AND_SESSION.unpack_from(view, pos)
            pos += _ERROR_AND_SESSION.size
        count, pos = read_length(view, pos, compact=self._compact)
        self.throttle_ms, self.error = throttle_ms, error
        return self.enter_topics(count, pos)

    def read_partition(self, view: memoryview, pos: int, stop: int) -> int:
        if self.request is not None and self.request.api_version < 4:
            return self._read_records(view, pos, pos, pos + self._before_aborted)
        count, behind = read_length(view, pos + self._before_aborted, compact=self._compact)
        if not count:
            return self._read_records(view, pos, pos, behind + self._preferred)
        index, error = _PARTITION.unpack_from(view, pos)
        self._index, self._error, self._aborted = index, error, count
        self._step = self._read_aborted
        return behind

    def _read_records(self, view: memoryview, start: int, partition: int, pos: int) -> int:
        index, error = _PARTITION.unpack_from(view, partition)
        size, pos = read_length(view, pos, compact=self._compact)
        return self.enter(index, error, size, start, pos)

    def _read_aborted(self, view: memoryview, pos: int, stop: int) -> int:
        """Skip the aborted transactions that have arrived."""
        each = _ABORTED_BYTES + self._compact
        here = min((stop - pos) // each, self._aborted)
        if not here:
            raise More
        if self._compact and any(view[pos + _ABORTED_BYTES : pos + here * each : each]):
            raise Abandon  # unknown tagged fields
        self._aborted -= here
        if not self._aborted:
            self._step = self._read_after_aborted
        return pos + here * each

    def _read_after_aborted(self, view: memoryview, pos: int, stop: int) -> int:
        size, behind = read_length(view, pos + self._preferred, compact=self._compact)
        return self.enter(self._index, self._error, size, pos, behind)


class ProduceAnswers:
    """The whole answers to the Produce requests of one connection. Most of them are like the last one that was not."""

    __slots__ = ("_errors", "_like", "_throttle_ms", "_version")

    def __init__(self) -> None:
        self._like: LikeAnswers | None = None
        self._version = self._throttle_ms = 0
        self._errors: list[tuple[tuple[Topic, int], int]] = []

    def read(self, request: Request, frame: bytes | bytearray | memoryview) -> tuple[Said, int] | None:
        """Like `read_produced`. None: not the complete answer to this Produce request, or a long one."""
        size = len(frame)
        due = size - SIZE_BYTES, request.correlation_id
        if not RESPONSE_PREFIX <= size <= HELD or read_response_prefix(frame) != due:
            return None
        if self._like is not None and request.api_version == self._version:
            offsets = self._like.base_offsets(frame)
            if offsets is not None:
                said = {place: (error, at) for (place, error), at in zip(self._errors, offsets, strict=True)}
                return said, self._throttle_ms
        throttle_ms, partitions = _read(request, bytes(frame))
        if size <= _LONGEST_LIKE:
            self._like, self._version = LikeAnswers(frame, [at for *_, at in partitions]), request.api_version
            self._throttle_ms = throttle_ms
            self._errors = [((topic, index), error) for topic, index, error, *_ in partitions]
        return _said(partitions), throttle_ms


def read_produced(request: Request, frame: bytes) -> tuple[Said, int]:
    """Results and throttle time of a held answer; empty if it cannot be read."""
    throttle_ms, partitions = _read(request, frame)
    return _said(partitions), throttle_ms


def _read(request: Request, frame: bytes) -> tuple[int, Sequence[tuple[Topic, int, int, int, int]]]:
    """Throttle time; and topic, partition, error, base offset and its position."""
    if not frame:
        return 0, ()
    try:
        version = request.api_version
        throttle_ms, partitions = _PRODUCED[version](frame, response_body(frame, _PRODUCE, version), len(frame))
    except RemoteProtocolError:
        return 0, ()
    return throttle_ms, partitions


def _said(partitions: Sequence[tuple[Topic, int, int, int, int]]) -> Said:
    return {(topic, index): (error, offset) for topic, index, error, offset, _ in partitions}
