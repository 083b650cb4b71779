"""The interlock between a wrapping and an unwrapping listener, for the paths; `protocol.shallow` has the rules.

This module adds the clock, connection numbers and the log. Each call ticks the rules, at most once a second.

Each wrapping listener has its own interlock and settings: partitions are those of its cluster. An unwrapping listener
may be the pair of several (two sources, one target): `Interlocks` shows its produced records to all of them, and each
recognises its own.
"""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from secrets import randbits, token_bytes
from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.fingerprint import fingerprint, produced_fingerprints
from shoal.protocol.shallow.interlock.evidence import Evidence, EvidenceSettings
from shoal.protocol.shallow.interlock.explain import standing
from shoal.protocol.shallow.interlock.rules import AlwaysWrap, EventKind
from shoal.protocol.shallow.interlock.way_back import WayBack
from shoal.protocol.shallow.refused import RefusedRanges
from shoal.protocol.shallow.same_offsets.places import Places
from shoal.proxy.config.settings import Address
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.shallow.interlock.flow import Flow
    from shoal.protocol.shallow.interlock.rules import InterlockRules
    from shoal.protocol.shallow.locator import LocatorRecord
    from shoal.protocol.shallow.same_offsets.places import ReturnedLocator
    from shoal.protocol.shallow.unwrap.plan import ReturnedToken
    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.config.settings import ListenerSettings, ShallowSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.shallow.claims.claim_checks import ClaimChecks

__all__ = ["Interlock", "Interlocks"]

log = logging.getLogger("shoal.interlock")

_TICK_SECONDS = 1.0
_MOST_SHOWN = 1000  # flows in /status, and topics of each
_SERIAL_BITS = 62  # of the random first serial, so that serials of different processes differ
_EVENTS = {
    EventKind.PROVEN: "flow-proven",
    EventKind.STOPPED: "flow-stopped",
    EventKind.STRAYED: "flow-strayed",
    EventKind.PAUSED: "flow-paused",
    EventKind.LOST: "flow-lost",
    EventKind.NO_EVIDENCE: "flow-without-evidence",
}
_LEVELS = {
    EventKind.PROVEN: logging.INFO,
    EventKind.STOPPED: logging.ERROR,
    EventKind.STRAYED: logging.ERROR,
    EventKind.PAUSED: logging.WARNING,
    EventKind.LOST: logging.WARNING,
    EventKind.NO_EVIDENCE: logging.WARNING,
}


class Interlock:
    """`takes_sets`: the known target brokers accept several batches in one record set.

    The unwrapping side sets it; the wrapping side then also wraps tiny batches. `learns_sets`: a probe is running.
    `refused`: batches that the target refused; the unwrapping side adds them, and the wrapping side no longer wraps
    them. `checks`: batches that stay here; None without a pair.
    """

    checks: ClaimChecks | None = None

    def __init__(self, rules: InterlockRules, *, any_producer: bool = False) -> None:
        self.rules = rules
        self.places = Places(token_bytes(32), any_producer=any_producer)
        self.takes_sets = False
        self.refused = RefusedRanges()
        self._learning = 0
        self._numbers = count(1)
        self._producers: dict[Connection, int] = {}
        self._ticked = float("-inf")
        self._change = trio.Event()

    @classmethod
    def of_pair(cls, settings: ShallowSettings, target: ListenerSettings) -> Interlock:
        """Between two listeners of this process; `settings` are those of the wrapping one."""
        bounds = EvidenceSettings(
            evidence_seconds=settings.evidence_seconds,
            evidence_bytes=settings.evidence_bytes,
            connection_bytes=2 * settings.fetch_max_bytes,
            any_producer=settings.any_producer,
            listener=f"the target listener ({Address(target.advertised_host or target.host, target.port)})",
        )
        return cls(
            Evidence(
                salt=token_bytes(32),
                first_serial=randbits(_SERIAL_BITS),
                now=trio.current_time(),
                settings=bounds,
            ),
            any_producer=settings.any_producer,
        )

    @classmethod
    def unpaired(cls) -> Interlock:
        """The operator vouches for the other end (`unpaired = true`)."""
        return cls(AlwaysWrap(salt=token_bytes(32), first_serial=randbits(_SERIAL_BITS), token=randbits(_SERIAL_BITS)))

    def status(self) -> list[dict[str, object]]:
        """The flows, and for each of their topics why it is not wrapped (None: it is)."""
        now = trio.current_time()
        return [self._flow_status(flow, now) for flow in islice(self.rules.flows(), _MOST_SHOWN)]

    def _flow_status(self, flow: Flow, now: float) -> dict[str, object]:
        topics = [
            {"topic": topic, "state": standing(flow, topic, now).value, "why": self.rules.why_raw(flow, topic, now)}
            for topic in islice(list(flow.topics), _MOST_SHOWN)
        ]
        return {
            "client_id": flow.client_id,
            "peer": flow.peer,
            "connections": len(flow.connections),
            "producers": len(flow.producers),
            "partitions": len(flow.partitions),
            "outstanding_envelopes": flow.outstanding,
            "number_of_topics": len(flow.topics),
            "topics": topics,
        }

    def standings(self) -> Counter[str]:
        """How many topics of all flows are in each state, by its name."""
        now = trio.current_time()
        return Counter(standing(flow, topic, now).value for flow in self.rules.flows() for topic in flow.topics)

    def begin(self) -> None:
        """The Shoal before has ended, and mirrors may still have records of it in flight."""
        self.rules.begin(trio.current_time())

    # -- fetch side --------------------------------------------------------------------------------------------------

    def consumer_opened(self, connection: Connection, client_id: str) -> tuple[Flow, int]:
        """-> (the connection's flow, its number)."""
        number = next(self._numbers)
        return self.rules.connected(connection.peer.host, client_id, number, trio.current_time()), number

    def consumer_closed(self, flow: Flow, number: int) -> None:
        self.rules.disconnected(flow, number, trio.current_time())
        self._log_events()

    def tick(self) -> float:
        """-> now (s)."""
        now = trio.current_time()
        if now - self._ticked >= _TICK_SECONDS:
            self._ticked = now
            self.rules.tick(now)
        self._log_events()
        return now

    async def change(self, until: float) -> None:
        """Wait for records at the target listener, at the latest until `until`."""
        with trio.move_on_at(until):
            await self._change.wait()

    @property
    def learns_sets(self) -> bool:
        return self._learning > 0 and not self.takes_sets

    @contextmanager
    def learning_sets(self) -> Iterator[None]:
        self._learning += 1
        try:
            yield
        finally:
            self._learning -= 1
            self.changed()

    def changed(self) -> None:
        """Something is known that answers may wait for."""
        self._change.set()
        self._change = trio.Event()

    # -- produce side ------------------------------------------------------------------------------------------------

    def producer_opened(self, connection: Connection) -> None:
        self._producers[connection] = next(self._numbers)

    def producer_closed(self, connection: Connection) -> None:
        self.rules.producer_disconnected(self._producers.pop(connection), trio.current_time())
        self._log_events()

    def arrived(self, connection: Connection, envelopes: Sequence[EnvelopeKey]) -> None:
        now = self.tick()
        for key in envelopes:
            self.rules.arrived(key, self._producers[connection], now)
        self.changed()

    def returned(self, connection: Connection, target: TopicPartition, tokens: Sequence[ReturnedToken]) -> None:
        now, salt, way = self.tick(), self.rules.salt, self._way(connection, target.topic)
        for token in tokens:
            mark = fingerprint(salt, target.partition, token.timestamp, token.record)
            self.rules.returned(token.token, mark, way, now)
        self._log_events()
        self.changed()

    def located(self, connection: Connection, target: TopicPartition, locator: LocatorRecord) -> ReturnedLocator | None:
        """None: it is not one of this listener's."""
        return self.places.returned(locator, target.partition, self._way(connection, target.topic))

    def _way(self, connection: Connection, topic: str) -> WayBack:
        return WayBack(self._producers[connection], connection.peer.host, connection.client_id or "", topic)

    def produced(self, connection: Connection, topic: str, partition: int, record_set: memoryview) -> None:
        """Plain records for the target; decoded only while they may be evidence."""
        if self.rules.listens(topic, partition):
            marks = produced_fingerprints(record_set, 0, len(record_set), salt=self.rules.salt, partition=partition)
            self.rules.saw_produced(topic, partition, marks, self._producers[connection], self.tick())
            self._log_events()
            self.changed()

    def _log_events(self) -> None:
        for found in self.rules.events():
            text = f"{found.kind}: {found.text}"
            values = event(text, client_id=found.flow.client_id, peer=found.flow.peer, topic=found.topic)
            log.log(_LEVELS[found.kind], _EVENTS[found.kind], extra=values)


class Interlocks:
    """The interlocks of the wrapping listeners paired with one unwrapping listener; empty without a pair here."""

    def __init__(self, interlocks: Sequence[Interlock]) -> None:
        self._all = tuple(interlocks)
        self.paired = bool(self._all)
        self.refused = RefusedRanges()
        self.have_left: set[str | None] = set()  # the clusters of those that have left, by id and name; None: not known
        self._producers: dict[Connection, None] = {}  # open
        self._takes_sets = False
        for interlock in self._all:
            interlock.refused = self.refused

    def __iter__(self) -> Iterator[Interlock]:
        return iter(self._all)

    def join(self, interlock: Interlock) -> None:
        """A new wrapping listener is paired. Its flows have yet to prove that they produce over one of these."""
        self._all = (*self._all, interlock)
        self.paired = True
        interlock.refused, interlock.takes_sets = self.refused, self._takes_sets
        for connection in self._producers:
            interlock.producer_opened(connection)

    def leave(self, interlock: Interlock) -> None:
        self._all = tuple(other for other in self._all if other is not interlock)
        self.paired = bool(self._all)
        if interlock.checks is not None:
            self.have_left |= interlock.checks.names

    def say_takes_sets(self, takes_sets: bool) -> None:
        self._takes_sets = takes_sets
        for interlock in self._all:
            interlock.takes_sets = takes_sets

    @contextmanager
    def learning_sets(self) -> Iterator[None]:
        with ExitStack() as stack:
            for interlock in self._all:
                stack.enter_context(interlock.learning_sets())
            yield

    def producer_opened(self, connection: Connection) -> None:
        self._producers[connection] = None
        for interlock in self._all:
            interlock.producer_opened(connection)

    def producer_closed(self, connection: Connection) -> None:
        del self._producers[connection]
        for interlock in self._all:
            interlock.producer_closed(connection)

    def arrived(self, connection: Connection, envelopes: Sequence[EnvelopeKey]) -> None:
        for interlock in self._all:
            interlock.arrived(connection, envelopes)

    def returned(self, connection: Connection, target: TopicPartition, tokens: Sequence[ReturnedToken]) -> None:
        for interlock in self._all:
            interlock.returned(connection, target, tokens)

    @property
    def checks(self) -> Iterator[ClaimChecks]:
        return (interlock.checks for interlock in self._all if interlock.checks is not None)

    def produced(self, connection: Connection, topic: str, partition: int, record_set: memoryview) -> None:
        for interlock in self._all:
            interlock.produced(connection, topic, partition, record_set)
