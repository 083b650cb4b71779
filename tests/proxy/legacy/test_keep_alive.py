"""A slow client's broker connection is kept alive, though the client's answer needs nothing more from the broker."""

from __future__ import annotations

from shoal.protocol.wire.compression import Codec
from shoal.proxy.config.settings import KIB
from tests.support.legacy.rig import PLACE, LegacyRig, Message, as_messages, legacy_rig, records

API_VERSIONS = 18


def filled(r: LegacyRig) -> list[Message]:
    made = records(0, 1400, 400)
    r.broker.log().append(made, Codec.GZIP)
    return as_messages(0, made)


async def test_the_broker_is_asked_something_between_two_portions_when_it_was_quiet_for_long() -> None:
    async with legacy_rig(quiet=0.0, chunk_bytes=16 * KIB) as r:
        sent, slow = filled(r), await r.slow_consumer()
        await slow.ask({PLACE: 0})
        await r.blocked(slow)
        assert len(r.broker.fetches) == 1
        given = (await slow.answer())[PLACE].messages
        assert given == sent[: len(given)]
        assert len(r.broker.fetches) == 1
        assert len(r.broker.others) > 5
        assert set(r.broker.others) == {API_VERSIONS}
        rest = await slow.consume({PLACE: len(given)}, {PLACE: len(sent)}) if len(given) < len(sent) else {PLACE: []}
        assert given + rest[PLACE] == sent
        r.broker.log().append(records(1400, 1))
        assert [message.offset for message in (await slow.fetch({PLACE: 1400}))[PLACE].messages] == [1400]


async def test_nobody_waits_for_its_answer() -> None:
    async with legacy_rig(quiet=0.0, chunk_bytes=16 * KIB) as r:
        r.broker.deaf = True
        sent, slow = filled(r), await r.slow_consumer()
        await slow.ask({PLACE: 0})
        await r.blocked(slow)
        given = (await slow.answer())[PLACE].messages
        assert given == sent[: len(given)]
        assert r.broker.others == [API_VERSIONS]


async def test_what_is_left_over_is_given_while_the_broker_is_asked_too() -> None:
    async with legacy_rig(quiet=0.0, chunk_bytes=16 * KIB) as r:
        sent, consumer = filled(r), await r.consumer()
        got = await consumer.consume({PLACE: 0}, {PLACE: len(sent)}, most=20_000)
        assert got[PLACE] == sent
        assert len(r.broker.fetches) == 1
        assert len(r.broker.others) >= len(sent) * 400 // 20_000


async def test_a_broker_that_was_asked_lately_is_left_alone() -> None:
    async with legacy_rig(chunk_bytes=16 * KIB) as r:
        sent, consumer = filled(r), await r.consumer()
        assert (await consumer.consume({PLACE: 0}, {PLACE: len(sent)}))[PLACE] == sent
        assert r.broker.others == []
