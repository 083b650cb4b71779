"""What the target refuses: the mirror gets the error at the end, and then that batch unwrapped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.shallow.wrap.eligible import Reason
from tests.support.shallow.batches import records
from tests.support.shallow.brokers import ORDERS, Place
from tests.support.shallow.mirror import COPY, Mirror, log
from tests.support.shallow.rig import shallow_rig
from tests.support.shallow.world import poll, produced, some_batch

if TYPE_CHECKING:
    from trio.testing import MockClock

LATE = 1_000_000
SOURCE: Place = ORDERS, 0
TARGET: Place = COPY, 0


async def test_a_refused_batch_is_given_raw_from_then_on(clock: MockClock) -> None:
    async with shallow_rig(min_batch_bytes=0, learn=True) as r:
        r.source.sets = [{SOURCE: log(number)} for number in range(2)]
        mirror = await Mirror.of(r)
        await mirror.prove()
        r.target.logs[TARGET].latest = LATE - 1
        before = list(mirror.copied)
        good = some_batch(20, 4), some_batch(30, 4), some_batch(34, 4)
        bad = encode_batch([NewRecord(LATE, b"k", b"v")] * 6, base_offset=24)
        batches = good[0] + bad + good[1] + good[2]

        r.source.sets = [{SOURCE: batches}]
        seen = await mirror.fetch()
        assert [one.offset for one in seen] == [37]
        await mirror.producer.send(mirror.producer.request({TARGET: produced(seen)}))
        answer = await mirror.producer.answer()
        (told,) = answer.responses[0].partition_responses
        assert told.error_code is ErrorCode.invalid_timestamp
        assert "orders-0 offsets 24..29" in told.error_message
        assert mirror.copied == before + records(*good)

        r.source.sets = [{SOURCE: batches}]  # the mirror's task was restarted, and reads from its committed offset
        again = poll(await mirror.consumer.fetch(20))
        assert [one.offset for one in again] == [*range(20, 30), 37]  # the first batch after a seek, too
        assert r.wrap.tally.raw_batches[Reason.REFUSED] == 1
