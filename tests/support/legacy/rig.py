"""A legacy listener between raw old clients and a scripted broker that has logs and answers Fetch v10 as Kafka does.

Requests, answers and messages are written and read by hand here, so Shoal's code does not test itself. (Batches are
made by Shoal's encoder; the compared values are the original records.)
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import cramjam
import lz4.frame
import trio

from shoal.protocol.legacy.lz4_header import as_standard
from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.config.settings import (
    KIB,
    Address,
    CaptureSettings,
    ClusterSettings,
    LegacySettings,
    Limits,
    ListenerSettings,
    Mode,
    Settings,
)
from shoal.proxy.connection.timeouts import CHECK_SECONDS
from shoal.proxy.legacy.budget import GRACE
from shoal.proxy.legacy.path import LegacyPath
from shoal.proxy.legacy.session import QUIET_SECONDS
from shoal.proxy.lifecycle.server import Server
from tests.support.rig import (
    BrokerSide,
    FakeBroker,
    Peer,
    Rig,
    api_key,
    correlation_id,
    echo,
    free_range,
    request,
    response,
    rig,
    until,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.legacy.budget import BudgetStatistics
    from shoal.proxy.listener.listener import Listener
    from tests.support.tls import TlsStream

FETCH = 1
Place = tuple[str, int]
PLACE = TopicPartition("t", 0)
_INT64 = struct.Struct(">q")


class Batch(NamedTuple):
    first: int
    last: int
    content: bytes


@dataclass
class Log:
    batches: list[Batch] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)  # producer id, first offset, offset of the marker
    error: int = 0
    appended: trio.Event = field(default_factory=trio.Event)

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def append(self, records: Sequence[NewRecord], codec: Codec = Codec.NONE, **fields: int) -> Batch:
        return self.append_batch(encode_batch(records, base_offset=self.end, codec=codec, **fields))

    def append_batch(self, content: bytes) -> Batch:
        content = self.end.to_bytes(8, "big") + content[8:]
        last = self.end + int.from_bytes(content[23:27], "big")
        self.batches.append(Batch(self.end, last, content))
        self.appended.set()
        self.appended = trio.Event()
        return self.batches[-1]

    def append_marker(self, producer_id: int, *, abort: bool) -> None:
        key = struct.pack(">hh", 0, 0 if abort else 1)
        self.append([NewRecord(0, key, bytes(6))], attributes=0x30, producer_id=producer_id, producer_epoch=0)

    def read(self, offset: int, room: int, *, whole: bool) -> bytes:
        """Batches from the one with `offset` on, cut at the limit; at least one batch if `whole`."""
        found = [batch.content for batch in self.batches if batch.last >= offset]
        data = b"".join(found)
        return data[: max(room, len(found[0]))] if found and whole else data[: max(room, 0)]


@dataclass
class LogBroker:
    logs: dict[Place, Log] = field(default_factory=dict)
    fetches: list[dict[Place, int]] = field(default_factory=list)  # the requests
    isolation: list[int] = field(default_factory=list)
    others: list[int] = field(default_factory=list)  # API keys of what else was asked
    sides: list[BrokerSide] = field(default_factory=list)
    throttle_ms: int = 0
    error: int = 0  # of a whole answer, which has no partitions then
    over_quota: int = 0  # so many answers have no partitions, and no error
    silent: bool = False
    deaf: bool = False  # to all but Fetch
    cut_bytes: int = 0  # missing at the end of an answer's content
    rest: trio.Event | None = None  # an answer is sent half before it
    sent: int = 0

    def log(self, place: Place = PLACE) -> Log:
        return self.logs.setdefault(place, Log())

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        if api_key(frame) != FETCH:
            self.others.append(api_key(frame))
            return None if self.deaf else await echo(side, frame)
        reader = Reader(frame, 8)
        assert struct.unpack_from(">h", frame, 6) == (10,)
        correlation_id(frame)
        reader.take(">i")
        reader.string()
        _, max_wait, _, max_bytes, isolation, session, epoch = reader.take(">iiiibii")
        assert (session, epoch) == (0, -1)
        self.isolation.append(isolation)
        asked = {}
        for _ in range(reader.one(">i")):
            topic = reader.string()
            for _ in range(reader.one(">i")):
                index, leader_epoch, offset, _, most = reader.take(">iiqqi")
                assert leader_epoch == -1
                assert (topic, index) not in asked
                asked[topic, index] = (offset, most)
        assert reader.one(">i") == 0
        assert reader.at_end
        if side not in self.sides:
            self.sides.append(side)
        self.fetches.append({place: offset for place, (offset, _) in asked.items()})
        if self.silent:
            return None
        await self._wait(asked, max_wait)
        body = self._body(asked, max_bytes)
        body = body[: len(body) - self.cut_bytes]
        self.sent += len(body)
        whole = response(correlation_id(frame), body)
        half = len(whole) if self.rest is None else len(whole) // 2
        await side.send(whole[:half])
        if self.rest is not None:
            await self.rest.wait()
        return await side.send(whole[half:])

    async def _wait(self, asked: Mapping[Place, tuple[int, int]], max_wait: int) -> None:
        if not asked:
            return
        with trio.move_on_after(max_wait / 1000):
            while not any(
                self.log(place).error or self.log(place).end > offset for place, (offset, _) in asked.items()
            ):
                async with trio.open_nursery() as nursery:
                    for place in asked:
                        nursery.start_soon(self._one_appended, self.log(place), nursery.cancel_scope)

    @staticmethod
    async def _one_appended(log: Log, scope: trio.CancelScope) -> None:
        await log.appended.wait()
        scope.cancel()

    def _body(self, asked: Mapping[Place, tuple[int, int]], max_bytes: int) -> bytes:
        if self.error:
            return struct.pack(">ihii", self.throttle_ms, self.error, 0, 0)
        if self.over_quota:
            self.over_quota -= 1
            return struct.pack(">ihii", 1, 0, 0, 0)
        topics: list[bytes] = []
        whole = True
        for (topic, index), (offset, most) in asked.items():
            log = self.log((topic, index))
            data = b"" if log.error else log.read(offset, min(most, max_bytes), whole=whole)
            whole = whole and not data
            max_bytes -= len(data)
            aborted = [
                (producer, first) for producer, first, marker in log.aborted if marker >= offset and first <= log.end
            ]
            rows = b"".join(struct.pack(">qq", *one) for one in aborted)
            row = struct.pack(">ihqqq", index, log.error, -1 if log.error else log.end, log.end, 0)
            row += struct.pack(">i", len(aborted)) + rows + struct.pack(">i", len(data)) + data
            name = topic.encode()
            topics.append(struct.pack(">h", len(name)) + name + struct.pack(">i", 1) + row)
        return struct.pack(">ihi", self.throttle_ms, 0, 0) + struct.pack(">i", len(topics)) + b"".join(topics)


class Reader:
    """Steps over fields; whatever is not as it should be is an error of struct or an assertion."""

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data, self.pos = data, pos

    def take(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(form, self.data, self.pos)
        self.pos += struct.calcsize(form)
        return values

    def one(self, form: str) -> int:
        (value,) = self.take(form)
        return value

    def some(self, size: int) -> bytes:
        assert 0 <= size <= len(self.data) - self.pos
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def nullable(self) -> bytes | None:
        size = self.one(">i")
        return None if size < 0 else self.some(size)

    def string(self) -> str:
        return self.some(self.one(">h")).decode()

    @property
    def at_end(self) -> bool:
        return self.pos == len(self.data)


class Message(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Given(NamedTuple):
    """One partition of an answer. `padding`: bytes after the last complete message."""

    error: int
    high_watermark: int
    messages: list[Message]
    size: int
    padding: int


def _xerial(data: bytes) -> bytes:
    blocks, pos = [], 16
    while pos < len(data):
        size = int.from_bytes(data[pos : pos + 4], "big")
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[pos + 4 : pos + 4 + size])))
        pos += 4 + size
    return b"".join(blocks)


def _lz4(data: bytes) -> bytes:
    """Whichever checksum its header has (KAFKA-3160)."""
    return bytes(lz4.frame.decompress(as_standard(data)))


def _snappy(data: bytes) -> bytes:
    return _xerial(data) if data[:8] == b"\x82SNAPPY\x00" else bytes(cramjam.snappy.decompress_raw(data))


_OPENERS = {1: gzip.decompress, 2: _snappy, 3: _lz4}


def messages_of(data: bytes, magic: int) -> tuple[list[Message], int]:
    """All whole messages; -> and how many bytes follow them."""
    found: list[Message] = []
    pos = 0
    while len(data) - pos >= 12:
        offset, size = struct.unpack_from(">qi", data, pos)
        if size > len(data) - pos - 12:
            break
        found += _entry(data[pos + 12 : pos + 12 + size], offset, magic)
        pos += 12 + size
    return found, len(data) - pos


def _entry(body: bytes, offset: int, magic: int) -> list[Message]:
    crc, found_magic, attributes = struct.unpack_from(">Ibb", body)
    assert crc == zlib.crc32(body[4:])
    assert found_magic == magic
    reader = Reader(body, 6)
    timestamp = reader.one(">q") if magic else -1
    key, value = reader.nullable(), reader.nullable()
    assert reader.at_end
    if not attributes & 7:
        return [Message(offset, timestamp, key, value)]
    assert key is None
    assert value is not None
    inner, rest = messages_of(_OPENERS[attributes & 7](value), magic)
    assert not rest
    if magic:
        base = offset - inner[-1].offset
        inner = [one._replace(offset=base + one.offset) for one in inner]
    assert inner[-1].offset == offset
    return inner


class OldConsumer(Peer):
    """Reads with Fetch `version` (0-3)."""

    version = 2

    def __init__(self, stream: trio.SocketStream | TlsStream) -> None:
        super().__init__(stream)
        self._numbers = count(1)
        self.port: int = stream.socket.getsockname()[1]

    def question(
        self,
        offsets: Mapping[Place, int] | Sequence[tuple[Place, int]],
        *,
        max_wait_ms: int = 0,
        most: int = 1 << 20,
        max_bytes: int = 50 << 20,
        min_bytes: int = 1,
    ) -> bytes:
        body = struct.pack(">iii", -1, max_wait_ms, min_bytes)
        if self.version == 3:
            body += struct.pack(">i", max_bytes)
        body += struct.pack(">i", len(offsets))
        for (topic, index), offset in offsets.items() if isinstance(offsets, Mapping) else offsets:
            name = topic.encode()
            body += struct.pack(">h", len(name)) + name + struct.pack(">iiqi", 1, index, offset, most)
        return request(FETCH, self.version, next(self._numbers), body)

    async def ask(self, offsets: Mapping[Place, int], **fields: int) -> None:
        await self.send(self.question(offsets, **fields))

    async def answer(self) -> dict[Place, Given]:
        return self.read_answer(await self.frame())

    def read_answer(self, frame: bytes) -> dict[Place, Given]:
        return dict(self.read_parts(frame))

    def read_parts(self, frame: bytes) -> list[tuple[Place, Given]]:
        reader = Reader(frame, 8)
        self.throttle_ms = reader.one(">i") if self.version else 0
        given = []
        for _ in range(reader.one(">i")):
            topic = reader.string()
            for _ in range(reader.one(">i")):
                index, error, high_watermark, size = reader.take(">ihqi")
                messages, rest = messages_of(reader.some(size), self.version >= 2)
                given.append(((topic, index), Given(error, high_watermark, messages, size, rest)))
        assert reader.at_end
        return given

    async def fetch(self, offsets: Mapping[Place, int], **fields: int) -> dict[Place, Given]:
        await self.ask(offsets, **fields)
        return await self.answer()

    async def consume(
        self, offsets: Mapping[Place, int], ends: Mapping[Place, int], **fields: int
    ) -> dict[Place, list[Message]]:
        """Read like a client until everything before `ends` has arrived. Messages below the offset are skipped."""
        at = dict(offsets)
        got: dict[Place, list[Message]] = {place: [] for place in offsets}
        while any(at[place] < end for place, end in ends.items()):
            for place, given in (await self.fetch(at, max_wait_ms=1000, **fields)).items():
                assert not given.error, given.error
                assert given.messages or not given.padding  # RecordTooLargeException
                fresh = [message for message in given.messages if message.offset >= at[place]]
                got[place] += fresh
                at[place] = fresh[-1].offset + 1 if fresh else at[place]
        return got


@dataclass
class LegacyRig:
    inner: Rig
    broker: LogBroker

    async def consumer(self, version: int = 2) -> OldConsumer:
        peer = await self.inner.client()
        consumer = OldConsumer(peer.stream)
        consumer.version = version
        return consumer

    async def slow_consumer(self, version: int = 2, *, node: int | None = None) -> OldConsumer:
        """Its kernel takes little of what it does not read. `node`: at the port of this broker."""
        sock = trio.socket.socket()
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 8 * KIB)
        await sock.connect(("127.0.0.1", self.inner.listener.ports.bound[node].port))
        consumer = OldConsumer(await self.inner.clients.enter_async_context(trio.SocketStream(sock)))
        consumer.version = version
        return consumer

    def connection_of(self, consumer: OldConsumer) -> Connection:
        port = consumer.stream.socket.getsockname()[1]
        (found,) = [connection for connection in self.inner.listener.connections if connection.peer.port == port]
        return found

    async def blocked(self, consumer: OldConsumer) -> Connection:
        """Wait until Shoal waits for it to read."""
        await until(lambda: any(one.peer.port == consumer.port for one in self.inner.listener.connections))
        connection = self.connection_of(consumer)
        await until(lambda: connection.connected and connection.client_out.blocked)
        return connection

    @property
    def budget(self) -> BudgetStatistics:
        return self.path.fetches.budget.statistics()

    @property
    def path(self) -> LegacyPath:
        path = self.inner.listener.path
        assert isinstance(path, LegacyPath)
        return path


@asynccontextmanager
async def legacy_rig(
    *,
    limits: Limits | None = None,
    capture: CaptureSettings | None = None,
    check_seconds: float = CHECK_SECONDS,
    grace: float = GRACE,
    quiet: float = QUIET_SECONDS,
    **options: object,
) -> AsyncIterator[LegacyRig]:
    """`options`: of LegacySettings. At the end nothing may be leased."""
    broker = LogBroker()
    settings = LegacySettings(**options)  # type: ignore[arg-type]

    def path(listener: Listener) -> LegacyPath:
        listener.settings = replace(listener.settings, legacy=True, legacy_options=settings)
        return LegacyPath(listener, grace=grace, quiet=quiet)

    async with rig(broker.answer, path=path, limits=limits, capture=capture, check_seconds=check_seconds) as inner:
        made_rig = LegacyRig(inner, broker)
        yield made_rig
    budget = made_rig.path.fetches.budget.statistics()
    assert (budget.leased, budget.idle, budget.waiting) == (0, 0, 0)


def records(first: int, number: int, size: int = 100, *, seed: int = 0) -> list[NewRecord]:
    """Messages of `size` bytes each that hardly compress; timestamps and keys follow from the number."""
    source = zlib.crc32
    made = []
    for at in range(first, first + number):
        value = b"".join(source(_INT64.pack(at * 1000 + seed + part)).to_bytes(4, "big") for part in range(size // 4))
        made.append(NewRecord(1_700_000_000_000 + at, None if at % 7 == 3 else b"key %d" % at, value))
    return made


def as_messages(first: int, given: Sequence[NewRecord], *, magic: int = 1) -> list[Message]:
    """What an old client reads if the records' offsets begin at `first`."""
    deltas = [at if one.offset_delta is None else one.offset_delta for at, one in enumerate(given)]
    return [
        Message(first + delta, one.timestamp if magic else -1, *(None if x is None else bytes(x) for x in one[1:3]))
        for delta, one in zip(deltas, given, strict=True)
    ]


@asynccontextmanager
async def legacy_before(*addresses: str, limits: Limits | None = None, **options: object) -> AsyncIterator[LegacyRig]:
    """The same listener before real brokers (`host:port`)."""
    bootstrap = tuple(Address(host, int(port)) for host, port in (one.split(":") for one in addresses))
    listener = ListenerSettings(
        name="old",
        cluster="c",
        port=0,
        nodes=free_range(),
        legacy=True,
        legacy_options=LegacySettings(**options),  # type: ignore[arg-type]
    )
    cluster = ClusterSettings(name="c", bootstrap=bootstrap)
    settings = Settings(clusters=(cluster,), listeners=(listener,), limits=limits or Limits())
    server = Server(settings, {Mode.PLAIN: LegacyPath})
    async with trio.open_nursery() as serving:
        await serving.start(server.run)
        async with AsyncExitStack() as clients:
            made = LegacyRig(Rig(server, FakeBroker(), clients), LogBroker())
            yield made
        serving.cancel_scope.cancel()
    assert (made.budget.leased, made.budget.idle, made.budget.waiting) == (0, 0, 0)
