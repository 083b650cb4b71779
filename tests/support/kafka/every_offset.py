"""What a consumer gets at each offset of a partition, librdkafka's and Java's, in both isolation levels."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import trio
from confluent_kafka import TopicPartition

from shoal.scenarios.kafka.content.clients import Setting, in_thread
from shoal.scenarios.kafka.content.reading import READ_COMMITTED, READ_UNCOMMITTED, assigned
from shoal.scenarios.kafka.java.jars import jars
from shoal.scenarios.kafka.java.jvm import Jvm
from shoal.scenarios.kafka.security.clients import ANYBODY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LEVELS", "Asked", "Found", "read_by_java", "read_by_librdkafka"]

LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)
_WITHIN = 30.0
_KINDS = {"CreateTime": 1, "LogAppendTime": 2}  # as confluent_kafka has them


class Asked(NamedTuple):
    isolation: str
    topic: str
    offset: int


class Found(NamedTuple):
    """The first record from there on."""

    offset: int
    timestamp_type: int
    timestamp: int


async def read_by_librdkafka(bootstrap: str, spans: Mapping[str, range]) -> dict[Asked, Found]:
    """`spans`: offsets by topic, of partition 0."""
    found: dict[Asked, Found] = {}
    for isolation in LEVELS:
        for topic, offsets in spans.items():
            await in_thread(partial(_read, bootstrap, isolation, topic, offsets, found))
    return found


def _read(bootstrap: str, isolation: str, topic: str, offsets: Sequence[int], found: dict[Asked, Found]) -> None:
    start = [TopicPartition(topic, 0, offsets[0])]
    small: dict[str, Setting] = {"enable_partition_eof": False, "fetch_wait_max_ms": 1, "fetch_message_max_bytes": 1}
    with assigned(bootstrap, start, ANYBODY, isolation_level=isolation, **small) as consumer:
        for offset in offsets:
            consumer.assign([TopicPartition(topic, 0, offset)])
            message = consumer.poll(_WITHIN)
            assert message is not None, (topic, offset)
            assert message.error() is None, (topic, offset, message.error())
            found[Asked(isolation, topic, offset)] = Found(message.offset() or 0, *message.timestamp())


async def read_by_java(bootstrap: str, spans: Mapping[str, range]) -> dict[Asked, Found]:
    assert shutil.which("javac"), "Java runs a source file only with a compiler"
    asked = [
        argument
        for isolation in LEVELS
        for topic, offsets in spans.items()
        for argument in (isolation, topic, str(offsets.start), str(offsets.stop))
    ]
    source = Path(__file__).with_name("EveryOffset.java")
    argv = Jvm(lib=await jars()).argv(str(source), bootstrap, *asked)
    done = await trio.run_process(argv, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    rows = (line.split()[1:] for line in done.stdout.decode().splitlines() if line.startswith("at "))
    return {
        Asked(isolation, topic, int(offset)): Found(int(at), _KINDS[kind], int(timestamp))
        for isolation, topic, offset, at, kind, timestamp in rows
    }
