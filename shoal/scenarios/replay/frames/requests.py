"""Turns captured frames into requests that can be sent again, without the state of the old session.

    Produce     producer id, epoch and sequence become -1, the checksum is patched; v13 becomes v12, its topic id a
                name; each batch is otherwise unchanged, byte for byte. Transactional requests are left out: nothing
                would end the transaction
    Fetch       a session's incremental requests become full ones without a session; v13+ becomes v12; offsets continue
                after the replay's own answers (player.py)
    Metadata    sent at v12 or older; the replay finds leaders by itself
    ApiVersions unchanged
    all others  left out and counted: groups, transactions, administration and authentication are valid only for the
                captured cluster at that time

An interpreter reads all frames in order, including answers, which have the session ids and topic ids.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from shoal.protocol.capture.frames.pcapng import CapturedFrame, Sender
from shoal.protocol.messages.fetch import read_fetch_request, read_fetch_response
from shoal.protocol.messages.metadata import read_metadata_response
from shoal.protocol.messages.produce import read_produce_request
from shoal.protocol.messages.sessions import FetchSessions
from shoal.protocol.records.batch import HEADER_SIZE, read_batch_header, stamped_header
from shoal.protocol.records.recordset import split
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.headers import RequestHeader, peek_correlation_id, read_request_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Rows, Walkers
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from shoal.protocol.messages.fetch import FetchRequest
    from shoal.protocol.messages.sessions import FetchOffsets
    from shoal.protocol.wire.types import Topic

__all__ = ["AsItWas", "FetchAgain", "Interpreter", "MetadataAgain", "ProduceAgain", "RawBatch", "Redo"]

NEWEST: Final = 12  # of Produce, Fetch and Metadata: the last that identifies topics by name
_WAITS = Walkers(MESSAGES["FetchRequest"], ("MaxWaitMs", "MinBytes"), oldest=4)
_TOPICS = Walkers(MESSAGES["MetadataRequest"], (), Rows("Topics", ("Name", "TopicId = None")))
_PENDING = 10_000  # requests of a connection without a captured answer


class RawBatch(NamedTuple):
    partition: TopicPartition
    data: bytes
    records: int


class ProduceAgain(NamedTuple):
    version: int
    client_id: str | None
    acks: int
    timeout_ms: int
    batches: tuple[RawBatch, ...]


class FetchAgain(NamedTuple):
    """`partitions`: partition -> captured fetch offset."""

    version: int
    client_id: str | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    partitions: Mapping[TopicPartition, int]


class MetadataAgain(NamedTuple):
    """`topics` None: all."""

    version: int
    client_id: str | None
    topics: tuple[str, ...] | None


class AsItWas(NamedTuple):
    frame: bytes


class Redo(NamedTuple):
    """`connection`: any number that identifies a connection."""

    time_ns: int
    connection: int
    what: What


class _LeftOut(Exception):
    """Carries the reason."""


class _Pending(NamedTuple):
    header: RequestHeader
    fetch: FetchRequest | None
    asked: FetchOffsets | None


@dataclass(slots=True)
class _Connection:
    number: int
    sessions: FetchSessions = field(default_factory=FetchSessions)
    pending: deque[_Pending] = field(default_factory=lambda: deque(maxlen=_PENDING))


class Interpreter:
    """`names`: topic id -> name, as far as known; answers add more. `left_out`: requests, by API and reason."""

    def __init__(self, names: Mapping[bytes, str] = MappingProxyType({})) -> None:
        self.names = dict(names)
        self.left_out: Counter[str] = Counter()
        self._connections: dict[tuple[str, int], _Connection] = {}

    def interpret(self, frames: Iterable[CapturedFrame]) -> Iterator[Redo]:
        """The requests that can be sent again. A frame that is truncated or not understood is left out."""
        for captured in frames:
            of = self._connections.setdefault(
                (captured.proxy, captured.connection), _Connection(len(self._connections))
            )
            if captured.sender is Sender.BROKER:
                self._answer(of, captured.frame)
            elif (what := self._request(of, captured)) is not None:
                yield Redo(captured.time_ns, of.number, what)

    def _request(self, of: _Connection, captured: CapturedFrame) -> What | None:
        try:
            header = read_request_header(captured.frame)
        except RemoteProtocolError:
            self.left_out["not a whole request"] += 1
            return None
        name = API[header.api_key].name if header.api_key in API else f"API {header.api_key}"
        try:
            if captured.withheld is not None:
                raise _LeftOut("withheld by the capture")
            redo = _REDO.get(header.api_key)
            if redo is None:
                self._expect(of, header)
                raise _LeftOut("belongs to that cluster at that time only")
            return redo(self, of, captured.frame, header)
        except (_LeftOut, RemoteProtocolError) as error:
            self.left_out[f"{name}: {error}"] += 1
            return None

    def _expect(
        self,
        of: _Connection,
        header: RequestHeader,
        fetch: FetchRequest | None = None,
        asked: FetchOffsets | None = None,
    ) -> None:
        of.pending.append(_Pending(header, fetch, asked))

    def _answer(self, of: _Connection, frame: bytes) -> None:
        """Brokers answer in order; answers that were not captured are skipped."""
        number = peek_correlation_id(frame)
        while of.pending:
            pending = of.pending.popleft()
            if pending.header.correlation_id == number:
                self._learn(of, pending, frame)
                return

    def _learn(self, of: _Connection, pending: _Pending, frame: bytes) -> None:
        header = pending.header
        try:
            if header.api_key == ApiKey.METADATA:
                topics = read_metadata_response(frame, header.api_version).topics
                self.names.update({key: name for name, key in topics if name is not None and key is not None})
            elif pending.fetch is not None and pending.asked is not None:
                session_id = read_fetch_response(frame, header.api_version).session_id
                of.sessions.answered(pending.fetch, pending.asked, session_id)
        except RemoteProtocolError:
            self.left_out["an answer that cannot be read"] += 1

    def _name(self, topic: Topic) -> str:
        if isinstance(topic, str):
            return topic
        if topic not in self.names:
            raise _LeftOut("a topic id whose name is not in the capture")
        return self.names[topic]

    def _produce(self, of: _Connection, frame: bytes, header: RequestHeader) -> What:
        request = read_produce_request(frame, header.api_version)
        if request.acks:
            self._expect(of, header)
        if request.transactional_id is not None:
            raise _LeftOut("transactional")
        batches = tuple(
            RawBatch(TopicPartition(self._name(produced.topic), produced.partition), *batch)
            for produced in request.partitions
            for batch in _without_producer(frame, produced.start, produced.end)
        )
        version = min(header.api_version, NEWEST)
        return ProduceAgain(version, header.client_id, request.acks, request.timeout_ms, batches)

    def _fetch(self, of: _Connection, frame: bytes, header: RequestHeader) -> What:
        request = read_fetch_request(frame, header.api_version)
        asked = of.sessions.request(request)
        self._expect(of, header, request, asked)
        max_wait, min_bytes = _WAITS[header.api_version](frame, header.body, len(frame))
        partitions = {TopicPartition(self._name(topic), number): offset for (topic, number), offset in asked.items()}
        if not partitions:
            raise _LeftOut("its session is not known")
        version = min(header.api_version, NEWEST)
        limits = max_wait, min_bytes, request.max_bytes, request.isolation_level
        return FetchAgain(version, header.client_id, *limits, partitions)

    def _metadata(self, of: _Connection, frame: bytes, header: RequestHeader) -> What:
        self._expect(of, header)
        (topics,) = _TOPICS[header.api_version](frame, header.body, len(frame))
        names = tuple(self._name(key if name is None else name) for name, key in topics)
        return MetadataAgain(min(header.api_version, NEWEST), header.client_id, names)

    def _versions(self, of: _Connection, frame: bytes, header: RequestHeader) -> What:
        self._expect(of, header)
        return AsItWas(frame)


What = ProduceAgain | FetchAgain | MetadataAgain | AsItWas
_REDO: Final[Mapping[int, Callable[[Interpreter, _Connection, bytes, RequestHeader], What]]] = {
    ApiKey.PRODUCE: Interpreter._produce,
    ApiKey.FETCH: Interpreter._fetch,
    ApiKey.METADATA: Interpreter._metadata,
    ApiKey.API_VERSIONS: Interpreter._versions,
}


def _without_producer(frame: bytes, start: int, end: int) -> Iterator[tuple[bytes, int]]:
    """(batch, records) of a record set."""
    for span in split(frame, start, end).spans:
        header = read_batch_header(frame, span.start, span.end)
        if header.is_transactional or header.is_control:
            raise _LeftOut("transactional")
        payload = frame[span.start + HEADER_SIZE : span.end]
        head = stamped_header(frame[span.start : span.start + HEADER_SIZE], len(payload), -1, -1, -1)
        yield head + payload, header.record_count
