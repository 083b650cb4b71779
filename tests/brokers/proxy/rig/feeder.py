"""A producer that continues while brokers, leaders and proxies come and go, and keeps what was acknowledged."""

from __future__ import annotations

import threading
from time import monotonic, sleep
from types import MappingProxyType
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from shoal.scenarios.kafka.content.clients import client_config

from .data import TIMESTAMP, Contents, Record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

NOTHING: Mapping[str, object] = MappingProxyType({})
LAST_WORDS = 60.0  # seconds until all produced records must be acknowledged


class Feeder:
    """Produces small records to the partitions in turn from its own thread: acks=all, idempotent, as fast as answers
    arrive, with at most `WINDOW` unacknowledged.

        with Feeder(bootstrap, topic, partitions=3) as feeder:
            feeder.wait_for(feeder.acknowledged + 500)

    At the end of the block all sent records must be acknowledged; `sent` is what the topic must hold, in order.
    `others`: settings of the producer.
    """

    WINDOW = 200

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, others: Mapping[str, object] = NOTHING) -> None:
        settings = {"enable.idempotence": True, "linger.ms": 1, "retry.backoff.ms": 50, "reconnect.backoff.max.ms": 500}
        self._producer = Producer({**client_config(bootstrap), **settings, **others})
        self._topic = topic
        self.sent: Contents = {number: [] for number in range(partitions)}
        self.delivered: Contents = {number: [] for number in range(partitions)}
        self.acknowledged = 0
        self.failures: list[KafkaError] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder")

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self.finish()
        self._stopping.set()
        self._thread.join()

    def wait_for(self, acknowledged: int, within: float = LAST_WORDS) -> None:
        """Until this many records are acknowledged."""
        deadline = monotonic() + within
        while self.acknowledged < acknowledged:
            assert monotonic() < deadline, f"{self.acknowledged} of {acknowledged} acknowledged"
            assert not self.failures, self.failures
            sleep(0.01)

    def finish(self) -> None:
        """Send nothing more; all sent records must be acknowledged, once and in order."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(LAST_WORDS) == 0, "not everything was acknowledged"
        assert not self.failures, self.failures
        assert self.delivered == self.sent

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.poll(0 if len(self._producer) < self.WINDOW else 0.01)
            if len(self._producer) < self.WINDOW:
                self._send(number)
                number += 1

    def _send(self, number: int) -> None:
        partition = number % len(self.sent)
        record = Record(b"%d" % number, b"record %d" % number, TIMESTAMP + number)

        def told(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged += 1
                self.delivered[partition].append(record)
            else:
                self.failures.append(error)

        try:
            self._producer.produce(self._topic, record.value, record.key, partition, told, timestamp=record.timestamp)
        except (BufferError, KafkaException) as error:
            raise AssertionError(f"record {number}: {error}") from error
        self.sent[partition].append(record)
