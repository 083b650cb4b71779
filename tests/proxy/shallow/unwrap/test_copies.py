"""Two sources with topics of the same name, mirrored to one target."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from shoal.protocol.shallow.envelope import Cover, EnvelopeKey
from shoal.protocol.shallow.same_offsets.log_ends import LogEnd
from shoal.protocol.shallow.same_offsets.place import Place
from shoal.protocol.shallow.same_offsets.places import Given
from shoal.protocol.shallow.unwrap.findings import Outcome
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.shallow.interlock import Interlock, Interlocks
from shoal.proxy.shallow.unwrap.copies import Copies

if TYPE_CHECKING:
    from shoal.protocol.shallow.interlock.flow import Flow
    from shoal.protocol.shallow.unwrap.plan import Plan
    from shoal.proxy.connection.connection import Connection

SOURCE = TopicPartition("orders", 0)
COPY = TopicPartition("second.orders", 0)


class Wrapping:
    """A wrapping listener with one mirror."""

    def __init__(self, number: int) -> None:
        self.interlock = Interlock.unpaired()
        self.places = self.interlock.places
        self.flow: Flow = self.interlock.rules.connected("127.0.0.1", f"mirror {number}", number, 0.0)
        self.places.follows_source_starts = True
        self.places.may_locate(self.flow, SOURCE, Place(), 0.0)

    def envelope(self) -> EnvelopeKey:
        return EnvelopeKey(
            cluster="the source",
            topic=SOURCE.topic,
            partition=SOURCE.partition,
            first_offset=1000,
            last_offset=1000,
            batches=1,
            records=1,
            payload=61,
            payload_crc=0,
            flow=self.flow.token,
            serial=1,
            cover=Cover(1000, 1001, fill=False),
        )


class Named:
    """The parts of a connection and its cluster that are needed for a log line. It asks nothing."""

    name = "target"
    number = 1

    @property
    def cluster(self) -> Named:
        return self


class Envelopes:
    locators = ()

    def __init__(self, *keys: EnvelopeKey) -> None:
        self.envelopes = keys


@pytest.fixture
def sources() -> tuple[Wrapping, Wrapping]:
    return Wrapping(1), Wrapping(2)


def copies_of(*sources: Wrapping) -> Copies:
    return Copies("to", Interlocks([source.interlock for source in sources]))


async def test_records_are_not_deleted_because_another_source_has_deleted_its_own(
    sources: tuple[Wrapping, Wrapping],
) -> None:
    first, second = sources
    copies = copies_of(first, second)
    copies.ends.learn(COPY, LogEnd(0, 1001, 1001))
    first.places.note_source_start(SOURCE, 900)
    second.places.note_source_start(SOURCE, 0)
    plan = cast("Plan", Envelopes(second.envelope()))
    await copies.follow_log_starts(cast("Connection", Named()), "", {COPY: plan})  # would ask the connection


async def test_records_of_a_copy_are_not_deleted_because_another_source_begins_later(
    sources: tuple[Wrapping, Wrapping],
) -> None:
    """The source was created again: the copy keeps what the former one had."""
    first, _ = sources
    copies = copies_of(first)
    copies.ends.learn(COPY, LogEnd(0, 1001, 1001))
    first.places.note_source_start(SOURCE, 900)
    copies.stop(first.envelope(), "another than the log has there")
    plan = cast("Plan", Envelopes(first.envelope()))
    await copies.follow_log_starts(cast("Connection", Named()), "", {COPY: plan})  # would ask the connection


async def test_a_partition_that_waits_is_only_that_of_its_own_source(sources: tuple[Wrapping, Wrapping]) -> None:
    first, second = sources
    copies = copies_of(first, second)
    copies.stop(second.envelope(), "promoted")
    assert second.places.stops.keys() == {SOURCE}
    assert not first.places.stops
    copies.grown(first.envelope())
    assert second.places.stops


async def test_an_envelope_that_nobody_here_has_made_stops_nothing(sources: tuple[Wrapping, Wrapping]) -> None:
    """Its topics could be any number."""
    first, second = sources
    copies = copies_of(first)
    copies.stop(second.envelope(), "promoted")
    copies.misplaced(second.envelope())
    assert not first.places.stops


async def test_what_follows_a_refused_envelope_is_left_out_until_a_locator_is_back(
    sources: tuple[Wrapping, Wrapping],
) -> None:
    """The mirror has it already. It begins where the copy ends, but is of another source."""
    first, _ = sources
    copies, end = copies_of(first), LogEnd(0, 1000, 1000)
    copies.ends.asked(COPY, end, Named.number)
    plans = {COPY: cast("Plan", Envelopes(first.envelope()))}
    copies.stop(first.envelope(), "another than the log has there")
    left_out = (await copies.locate(cast("Connection", Named()), "", plans))[COPY]
    assert left_out.end is None
    assert left_out.outcome == Outcome(error_code=0, base_offset=-1), "an offset would be that of another record"

    place = Place()
    token = first.places.give(first.flow, SOURCE, place, 0.0)
    assert first.places.located(Given(first.flow, SOURCE, place, 0), token, 1000, 0)
    assert (await copies.locate(cast("Connection", Named()), "", plans))[COPY].end == end


async def test_an_empty_copy_is_not_begun_by_what_a_process_before_has_given(
    sources: tuple[Wrapping, Wrapping],
) -> None:
    """Only that process knew where the source begins: the first record may be far behind it."""
    before, now = sources
    copies = copies_of(now)
    copies.ends.asked(COPY, LogEnd(0, 0, 0), Named.number)
    retried = (
        await copies.locate(cast("Connection", Named()), "", {COPY: cast("Plan", Envelopes(before.envelope()))})
    )[COPY]
    assert retried.end is None
    assert retried.outcome == Outcome(error_code=0, base_offset=-1)
    made_here = (await copies.locate(cast("Connection", Named()), "", {COPY: cast("Plan", Envelopes(now.envelope()))}))[
        COPY
    ]
    assert made_here.end == LogEnd(0, 0, 0)

    copies.ends.asked(COPY, LogEnd(0, 1000, 1000), Named.number)
    retried = (
        await copies.locate(cast("Connection", Named()), "", {COPY: cast("Plan", Envelopes(before.envelope()))})
    )[COPY]
    assert retried.end == LogEnd(0, 1000, 1000), "it has begun: what is retried is appended, or compared"
