"""A mirror in raw bytes: it reads one topic from answer to answer, and produces its copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.protocol.shallow.token import take_token
from tests.support.shallow.batches import NONE, records
from tests.support.shallow.brokers import ORDERS
from tests.support.shallow.world import Seen, poll, produced, some_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.records.batch import NewRecord
    from tests.support.shallow.brokers import Place
    from tests.support.shallow.rig import Consumer, Producer, ShallowRig

__all__ = ["COPY", "FIRST", "SIZE", "Mirror", "has_token", "log", "logs", "rest"]

COPY = "A.orders"
SIZE = 10  # records of each answer
FIRST = 4  # of its first batch


def log(number: int) -> bytes:
    """The content of the n-th answer."""
    return some_batch(SIZE * number, FIRST) + rest(number)


def rest(number: int) -> bytes:
    """The same without its first batch, which was sent with a token."""
    return some_batch(SIZE * number + FIRST, SIZE - FIRST)


def has_token(seen: Sequence[Seen]) -> bool:
    return any(take_token(one.record.headers)[1] is not None for one in seen)


def logs(count: int) -> list[NewRecord]:
    return records(*map(log, range(count)))


class Mirror:
    """One consumer, one producer; it reads on from answer to answer."""

    def __init__(self, r: ShallowRig, consumer: Consumer, producer: Producer) -> None:
        self.r, self.consumer, self.producer = r, consumer, producer
        self.source = r.source
        self.number = 0

    @classmethod
    async def of(cls, r: ShallowRig, node: int | None = None) -> Mirror:
        """`node`: its producer comes by the port of this target broker."""
        return cls(r, await r.consumer(), await r.producer(agrees=node is not None, node=node))

    async def fetch(self) -> list[Seen]:
        """The next answer. A record with a token that arrives instead is produced at once, then the rest is fetched."""
        seen = poll(await self.consumer.fetch(SIZE * self.number))
        if has_token(seen):
            await self.produce(seen)
            self.source.sets.insert(0, {(ORDERS, 0): rest(self.number)})
            seen = poll(await self.consumer.fetch(SIZE * self.number + FIRST))
        self.number += 1
        return seen

    async def produce(self, seen: Sequence[Seen], topic: str = COPY) -> None:
        place: Place = topic, 0
        await self.producer.send(self.producer.request({place: produced(seen)}))
        ((error, _),) = (await self.producer.answers()).values()
        assert error is NONE

    async def copy(self) -> bool:
        """-> whether it got an envelope."""
        seen = await self.fetch()
        await self.produce(seen)
        return len(seen) == 1

    async def prove(self) -> None:
        """Raw once, then a token and the trial, which arrive."""
        assert [await self.copy() for _ in range(2)] == [False, True]

    @property
    def copied(self) -> list[NewRecord]:
        return self.r.target.log(0, COPY)
