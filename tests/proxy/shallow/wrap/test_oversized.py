"""Answers to a mirror that are too large to hold: streamed raw, but recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.protocol.transform.skim import HIDDEN_TAG
from shoal.proxy.config.settings import Limits, WithoutAgent
from shoal.proxy.statistics import CloseCause
from tests.support.rig import api_key, until
from tests.support.shallow.brokers import ORDERS, ORDERS_ID, Place, SourceBroker, TargetBroker
from tests.support.shallow.rig import MIRROR, shallow_rig
from tests.support.shallow.sets import LEADER, LOG, P0, P1, raw, spans
from tests.support.shallow.world import poll, produced, some_batch

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.support.rig import BrokerSide


pytestmark = pytest.mark.usefixtures("lane")


LARGE = some_batch(100, 20_000)  # the answer spans several receive buffers, or one
MIDDLE = some_batch(100, 2_000)
AFTER = [some_batch(20_100, 2), some_batch(20_102, 3)]


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("large", [LARGE, MIDDLE], ids=["in pieces", "whole"])
async def test_an_answer_too_large_to_be_held_passes_raw_and_is_told(
    version: int, large: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    topic = ORDERS_ID if version >= 13 else ORDERS
    source = SourceBroker(sets=[{(topic, 0): large}], topics={ORDERS_ID: (ORDERS, 1)})
    source.leader = LEADER if version >= 16 else None
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0, limits=half(large)) as r:
        client = await r.consumer()
        client.version = version
        await client.send(client.request({(topic, 0): 100}))
        got = await client.frame()
        sent = r.source.answers[-1]
        assert len(got) == len(sent)
        changed = [(before, after) for before, after in zip(sent, got, strict=True) if before != after]
        assert changed == ([(0, HIDDEN_TAG)] if version >= 16 else [])
        assert "is above limits.held-response-bytes (" in caplog.text
        assert raw(r) == {Reason.LARGE_ANSWER: 1}


def half(large: bytes) -> Limits:
    return Limits(held_response_bytes=len(large) // 2)


@pytest.mark.parametrize("version", [7, 12, 18])
async def test_the_session_that_it_opens_is_followed(version: int) -> None:
    topic = ORDERS_ID if version >= 13 else ORDERS
    place: Place = topic, 0
    source = SourceBroker(sets=[{place: LARGE}, {place: b"".join(AFTER)}], topics={ORDERS_ID: (ORDERS, 1)})
    source.session_id = 77
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0, limits=half(LARGE)) as r:
        client = await r.consumer()
        client.version = version
        await client.send(client.request({place: 100}, session_epoch=0))
        await client.frame()
        await client.send(client.request({place: 20_100}, session_id=77, session_epoch=1))
        assert spans(await client.record_set()) == [(20_100, 20_104)], "what was streamed counts as given"
        source.sets = [{place: some_batch(20_105, 3)}]
        await client.send(client.request({place: 20_105}, session_id=77, session_epoch=2))
        assert spans(await client.record_set()) == [(20_105, 20_107)]


async def test_a_partition_that_is_not_asked_for_again_is_known_from_it() -> None:
    """Its session can only be learned from the streamed answer."""
    source = SourceBroker(sets=[{P0: LARGE}, {P1: LOG}], session_id=77)
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0, limits=half(LARGE)) as r:
        client = await r.consumer()
        await client.send(client.request({P0: 100, P1: 100}, session_epoch=0))
        await client.frame()
        await client.send(client.request({P0: 20_100}, session_id=77, session_epoch=1))
        assert spans(await client.record_set()) == [None] * 4 + [(104, 114)]
        assert raw(r) == {Reason.LARGE_ANSWER: 1, Reason.FIRST: 1}


@pytest.mark.parametrize("client_id", [MIRROR, "A->C|MirrorSourceConnector-0|replication-consumer"])
async def test_what_it_gave_is_no_evidence_for_another_mirror(clock: MockClock, client_id: str) -> None:
    """Another mirror is later given the same records: the first one may be producing them."""
    source = SourceBroker(sets=[{P0: LARGE}, {P0: MIDDLE}])
    async with shallow_rig(source=source, min_batch_bytes=0, limits=half(LARGE)) as r:
        first, second, producer = await r.consumer(), await r.consumer(), await r.producer()
        second.client_id = client_id
        await trio.sleep(6)
        seen = poll(await first.fetch(100))
        assert len(poll(await second.fetch(100))) == 2_000
        place: Place = "A.orders", 0
        await producer.send(producer.request({place: produced(seen[:2_000])}))
        await producer.frame()
        assert r.wrap.interlock.rules.statistics().proven == 0  # type: ignore[attr-defined]


async def test_a_damaged_one_ends_the_connection() -> None:
    async with shallow_rig(paired=False, limits=half(LARGE)) as r:

        async def damaged(side: BrokerSide, frame: bytes) -> None:
            size = len(LARGE)
            await side.send(size.to_bytes(4) + frame[8:12] + b"\xff" * (size - 4))

        r.brokers[0].answer = damaged
        client = await r.consumer()
        await client.ask(100)
        await client.stream.receive_some()
        assert await r.closed("from") == {CloseCause.UPSTREAM_PROTOCOL: 1}


async def test_it_is_asked_what_its_copy_is_even_if_it_never_gets_an_answer_that_is_held(tmp_path: Path) -> None:
    """It may have to be mirrored as an ordinary topic, and then such an answer passes raw."""
    source, target = SourceBroker(sets=[{P0: LARGE}] * 3), Asked()
    async with shallow_rig(
        source=source,
        target=target,
        limits=half(LARGE),
        mirrored_file=tmp_path / "from.mirrored",
        same_offsets=ORDERS,
        without_agent=WithoutAgent.ORDINARY,
    ) as r:
        client = await r.consumer()
        await client.ask(100)
        assert await r.closed("from") == {CloseCause.UPSTREAM_PROTOCOL: 1}
        r.wrap.tick(trio.current_time())
        await until(lambda: target.is_asked)


class Asked(TargetBroker):
    """A target that is asked about the copy, and does not say."""

    is_asked = False

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        if api_key(frame) != ApiKey.METADATA:
            return await super().answer(side, frame)
        self.is_asked |= f"A.{ORDERS}".encode() in frame
        return None
