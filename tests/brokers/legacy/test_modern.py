"""Modern clients on a listener for old ones: the same as on a plain listener, headers included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.content.topics import Topics

if TYPE_CHECKING:
    from .conftest import Route

pytestmark = pytest.mark.kafka
RECORDS = 200
Sent = tuple[bytes | None, bytes | None, Any]
IN_TIME = 30.0


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_modern_client_loses_nothing(through_shoal: Route, topic: str, codec: str) -> None:
    trio.run(Topics(through_shoal.cluster.bootstrap).create, topic, 1)
    sent: list[Sent] = [
        (b"%d" % number, b"value" * number, [("n", b"%d" % number), ("null", None)]) for number in range(RECORDS)
    ]
    producer = Producer({**client_config(through_shoal.bootstrap), "compression.type": codec, "linger.ms": 20})
    for key, value, headers in sent:
        producer.produce(topic, value, key, headers=headers)
    assert not producer.flush(IN_TIME)
    consumer = Consumer({**client_config(through_shoal.bootstrap), "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[Sent] = []
    while len(got) < RECORDS:
        (message,) = consumer.consume(1, IN_TIME)
        assert message.error() is None
        got.append((message.key(), message.value(), message.headers()))
    consumer.close()
    assert got == sent
