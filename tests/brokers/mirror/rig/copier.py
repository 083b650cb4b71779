"""Another tool that copies a topic: it reads the source directly, and produces records unchanged, a moment later."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Copier"]


class Copier:
    """A thread during a `with` block; partition 0 only. Each record is at least `delay` seconds old when it is
    produced."""

    def __init__(self, *, source: str, topic: str, target: str, copy: str, delay: float) -> None:
        self._consumer = Consumer({"bootstrap.servers": source, "group.id": "copier", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        self._producer = Producer({"bootstrap.servers": target, "linger.ms": 0})
        self._copy, self._delay = copy, delay
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._end.is_set():
            messages = self._consumer.consume(500, 0.1)
            time.sleep(self._delay if messages else 0)
            for message in messages:
                _, timestamp = message.timestamp()
                self._producer.produce(
                    self._copy,
                    message.value(),
                    message.key(),
                    message.partition() or 0,
                    timestamp=timestamp,
                    headers=message.headers(),
                )
            self._producer.flush(10)

    def __enter__(self) -> Copier:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        self._thread.join(30)
        self._consumer.close()
