"""kafka-python 1.4.7 or librdkafka as a line-based client, like java/OldClient.java: `python -m
tests.brokers.legacy.old_clients.python_client NAME`.

It is a separate process, because kafka-python 1.4.7 conflicts with the current version. Settings are `name=JSON`.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import traceback
import warnings
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    Lines = list[str]

_ANSWER_S = 60.0
_POLL_S = 0.05


class Writer(Protocol):
    def send(self, topic: str, partition: int, timestamp: int, key: bytes | None, value: bytes | None) -> None: ...
    def flush(self) -> Lines: ...
    def close(self) -> None: ...


class Reader(Protocol):
    """See java/Reader.java."""

    def assign(self, topic: str, partition: int, offset: int) -> None: ...
    def subscribe(self, topic: str) -> None: ...
    def assigned(self) -> Lines: ...
    def poll(self) -> Lines: ...
    def commit_polled(self) -> None: ...
    def commit(self, topic: str, partition: int, offset: int) -> None: ...
    def committed(self, topic: str, partition: int) -> int | None: ...
    def offset(self, topic: str, partition: int, what: str) -> int | None: ...
    def close(self) -> None: ...


class Loop:
    """A thread that polls continuously, and runs tasks between polls; see java/Loop.java."""

    def __init__(self, reader: Reader, commits: bool) -> None:
        self._reader = reader
        self._commits = commits
        self._asked: queue.SimpleQueue[tuple[Callable[[Reader], Lines], queue.SimpleQueue[Lines | Exception]]] = (
            queue.SimpleQueue()
        )
        self._polled: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def call(self, task: Callable[[Reader], Lines]) -> Lines:
        answer: queue.SimpleQueue[Lines | Exception] = queue.SimpleQueue()
        self._asked.put((task, answer))
        got = answer.get(timeout=_ANSWER_S)
        if isinstance(got, Exception):
            raise got
        return got

    def take(self, count: int, millis: int) -> Lines:
        taken: Lines = []
        deadline = monotonic() + millis / 1000
        while len(taken) < count:
            try:
                taken.append(self._polled.get(timeout=max(0.001, deadline - monotonic())))
            except queue.Empty:
                break
        return taken

    def close(self) -> None:
        self._ended = True
        self._thread.join(_ANSWER_S)

    def _run(self) -> None:
        while not self._ended:
            while not self._asked.empty():
                task, answer = self._asked.get()
                try:
                    answer.put(task(self._reader))
                except Exception as error:
                    answer.put(error)
            try:
                self._poll()
            except Exception as error:
                traceback.print_exc()
                self._polled.put(_told(error))
        self._reader.close()

    def _poll(self) -> None:
        records = self._reader.poll()
        try:
            if self._commits and records:
                self._reader.commit_polled()
        finally:
            for record in records:  # even if the commit fails: the consumer does not return them again
                self._polled.put(record)


class Client:
    def __init__(self, writer: Callable[..., Writer], reader: Callable[..., Reader]) -> None:
        self._writer = writer
        self._reader = reader
        self._writers: dict[str, Writer] = {}
        self._loops: dict[str, Loop] = {}

    def run(self) -> None:
        for line in sys.stdin:
            words = line.split()
            if words[0] == "send":
                _, name, topic, partition, timestamp, key, value = words
                self._writers[name].send(topic, int(partition), int(timestamp), _bytes(key), _bytes(value))
                continue
            try:
                answer = [f"| {one}" for one in self._answer(words)] + ["ok"]
            except Exception as error:
                traceback.print_exc()
                answer = [_told(error)]
            print(*answer, sep="\n", file=_OUT, flush=True)

    def _answer(self, words: Lines) -> Lines:
        match words:
            case ["producer", name, *settings]:
                self._writers[name] = self._writer(**_settings(settings))
            case ["flush", name]:
                return self._writers[name].flush()
            case ["consumer", name, *settings]:
                given = _settings(settings)
                self._loops[name] = Loop(
                    self._reader(**{k: v for k, v in given.items() if k != "commits"}), given["commits"]
                )
            case ["take", name, count, millis]:
                return self._loops[name].take(int(count), int(millis))
            case ["close", name]:
                (self._writers if name in self._writers else self._loops).pop(name).close()
            case [_, name, *_]:
                return self._loops[name].call(lambda reader: _asked(reader, words))
        return []


def _asked(reader: Reader, words: Lines) -> Lines:
    match words:
        case ["subscribe", _, topic]:
            reader.subscribe(topic)
        case ["assigned", _]:
            return reader.assigned()
        case ["assign", _, topic, partition, offset]:
            reader.assign(topic, int(partition), int(offset))
        case ["commit", _, topic, partition, offset]:
            reader.commit(topic, int(partition), int(offset))
        case ["committed", _, topic, partition]:
            return [_or_null(reader.committed(topic, int(partition)))]
        case ["offset", _, topic, partition, what]:
            return [_or_null(reader.offset(topic, int(partition), what))]
        case _:
            raise ValueError(words[0])
    return []


class OldPythonWriter:
    def __init__(self, **settings: Any) -> None:
        import kafka

        self._producer = kafka.KafkaProducer(**_tuples(settings))
        self._results: list[Any] = []

    def send(self, topic: str, partition: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        at = None if timestamp < 0 else timestamp
        try:
            self._results.append(self._producer.send(topic, value, key, partition=partition, timestamp_ms=at))
        except Exception as error:
            self._results.append(error)

    def flush(self) -> Lines:
        outcomes = [_outcome(result) for result in self._results]
        self._results.clear()
        return outcomes

    def close(self) -> None:
        self._producer.close()


def _outcome(result: Any) -> str:
    try:
        return str(result.get(120).offset)
    except Exception as error:
        return _told(error)


class OldPythonReader:
    def __init__(self, **settings: Any) -> None:
        import kafka

        self._kafka = kafka
        self._consumer = kafka.KafkaConsumer(**_tuples(settings))

    def assign(self, topic: str, partition: int, offset: int) -> None:
        place = self._kafka.TopicPartition(topic, partition)
        self._consumer.assign([*self._consumer.assignment(), place])
        self._consumer.seek(place, offset)

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic])

    def assigned(self) -> Lines:
        return [f"{one.topic} {one.partition}" for one in self._consumer.assignment()]

    def poll(self) -> Lines:
        polled = self._consumer.poll(timeout_ms=int(_POLL_S * 1000))
        return [_python_line(record) for records in polled.values() for record in records]

    def commit_polled(self) -> None:
        self._consumer.commit()

    def commit(self, topic: str, partition: int, offset: int) -> None:
        said = self._kafka.structs.OffsetAndMetadata(offset, "said by a test")
        self._consumer.commit({self._kafka.TopicPartition(topic, partition): said})

    def committed(self, topic: str, partition: int) -> int | None:
        found: int | None = self._consumer.committed(self._kafka.TopicPartition(topic, partition))
        return found

    def offset(self, topic: str, partition: int, what: str) -> int | None:
        place = self._kafka.TopicPartition(topic, partition)
        ends = {"earliest": self._consumer.beginning_offsets, "latest": self._consumer.end_offsets}
        if what in ends:
            return int(ends[what]([place])[place])
        found = self._consumer.offsets_for_times({place: int(what)})[place]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        self._consumer.close(autocommit=False)


def _python_line(one: Any) -> str:
    kind = {0: "CreateTime", 1: "LogAppendTime"}.get(one.timestamp_type, "NoTimestampType")
    at = -1 if one.timestamp is None else one.timestamp
    return _line(one.topic, one.partition, one.offset, at, kind, one.key, one.value)


class RdkafkaWriter:
    def __init__(self, **settings: Any) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(settings)
        self._outcomes: dict[int, str] = {}
        self._sent = 0

    def send(self, topic: str, partition: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        number, self._sent = self._sent, self._sent + 1

        def delivered(error: Any, message: Any) -> None:
            self._outcomes[number] = f"error {error}" if error else str(message.offset())

        self._producer.produce(topic, value, key, partition, delivered, timestamp=max(0, timestamp))
        self._producer.poll(0)

    def flush(self) -> Lines:
        self._producer.flush(120)
        outcomes = [self._outcomes.get(number, "error not delivered") for number in range(self._sent)]
        self._sent = 0
        self._outcomes.clear()
        return outcomes

    def close(self) -> None:
        self._producer.flush(10)


class RdkafkaReader:
    def __init__(self, **settings: Any) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(settings)

    def assign(self, topic: str, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.incremental_assign([TopicPartition(topic, partition, offset)])

    def subscribe(self, topic: str) -> None:
        self._consumer.subscribe([topic])

    def assigned(self) -> Lines:
        return [f"{one.topic} {one.partition}" for one in self._consumer.assignment()]

    def poll(self) -> Lines:
        polled = self._consumer.consume(1000, _POLL_S)
        errors = [error for one in polled if (error := one.error()) is not None]
        fatal = [error for error in errors if not error.retriable()]
        if fatal:
            raise RuntimeError(fatal[0])
        return [_rdkafka_line(one) for one in polled if one.error() is None]

    def commit_polled(self) -> None:
        self._consumer.commit(asynchronous=False)

    def commit(self, topic: str, partition: int, offset: int) -> None:
        from confluent_kafka import TopicPartition

        (done,) = self._consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False) or []
        if done.error is not None:
            raise RuntimeError(done.error)

    def committed(self, topic: str, partition: int) -> int | None:
        from confluent_kafka import TopicPartition

        (found,) = self._consumer.committed([TopicPartition(topic, partition)], timeout=30)
        return None if found.offset < 0 else found.offset

    def offset(self, topic: str, partition: int, what: str) -> int | None:
        from confluent_kafka import TopicPartition

        if what in ("earliest", "latest"):
            ends: Any = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            return int(ends[what == "latest"])
        (found,) = self._consumer.offsets_for_times([TopicPartition(topic, partition, int(what))], timeout=30)
        return None if found.offset < 0 else found.offset

    def close(self) -> None:
        self._consumer.close()


def _rdkafka_line(one: Any) -> str:
    kind, at = one.timestamp()
    name = ("NoTimestampType", "CreateTime", "LogAppendTime")[kind]
    return _line(one.topic(), one.partition(), one.offset(), at if kind else -1, name, one.key(), one.value())


def _line(*fields: object) -> str:
    return " ".join(_word(field) if isinstance(field, bytes) or field is None else str(field) for field in fields)


def _word(value: bytes | None) -> str:
    return "-" if value is None else f"x{value.hex()}"


def _bytes(word: str) -> bytes | None:
    return None if word == "-" else bytes.fromhex(word[1:])


def _or_null(value: object) -> str:
    return "null" if value is None else str(value)


def _told(error: Exception) -> str:
    return f"error {type(error).__name__}: {error}".replace("\n", " ")


def _settings(words: Lines) -> dict[str, Any]:
    return {name: json.loads(value) for name, _, value in (word.partition("=") for word in words)}


def _tuples(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


_KINDS: dict[str, tuple[Callable[..., Writer], Callable[..., Reader]]] = {
    "kafka-python": (OldPythonWriter, OldPythonReader),
    "librdkafka": (RdkafkaWriter, RdkafkaReader),
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _OUT, sys.stdout = sys.stdout, sys.stderr
    Client(*_KINDS[sys.argv[1]]).run()
