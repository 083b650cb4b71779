"""Read all records that a topic holds now, in order, through librdkafka."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import trio
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from shoal.protocol.wire import types
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.kafka.security.clients import ANYBODY, ClientSecurity

from .clients import Setting, client_config, in_thread
from .topics import Topics

READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"
READ_TIMEOUT_S = 600.0
_HANDED_OVER = 20_000  # messages per call: enough to make the call cheap, about 20 MB of Python objects
_POLL_S = 0.1
_ONE_RECORD_S = 10.0
_END_OF_PARTITION = KafkaError._PARTITION_EOF
# Limits of librdkafka's prefetching; no group offsets are committed.
_SETTINGS: dict[str, Setting] = {
    "group.id": "shoal-reader",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
    "queued.max.messages.kbytes": 64 * 1024,
    "fetch.message.max.bytes": 4 * 1024 * 1024,
    "fetch.wait.max.ms": 50,
}
Take = Callable[[list[Message]], None]


@contextmanager
def assigned(
    bootstrap: str, starts: Sequence[TopicPartition], login: ClientSecurity = ANYBODY, **settings: Setting
) -> Iterator[Consumer]:
    consumer = Consumer({**_SETTINGS, **client_config(bootstrap, login, **settings)})
    try:
        consumer.assign(list(starts))
        yield consumer
    finally:
        consumer.close()


async def read_all(
    bootstrap: str,
    topic: str,
    take: Take,
    *,
    within: float = READ_TIMEOUT_S,
    login: ClientSecurity = ANYBODY,
    **settings: Setting,
) -> int:
    """`read_from` the beginning of every partition of `topic`; returns the number of partitions."""
    count = await Topics(bootstrap, login=login).partitions(topic)
    starts = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(count)]
    await read_from(bootstrap, starts, take, within=within, login=login, **settings)
    return count


async def read_from(
    bootstrap: str,
    starts: Sequence[TopicPartition],
    take: Take,
    *,
    within: float = READ_TIMEOUT_S,
    login: ClientSecurity = ANYBODY,
    **settings: Setting,
) -> None:
    """Pass every record from `starts` to the current end of each partition to `take`, on a thread.

    `settings` are librdkafka's with `_` for `.`, such as isolation_level=READ_COMMITTED. Raises TrafficFailed, also
    when the ends are not reached `within` seconds.
    """
    unfinished = {types.TopicPartition(start.topic, start.partition) for start in starts}
    with assigned(bootstrap, starts, login, **settings) as consumer, trio.move_on_after(within):
        while unfinished:
            await in_thread(partial(_step, consumer, unfinished, take))
        return
    behind = ", ".join(f"{topic}-{number}" for topic, number in sorted(unfinished)[:10])
    raise TrafficFailed(f"ends at {bootstrap} not reached in {within:g} s: {behind}")


def _step(consumer: Consumer, unfinished: set[types.TopicPartition], take: Take) -> None:
    """Consume one batch of messages. Records after a partition's first reported end are left out."""
    records: list[Message] = []
    for message in consumer.consume(_HANDED_OVER, _POLL_S):
        error = message.error()
        if error is None:
            if partition_of(message) in unfinished:
                records.append(message)
        elif error.code() == _END_OF_PARTITION:
            unfinished.discard(partition_of(message))
        elif not error.retriable():
            raise TrafficFailed(f"{message.topic()}: {error}")
    take(records)


def partition_of(message: Message) -> types.TopicPartition:
    """The partition of a consumed message; the stubs allow None for messages that were never consumed."""
    return types.TopicPartition(message.topic() or "", message.partition() or 0)


def read_one(bootstrap: str, topic: str, partition: int, offset: int, *, login: ClientSecurity = ANYBODY) -> Message:
    """The first record at or after `offset`; blocking. Raises TrafficFailed when there is none."""
    with assigned(bootstrap, [TopicPartition(topic, partition, offset)], login) as consumer:
        message = consumer.poll(_ONE_RECORD_S)
    if message is None or message.error() is not None:
        raise TrafficFailed(f"no record at {topic}-{partition}@{offset}")
    return message
