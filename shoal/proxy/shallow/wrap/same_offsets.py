"""Mirror topics in a mirror's fetches: which offsets are asked for, and what the mirror gets (protocol has the rules).

    request   the source's offset replaces the mirror's, and only committed records are asked for
    answer    a locator, if it is unknown where the copy ends; envelopes from there on, if it is known; else nothing

These partitions take no part in the interlock: each has proven by its locator that it is produced through the pair,
and a broker with the agent refuses an envelope that goes another way.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.fetch import fetch_committed, fetch_from, limit_fetch
from shoal.protocol.records.scan import scan
from shoal.protocol.shallow.locator import locator_batch
from shoal.protocol.shallow.same_offsets.follow import follow
from shoal.protocol.shallow.same_offsets.place import Place, PlaceState
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import PartitionRef, TopicPartition
from shoal.proxy.connection.topic_names import topic_partition
from shoal.proxy.shallow.copy_events import stop_copy
from shoal.proxy.shallow.wrap.copy_kinds import CopyKinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from shoal.protocol.messages.fetch import FetchedPartition, FetchRequest, FetchResponse
    from shoal.protocol.shallow.wrap.runs import WrapContext
    from shoal.proxy.config.settings import ShallowSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.listener.listener import Listener
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.annotations import Judgement
    from shoal.proxy.shallow.cluster_pair import ClusterPair
    from shoal.proxy.shallow.counters import ShallowTally
    from shoal.proxy.shallow.interlock import Interlock
    from shoal.proxy.shallow.wrap.mirror_fetch import Consumer, MirrorFetch

__all__ = ["SameOffsets"]

_MOST_REMEMBERED = 10_000  # topic names; above it they are matched again
_MOST_SHOWN = 1000  # partitions in /status
_LOCATE_SECONDS = 1.0  # between two new fetch sessions for the sake of locators
_NEVER = re.compile(r"^__")


class SameOffsets:
    """The partitions of mirror topics of one wrapping listener."""

    def __init__(
        self, listener: Listener, interlock: Interlock, tally: ShallowTally, clusters: ClusterPair | None
    ) -> None:
        self._listener = listener.name
        self._clusters = clusters
        self._kinds = CopyKinds(listener, clusters, interlock.changed)
        self._interlock = interlock
        self._places = interlock.places
        self._tally = tally
        self._pattern: re.Pattern[str] | None = None
        self._verdicts: dict[str, bool] = {}
        self._consumers: set[Consumer] = set()

    def use(self, settings: ShallowSettings) -> None:
        self._pattern = re.compile(settings.same_offsets) if settings.same_offsets else None
        self._verdicts.clear()
        self._places.follows_source_starts = settings.follow_log_start
        self._kinds.use(settings)

    def tick(self, now: float) -> None:
        self._kinds.tick(now)

    def end(self) -> None:
        self._kinds.end()

    @property
    def is_on(self) -> bool:
        return self._pattern is not None

    def has(self, topic: str) -> bool:
        """Whether this source topic's copy is a mirror topic."""
        if self._pattern is None:
            return False
        if topic not in self._verdicts:
            if len(self._verdicts) >= _MOST_REMEMBERED:
                self._verdicts.clear()
            self._verdicts[topic] = self._pattern.fullmatch(topic) is not None and _NEVER.search(topic) is None
        return self._verdicts[topic] and not self._kinds.is_ordinary(topic)

    @property
    def _are_two_clusters(self) -> bool:
        """Else nothing is given: a mirror of a cluster into itself would copy its copies."""
        return self._clusters is None or self._clusters.differ

    def closed(self, consumer: Consumer) -> None:
        self._consumers.discard(consumer)

    def of(
        self, connection: Connection, consumer: Consumer, refs: Iterator[PartitionRef]
    ) -> dict[PartitionRef, TopicPartition | None]:
        """Those of mirror topics, and those of which it is unknown (None): they must not be raw. Nor must those that
        were asked for as such.
        """
        if self._pattern is None:
            return {}
        found = dict[PartitionRef, TopicPartition | None]()
        for ref in refs:
            partition = topic_partition(connection, *ref)
            if partition is None or self.has(partition.topic) or partition in consumer.places:
                found[ref] = partition
        return found

    # -- request -----------------------------------------------------------------------------------------------------

    def must_begin(self, connection: Connection, consumer: Consumer, request: FetchRequest) -> bool:
        """The fetch session has another offset of a partition than is needed, and the request does not list it."""
        if not consumer.places and not consumer.has_unplaced:
            return False
        now, listed = trio.current_time(), set[TopicPartition | None]()
        if consumer.has_unplaced and now - consumer.located_at >= _LOCATE_SECONDS:
            consumer.has_unplaced, consumer.located_at = False, now
            return True
        for asked in request.partitions:
            listed.add(topic_partition(connection, asked.topic, asked.partition))
        for partition, place in consumer.places.items():
            self._places.renew(partition, place, now)
            if partition in listed or not place.in_session:
                continue
            if place.must_ask_again or not self.has(partition.topic):
                return True
            is_due = now - consumer.located_at >= _LOCATE_SECONDS
            if is_due and self._may_locate(consumer, partition, place, now):
                consumer.located_at = now  # an answer has all partitions only if the session is new
                return True
        return False

    def _may_locate(self, consumer: Consumer, partition: TopicPartition, place: Place, now: float) -> bool:
        is_free = self._places.may_locate(consumer.flow, partition, place, now)
        return is_free and self._kinds.may_locate(partition.topic, consumer.flow.client_id)

    def ask(self, connection: Connection, fetch: MirrorFetch, frame: bytearray) -> None:
        """Change the request in place. After it was limited like others."""
        if self._pattern is None:
            return
        request, consumer, now = fetch.request, fetch.consumer, trio.current_time()
        fetch_committed(frame, request)
        unplaced, listed = [], set[TopicPartition]()
        for ref in request.forgotten:  # before those listed: a new id takes the place of the old one
            left = self._place(connection, consumer, ref)
            if left is not None:  # a consumer leaves out a partition while it has records of it
                left.in_session = False
        for asked in request.partitions:
            partition = topic_partition(connection, asked.topic, asked.partition)
            if partition is None:
                continue
            if not self.has(partition.topic):
                consumer.places.pop(partition, None)  # it has become an ordinary one
                continue
            self._consumers.add(consumer)
            listed.add(partition)
            place = consumer.places.get(partition)
            if place is None:
                place = consumer.places[partition] = Place()
            place.in_session = True
            if isinstance(asked.topic, bytes):
                place.read_from(asked.topic)
            self._places.renew(partition, place, now)
            offset = place.ask(asked.fetch_offset)
            if offset != asked.fetch_offset:
                fetch_from(frame, asked, offset)
            if place.standing is not PlaceState.KNOWN:
                unplaced.append(asked)
                self._may_locate(consumer, partition, place, now)  # asks early: its answer may be too large to hold
        if unplaced:  # nothing of them is given
            only = replace(request, partitions=tuple(unplaced))
            limit_fetch(frame, only, max_bytes=request.max_bytes, partition_max_bytes=1)
        if request.session_epoch <= 0:  # a new session, of these partitions only
            for partition, place in consumer.places.items():
                place.in_session = partition in listed

    @staticmethod
    def _place(connection: Connection, consumer: Consumer, ref: PartitionRef) -> Place | None:
        partition = topic_partition(connection, *ref)
        return None if partition is None else consumer.places.get(partition)

    # -- answer ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _answered(consumer: Consumer, fetched: FetchedPartition, partition: TopicPartition | None) -> Place | None:
        """None: it is unknown what was asked for, because the name, or that of a new id, has been learnt since."""
        place = consumer.places.get(partition) if partition is not None else None
        if place is None or (isinstance(fetched.topic, bytes) and fetched.topic != place.topic_id):
            return None
        return place

    def is_waiting(
        self, fetch: MirrorFetch, response: FetchResponse, ours: Mapping[PartitionRef, TopicPartition | None]
    ) -> bool:
        """There are records, and none can be given now."""
        has_records, now = False, trio.current_time()
        for fetched in response.partitions:
            ref = PartitionRef(fetched.topic, fetched.partition)
            partition = ours.get(ref)
            place = self._answered(fetch.consumer, fetched, partition)
            if partition is None or place is None:
                has_records |= ref in ours and fetched.start != fetched.end
                continue
            self._places.renew(partition, place, now)
            if not self._are_two_clusters:
                has_records |= fetched.start != fetched.end
                continue
            if self._may_locate(fetch.consumer, partition, place, now):
                return False
            if place.must_ask_again:
                return False
            if fetched.start != fetched.end:
                if place.standing is PlaceState.KNOWN:
                    return False
                has_records = True
        return has_records

    def give(
        self,
        fetch: MirrorFetch,
        frame: Buffer,
        response: FetchResponse,
        ours: Mapping[PartitionRef, TopicPartition | None],
        context: Callable[[TopicPartition, int], WrapContext],
        judgement: Judgement,
    ) -> Iterator[tuple[FetchedPartition, Sequence[Buffer]]]:
        """The record sets of these partitions. `context`: of a partition and the mirror's offset in it."""
        aborted = response.aborted_by_partition()
        for fetched in response.partitions:
            ref = PartitionRef(fetched.topic, fetched.partition)
            if ref not in ours:
                continue
            partition = ours[ref]
            place = self._answered(fetch.consumer, fetched, partition)
            given: Sequence[Buffer] | None = None
            if partition is not None and place is not None:
                given = self._give(fetch, frame, fetched, partition, place, aborted, context, judgement)
            else:  # its name was unknown when the mirror listed it
                fetch.consumer.has_unplaced = True
            if given:
                yield fetched, given
            elif fetched.start != fetched.end:
                judgement.withheld(ref)
                yield fetched, ()

    def _give(
        self,
        fetch: MirrorFetch,
        frame: Buffer,
        fetched: FetchedPartition,
        partition: TopicPartition,
        place: Place,
        aborted: Mapping[PartitionRef, Sequence[tuple[int, int]]],
        context: Callable[[TopicPartition, int], WrapContext],
        judgement: Judgement,
    ) -> Sequence[Buffer] | None:
        now = trio.current_time()
        self._places.renew(partition, place, now)
        if not self._are_two_clusters or not self.has(partition.topic):
            return None
        if fetched.error_code:
            self._failed(partition, place, fetched.error_code)
            return None
        place.source_start = fetched.log_start
        self._places.note_source_start(partition, fetched.log_start)
        place.source_end = min(fetched.high_watermark, fetched.last_stable)
        if self._may_locate(fetch.consumer, partition, place, now) and self._kinds.locates(partition.topic):
            position = place.position
            judgement.withheld(PartitionRef(fetched.topic, fetched.partition))
            return [locator_batch(self._places.give(fetch.consumer.flow, partition, place, now), position)]
        if place.standing is not PlaceState.KNOWN or place.must_ask_again:
            return None
        ref = PartitionRef(fetched.topic, fetched.partition)
        if fetched.start == fetched.end and fetched.high_watermark != place.source_end:
            return None  # what is there may belong to an open transaction
        scanned = scan(frame, fetched.start, fetched.end) if fetched.start != fetched.end else None
        its_aborted = aborted.get(ref, ())
        found = follow(place, frame, scanned, its_aborted, context(partition, place.position))
        if found is None:
            return None
        if found.problem is not None and not found.wrapped.envelopes:
            stop_copy(self._listener, self._places, partition, found.problem)
            return None
        if found.wrapped.envelopes:
            fetch.consumer.has_copies = True
            self._tally.wrapped(found.wrapped)
            judgement.covered(ref, found)
        return found.wrapped.parts

    def _failed(self, partition: TopicPartition, place: Place, error_code: int) -> None:
        if error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return
        if place.standing is PlaceState.KNOWN and not place.must_ask_again:  # it was asked for what the copy needs
            ends = f"its log was from {place.source_start} to {place.source_end}" if place.source_end >= 0 else ""
            why = (
                f"the source has no offset {place.offset}, where the copy ends ({ends or 'its ends are unknown'}): it "
                "was truncated or created again, or records were deleted faster than they were mirrored"
            )
            stop_copy(self._listener, self._places, partition, why)
        place.out_of_range()

    def gauges(self) -> dict[str, float]:
        """Partitions of connected mirrors by state."""
        counts = dict[str, float]({standing.value: 0 for standing in PlaceState} | {"stopped": 0})
        for consumer in self._consumers:
            for partition, place in consumer.places.items():
                if not place.in_session:
                    continue
                counts["stopped" if self._places.is_waiting(partition) else place.standing.value] += 1
        return counts

    # -- operator ----------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, object]:
        mirrored = {
            partition
            for consumer in self._consumers
            for partition, place in consumer.places.items()
            if place.in_session
        }
        rows = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "state": place.standing.value,
                "copied_below": place.covered,
                "source_end": place.source_end,
            }
            for consumer in self._consumers
            for partition, place in consumer.places.items()
            if place.in_session
        ]
        stops = [
            {"topic": partition.topic, "partition": partition.partition, "why": stop.why}
            for partition, stop in self._places.stops.items()
            if partition in mirrored
        ]
        return {
            "partitions": rows[:_MOST_SHOWN],
            "number_of_partitions": len(rows),
            "locators": self._places.locators,
            "stopped": stops[:_MOST_SHOWN],
            "ordinary": sorted(self._kinds.ordinary)[:_MOST_SHOWN],
            "undecided": dict(sorted(self._kinds.undecided.items())[:_MOST_SHOWN]),
        }
