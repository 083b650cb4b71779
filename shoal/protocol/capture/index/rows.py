"""Rows from the walkers' results. The common part of all batches of a partition is packed once and prepended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from struct import Struct
from typing import Final, NamedTuple

from shoal.protocol.capture.index.columns import (
    BATCH,
    CONTEXT,
    HEADER_SIZE,
    NO_RECORDS,
    ROW_SIZE,
    Direction,
    Handling,
    Kind,
)
from shoal.protocol.capture.index.pending import BatchSource, FetchOutcome, Request, RequestAnnotation, Treatment
from shoal.protocol.capture.index.record_sets import PartitionRows, SingleBatch, as_rows
from shoal.protocol.capture.index.sink import Sink
from shoal.protocol.capture.index.template import NO_SOURCE, RowTemplate, Treated, shared
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.wire.compression import Codec, stated_size
from shoal.protocol.wire.types import Topic

__all__ = [
    "NO_ANSWER",
    "UNKNOWN_ERROR",
    "Answered",
    "ConnectionInfo",
    "RowMaker",
    "appended",
    "row_of",
]

UNKNOWN_ERROR: Final = -32768
NO_LATENCY: Final = -1
_ATTRIBUTES: Final = slice(21, 23)
_CODEC: Final = 7
_MOST: Final = 0x7FFFFFFF
_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")
_EPOCH_AT: Final = 12  # of partitionLeaderEpoch
_NO_EPOCH: Final = -1
_DELTA_AT: Final = 23  # of lastOffsetDelta
_LOG_OFFSET: Final = Struct("<q")
_SOURCE: Final = Struct("<qq")  # after it


@dataclass(slots=True, kw_only=True)
class ConnectionInfo:
    """The connection of a row. `node` -1: the broker is unknown."""

    connection: int
    listener: str
    cluster: str
    node: int = -1


class Answered(NamedTuple):
    """`at_ns`: Unix time of the answer's first byte; -1: no answer. `size`: of its frame."""

    at_ns: int = -1
    size: int = -1
    throttle_ms: int = 0


NO_ANSWER: Final = Answered()
_DIRECTIONS: Final = {int(ApiKey.PRODUCE): Direction.PRODUCED, int(ApiKey.FETCH): Direction.FETCHED}
_NOTHING_SAID: Final = (UNKNOWN_ERROR, -1)


_WRAPPED: Final = Treatment(handling=Handling.WRAPPED)
_ABORTED: Final = Treatment(handling=Handling.ABORTED)
_NAMES: Final = Struct("<IIIII")  # client, software, listener, cluster, topic
_USUAL: Final = Struct("<qqII16sI16siiii6sh4sq16sib61s")
"""CONTEXT, BATCH and the header; fields that are equal in all rows of a request are one piece."""
_FOUR_NAMES: Final = Struct("<IIII")
_API: Final = Struct("<hhh")
_PRODUCED: Final = bytes((Kind.BATCH, Direction.PRODUCED))
_HANDLINGS: Final = [bytes((handling, 0)) for handling in Handling]
_NOT_LOOKED: Final = -1  # keys not inspected
assert _USUAL.size == ROW_SIZE
_WHERE: Final = Struct("<IIii")  # reason, source topic and partition, node
_NAMES_END: Final = _NAMES.size + _WHERE.size
_PARTITION: Final = Struct("<ii")  # its index, and no throttle time


class RowMaker:
    """Makes rows of one connection. `software` is known after the client's ApiVersions request."""

    __slots__ = ("_elsewhere", "_named", "_names", "_number", "_place", "_sink", "software")

    def __init__(self, place: ConnectionInfo, sink: Sink) -> None:
        self._place = place
        self._sink = sink
        self._number = sink.number
        self._elsewhere = _WHERE.pack(0, 0, -1, place.node)
        self._named: tuple[bytes, str, int] | None = None  # what `_names` are of
        self._names = b""
        self.software = ""

    def name(self, template: RowTemplate) -> None:
        """Pack the common part again: the sink's `epoch` has changed, or a topic's name was unknown."""
        place, number, sink = self._place, self._number, self._sink
        names = (str(template.client, "utf-8", "replace"), self.software, place.listener, place.cluster)
        topic = sink.topic(place.cluster, template.topic) if template.topic else 0
        template.connection = place.connection
        template.names = shared(
            _NAMES.pack(*map(number, names), topic) + self._elsewhere + _PARTITION.pack(template.index, 0)
        )
        template.epoch = sink.epoch if sink.knows(place.cluster, template.topic) else -1

    def treated(self, template: RowTemplate, note: RequestAnnotation) -> Treated:
        """For a template that is named."""
        where, what, offsets = self._treated(note, template.topic, template.index, bytes(template.kind_and_direction))
        return template.names[: _NAMES.size] + where + template.names[_NAMES_END:], what, offsets

    def _treated(
        self, note: RequestAnnotation, topic: Topic, index: int, kind_and_direction: bytes
    ) -> tuple[bytes, bytes, bytes]:
        """Reason to node, kind to spare, and offsets in the source, of a partition's only batch."""
        sources = note.sources.get((topic, index))
        if sources and (source := sources[0]) is not None:
            where, offsets = self._from(source.reason, source.topic, source.partition), _SOURCE.pack(*source[2:4])
            handling = source.handling
        else:
            treatment, offsets = note.treatment, NO_SOURCE
            where = self._from(treatment.reason, treatment.source_topic, treatment.source_partition)
            handling = treatment.handling
        return where, kind_and_direction + _HANDLINGS[handling], offsets

    def request(self, request: Request, answered: Answered, direction: Direction, error: int) -> None:
        """The row of a request without records."""
        context = self._context(request, answered, request.note.treatment, (Kind.REQUEST, direction), error=error)
        self._sink.add(context + NO_RECORDS)

    def batches(
        self,
        request: Request,
        answered: Answered,
        direction: Direction,
        treatment: Treatment,
        rows: PartitionRows,
    ) -> None:
        context = self._context(
            request,
            answered,
            treatment,
            (Kind.BATCH, direction),
            topic=rows.topic,
            partition=rows.partition,
            error=rows.error,
        )
        self._sink.add(context + context.join(rows.tails))

    def produced(self, request: Request, answered: Answered, said: Mapping[tuple[Topic, int], tuple[int, int]]) -> int:
        """Rows of a request other than Fetch, with error code and base offset per partition. Returns the number of
        batches."""
        usual = [rows for rows in request.partitions if not isinstance(rows, PartitionRows)]
        if usual and len(usual) == len(request.partitions):
            self._usual(request, answered, usual, said)
            return len(usual)
        partitions = [as_rows(rows) for rows in request.partitions]
        for rows in partitions:
            self._produced(request, answered, rows, said.get((rows.topic, rows.partition), _NOTHING_SAID))
        if not partitions:
            error = next((error for error, _ in said.values() if error), 0) if said else UNKNOWN_ERROR
            self.request(request, answered, _DIRECTIONS.get(request.api_key, Direction.OTHER), error)
        return sum(len(rows.tails) for rows in partitions)

    def _produced(self, request: Request, answered: Answered, one: PartitionRows, said: tuple[int, int]) -> None:
        error, offset = said
        rows = PartitionRows(one.topic, one.partition, error, appended(one.tails, offset))
        sources = request.note.sources.get((one.topic, one.partition))
        if sources is None:
            self.batches(request, answered, Direction.PRODUCED, request.note.treatment, rows)
        else:
            self.unwrapped(request, answered, rows, sources)

    def _usual(
        self,
        request: Request,
        answered: Answered,
        partitions: Sequence[SingleBatch],
        said: Mapping[tuple[Topic, int], tuple[int, int]],
    ) -> None:
        """Rows of a Produce request with one batch per partition."""
        place, topic_number, note = self._place, self._sink.topic, request.note
        is_answered = answered.at_ns >= 0
        latency = max(answered.at_ns - request.sent_ns, 0) if is_answered else NO_LATENCY
        names = self._names_of(request.client)
        where, what, offsets = self._treated(note, "", -1, _PRODUCED)
        api = _API.pack(request.api_key, request.api_version, request.acks)
        rows = []
        for topic, index, raw, header in partitions:
            error, offset = said.get((topic, index), _NOTHING_SAID)
            if note.sources:
                where, what, offsets = self._treated(note, topic, index, _PRODUCED)
            rows.append(
                _USUAL.pack(
                    request.sent_ns, latency, place.connection, request.number, names,
                    topic_number(place.cluster, topic) if topic else 0, where, index, answered.throttle_ms,
                    request.size, answered.size, api, error, what, offset, offsets, raw, _NOT_LOOKED, header,
                )
            )  # fmt: skip
        self._sink.add(b"".join(rows))

    def _names_of(self, client: bytes) -> bytes:
        """Numbers of client to cluster. Most requests of a connection have the same."""
        named = client, self.software, self._sink.epoch
        if named != self._named:
            place, number = self._place, self._number
            names = str(client, "utf-8", "replace"), self.software, place.listener, place.cluster
            self._named, self._names = named, _FOUR_NAMES.pack(*map(number, names))
        return self._names

    def _from(self, reason: str | None, topic: str | None, partition: int) -> bytes:
        number = self._number
        return _WHERE.pack(number(reason) if reason else 0, number(topic) if topic else 0, partition, self._place.node)

    def unwrapped(
        self, request: Request, answered: Answered, rows: PartitionRows, sources: Sequence[BatchSource | None]
    ) -> None:
        """Batches of an opened envelope, each with its source, and plain ones between them."""
        for tail, source in zip_longest(rows.tails, sources[: len(rows.tails)]):
            treatment = request.note.treatment
            if source is not None:
                tail = _with_source(tail, source.first, source.last)
                treatment = _unwrapped(source)
            one = rows._replace(tails=[tail])
            self.batches(request, answered, Direction.PRODUCED, treatment, one)

    def judged(self, request: Request, answered: Answered, rows: PartitionRows, verdict: FetchOutcome) -> None:
        """Batches of a fetched partition, according to its outcome."""
        below = verdict.given_below
        raw: list[bytes] = []
        wrapped: list[bytes] = []
        aborted: list[bytes] = []
        for tail in rows.tails:
            offset = _first_offset(tail)
            if below is not None and offset >= below:
                break
            inside = any(first <= offset <= last for first, last in verdict.wrapped)
            (aborted if offset in verdict.aborted else wrapped if inside else raw).append(tail)
        for tails, treatment in (
            (wrapped, _WRAPPED),
            (raw, Treatment(handling=Handling.RAW, reason=verdict.reason)),
            (aborted, _ABORTED),
        ):
            if tails:
                self.batches(request, answered, Direction.FETCHED, treatment, rows._replace(tails=tails))

    def _context(
        self,
        request: Request,
        answered: Answered,
        treatment: Treatment,
        what: tuple[Kind, Direction],
        *,
        topic: Topic | None = None,
        partition: int = -1,
        error: int,
    ) -> bytes:
        place, number = self._place, self._number
        is_answered = answered.at_ns >= 0
        return CONTEXT.pack(
            answered.at_ns if is_answered and what[1] is Direction.FETCHED else request.sent_ns,
            max(answered.at_ns - request.sent_ns, 0) if is_answered else NO_LATENCY,
            place.connection,
            request.number,
            number(str(request.client, "utf-8", "replace")),
            number(self.software),
            number(place.listener),
            number(place.cluster),
            self._sink.topic(place.cluster, topic) if topic else 0,
            number(treatment.reason) if treatment.reason else 0,
            number(treatment.source_topic) if treatment.source_topic else 0,
            treatment.source_partition,
            place.node,
            partition,
            answered.throttle_ms,
            request.size,
            answered.size,
            request.api_key,
            request.api_version,
            request.acks,
            error,
            *what,
            treatment.handling,
            0,
        )


def _unwrapped(source: BatchSource) -> Treatment:
    return Treatment(
        handling=source.handling,
        reason=source.reason,
        source_topic=source.topic,
        source_partition=source.partition,
    )


def row_of(batch: memoryview, log_offset: int) -> bytes:
    """The row of a complete batch of magic 2, without its context."""
    codec = Codec(int.from_bytes(batch[_ATTRIBUTES], "big") & _CODEC)
    raw = stated_size(codec, batch[HEADER_SIZE:])
    return BATCH.pack(log_offset, -1, -1, -1 if raw is None or raw > _MOST else raw, -1) + batch[:HEADER_SIZE]


def _first_offset(tail: bytes) -> int:
    """The base offset on the wire."""
    return _INT64.unpack_from(tail, BATCH.size)[0]  # type: ignore[no-any-return]


def _is_fenced(tail: bytes) -> bool:
    """A batch of a mirror topic (shallow/same_offsets/fenced.py): no log and no producer has such an epoch."""
    return _INT32.unpack_from(tail, BATCH.size + _EPOCH_AT)[0] < _NO_EPOCH  # type: ignore[no-any-return]


def _last_delta(tail: bytes) -> int:
    return _INT32.unpack_from(tail, BATCH.size + _DELTA_AT)[0]  # type: ignore[no-any-return]


def appended(tails: Sequence[bytes], base_offset: int) -> list[bytes]:
    """The same rows with the offsets assigned by the broker; -1: unknown. Fenced batches may have gaps between them."""
    if base_offset >= 0 and len(tails) > 1 and _is_fenced(tails[0]):
        moved = base_offset - _first_offset(tails[0])
        return [_LOG_OFFSET.pack(_first_offset(tail) + moved) + tail[_LOG_OFFSET.size :] for tail in tails]
    placed = []
    for tail in tails:
        placed.append(_LOG_OFFSET.pack(base_offset) + tail[_LOG_OFFSET.size :])
        if base_offset >= 0:
            base_offset += _last_delta(tail) + 1
    return placed


def _with_source(tail: bytes, first: int, last: int) -> bytes:
    """The same row with its offsets in the source."""
    return tail[: _LOG_OFFSET.size] + _SOURCE.pack(first, last) + tail[_LOG_OFFSET.size + _SOURCE.size :]
