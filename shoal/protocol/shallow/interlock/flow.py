"""One mirror consumer in the interlock: its positions, its proven topics, and the envelopes that it got."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.wire.types import TopicPartition

__all__ = ["Fetched", "Flow", "FlowPartition", "TopicState"]

MAX_OUTSTANDING = 4096


class Fetched(NamedTuple):
    """One partition of a fetch response, requested at `fetch_offset` over `connection`.

    The next fetch is at `next_offset`.
    """

    connection: int
    topic: str
    partition: int
    fetch_offset: int
    next_offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True, eq=False)
class FlowPartition:
    """A flow in one partition. It may have got plain records below offset `raw`."""

    flow: "Flow"
    raw: int = 0
    next_offset: int = -1
    fresh: bool = True  # it got nothing since it started or jumped here
    reader: int = -1  # connection
    # Serials of envelopes that have not arrived, ascending. A mirror buffers far fewer of one partition.
    outstanding: deque[int] = field(default_factory=lambda: deque(maxlen=MAX_OUTSTANDING))

    def got(self, read: Fetched) -> None:
        """An answer may have a cut batch only, which is nothing."""
        self.fresh &= read.next_offset == read.fetch_offset
        self.next_offset = read.next_offset


@dataclass(slots=True, eq=False)
class GivenToken:
    """A record that was sent with a token (tokens.py), and has not come back."""

    connection: int
    topic: str
    partition: int
    offset: int
    mark: bytes  # fingerprint of the record without the token
    at: float
    awaited: bool = True
    reported: bool = False

    def is_for(self, read: Fetched) -> bool:
        return self.awaited and self.connection == read.connection and self.topic == read.topic


@dataclass(slots=True)
class TopicState:
    # Connections, each of exactly one mirror: those whose samples came back, and those whose token came back, too.
    sampled: set[int] = field(default_factory=set)
    proven: set[int] = field(default_factory=set)
    failures: int = 0  # turns without proof
    retry_at: float = 0.0
    given_at: float | None = None  # when the first sample since the last proof was sent
    matched: bool = False  # a sample came back since
    foreign_records: bool = False  # records of such a topic arrived at the target listener since that are no samples
    why: str | None = None  # why it is not proven, if known
    reported: bool = False
    waits_since: dict[int, float] = field(default_factory=dict)  # by connection: withheld from it until it is proven

    def match(self) -> None:
        self.matched, self.foreign_records, self.given_at = True, False, None
        self.waits_since.clear()

    def leave(self, connection: int) -> None:
        self.sampled.discard(connection)
        self.proven.discard(connection)
        self.waits_since.pop(connection, None)

    def sample(self, connection: int) -> None:
        self.sampled.add(connection)
        self._start_anew()

    def prove(self, connection: int) -> None:
        self.sampled.add(connection)
        self.proven.add(connection)
        self.failures, self.why = 0, None
        self._start_anew()

    def fail(self, why: str | None, retry_at: float) -> None:
        self.failures += 1
        self.retry_at, self.matched, self.why = retry_at, False, why or self.why

    def void(self) -> None:
        self.sampled.clear()
        self.proven.clear()
        self._start_anew()

    def _start_anew(self) -> None:
        self.given_at, self.matched, self.foreign_records, self.reported = None, False, False, False
        self.waits_since.clear()


@dataclass(slots=True, eq=False)
class Flow:
    """The consumer connections of one peer address and client id, from the first opened to the last closed."""

    peer: str
    client_id: str
    token: int
    waiting: bool = False  # not registered, because there are too many
    connections: set[int] = field(default_factory=set)
    producers: set[int] = field(default_factory=set)  # connections that brought evidence or envelopes
    partitions: dict[TopicPartition, FlowPartition] = field(default_factory=dict)
    topics: dict[str, TopicState] = field(default_factory=dict)
    failures: int = 0
    retry_at: float = 0.0
    ambiguous_until: float = 0.0
    arrived: bool = False  # an envelope arrived since the proof
    silent_since: float | None = None  # when the first envelope after the last arrival was sent
    silent_bytes: int = 0
    asked_at: float = 0.0  # its last fetch request
    outstanding: int = 0  # envelopes in all partitions
    stops: int = 0  # since an envelope arrived
    stopped: str | None = None  # why wrapping stopped
    tokens: dict[bytes, GivenToken] = field(default_factory=dict)
    vouched: set[int] = field(default_factory=set)  # connections whose token came back
    unanswered: int = 0  # tokens sent over other connections since one came back
    token_at: float = 0.0  # earliest time of the next token
    detour: str | None = None  # how another mirror brought a token, since one came back correctly

    def __str__(self) -> str:
        return f"{self.client_id!r} at {self.peer}"

    def topic(self, name: str) -> TopicState:
        return self.topics.setdefault(name, TopicState())

    @property
    def is_proven(self) -> bool:
        return any(state.proven for state in self.topics.values())

    @property
    def is_sampled(self) -> bool:
        """True if samples of a topic came back."""
        return any(state.sampled for state in self.topics.values())

    @property
    def is_stranded(self) -> bool:
        """True if its first envelopes, or a token before them, were sent, and none has arrived."""
        return (self.silent_since is not None and not self.arrived) or self.has_lost_a_token

    @property
    def has_lost_a_token(self) -> bool:
        return self.unanswered > 0 and not self.vouched

    def leave(self, connection: int) -> None:
        self.connections.discard(connection)
        self.vouched.discard(connection)
        for token in [token for token, given in self.tokens.items() if given.connection == connection]:
            del self.tokens[token]
        for state in self.topics.values():
            state.leave(connection)

    def void(self) -> None:
        """Drop all evidence. Outstanding envelopes may still arrive, but are not awaited."""
        for state in self.topics.values():
            state.void()
        for partition in self.partitions.values():
            partition.outstanding.clear()
        self.producers.clear()
        self.vouched.clear()
        self.tokens.clear()
        self.arrived, self.silent_since, self.silent_bytes, self.outstanding = False, None, 0, 0

    def hand_out(self, partition: FlowPartition, envelopes: Sequence[EnvelopeKey], now: float) -> None:
        self.outstanding -= len(partition.outstanding)
        partition.outstanding.extend(key.serial for key in envelopes)
        self.outstanding += len(partition.outstanding)
        self.silent_bytes += sum(key.carried for key in envelopes)
        if envelopes and self.silent_since is None:
            self.silent_since = now

    def ask(self, now: float, longest: float) -> None:
        """A fetch request. At most `longest` of the time since the last one counts as silence: it was paused."""
        if self.silent_since is not None:
            self.silent_since += max(now - max(self.asked_at, self.silent_since) - longest, 0.0)
        self.asked_at = now

    def silence(self, now: float, longest: float) -> float:
        """How long (s) no outstanding envelope has arrived while the flow continued to fetch."""
        since = now if self.silent_since is None else self.silent_since
        return min(now, max(self.asked_at, since) + longest) - since

    def arrive(self, partition: FlowPartition, serial: int, now: float) -> None:
        """A partition keeps its order, so earlier envelopes have arrived or never will."""
        while partition.outstanding and partition.outstanding[0] <= serial:
            partition.outstanding.popleft()
            self.outstanding -= 1
        self.arrived, self.stops = True, 0
        self.silent_since = now if self.outstanding else None
        self.silent_bytes = 0

    def jump(self, partition: FlowPartition, offset: int) -> None:
        """The consumer continues at another offset: it may have dropped what it got in this partition."""
        partition.next_offset, partition.fresh = offset, True
        self.outstanding -= len(partition.outstanding)
        partition.outstanding.clear()
        if not self.outstanding:
            self.silent_since, self.silent_bytes = None, 0
