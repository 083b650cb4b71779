"""Counters that the pumps write, and frozen snapshots for reports.

`active == opened - sum(closed.values())` always holds: a connection counts as opened when it is accepted, and as
closed, with exactly one cause, when both of its sockets are closed.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "ANSWERED",
    "GENTLE",
    "LOST_ITS_BROKER",
    "LOUD",
    "PATIENT",
    "ApiCounters",
    "CaptureStatistics",
    "CloseCause",
    "Histogram",
    "ListenerStatistics",
    "PathStatistics",
    "RawStatistics",
    "ServerStatistics",
    "Tally",
    "Traffic",
    "with_earlier",
]


class Histogram:
    """Fixed bounds, cheap enough for every request: one search and two additions.

    `counts` has one entry per bound (values up to it, and above the one before), and one for larger values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, weight: int = 1) -> None:
        """`weight`: how many such values there were."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.sum += value * weight

    def cumulative(self) -> list[int]:
        """For each bound the number of values up to it; the last one is the number of all values."""
        return list(accumulate(self.counts))


class CloseCause(StrEnum):
    CLIENT_CLOSED = "client closed"
    CLIENT_LOST = "client lost"  # reset, or lost while Shoal was sending to it
    CLIENT_PROTOCOL = "client broke the protocol"
    UPSTREAM_UNREACHABLE = "broker unreachable"
    UPSTREAM_LOGIN = "login at the broker failed"
    UPSTREAM_CLOSED = "broker closed"
    UPSTREAM_LOST = "broker lost"
    UPSTREAM_PROTOCOL = "broker broke the protocol"
    SLOW_FRAME = "frame never finished"
    STALLED = "peer does not read"
    IDLE = "idle"
    ABANDONED = "client gone during a held request"
    REFUSED = "too many connections"
    ADDRESS_REFUSED = "address not allowed"
    ADDRESS_FULL = "too many connections of an address"
    TOO_FAST = "too many new connections of an address"
    UNAUTHENTICATED = "too many connections without a login"
    ADDRESS_UNAUTHENTICATED = "too many connections of an address without a login"
    LOGIN_TIMEOUT = "no login in time"
    HANDSHAKE_FAILED = "TLS handshake failed"
    PRINCIPAL_REFUSED = "principal not allowed"
    CLIENT_ID_REFUSED = "client id not allowed"
    LOGIN_FAILED = "login failed"
    SESSION_EXPIRED = "session expired"
    USER_CHANGED = "user removed or changed"
    NO_CREDENTIALS = "no credentials for the principal"
    NO_PORT = "no port for a broker"
    DRAINED = "drained"
    SHUTDOWN = "shut down"
    INTERNAL = "error in Shoal"


# Errors, and problems that an operator must fix; the other causes are normal.
LOUD = frozenset(
    {
        CloseCause.CLIENT_PROTOCOL,
        CloseCause.UPSTREAM_UNREACHABLE,
        CloseCause.UPSTREAM_LOGIN,
        CloseCause.UPSTREAM_PROTOCOL,
        CloseCause.SLOW_FRAME,
        CloseCause.STALLED,
        CloseCause.NO_CREDENTIALS,
        CloseCause.NO_PORT,
        CloseCause.LOGIN_TIMEOUT,
        CloseCause.HANDSHAKE_FAILED,
    }
)
# The client may have sent bytes that are not read: close without discarding what it has yet to receive.
GENTLE = frozenset(
    {
        CloseCause.UPSTREAM_CLOSED,
        CloseCause.UPSTREAM_LOST,
        CloseCause.DRAINED,
        CloseCause.LOGIN_FAILED,
        CloseCause.SESSION_EXPIRED,
        CloseCause.USER_CHANGED,
        CloseCause.NO_CREDENTIALS,
        CloseCause.PRINCIPAL_REFUSED,
    }
)
# The connection ends when the requests that were read are answered.
ANSWERED = frozenset({None, CloseCause.DRAINED, CloseCause.USER_CHANGED})
LOST_ITS_BROKER = frozenset({CloseCause.UPSTREAM_CLOSED, CloseCause.UPSTREAM_LOST})
# The client may still read: it gets the answers to its taken requests, which come over other connections to the broker.
PATIENT = ANSWERED | LOST_ITS_BROKER | {CloseCause.CLIENT_CLOSED}


@dataclass(slots=True, kw_only=True)
class Traffic:
    """Counts of one connection, or their sum. Bytes are counted on both sides of Shoal, because it may change them."""

    requests: int = 0  # frames from clients
    answers: int = 0  # of brokers to clients; Shoal's own are not counted here
    opaque: int = 0  # answers that passed unread
    edited: int = 0  # answers that were read in place, and perhaps changed
    held: int = 0  # answers that were held, and perhaps changed
    asked: int = 0  # Shoal's own requests
    from_client: int = 0
    to_upstream: int = 0
    from_upstream: int = 0
    to_client: int = 0

    def add(self, other: Traffic) -> None:
        """Field by field: a snapshot adds up to 10,000 connections, while the event loop waits."""
        self.requests += other.requests
        self.answers += other.answers
        self.opaque += other.opaque
        self.edited += other.edited
        self.held += other.held
        self.asked += other.asked
        self.from_client += other.from_client
        self.to_upstream += other.to_upstream
        self.from_upstream += other.from_upstream
        self.to_client += other.to_client


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts of one listener: of its closed connections; open ones are added in each snapshot."""

    opened: int = 0
    closed: dict[CloseCause, int] = field(default_factory=lambda: dict.fromkeys(CloseCause, 0))
    traffic: Traffic = field(default_factory=Traffic)
    state_errors: int = 0  # files of the state directory that could not be written
    handshakes: int = 0  # of TLS, done

    @property
    def active(self) -> int:
        return self.opened - sum(self.closed.values())


BROKER_SECONDS = (0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
SHOAL_SECONDS = (0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.01, 0.1, 1.0)


@dataclass(slots=True)
class ApiCounters:
    """Counters of one API and listener. Bytes of answers are the broker's; of answers that Shoal makes, those sent."""

    requests: int = 0
    request_bytes: int = 0
    answers: int = 0
    answer_bytes: int = 0
    mask: int = 0  # the time of one request in mask + 1 is measured
    seen: int = 0  # requests, at the last tick
    broker: Histogram = field(default_factory=lambda: Histogram(BROKER_SECONDS))  # seconds
    shoal: Histogram = field(default_factory=lambda: Histogram(SHOAL_SECONDS))  # seconds


class PathStatistics(Protocol):
    """A snapshot of the counters of a path. Without arguments, a class makes the one in which nothing is counted."""

    def since(self, earlier: PathStatistics | None) -> PathStatistics:
        """The difference to an earlier snapshot; None: to zero."""

    @property
    def happened(self) -> bool:
        """For a difference: there is something to report, even without traffic."""

    def values(self) -> Mapping[str, object]:
        """For machines."""

    def flow(self, seconds: float) -> Iterator[str]:
        """The content of the traffic, reported instead of requests and bytes."""

    def details(self) -> Iterator[str]:
        """Other facts to report, for people."""


def with_earlier(now: tuple[PathStatistics, ...], earlier: tuple[PathStatistics, ...]) -> tuple[PathStatistics, ...]:
    """The sums of both, by kind: a listener goes on counting after its path was replaced."""
    before = {type(statistics): statistics for statistics in earlier}
    both = [_sum(statistics, before.pop(type(statistics), None)) for statistics in now]
    return (*both, *before.values())


def _sum(one: PathStatistics, other: PathStatistics | None) -> PathStatistics:
    return one if other is None else one.since(type(other)().since(other))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerStatistics:
    name: str
    opened: int
    active: int
    closed: Mapping[CloseCause, int]
    traffic: Traffic
    ports: Mapping[int, int]  # node id -> listening port
    in_flight: int = 0  # unanswered requests of clients now, including polls that wait for data
    state_errors: int = 0  # files of the state directory that could not be written
    path: tuple[PathStatistics, ...] = ()  # at most one of a kind
    states: Mapping[str, int] = field(default_factory=dict)  # open connections by state
    handshakes: Mapping[str, int] = field(default_factory=dict)  # of TLS with clients, by result
    apis: Mapping[str, ApiCounters] = field(default_factory=dict)  # by name; live
    gauges: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # of the path, as `Path.gauges`


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureStatistics:
    """Counts of the traffic index, since the start."""

    written: int = 0  # rows
    dropped: int = 0  # rows that could not be written
    bytes: int = 0
    unread: int = 0  # frames that could not be read completely


@dataclass(frozen=True, slots=True, kw_only=True)
class RawStatistics:
    """Counts of the raw capture, since the start. `lost`: frames of which files have at most the header."""

    written: int = 0  # frames
    lost: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatistics:
    listeners: tuple[ListenerStatistics, ...]
    capture: CaptureStatistics | None = None
    raw_capture: RawStatistics | None = None
