"""Mirror topics of the target: where their copies end, which of them wait, and locators that come back.

    locator, or an envelope whose copy is unknown ──> probe of the leader, over the mirror's own connection
        a mirror topic      the wrapping side learns where the copy ends; envelopes are sent on with fences
        promoted, no agent  the partition waits: what came is answered as if it were stored, and fetched again later
        another error       the mirror gets it, and retries

Nothing is lost by such an answer: the mirror's own position does not count (protocol/shallow/same_offsets/place.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from shoal.protocol.mirror_topics.log_start import encode_delete_records, read_deleted_records
from shoal.protocol.mirror_topics.probe import State, encode_probe, read_probe_answers
from shoal.protocol.shallow.same_offsets.fenced import NOT_STORED
from shoal.protocol.shallow.same_offsets.log_ends import LogEnd, LogEnds
from shoal.protocol.shallow.unwrap.findings import Outcome
from shoal.protocol.shallow.unwrap.plan import Refused
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.connection.pending import blaming_the_broker
from shoal.proxy.events.logs import event, more_of_this_kind
from shoal.proxy.shallow.annotations import probed
from shoal.proxy.shallow.copy_events import copy_resumed, source_expired, stop_copy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shoal.protocol.mirror_topics.probe import ProbeAnswer
    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.shallow.same_offsets.places import Given, Places, ReturnedLocator
    from shoal.protocol.shallow.unwrap.plan import Plan
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.shallow.interlock import Interlocks

__all__ = ["Copies", "Located"]

log = logging.getLogger("shoal.unwrap")

_FOLLOW_SECONDS = 10.0  # between two DeleteRecords of a partition


class Located:
    """A partition of a request: where its log ends, or what the mirror is answered at once. `position`: the mirror's
    offset of its first locator of this process; -1: it has none.
    """

    __slots__ = ("end", "outcome", "position")

    def __init__(self, end: LogEnd | None = None, outcome: Outcome | None = None, position: int = -1) -> None:
        self.end = end
        self.outcome = outcome
        self.position = position


class Copies:
    """One for each unwrapping listener."""

    def __init__(self, listener: str, interlocks: Interlocks) -> None:
        self._listener = listener
        self._interlocks = interlocks
        self.ends = LogEnds()
        self._followed_at: dict[TopicPartition, float] = {}  # when DeleteRecords may be sent again

    async def locate(
        self, connection: Connection, client_id: str, plans: Mapping[TopicPartition, Plan]
    ) -> dict[TopicPartition, Located]:
        """Raises UpstreamLost and UpstreamFault."""
        left_out = [partition for partition, plan in plans.items() if self._is_left_out(plan)]
        asked = [
            partition
            for partition, plan in plans.items()
            if plan.locators or self.ends.must_ask(partition, connection.number)
        ]
        answers: Mapping[TopicPartition, ProbeAnswer] = {}
        if asked:
            note = probed({partition: source for partition, source in self._sources(plans) if partition in asked})
            frame = await (await connection.broker.post([encode_probe(client_id, asked)], note=note)).frame()
            with blaming_the_broker():
                answers = read_probe_answers(frame, asked)
        located = {
            partition: self._located(connection, partition, plan, answers.get(partition))
            for partition, plan in plans.items()
        }
        for partition, found in located.items():
            if found.end is not None and (partition in left_out or self._may_not_begin(plans[partition], found.end)):
                located[partition] = Located(outcome=NOT_STORED)
        for interlock in self._interlocks:
            interlock.changed()
        return located

    def _sources(self, plans: Mapping[TopicPartition, Plan]) -> Iterator[tuple[TopicPartition, TopicPartition]]:
        """Those that envelopes name, and those of this process's locators."""
        for target, plan in plans.items():
            keys = (TopicPartition(key.topic, key.partition) for key in plan.envelopes)
            given = (
                interlock.places.gave(locator.token) for locator in plan.locators for interlock in self._interlocks
            )
            source = next((known for known in (*keys, *given) if known is not None), None)
            if source is not None:
                yield target, source

    def _is_left_out(self, plan: Plan) -> bool:
        """These envelopes follow one that has stopped the copy: they are answered as if they were stored."""
        return any(
            places.leaves_out(TopicPartition(key.topic, key.partition))
            for key in plan.envelopes[:1]
            for places in self._places_of(key)
        )

    def _may_not_begin(self, plan: Plan, end: LogEnd) -> bool:
        """An empty copy begins where its source does. After a restart that is not known when a mirror retries what the
        process before gave it: it gets all of it again.
        """
        return end.end == 0 and any(not any(self._places_of(key)) for key in plan.envelopes[:1])

    def forget_topic(self, topic: str) -> None:
        """The target's topic was deleted."""
        self.ends.forget_topic(topic)
        for partition in [partition for partition in self._followed_at if partition.topic == topic]:
            del self._followed_at[partition]

    @staticmethod
    def refusal(target: TopicPartition, plan: Plan) -> Refused | None:
        """What a mirror has put into another partition can't keep its offsets."""
        wrong = [key for key in plan.envelopes if key.partition != target.partition]
        if not wrong:
            return None
        message = f"the envelope of {wrong[0]} came to partition {target.partition}: the mirror must keep partitions"
        return Refused(error_code=ErrorCode.INVALID_RECORD, message=message)

    def is_foreign(self, plan: Plan) -> bool:
        """A client's own records that only look like locators: they are produced."""
        if plan.items or any(locator.is_intact for locator in plan.locators):
            return False
        places = [interlock.places for interlock in self._interlocks]
        return not any(place.gave(locator.token) for locator in plan.locators for place in places)

    def _located(
        self, connection: Connection, target: TopicPartition, plan: Plan, answer: ProbeAnswer | None
    ) -> Located:
        if answer is None:
            return Located(self.ends.of(target))
        self.ends.forget(target)
        if answer.state is State.MIRROR:
            end = LogEnd(answer.log_start, answer.log_end, answer.log_end)
            self.ends.asked(target, end, connection.number)
            return Located(end, position=self._returned(connection, target, plan, end, None))
        why = self._why_not(connection, target, answer)
        if why is None:
            text = f"the target broker answered {error_name(answer.error_code)} when it was asked where the log ends"
            text += f": {answer.message}" if answer.message else ""
            return Located(outcome=Outcome(error_code=answer.error_code, message=text, is_own=True))
        self._returned(connection, target, plan, None, why)
        for key in plan.envelopes[:1]:
            self.stop(key, why)
        return Located(outcome=NOT_STORED)

    @staticmethod
    def _why_not(connection: Connection, target: TopicPartition, answer: ProbeAnswer) -> str | None:
        """Why the partition waits; None: the mirror gets the error."""
        broker, name = str(connection.bound_port), connection.cluster.partition_name(*target)
        match answer.state:
            case State.PROMOTED:
                return (
                    f"{name} of the target was promoted: it is written to by others. Stop the mirror; or delete the "
                    "promotion (docs/same-offsets.md)"
                )
            case State.ORDINARY:
                return (
                    f"{name} of the target is no mirror topic on {broker}: start this broker with the Java agent and "
                    "-Dshoal.mirror.topics"
                )
            case _:
                return None

    def _returned(
        self, connection: Connection, target: TopicPartition, plan: Plan, end: LogEnd | None, why: str | None
    ) -> int:
        """Locators that came back: tell the wrapping side -> the mirror's offset of the first, or -1."""
        position = -1
        for places, token, found in self._found(connection, target, plan):
            given = found.given
            position = given.position if position < 0 else position
            reason = why or found.why
            if reason is not None:
                stop_copy(self._listener, places, given.partition, reason)
            elif plan.envelopes:  # of before the mirror connected again
                places.came_early(given, token)
            elif end is not None and places.located(given, token, end.end, end.start):
                self._say_expired(given, end)
        return position

    def _found(
        self, connection: Connection, target: TopicPartition, plan: Plan
    ) -> Iterator[tuple[Places, bytes, ReturnedLocator]]:
        """The locators of this process, with the places of the wrapping listener that has given each."""
        for locator in plan.locators:
            for interlock in self._interlocks:
                found = interlock.located(connection, target, locator)
                if found is not None:
                    yield interlock.places, locator.token, found

    def _say_expired(self, given: Given, end: LogEnd) -> None:
        source_start = given.place.source_start
        if end.start < end.end < source_start:
            source_expired(self._listener, given.partition, end.end, source_start)

    async def follow_log_starts(
        self, connection: Connection, client_id: str, plans: Mapping[TopicPartition, Plan]
    ) -> None:
        """Delete what their sources have deleted. Raises UpstreamLost and UpstreamFault."""
        now, before = trio.current_time(), dict[TopicPartition, int]()
        for target, plan in plans.items():
            if not self._follows(plan) or self._is_left_out(plan):  # the source may be another one
                continue
            known, start = self.ends.of(target), self.source_start(plan)
            is_due = now >= self._followed_at.get(target, now)
            if known is not None and start is not None and known.start < start <= known.end and is_due:
                before[target] = start
        if not before:
            return
        for target in before:
            self._followed_at[target] = now + _FOLLOW_SECONDS
        frame = await connection.broker.ask([encode_delete_records(client_id, before)])
        with blaming_the_broker():
            deleted = read_deleted_records(frame)
        for target, start, error_code in deleted:
            known = self.ends.of(target)
            if error_code:
                self._say_not_followed(connection, target, error_code)
            elif known is not None and start > known.start:
                self.ends.learn(target, known._replace(start=start))

    def _follows(self, plan: Plan) -> bool:
        return any(places.follows_source_starts for key in plan.envelopes[-1:] for places in self._places_of(key))

    def source_start(self, plan: Plan) -> int | None:
        """Where the source's log begins; None: it is unknown."""
        for key in plan.envelopes[-1:]:
            for places in self._places_of(key):
                return places.source_starts.get(TopicPartition(key.topic, key.partition))
        return None

    def _say_not_followed(self, connection: Connection, target: TopicPartition, error_code: int) -> None:
        left_out = connection.throttle.admit("log-start-not-followed", target, error_code)
        if left_out is None:
            return
        name = connection.cluster.partition_name(*target)
        values = event(
            f"listener {self._listener!r}: records of {name} that the source has deleted stay: the target answered "
            f"{error_name(error_code)} to DeleteRecords{more_of_this_kind(left_out)}",
            listener=self._listener,
            topic=connection.cluster.shown_topic(target.topic),
            partition=target.partition,
            error_code=error_code,
            left_out=left_out or None,
        )
        log.warning("log-start-not-followed", extra=values)

    # -- what the broker says later

    def grown(self, key: EnvelopeKey) -> None:
        """A copy has everything up to the end of this envelope."""
        for places in self._places_of(key):
            copy_resumed(self._listener, places, TopicPartition(key.topic, key.partition))

    def misplaced(self, key: EnvelopeKey) -> None:
        """Something before this envelope is missing: it is fetched again, from where the copy ends."""
        for places in self._places_of(key):
            places.lose(TopicPartition(key.topic, key.partition))

    def stop(self, key: EnvelopeKey, why: str) -> None:
        """This envelope was not produced; nor is what follows it."""
        for places in self._places_of(key):
            stop_copy(self._listener, places, TopicPartition(key.topic, key.partition), why, leaves_out=True)

    def _places_of(self, key: EnvelopeKey) -> Iterator[Places]:
        """Those of the wrapping listener that has made this envelope; none: another process, or not Shoal.

        Another listener's source may have a topic of the same name.
        """
        for interlock in self._interlocks:
            if interlock.places.knows(key.flow):
                yield interlock.places
