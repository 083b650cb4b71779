"""Producers of librdkafka. Each writes on its own thread until `stop`, whatever fails meanwhile."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from shoal.scenarios.kafka.content.clients import Setting, client_config

from .ledger import Ending, Fate
from .writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

_FLUSH_S = 90.0
_END_S = 30.0  # limit for ending a transaction
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
class Librdkafka(Writer):
    _transaction: int = 0

    def produce(self) -> None:
        kind = dict(_KINDS[self.plan.kind])
        if self.plan.kind == "transactional":
            kind["transactional.id"] = f"{self.topic}-{self.plan.number}"
        codec = {"compression.type": self.plan.codec}
        batches = {"batch.num.messages": max(self.plan.run, 1)}
        producer = Producer({**client_config(self.bootstrap, self.login), **_SETTINGS, **kind, **codec, **batches})
        if self.plan.kind == "transactional":
            producer.init_transactions(_END_S)
            self._transactions(producer)
        else:
            while not self.stopped.is_set():
                self._run_of(producer, None)
            producer.flush(_FLUSH_S)

    def _transactions(self, producer: Producer) -> None:
        while not self.stopped.is_set():
            self._transaction += 1
            number = (self.plan.number, self._transaction)
            self.ledger.endings[number] = Ending.OPEN
            producer.begin_transaction()
            try:
                for _ in range(self.draw.choice((1, 2, 5))):
                    self._run_of(producer, number)
                commit = self.draw.random() < 0.7
                self.ledger.endings[number] = Ending.UNKNOWN
                # Aborting before the first record has arrived ends a transaction that no broker knows:
                # INVALID_TXN_STATE, permanently.
                producer.flush(_END_S)
                self._end(partial(producer.commit_transaction if commit else producer.abort_transaction, _END_S))
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
        """Write one run of records to one partition, then sleep to keep the planned rate."""
        began, count = time.monotonic(), max(1, self.plan.run)
        partition = self.draw.randrange(self.partitions())
        for _ in range(count):
            self._one(producer, partition, transaction)
        producer.poll(0)
        while not self.stopped.is_set() and (left := self.rest(began, count)) > 0:
            producer.poll(min(left, 0.1))

    def _one(self, producer: Producer, partition: int, transaction: tuple[int, int] | None) -> None:
        (key, value, headers), timestamp, entry = self.next_record(transaction)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                entry.fate, entry.partition, entry.offset = Fate.ACKED, message.partition() or 0, message.offset() or 0

        while True:
            try:
                producer.produce(
                    self.topic, value, key, partition, delivered, timestamp=timestamp, headers=list(headers)
                )
                return
            except BufferError:
                with suppress(KafkaException):
                    producer.poll(0.1)
                if self.stopped.is_set():
                    return
