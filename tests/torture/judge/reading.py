"""Topics for the judge: every record with its identity, by partition, in the order of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from shoal.scenarios.kafka.content.reading import READ_COMMITTED, READ_UNCOMMITTED, partition_of, read_all
from tests.torture.clients.records import content_of, identity_of

from .judge import Seen

if TYPE_CHECKING:
    from confluent_kafka import Message

    from shoal.scenarios.kafka.content.records import Headers

_WITHIN_S = 60.0
Held = dict[int, list[Seen]]


def _seen(message: Message) -> Seen:
    key, value = message.key(), message.value()
    headers = cast("Headers", message.headers() or [])  # librdkafka's are a list, whatever its stubs allow
    content = content_of(key, value, headers)
    identity = identity_of(key, value, headers)
    return Seen(identity or content, content, message.timestamp()[1], hash(key) if key else 0, message.offset() or 0)


async def read_topic(bootstrap: str, topic: str, *, committed: bool) -> Held:
    """Raises TrafficFailed."""
    held: Held = {}

    def take(messages: list[Message]) -> None:
        for message in messages:
            held.setdefault(partition_of(message)[1], []).append(_seen(message))

    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    count = await read_all(bootstrap, topic, take, within=_WITHIN_S, isolation_level=isolation)
    return {partition: held.get(partition, []) for partition in range(count)}
