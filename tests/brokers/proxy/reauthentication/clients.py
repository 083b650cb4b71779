"""Clients that send numbered records to one partition and read them back, until they are stopped.

The client id is the topic. `Outcome.reports`: of librdkafka about its connections. It reconnects by itself.
"""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Partition

from shoal.scenarios.kafka.content.clients import client_config
from tests.support.kafka_python import KafkaConsumer, KafkaProducer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Event

    from shoal.scenarios.kafka.security.clients import ClientSecurity

__all__ = ["Outcome", "kafka_python", "librdkafka", "values"]

_IN_TIME = 30.0
_WAIT_S = 0.02
_PAUSE_S = 0.03  # a client that is busy all the time logs in too late
# AUTHENTICATION: the connection was lost during a new login, or that is refused, which the broker counts.
_OF_CONNECTIONS = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION)


class Outcome(NamedTuple):
    sent: int
    received: list[bytes]
    errors: list[str]
    reports: Sequence[str] = ()


def values(count: int) -> list[bytes]:
    return [b"v%d" % number for number in range(count)]


def librdkafka(bootstrap: str, topic: str, security: ClientSecurity, stop: Event) -> Outcome:
    errors: list[str] = []
    reports: list[str] = []

    def failed(error: KafkaError) -> None:
        errors.append(error.str())

    def noted(error: KafkaError) -> None:
        (reports if error.code() in _OF_CONNECTIONS else errors).append(error.str())

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed(error)

    settings = {**client_config(bootstrap), **security.librdkafka(), "client.id": topic, "error_cb": noted}
    producer = Producer({**settings, "linger.ms": 0, "enable.idempotence": True})
    consumer = Consumer({**settings, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([Partition(topic, 0, OFFSET_BEGINNING)])
    received: list[bytes] = []
    sent, deadline = 0, monotonic() + 4 * _IN_TIME

    def poll() -> None:
        for message in consumer.consume(100, _WAIT_S):
            failure = message.error()
            if failure is None:
                received.append(message.value() or b"")
            else:
                failed(failure)

    try:
        while not stop.is_set() and monotonic() < deadline:
            producer.produce(topic, b"v%d" % sent, partition=0, on_delivery=delivered)
            sent += 1
            producer.poll(0)
            poll()
            sleep(_PAUSE_S)
        if producer.flush(_IN_TIME):
            errors.append("not all records were acknowledged")
        deadline = monotonic() + _IN_TIME
        while len(received) < sent and monotonic() < deadline:
            poll()
    finally:
        consumer.close()
    return Outcome(sent, received, errors, reports)


def kafka_python(bootstrap: str, topic: str, security: ClientSecurity, stop: Event) -> Outcome:
    settings = {"bootstrap_servers": bootstrap, **security.kafka_python(), "client_id": topic}
    producer = KafkaProducer(**settings, acks="all", linger_ms=0, enable_idempotence=True)
    consumer = KafkaConsumer(**settings, group_id=None)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    received: list[bytes] = []
    pending: list[Any] = []
    deadline = monotonic() + 4 * _IN_TIME

    def poll() -> None:
        received.extend(record.value for records in consumer.poll(1000 * _WAIT_S).values() for record in records)

    try:
        while not stop.is_set() and monotonic() < deadline:
            pending.append(producer.send(topic, b"v%d" % len(pending), partition=0))
            poll()
            sleep(_PAUSE_S)
        producer.flush(_IN_TIME)
        errors = [str(future.exception) for future in pending if future.exception is not None]
        deadline = monotonic() + _IN_TIME
        while len(received) < len(pending) and monotonic() < deadline:
            poll()
    finally:
        consumer.close()
        producer.close(_IN_TIME)
    return Outcome(len(pending), received, errors)
