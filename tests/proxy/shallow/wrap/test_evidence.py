"""A pair of listeners with the real interlock: a mirror first gets raw batches, produces them back, and then gets
envelopes.

The clock jumps when all tasks wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.proxy.config.settings import KIB, MIB
from tests.support.shallow.brokers import ORDERS, SourceBroker
from tests.support.shallow.mirror import COPY, FIRST, SIZE, Mirror, has_token, log, logs, rest
from tests.support.shallow.rig import ShallowRig, shallow_rig
from tests.support.shallow.world import poll, produced

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

GRACE, PROBE = 5.0, 0.2


@pytest.fixture
async def r() -> AsyncIterator[ShallowRig]:
    async with shallow_rig(min_batch_bytes=0) as rig:
        rig.source.sets = [{(ORDERS, 0): log(number)} for number in range(30)]
        yield rig


async def test_records_that_come_back_start_wrapping(
    r: ShallowRig, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    mirror, begin = await Mirror.of(r), trio.current_time()
    seen = await mirror.fetch()
    assert GRACE <= trio.current_time() - begin <= GRACE + PROBE + 1
    assert len(seen) == SIZE
    await mirror.produce(seen)
    assert "proven" not in caplog.text, "another client might have produced them"
    assert [await mirror.copy() for _ in range(5)] == [True] * 5
    assert "proven" in caplog.text
    assert mirror.copied == logs(6)
    assert dict(r.wrap.tally.raw_batches) == {Reason.NO_EVIDENCE: 3}
    assert trio.current_time() - begin <= GRACE + PROBE + 1, "something was held though all had arrived"


async def test_an_answer_waits_for_the_trial_and_goes_out_as_soon_as_that_arrives(
    r: ShallowRig, clock: MockClock
) -> None:
    mirror = await Mirror.of(r)
    await mirror.copy()
    trial = await mirror.fetch()
    assert len(trial) == 1
    begin = trio.current_time()
    await mirror.consumer.ask(SIZE * 2)
    await trio.sleep(1)
    await mirror.produce(trial)
    assert len(poll(await mirror.consumer.record_set())) == 1
    assert trio.current_time() - begin < 2
    assert mirror.copied == logs(2)


async def test_until_the_trial_has_arrived_the_rest_stays_raw(r: ShallowRig, clock: MockClock) -> None:
    mirror = await Mirror.of(r)
    await mirror.copy()
    trial = await mirror.fetch()
    begin = trio.current_time()
    later = await mirror.fetch()
    assert (len(trial), len(later)) == (1, SIZE)
    assert trio.current_time() - begin >= 9.5
    await mirror.produce([*trial, *later])
    assert mirror.copied == logs(3)
    assert await mirror.copy()


async def test_a_mirror_that_produces_elsewhere_is_never_wrapped(
    r: ShallowRig, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = await Mirror.of(r)
    for _ in range(10):
        assert len(await mirror.fetch()) == SIZE
        clock.jump(5)
    assert not r.wrap.tally.envelopes
    assert "no record of orders" in " ".join(str(record.__dict__) for record in caplog.records)
    assert r.source.requests[0].max_bytes == 256 * KIB
    assert r.source.requests[-1].max_bytes == 8 * MIB, "a mirror that cannot be proven is as fast as ever"


async def test_a_proven_mirror_that_reads_nothing_to_wrap_is_as_fast_as_ever(clock: MockClock) -> None:
    async with shallow_rig(min_batch_bytes=MIB) as r:
        r.source.sets = [{(ORDERS, 0): log(number)} for number in range(5)]
        mirror = await Mirror.of(r)
        for _ in range(3):
            assert not await mirror.copy()
        assert r.source.requests[-1].max_bytes == 256 * KIB, "the next answer might be the trial"
        await trio.sleep(2.5)
        assert not await mirror.copy()
    assert r.source.requests[-1].max_bytes == 8 * MIB


async def test_copies_that_somebody_else_makes_are_no_evidence(
    r: ShallowRig, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The mirror produces elsewhere.

    Another tool reads the source, bypassing Shoal, and produces through Shoal shortly after.
    """
    mirror, tool = await Mirror.of(r), await r.producer()
    with_token = 0
    for number in range(20):
        seen = poll(await mirror.consumer.fetch(SIZE * number))
        assert len(seen) > 1
        if has_token(seen):
            with_token += 1
            r.source.sets.insert(0, {(ORDERS, 0): rest(number)})
            assert len(poll(await mirror.consumer.fetch(SIZE * number + FIRST))) == SIZE - FIRST
        await trio.sleep(1)
        await tool.send(tool.request({(COPY, 0): produced(poll(log(number)))}))
        await tool.answers()
    assert not r.wrap.tally.envelopes
    assert with_token == 1
    (logged,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "orders-0 at offset 10," in " ".join(map(str, logged.__dict__.values()))


async def elsewhere(r: ShallowRig) -> Mirror:
    """Its producer's address differs from its consumer's; or another mirror copies its output, bypassing Shoal."""
    return Mirror(r, await r.consumer(), await r.producer(address="127.0.0.2"))


async def test_what_another_host_brings_is_no_evidence(
    r: ShallowRig, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = await elsewhere(r)
    for _ in range(10):
        assert not await mirror.copy()
    assert not r.wrap.tally.envelopes
    assert mirror.copied == logs(10), "tokens come off nevertheless"
    (logged,) = [record for record in caplog.records if record.levelname == "ERROR"]
    text = " ".join(map(str, logged.__dict__.values()))
    assert "from 127.0.0.2, not from 127.0.0.1" in text
    assert "any-producer = true" in text


async def test_unless_the_operator_says_that_any_producer_will_do(clock: MockClock) -> None:
    async with shallow_rig(min_batch_bytes=0, any_producer=True) as r:
        r.source.sets = [{(ORDERS, 0): log(number)} for number in range(5)]
        mirror = await elsewhere(r)
        await mirror.prove()


@pytest.mark.parametrize(
    ("client_id", "copy", "logged"),
    [
        ("connector-producer-other-0", COPY, "the producer of another task"),
        ("the producer", f"B.{COPY}", "as B.A.orders, which is made of a copy in B"),
    ],
)
async def test_nor_is_what_another_mirror_on_this_host_brings(
    r: ShallowRig, clock: MockClock, caplog: pytest.LogCaptureFixture, client_id: str, copy: str, logged: str
) -> None:
    mirror = await Mirror.of(r)
    mirror.producer.client_id = client_id
    for number in range(3):
        seen = poll(await mirror.consumer.fetch(SIZE * number))
        assert len(seen) > 1
        await mirror.produce(seen, copy)
    assert logged in " ".join(str(record.__dict__) for record in caplog.records)


async def test_a_mirror_that_changes_records_is_never_wrapped(r: ShallowRig, clock: MockClock) -> None:
    mirror = await Mirror.of(r)
    for _ in range(5):
        seen = await mirror.fetch()
        await mirror.produce([item._replace(record=item.record._replace(value=b"changed")) for item in seen])
    assert not r.wrap.tally.envelopes


async def test_wrapping_stops_when_nothing_arrives(
    r: ShallowRig, clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = await Mirror.of(r)
    await mirror.prove()
    for _ in range(6):
        assert len(await mirror.fetch()) == 1
        clock.jump(10)
    assert len(await mirror.fetch()) == SIZE
    assert any(record.levelname == "ERROR" and "stopped" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("side", ["consumer", "producer"])
async def test_evidence_ends_with_the_connection_that_gave_it(r: ShallowRig, clock: MockClock, side: str) -> None:
    mirror = await Mirror.of(r)
    await mirror.prove()
    await getattr(mirror, side).stream.aclose()
    await r.closed("from" if side == "consumer" else "to")
    await trio.sleep(1)  # two proof rounds of a flow are separated by a pause
    again = Mirror(r, await r.consumer() if side == "consumer" else mirror.consumer, await r.producer())
    again.number = mirror.number
    assert [await again.copy() for _ in range(3)] == [False, True, True]
    assert mirror.copied == logs(5)


async def test_what_an_ordinary_consumer_was_given_is_no_evidence(r: ShallowRig, clock: MockClock) -> None:
    """Another client may have copied those records."""
    other, mirror = await r.consumer(), await Mirror.of(r)
    other.client_id = "another client"
    r.source.sets.insert(0, {(ORDERS, 0): log(0)})
    await other.fetch(SIZE)
    assert not await mirror.copy()
    assert not await mirror.copy()
    assert await mirror.copy()
    assert mirror.copied == logs(3)


async def test_two_wrapping_listeners_with_one_pair_are_proven_each(clock: MockClock) -> None:
    """The same topic and partition at two sources are different partitions."""
    first, second = (SourceBroker(sets=[{(ORDERS, 0): log(at + number)} for number in range(6)]) for at in (0, 100))
    async with shallow_rig(min_batch_bytes=0, source=first, second=second) as r:
        mirrors = await Mirror.of(r), Mirror(r, await r.consumer("second"), await r.producer())
        mirrors[1].source, mirrors[1].number = second, 100
        assert [[await mirror.copy() for mirror in mirrors] for _ in range(4)] == [[False] * 2, *[[True] * 2] * 3]
        assert mirrors[0].copied[:SIZE] == logs(1)
        assert len(mirrors[0].copied) == 8 * SIZE
