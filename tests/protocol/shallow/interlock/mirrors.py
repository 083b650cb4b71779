"""Mirrors for the interlock: they read one source, buffer, and produce through Shoal, directly, or something else."""

from collections import deque
from dataclasses import dataclass, field
from itertools import count

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.fingerprint import Sample
from shoal.protocol.shallow.interlock.evidence import Evidence, EvidenceSettings
from shoal.protocol.shallow.interlock.flow import Fetched, Flow
from shoal.protocol.shallow.interlock.rules import EventKind, HandedOut, Wrap
from shoal.protocol.shallow.interlock.way_back import WayBack
from shoal.protocol.shallow.token import Tokened

TOPIC = "orders"
HOST = "10.0.0.1"


def mark(topic: str, partition: int, offset: int) -> bytes:
    """Instead of the fingerprint of a record with unique content."""
    return f"{topic}/{partition}/{offset}".encode()


def interlock(**changes: float | bool) -> Evidence:
    settings = EvidenceSettings(**({"grace_seconds": 0.0} | changes))  # type: ignore[arg-type]
    return Evidence(salt=b"salt" * 4, first_serial=1, now=0.0, settings=settings)


@dataclass
class Data:
    """One partition of an answer.

    Not `eligible`: none of its batches can be wrapped, and no record can carry a token.
    """

    read: Fetched
    eligible: bool = True
    may_be_wrapped: bool = True
    token: bytes = b""

    def samples(self, first_offset: int) -> list[Sample]:
        _, topic, partition, start, end = self.read
        offsets = range(max(first_offset, start), end)[:8]
        return [Sample(mark(topic, partition, offset), offset, False) for offset in offsets]

    def with_token(self, token: bytes) -> Tokened | None:
        """On the first record."""
        if not self.eligible:
            return None
        self.token = token
        _, topic, partition, start, _ = self.read
        return Tokened((), 1, start, start + 1, mark(topic, partition, start))


def sample_from(rules: Evidence, flow: Flow, read: Fetched, now: float) -> int | None:
    """The offset from which samples would be taken, without taking any."""
    return rules._proving.sample_from(flow, read, now)


@dataclass
class Mirror:
    """`through`: its producer is configured to use Shoal. `relay`: where it is not, the address of another mirror,
    which copies all that this one has produced on to the target listener.
    """

    rules: Evidence
    name: str = "A->B|MirrorSourceConnector-0|replication-consumer"
    through: bool = True
    changes: bool = False
    relay: str | None = None
    host: str = HOST
    client_id: str = "connector-producer-MirrorSourceConnector-0"  # of its producer
    connection: int = field(default_factory=count(1).__next__)
    producer: int = field(default_factory=count(10_000).__next__)
    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    buffer: deque[tuple[str, int, int] | EnvelopeKey] = field(default_factory=deque)
    stranded: list[EnvelopeKey] = field(default_factory=list)  # envelopes that were stored in a topic
    tokens: dict[tuple[str, int, int], bytes] = field(default_factory=dict)  # of records that have one
    strayed: int = 0  # tokens that were stored in a topic
    now: float = 0.0
    flow: Flow = field(init=False)

    def __post_init__(self) -> None:
        self.flow = self.rules.connected(self.host, self.name, self.connection, self.now)

    def fetch(self, now: float, records: int = 4, partition: int = 0, topic: str = TOPIC, **how: bool) -> float | None:
        """One answer with `records` records; -> until when it would be held, in which case it is not sent.

        `eligible=False`: none of them may be wrapped; `patient=False`: no pause while samples are on their way.
        """
        rules, start = self.rules, self.positions.get((topic, partition), 0)
        rules.asked(self.flow, now)
        pause = rules.pause_until(self.flow, now) if how.get("patient", True) else None
        if pause is not None:
            assert pause > now, "paused, and not for any time"
            return pause
        read = Fetched(self.connection, topic, partition, start, start + records)
        data = Data(read, eligible=how.get("eligible", True))
        waits = rules.hold(self.flow, [data], now)
        if waits != [None]:
            assert waits[0] is not None
            assert waits[0] > now, "held, and not for any time"
            return waits[0]
        review = rules.review(self.flow, [data], waits, now)
        handed_out: HandedOut | None = HandedOut(read, read.next_offset)
        match review.decisions:
            case [Tokened()]:
                records, handed_out = 1, None
                self.tokens[topic, partition, start] = data.token
                self.buffer.append((topic, partition, start))
            case [Wrap()] if data.eligible:
                key = self._envelope(read)
                handed_out = HandedOut(read, None, [key])
                self.buffer.append(key)
            case _:
                self.buffer.extend((topic, partition, offset) for offset in range(start, start + records))
        rules.commit(self.flow, review, [handed_out], now)
        self.positions[topic, partition] = start + records
        return None

    def produce(self, now: float, most: int = 1_000_000) -> None:
        while self.buffer and most:
            most -= 1
            item = self.buffer.popleft()
            if isinstance(item, EnvelopeKey):
                self._send_envelope(item, now)
            elif self.through or self.relay:
                self._send_record(item, now)
            else:
                self.strayed += self.tokens.pop(item, None) is not None

    def _send_record(self, item: tuple[str, int, int], now: float) -> None:
        content = b"changed" if self.changes else mark(*item)
        token = self.tokens.pop(item, None)
        if token is not None:
            way = WayBack(self.producer, self.relay or self.host, self.client_id, f"A.{item[0]}")
            self.rules.returned(token, content, way, now)
        if self.rules.listens(f"A.{item[0]}", item[1]):
            self.rules.saw_produced(f"A.{item[0]}", item[1], [content], self.producer, now)

    def wraps(self, now: float, topic: str = TOPIC) -> bool:
        start = self.positions.get((topic, 0), 0)
        return self.rules.may_wrap(self.flow, Fetched(self.connection, topic, 0, start, start + 1), now)

    def leave(self, now: float) -> None:
        self.rules.disconnected(self.flow, self.connection, now)

    def _envelope(self, read: Fetched) -> EnvelopeKey:
        return EnvelopeKey(
            cluster="A",
            topic=read.topic,
            partition=read.partition,
            first_offset=read.fetch_offset,
            last_offset=read.next_offset - 1,
            batches=1,
            records=read.next_offset - read.fetch_offset,
            payload=1000,
            payload_crc=0,
            flow=self.flow.token,
            serial=self.rules.next_serial(),
        )

    def _send_envelope(self, key: EnvelopeKey, now: float) -> None:
        if self.through and not self.changes:
            self.rules.arrived(key, self.producer, now)
        else:
            self.stranded.append(key)


def prove(mirror: Mirror, now: float = 0.0) -> float:
    """Takes the mirror through its turn, and a token to it and back; -> the time afterwards."""
    for _ in range(2):
        until = mirror.fetch(now)
        while until is not None:
            now = until
            until = mirror.fetch(now)
        mirror.produce(now)
    assert mirror.wraps(now), mirror.rules.why_raw(mirror.flow, TOPIC, now)
    return now


def kinds(rules: Evidence) -> list[EventKind]:
    return [event.kind for event in rules.events()]
