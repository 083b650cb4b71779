"""A further topic in the answers to a proven mirror: what of it waits, and that nothing else does.

The clock jumps when all tasks wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from shoal.proxy.config.settings import KIB
from tests.support.rig import until
from tests.support.shallow.brokers import ORDERS, Place
from tests.support.shallow.mirror import FIRST, SIZE, Mirror, has_token, log, logs, rest
from tests.support.shallow.rig import ShallowRig, shallow_rig
from tests.support.shallow.world import Seen, poll

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

OLD: Place = ORDERS, 0
NEW: Place = "payments", 0
OTHER: Place = "payments", 1
DEEP: Place = "deep", 0
COPY = "A.payments"
PROBE = 0.2
EMPTY_HOLD = 0.5
PATIENCE = 10.0


@pytest.fixture
async def r(clock: MockClock) -> AsyncIterator[ShallowRig]:
    async with shallow_rig(min_batch_bytes=0, deep_topics=("^deep",)) as rig:
        rig.source.sets = [{OLD: log(number)} for number in range(2)]
        yield rig


@pytest.fixture
async def mirror(r: ShallowRig) -> Mirror:
    """Proven by its first topic."""
    mirror = await Mirror.of(r)
    await mirror.prove()
    await trio.sleep(1)  # two proof rounds of a flow are separated by a pause
    return mirror


async def ask(mirror: Mirror, **numbers: int) -> None:
    """Request the n-th answer of each partition; the source has it."""
    places = {{"old": OLD, "new": NEW, "other": OTHER, "deep": DEEP}[name]: number for name, number in numbers.items()}
    mirror.r.source.sets = [{place: log(number) for place, number in places.items()}]
    offsets = {place: SIZE * number for place, number in places.items()}
    await mirror.consumer.send(mirror.consumer.request(offsets))


async def vouched(mirror: Mirror, old: int) -> None:
    """A record of the new topic's second answer has a token, and is produced back; the source has the rest of that
    answer."""
    await ask(mirror, old=old, new=1)
    sets = await given(mirror)
    assert {place: len(seen) for place, seen in sets.items()} == {OLD: 1, NEW: FIRST}
    assert has_token(sets[NEW])
    await mirror.produce(sets[NEW], COPY)


async def ask_for_the_rest(mirror: Mirror, *, old: int) -> None:
    mirror.r.source.sets = [{OLD: log(old), NEW: rest(1)}]
    await mirror.consumer.send(mirror.consumer.request({OLD: SIZE * old, NEW: SIZE + FIRST}))


async def given(mirror: Mirror) -> dict[Place, list[Seen]]:
    return {place: poll(records) for place, records in (await mirror.consumer.record_sets()).items()}


async def counts(mirror: Mirror) -> dict[Place, int]:
    return {place: len(seen) for place, seen in (await given(mirror)).items()}


async def sampled(mirror: Mirror) -> list[Seen]:
    """The new topic's first records, sent raw."""
    await ask(mirror, old=2, new=0)
    sets = await given(mirror)
    assert {place: len(seen) for place, seen in sets.items()} == {OLD: 1, NEW: SIZE}
    return sets[NEW]


async def test_a_new_topic_waits_for_its_proof_and_the_proven_one_goes_on(mirror: Mirror, clock: MockClock) -> None:
    await sampled(mirror)
    begin = trio.current_time()
    for number in range(3, 6):
        await ask(mirror, old=number, new=1, other=0)
        assert await counts(mirror) == {OLD: 1, NEW: 0, OTHER: 0}
    assert trio.current_time() - begin < PROBE, "the proven topic was held"


async def test_what_was_withheld_comes_in_envelopes_after_the_proof(mirror: Mirror, clock: MockClock) -> None:
    seen = await sampled(mirror)
    await ask(mirror, new=1)
    await given(mirror)
    await mirror.produce(seen, COPY)
    await vouched(mirror, 3)
    await ask_for_the_rest(mirror, old=4)
    sets = await given(mirror)
    assert {place: len(seen) for place, seen in sets.items()} == {OLD: 1, NEW: 1}
    await mirror.produce(sets[NEW], COPY)
    assert mirror.r.target.log(0, COPY) == logs(2)


async def test_where_all_have_to_wait_the_answer_is_held_as_a_broker_holds_an_empty_one(
    mirror: Mirror, clock: MockClock
) -> None:
    await sampled(mirror)
    begin = trio.current_time()
    await ask(mirror, new=1, other=0)
    assert await counts(mirror) == {NEW: 0, OTHER: 0}
    assert EMPTY_HOLD <= trio.current_time() - begin < 2 * EMPTY_HOLD


async def test_such_an_answer_goes_out_with_the_proof(mirror: Mirror, clock: MockClock) -> None:
    seen = await sampled(mirror)
    begin = trio.current_time()
    await ask(mirror, new=1)
    await until(lambda: not mirror.r.source.sets)
    await mirror.produce(seen, COPY)
    sets = await given(mirror)
    assert has_token(sets[NEW])
    mirror.r.source.sets = [{NEW: rest(1)}]
    await mirror.consumer.send(mirror.consumer.request({NEW: SIZE + FIRST}))
    await until(lambda: not mirror.r.source.sets)
    await mirror.produce(sets[NEW], COPY)
    assert await counts(mirror) == {NEW: 1}
    assert trio.current_time() - begin < EMPTY_HOLD


async def test_one_that_is_not_proven_in_time_goes_on_raw(mirror: Mirror, clock: MockClock) -> None:
    begin = trio.current_time()
    await sampled(mirror)
    empty = {NEW: 0}
    while empty == {NEW: 0}:
        await ask(mirror, new=1)
        empty = await counts(mirror)
    assert empty == {NEW: SIZE}
    assert PATIENCE <= trio.current_time() - begin <= PATIENCE + 2 * EMPTY_HOLD


async def test_a_topic_that_is_never_wrapped_does_not_wait(mirror: Mirror, clock: MockClock) -> None:
    begin = trio.current_time()
    for number in range(3):
        await ask(mirror, deep=number)
        assert await counts(mirror) == {DEEP: SIZE}
    assert trio.current_time() - begin < PROBE


async def test_little_is_asked_for_of_a_topic_that_is_to_be_proven(mirror: Mirror, clock: MockClock) -> None:
    seen = await sampled(mirror)
    await mirror.produce(seen, COPY)
    await vouched(mirror, 3)
    await ask(mirror, old=4, new=2, deep=0)
    await given(mirror)
    asked = [
        {topic.topic: part.partition_max_bytes for topic in request.topics for part in topic.partitions}
        for request in mirror.r.source.requests[-2:]
    ]
    assert asked == [
        {ORDERS: 960 * KIB, NEW[0]: 256 * KIB},
        {ORDERS: 960 * KIB, NEW[0]: 960 * KIB, DEEP[0]: 960 * KIB},
    ]
