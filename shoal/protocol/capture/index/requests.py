"""Requests to the broker: Produce v0-v13 is parsed; only the header of others is read.

v0-v2    Produce without a transactional id      v3-v8    with one; RECORDS with an int32 length
v9-v12   flexible: header tags, compact lengths  v13      topics by id
"""

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from shoal.protocol.capture.index.columns import HEADER_SIZE
from shoal.protocol.capture.index.pending import TOKEN, Request
from shoal.protocol.capture.index.produce_template import ProduceTemplate
from shoal.protocol.capture.index.produce_template import template_of as produce_template_of
from shoal.protocol.capture.index.record_sets import MAX_BATCHES, RecordSetWalker, as_rows, read_topic
from shoal.protocol.capture.index.request_template import RequestTemplate
from shoal.protocol.capture.index.request_template import template_of as request_template_of
from shoal.protocol.capture.index.sizes import NOT_HERE, said_size
from shoal.protocol.capture.index.stream import Abandon, More, read_length, read_name, read_tags
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import REQUEST_PREFIX, SIZE_BYTES, read_request_prefix, read_size
from shoal.protocol.wire.types import Topic

__all__ = ["MOST_TEMPLATES", "RequestWalker", "Template"]

MOST_TEMPLATES: Final = 4
"""A connection keeps so many: enough for a producer to a few topics."""
Template = ProduceTemplate | RequestTemplate
_LEAST: Final = 8
_PRODUCE: Final = int(ApiKey.PRODUCE)
_NEWEST_PRODUCE: Final = 13
_TRANSACTIONAL_FROM, _COMPACT_FROM = 3, 9
_ACKS: Final = Struct(">hi")  # acks, timeout
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_SOFTWARE_FROM: Final = 3  # KIP-511
_CONTROLLED_SHUTDOWN: Final = int(ApiKey.CONTROLLED_SHUTDOWN)
_INDEX: Final = Struct(">i")
_NO_TAGS: Final = bytes(2)  # of the topic and the whole request
_HEAD: Final = 4 + 4 + HEADER_SIZE  # of a partition: its index, the length of its records and their header
_BATCH_START: Final = Struct(">i4xb4xh").unpack_from  # length, magic, attributes,
_BATCH_AT: Final = 8  # after the base offset
_LENGTH_END: Final = 12
_CODEC: Final = 7


class Head(NamedTuple):
    """The start of a Produce request, up to its first partition. `middle`: its bytes after the correlation id."""

    middle: bytes
    version: int
    client: bytes
    acks: int
    topics: int
    topic: Topic
    partitions: int


class RequestWalker(RecordSetWalker):
    """Calls `sent(request)` for each complete request. `tokens`: expected SASL tokens, which have no header."""

    __slots__ = ("_head", "_request", "_sent", "_templates", "number", "software", "tokens", "unknown")

    def __init__(self, sent: Callable[[Request], None]) -> None:
        super().__init__(REQUEST_PREFIX)
        self._sent = sent
        self.number = 0
        self.tokens = 0
        self.unknown = 0  # Produce requests of an unknown version
        self.software = ""
        self._request = Request(TOKEN, 0, 0, 0, 0)
        self._templates: list[Template] = []
        self._head: Head | None = None  # of the last Produce request; the next one probably has the same

    @property
    def is_between(self) -> bool:
        """True between two frames, when the next one may be read later."""
        return not (self._left or self._carry or self.tokens or self.sampler is not None or self.lost)

    @property
    def known(self) -> Sequence[Template]:
        """Templates that may read the next frame; none while the walker must be fed."""
        return self._templates if self.is_between else ()

    def feed(self, chunk: memoryview) -> None:
        if self._head is not None and self.is_between and self._read_at_once(chunk, self._head):
            return
        super().feed(chunk)
        if self._request.size == len(chunk) and self.is_between:
            self._learn(chunk)

    def _read_at_once(self, chunk: memoryview, head: Head) -> bool:
        """A whole request with this head, one topic and one batch in each partition; -> whether it is one."""
        size = len(chunk)
        pos = REQUEST_PREFIX + len(head.middle)
        if size <= pos or head.topics != 1 or head.partitions > MAX_BATCHES:
            return False
        length, key, version, correlation_id = read_request_prefix(chunk)
        if length + SIZE_BYTES != size or key != _PRODUCE or version != head.version:
            return False
        if chunk[REQUEST_PREFIX:pos] != head.middle:
            return False
        self.begin_topics(version, flexible_from=_COMPACT_FROM)
        self._topic, self._partitions, self._left = head.topic, head.partitions, size - pos
        pos = self._read_usual(chunk, pos, size)
        self._left = 0
        if self._partitions or bytes(chunk[pos:]) != (_NO_TAGS if self._compact else b""):
            return False
        self.number += 1
        request = self._request = Request(_PRODUCE, version, correlation_id, size, self.number)
        request.client, request.acks, request.partitions = head.client, head.acks, self.partitions
        self._sent(request)
        return True

    def _learn(self, frame: memoryview) -> None:
        """From a whole request."""
        request = self._request
        template: Template | None = None
        if request.api_key != _PRODUCE:
            template = request_template_of(frame, request)
        elif len(self.partitions) == 1 and self.batches == 1:
            template = produce_template_of(frame, request, as_rows(self.partitions[0]))
        if template is not None:
            self._templates = [template, *self._templates[: MOST_TEMPLATES - 1]]

    def forget(self) -> None:
        """All templates."""
        self._templates = []

    def expect_tokens(self, count: int) -> None:
        self.tokens = count
        self.prefix = SIZE_BYTES if count else REQUEST_PREFIX

    def begin(self, view: memoryview, pos: int) -> int:
        self.number += 1
        if self.tokens:
            return self._begin_token(view, pos)
        size, key, version, correlation_id = read_request_prefix(view, pos)
        if size < _LEAST:
            return 0
        whole: int = size + SIZE_BYTES
        self._request = Request(key, version, correlation_id, whole, self.number)
        self.partitions, self.batches = [], 0
        self._step = self._read_header
        return whole

    def _begin_token(self, view: memoryview, pos: int) -> int:
        size: int = max(read_size(view, pos)[0], 0) + SIZE_BYTES
        self.expect_tokens(self.tokens - 1)
        self._request = Request(TOKEN, 0, 0, size, self.number)
        self.partitions, self.batches = [], 0
        self._step = self._pass
        return size

    def ended(self) -> None:
        self.finish()
        self._request.partitions = self.partitions
        self._sent(self._request)

    def _read_header(self, view: memoryview, pos: int, stop: int) -> int:
        request, start = self._request, pos
        pos += REQUEST_PREFIX
        if request.api_key == _CONTROLLED_SHUTDOWN and not request.api_version:
            return start + self._left
        if request.api_key == _PRODUCE and (head := self._head_at(view, start)) is not None:
            request.client, request.acks = head.client, head.acks
            self.begin_topics(head.version, flexible_from=_COMPACT_FROM)
            self._topics, self._topic, self._partitions = head.topics, head.topic, head.partitions
            self._step = self.read_partition
            return pos + len(head.middle)
        client, pos = read_name(view, pos, compact=False)
        request.client = client
        if request.api_key == _PRODUCE:
            if 0 <= request.api_version <= _NEWEST_PRODUCE:
                self.begin_topics(request.api_version, flexible_from=_COMPACT_FROM)
                self._step = self._read_produce
                return pos
            self.unknown += 1
        elif request.api_key == _API_VERSIONS and request.api_version >= _SOFTWARE_FROM:
            self._step = self._read_software
            return pos
        return start + self._left

    def _head_at(self, view: memoryview, start: int) -> Head | None:
        """None: it has not arrived completely, or the steps must read it."""
        head, version, pos = self._head, self._request.api_version, start + REQUEST_PREFIX
        if head is None or head.version != version or view[pos : pos + len(head.middle)] != head.middle:
            head = self._head = _read_head(view, pos, version)
        return None if head is None or len(head.middle) > self._left - REQUEST_PREFIX else head

    def _read_software(self, view: memoryview, pos: int, stop: int) -> int:
        start = pos
        pos = read_tags(view, pos)
        name, pos = read_name(view, pos, compact=True)
        version, pos = read_name(view, pos, compact=True)
        self.software = str(name + b"/" + version, "utf-8", "replace")
        return start + self._left

    def _read_produce(self, view: memoryview, pos: int, stop: int) -> int:
        version = self._request.api_version
        if self._compact:
            pos = read_tags(view, pos)
        if version >= _TRANSACTIONAL_FROM:
            _, pos = read_name(view, pos, compact=self._compact)
        acks, _ = _ACKS.unpack_from(view, pos)
        count, pos = read_length(view, pos + _ACKS.size, compact=self._compact)
        self._request.acks = acks
        return self.enter_topics(count, pos)

    def read_partition(self, view: memoryview, pos: int, stop: int) -> int:
        start = pos
        if self.sampler is None and self.batches + self._partitions <= MAX_BATCHES:
            pos = self._read_usual(view, pos, stop)
            if pos != start:
                return pos
        (index,) = _INDEX.unpack_from(view, pos)
        size, pos = read_length(view, pos + _INDEX.size, compact=self._compact)
        return self.enter(index, 0, size, start, pos)

    def _read_usual(self, view: memoryview, pos: int, stop: int) -> int:
        """Read partitions with one batch each, as usual, in one loop, as long as their heads are in view. Others are
        left to the steps.
        """
        compact, topic, left, add = self._compact, self._topic, self._partitions, self.partitions.append
        end, last, before = pos + self._left, stop - _HEAD, self._partitions
        while left and pos <= last:
            (index,) = _INDEX.unpack_from(view, pos)
            size, at = _records_length(view, pos + _INDEX.size, compact=compact)
            behind = at + size
            length, magic, attributes = _BATCH_START(view, at + _BATCH_AT)
            if length + _LENGTH_END != size or magic != 2 or size < HEADER_SIZE or behind + compact > end:
                break
            raw, codec = size - HEADER_SIZE, attributes & _CODEC
            if codec:
                raw = said_size(codec, view, at + HEADER_SIZE, behind, stop)
                if raw == NOT_HERE:
                    break
            if compact and (behind >= stop or view[behind]):
                break
            add((topic, index, raw, bytes(view[at : at + HEADER_SIZE])))
            pos, left = behind + compact, left - 1
        if left != before:
            self.batches += before - left
            self._partitions = left
            self._step = self.read_partition if left else self._end_topic
        return pos


def _read_head(view: memoryview, start: int, version: int) -> Head | None:
    if not 0 <= version <= _NEWEST_PRODUCE:
        return None
    compact = version >= _COMPACT_FROM
    try:
        client, pos = read_name(view, start, compact=False)
        pos = read_tags(view, pos) if compact else pos
        if version >= _TRANSACTIONAL_FROM:
            _, pos = read_name(view, pos, compact=compact)
        acks, _ = _ACKS.unpack_from(view, pos)
        topics, pos = read_length(view, pos + _ACKS.size, compact=compact)
        topic, pos = read_topic(view, pos, version, compact=compact)
        partitions, pos = read_length(view, pos, compact=compact)
    except (More, Abandon, IndexError, struct_error):
        return None
    if pos > len(view) or not (topics and partitions):
        return None
    return Head(bytes(view[start:pos]), version, client, acks, topics, topic, partitions)


def _records_length(view: memoryview, pos: int, *, compact: bool) -> tuple[int, int]:
    """Like `read_length` for at least four bytes; a longer compact length gives 0."""
    if not compact:
        return _INDEX.unpack_from(view, pos)[0], pos + _INDEX.size
    value = view[pos]
    if value < 0x80:
        return value - 1, pos + 1
    value += (view[pos + 1] << 7) - 0x80
    if value < 0x4000:
        return value - 1, pos + 2
    value += (view[pos + 2] << 14) - 0x4000
    return (value - 1 if value < 0x200000 else 0), pos + 3
