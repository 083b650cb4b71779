"""What is written to the source's topics. All records of a topic differ, so that a repeated one is noticed.

`transactions` has two producers at once, whose committed and aborted transactions are interleaved. `compacted` has few
keys and some tombstones. The other topics have orders; those with CreateTime also records with odd parts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shoal.scenarios.demo_offsets.plan import APPEND_TIME, COMPACTED, PARTITIONS, TOPICS, TRANSACTIONS
from shoal.scenarios.kafka.content.records import chunks, oddities, orders
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill, fill_transactions
from shoal.scenarios.kafka.process import together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shoal.scenarios.demo_offsets.plan import Topic
    from shoal.scenarios.kafka.content.records import Record

__all__ = ["records_of", "transactions_of", "write", "write_all"]

_RUN = 200  # records of a batch, at most
_TRANSACTION = 150  # records
_ABORTED = {"first": 1, "second": 2}  # of three transactions of a producer, by its name
_ODD = 10  # one of so many records is odd
_KEYS = 200
_TOMBSTONE = 20  # one of so many records is one
_PERIOD_MS = 10_000_000  # between the timestamps of two calls; `oddities` go back by half of it


async def write_all(bootstrap: str, count: Callable[[Topic], int], seed: int) -> None:
    """Write `count` records to each topic, to all at once. Raises TrafficFailed."""
    await together(*(partial(write, bootstrap, topic, count(topic), seed) for topic in TOPICS))


async def write(bootstrap: str, topic: Topic, count: int, seed: int) -> None:
    """A call with another seed writes other records. Raises TrafficFailed."""
    layout = Layout(partitions=PARTITIONS, run=min(_RUN, max(1, count // (2 * PARTITIONS))))
    if topic is not TRANSACTIONS:
        made = records_of(topic, count, seed)
        codec = topic.codec
        await fill(bootstrap, topic.name, made, layout=layout, compression_type=codec, enable_idempotence=True)
        return
    await together(
        *(
            partial(
                fill_transactions,
                bootstrap,
                topic.name,
                transactions_of(count // len(_ABORTED), 2 * seed + number, aborted),
                transactional_id=name,
                layout=layout,
                compression_type=topic.codec,
            )
            for number, (name, aborted) in enumerate(_ABORTED.items())
        )
    )


def transactions_of(count: int, seed: int, aborted: int) -> Iterator[Transaction]:
    for number, records in enumerate(chunks(orders(count, seed=seed), _TRANSACTION)):
        yield Transaction(records=tuple(records), commit=number % 3 != aborted)


def records_of(topic: Topic, count: int, seed: int) -> Iterator[Record]:
    """Records of a topic without transactions."""
    if topic is COMPACTED:
        return _keyed(count, seed)
    return orders(count, seed=seed) if topic is APPEND_TIME else _mixed(count, seed)


def _keyed(count: int, seed: int) -> Iterator[Record]:
    for index, order in enumerate(orders(count, seed=seed)):
        value = None if index % _TOMBSTONE == 0 else order.value
        # Tombstones of a key differ by their timestamps.
        yield order._replace(
            key=b"key-%d" % (index * 7 % _KEYS), value=value, timestamp=order.timestamp + seed * _PERIOD_MS
        )


def _mixed(count: int, seed: int) -> Iterator[Record]:
    odd = oddities(count, seed=seed)
    for index, order in enumerate(orders(count, seed=seed)):
        if index % _ODD:
            yield order
        else:
            found = next(odd)
            yield found._replace(timestamp=found.timestamp + (seed + 1) * _PERIOD_MS)
