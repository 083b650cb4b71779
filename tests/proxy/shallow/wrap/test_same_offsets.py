"""Mirror topics whose names Shoal gets to know late: they are neither raw nor forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.shallow.token import holds_sealed_name
from tests.support.shallow.brokers import ORDERS_ID, SourceBroker
from tests.support.shallow.rig import Consumer, shallow_rig

if TYPE_CHECKING:
    from uuid import UUID

SET = encode_batch([NewRecord(1, b"k", b"v")])


class Session:
    """The fetch session of a Java consumer: the partition is listed only when the session begins."""

    def __init__(self, consumer: Consumer) -> None:
        consumer.version = 13
        self._consumer = consumer
        self._epoch = 0

    async def fetch(self) -> bytes | None:
        """None: the session was to begin anew."""
        listed: dict[tuple[str | UUID, int], int] = {} if self._epoch else {(ORDERS_ID, 0): 0}
        session = {"session_id": 7 if self._epoch else 0, "session_epoch": self._epoch}
        await self._consumer.send(self._consumer.request(listed, **session))
        answer = await self._consumer.answer()
        self._epoch += 1
        if answer.error_code is not ErrorCode.none:
            self._epoch = 0
            return None
        return bytes(answer.responses[0].partitions[0].records or b"")


async def test_a_topic_whose_name_is_unknown_at_first_is_mirrored_later() -> None:
    """And meanwhile the mirror does not ask as fast as it can."""
    source = SourceBroker(sets=[{(ORDERS_ID, 0): SET}] * 1000, session_id=7)
    async with shallow_rig(source=source, same_offsets="orders") as rig:
        session = Session(await rig.consumer())
        began = trio.current_time()
        answers = [await session.fetch() for _ in range(4)]
        assert not any(answers)
        assert trio.current_time() - began >= 1.0
        source.topics[ORDERS_ID] = ("orders", 1)
        while not (given := await session.fetch()):
            assert trio.current_time() - began < 30
        assert holds_sealed_name(memoryview(given))
