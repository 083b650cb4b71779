"""The places of all mirrors at one wrapping listener, and the partitions of mirror topics that wait.

A locator is a record that would be stored if the mirror did not produce through Shoal. So a mirror gets one at a time,
with growing pauses, until one has come back; then each partition has its own.

`version`: everything known of a partition's copy is dropped by raising it, for all mirrors (`lose`). A stopped
partition is located again after a while, so it continues by itself when its cause is gone.
"""

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from itertools import count
from typing import NamedTuple

from shoal.protocol.shallow.interlock.flow import Flow
from shoal.protocol.shallow.interlock.way_back import WayBack, detour
from shoal.protocol.shallow.locator import LocatorRecord
from shoal.protocol.shallow.same_offsets.place import LOCATOR_SECONDS, Place, PlaceState
from shoal.protocol.shallow.token import TOKEN_BYTES
from shoal.protocol.wire.types import TopicPartition

__all__ = ["STOPPED_SECONDS", "Given", "Places", "ReturnedLocator", "Stop"]

STOPPED_SECONDS = 15.0
"""A stopped partition is tried again after this time."""
_BACK_OFF = (0.0, 2.0, 5.0, 15.0, 30.0)  # after so many locators that did not come back
MAX_GIVEN = 10_000
"""Locators that may still come back, 300 bytes each; above it the oldest are forgotten, and given again."""
MAX_FLOWS = 1_000
"""Lives of mirrors' consumers. Above it the one that has asked for nothing for the longest time is forgotten."""
MAX_STARTS = 100_000
"""Partitions whose log start is known, 200 bytes each; those above it are not followed."""
MAX_STOPS = 100_000
"""Partitions that have been stopped, 400 bytes each; above it all of them are located again."""


class Given(NamedTuple):
    """A locator that a mirror got; `position` is its offset for the mirror."""

    flow: Flow
    partition: TopicPartition
    place: Place
    position: int


class ReturnedLocator(NamedTuple):
    """A locator of this process that came back. `why`: it proves nothing."""

    given: Given
    why: str | None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a partition waits; it is tried again at `until`. `leaves_out`: what a mirror still has is not produced."""

    why: str
    until: float
    leaves_out: bool = False


@dataclass(slots=True)
class _Vouched:
    """A mirror: whether a locator of it has come back."""

    has_returned: bool = False
    unanswered: int = 0
    next_at: float = 0.0


class Places:
    """One per wrapping listener. `salt`: random, 16 to 64 bytes. `any_producer`: as in the settings."""

    def __init__(self, salt: bytes, *, any_producer: bool = False, most: int = MAX_STOPS) -> None:
        self._salt = salt
        self._most = most
        self._any_producer = any_producer
        self._numbers = count()
        self._given: OrderedDict[bytes, Given] = OrderedDict()
        self._flows: OrderedDict[int, _Vouched] = OrderedDict()
        self._versions: dict[TopicPartition, int] = {}  # above `_version`
        self._version = 0
        self.stops: dict[TopicPartition, Stop] = {}
        self.locators = 0  # given
        self.source_starts: dict[TopicPartition, int] = {}
        self.follows_source_starts = False

    # fetch side

    def is_current(self, partition: TopicPartition, place: Place) -> bool:
        return place.version == self._versions.get(partition, self._version)

    def renew(self, partition: TopicPartition, place: Place, now: float) -> None:
        """Before anything is decided: drop what is not valid any more."""
        if not self.is_current(partition, place):
            place.forget()
            place.version = self._versions.get(partition, self._version)
        if place.standing is PlaceState.LOCATING and now - place.given_at >= LOCATOR_SECONDS:
            place.forget()

    def is_stopped(self, partition: TopicPartition, now: float) -> bool:
        stop = self.stops.get(partition)
        return stop is not None and now < stop.until

    def is_waiting(self, partition: TopicPartition) -> bool:
        """It was stopped, and nothing was appended since."""
        return partition in self.stops

    def may_locate(self, flow: Flow, partition: TopicPartition, place: Place, now: float) -> bool:
        """Whether the mirror may get a locator of this partition now."""
        known = self._flow(flow)
        if place.standing is not PlaceState.UNKNOWN or self.is_stopped(partition, now):
            return False
        return known.has_returned or now >= known.next_at

    def give(self, flow: Flow, partition: TopicPartition, place: Place, now: float) -> bytes:
        """-> the token of the locator that the mirror gets."""
        self.locators += 1
        number = next(self._numbers).to_bytes(8, "big")
        token = blake2b(number, digest_size=TOKEN_BYTES, key=self._salt).digest()
        self._given[token] = Given(flow, partition, place, place.position)
        if len(self._given) > MAX_GIVEN:
            self._given.popitem(last=False)
        known = self._flow(flow)
        if not known.has_returned:
            known.next_at = now + max(LOCATOR_SECONDS, _BACK_OFF[min(known.unanswered, len(_BACK_OFF) - 1)])
            known.unanswered += 1
        place.give_locator(token, now)
        return token

    def _flow(self, flow: Flow) -> _Vouched:
        known = self._flows.get(flow.token)
        if known is None:
            known = self._flows[flow.token] = _Vouched()
            if len(self._flows) > MAX_FLOWS:
                self._flows.popitem(last=False)
        self._flows.move_to_end(flow.token)
        return known

    def knows(self, flow: int) -> bool:
        """Whether this listener has a mirror with this token, and mirror topics for it."""
        return flow in self._flows

    def note_source_start(self, partition: TopicPartition, offset: int) -> None:
        """Where the source's log begins."""
        if partition in self.source_starts or len(self.source_starts) < MAX_STARTS:
            self.source_starts[partition] = offset

    # produce side

    def gave(self, token: bytes) -> TopicPartition | None:
        """The source of a locator that may still come back; None: it was not given, or is back."""
        given = self._given.get(token)
        return None if given is None else given.partition

    def returned(self, record: LocatorRecord, partition: int, way: WayBack) -> ReturnedLocator | None:
        """It came to this partition of the copy. None: not one of this listener's."""
        given = self._given.pop(record.token, None)
        if given is None:
            return None
        if partition != given.partition.partition:
            return ReturnedLocator(
                given, f"the mirror writes its records to partition {partition}: it must keep partitions"
            )
        why = None if self._any_producer else detour(given.flow, given.partition.topic, way)
        if why is not None:
            return ReturnedLocator(given, f"the record that only {given.flow} was given came {why}")
        known = self._flow(given.flow)
        known.has_returned, known.unanswered = True, 0
        if not record.is_intact:
            return ReturnedLocator(
                given, "the mirror changes records (a transform or converter): an envelope would break"
            )
        return ReturnedLocator(given, None)

    def located(self, given: Given, token: bytes, log_end: int, log_start: int) -> bool:
        """The copy's leader has answered -> whether anybody waits for it."""
        stop = self.stops.get(given.partition)
        if stop is not None:
            self.stops[given.partition] = Stop(stop.why, float("-inf"))
        place = given.place
        if place.standing is not PlaceState.LOCATING or place.token != token:
            return False
        place.locate(log_end, log_start)
        return True

    def came_early(self, given: Given, token: bytes) -> None:
        """The copy has yet to get envelopes that came before it: the mirror gets another one."""
        if given.place.token == token:
            given.place.forget()

    def leaves_out(self, partition: TopicPartition) -> bool:
        """An envelope has stopped it, and no locator has come back since: what follows that one was not compared."""
        stop = self.stops.get(partition)
        return stop is not None and stop.leaves_out

    def stop(self, partition: TopicPartition, why: str, now: float, *, leaves_out: bool = False) -> bool:
        """The partition waits -> whether this is news."""
        known = self.stops.get(partition)
        self.lose(partition)
        self.stops[partition] = Stop(why, now + STOPPED_SECONDS, leaves_out)
        return known is None or known.why != why

    def appended(self, partition: TopicPartition) -> Stop | None:
        """The copy has grown -> why it was stopped until now."""
        return self.stops.pop(partition, None)

    def lose(self, partition: TopicPartition) -> None:
        """Where the copy ends is not known any more, to no mirror."""
        if len(self._versions) >= self._most:
            self._version = max(self._versions.values()) + 1
            self._versions.clear()
            self.stops.clear()
        self._versions[partition] = self._versions.get(partition, self._version) + 1
