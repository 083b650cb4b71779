"""Producers at work: each is a librdkafka client on a thread of its own, which writes until it is told to stop, whatever dies meanwhile."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import trio
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from shoal.scenarios.kafka.clients import Setting, client_config

from .ledger import Ending, Entry, Fate, Ledger
from .records import SHAPES, Written, content_of, mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from .plan import ProducerPlan

_FLUSH_S = 90.0
_END_S = 30.0  # of a transaction
_SETTINGS: dict[str, Setting] = {
    "queue.buffering.max.messages": 20_000,
    "queue.buffering.max.kbytes": 64 * 1024,
    "message.max.bytes": 4 * 1024 * 1024,
    "linger.ms": 5,
    "acks": "all",
    "message.timeout.ms": 120_000,
    "socket.timeout.ms": 10_000,
}
_KINDS: dict[str, dict[str, Setting]] = {
    "plain": {"max.in.flight": 1},
    "idempotent": {"enable.idempotence": True, "max.in.flight": 5},
    "transactional": {"transaction.timeout.ms": 20_000, "message.timeout.ms": 20_000},
}


@dataclass(slots=True)
class Writer:
    """`run` blocks; `stop` may be called from another thread."""

    plan: ProducerPlan
    bootstrap: str
    topic: str
    """As the cluster knows it; the ledger has the plan's name."""
    partitions: Callable[[], int]
    ledger: Ledger
    base_ms: int
    said: Callable[[str], None]
    _number: int = 0
    _transaction: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _draw: random.Random = field(default_factory=random.Random)

    def stop(self) -> None:
        self._stopped.set()

    async def work(self) -> None:
        await trio.to_thread.run_sync(self.run, limiter=trio.CapacityLimiter(1))

    def run(self) -> None:
        self._draw = random.Random(self.plan.number * 7919 + 1)
        while not self._stopped.is_set():
            try:
                self._produce()
            except KafkaException as error:  # a fenced or fatal producer: another one goes on
                self.said(f"producer {self.plan.number}: {error}")
                self._stopped.wait(0.5)

    def _produce(self) -> None:
        kind = dict(_KINDS[self.plan.kind])
        if self.plan.kind == "transactional":
            kind["transactional.id"] = f"{self.topic}-{self.plan.number}"
        codec = {"compression.type": self.plan.codec}
        batches = {"batch.num.messages": max(self.plan.run, 1)}
        producer = Producer({**client_config(self.bootstrap), **_SETTINGS, **kind, **codec, **batches})
        if self.plan.kind == "transactional":
            producer.init_transactions(_END_S)
            self._transactions(producer)
        else:
            while not self._stopped.is_set():
                self._run_of(producer, None)
            producer.flush(_FLUSH_S)

    def _transactions(self, producer: Producer) -> None:
        while not self._stopped.is_set():
            self._transaction += 1
            number = (self.plan.number, self._transaction)
            self.ledger.endings[number] = Ending.OPEN
            producer.begin_transaction()
            try:
                for _ in range(self._draw.choice((1, 2, 5))):
                    self._run_of(producer, number)
                commit = self._draw.random() < 0.7
                self.ledger.endings[number] = Ending.UNKNOWN
                if commit:
                    producer.flush(_END_S)
                    self._end(partial(producer.commit_transaction, _END_S))
                else:
                    self._end(partial(producer.abort_transaction, _END_S))
                self.ledger.endings[number] = Ending.COMMITTED if commit else Ending.ABORTED
            except KafkaException as error:
                said: KafkaError = error.args[0]
                if not said.txn_requires_abort():
                    raise
                self._end(partial(producer.abort_transaction, _END_S))
                self.ledger.endings[number] = Ending.ABORTED

    def _end(self, end: Callable[[], object]) -> None:
        until = time.monotonic() + _END_S
        while True:
            try:
                end()
            except KafkaException as error:
                said: KafkaError = error.args[0]
                if not said.retriable() or time.monotonic() > until:
                    raise
            else:
                return

    def _run_of(self, producer: Producer, transaction: tuple[int, int] | None) -> None:
        """One run of records for one partition, then a rest, so that the rate is what was planned."""
        count = max(1, self.plan.run)
        partition = self._draw.randrange(self.partitions())
        for _ in range(count):
            self._one(producer, partition, transaction)
        until = time.monotonic() + count / self.plan.rate
        producer.poll(0)
        while not self._stopped.is_set() and (left := until - time.monotonic()) > 0:
            producer.poll(min(left, 0.1))

    def _one(self, producer: Producer, partition: int, transaction: tuple[int, int] | None) -> None:
        self._number += 1
        sign = mark(self.plan.number, self._number)
        written: Written = SHAPES[self.plan.shape](self._draw, sign)
        timestamp = self.base_ms + self._number
        entry = Entry(self.plan.cluster, self.plan.topic, content_of(*written), timestamp, self.plan.kind, transaction)
        self.ledger.entries[sign.strip(b"~")] = entry

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                entry.fate, entry.partition, entry.offset = Fate.ACKED, message.partition() or 0, message.offset() or 0

        while True:
            try:
                producer.produce(
                    self.topic,
                    written.value,
                    written.key,
                    partition,
                    delivered,
                    timestamp=timestamp,
                    headers=list(written.headers),
                )
                return
            except BufferError:
                with suppress(KafkaException):
                    producer.poll(0.1)
                if self._stopped.is_set():
                    return
