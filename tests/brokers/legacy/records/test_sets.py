"""Converted record sets, read by the old clients' own code: wrappers, relative offsets, LZ4 headers, and padding."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.legacy.fetch.down_conversion import CHUNK
from shoal.protocol.legacy.fetch.overflow import overflow
from shoal.protocol.legacy.message import Message
from shoal.protocol.records.batch import LOG_APPEND_TIME, NewRecord
from shoal.protocol.wire.compression import Codec
from tests.brokers.legacy.old_clients.kinds import JAVA
from tests.support.kafka.old_clients import compiled, java_client
from tests.support.legacy.conversions import after, answered, numbers
from tests.support.legacy.logs import Log, as_magic, logs

SOURCE = JAVA / "Sets.java"
NEWEST_MAGIC = {"0.8.2.2": 0, "0.9.0.1": 0, "0.10.0.1": 1, "0.10.2.2": 1}


class Sets:
    """A JVM that reads sets."""

    def __init__(self, version: str, log: Path) -> None:
        self.newest = NEWEST_MAGIC[version]
        class_path = f"{trio.run(compiled, version, SOURCE.stem, (SOURCE,))}:{trio.run(java_client, version)}/*"
        argv = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", class_path, "Sets"]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)

    def read(self, record_set: bytes) -> list[Message]:
        pipe, answer = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answer is not None
        pipe.write(len(record_set).to_bytes(4) + record_set)
        pipe.flush()
        found = []
        while (line := answer.readline().decode().split())[0] != "ok":
            assert line[0] != "error", " ".join(line)
            offset, timestamp, kind, key, value = line
            found.append(Message(int(offset), int(timestamp), kind == "LogAppendTime", _bytes(key), _bytes(value)))
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _bytes(text: str) -> bytes | None:
    return None if text == "null" else bytes.fromhex(text.strip("-"))


@pytest.fixture(scope="module", params=NEWEST_MAGIC)
def old_code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sets]:
    sets = Sets(request.param, tmp_path_factory.mktemp("sets") / "errors.log")
    yield sets
    sets.end()


class Asked(NamedTuple):
    log: Log
    offset: int
    magic: int
    chunk: int
    keep_codec: bool
    padding: int


asked = st.builds(
    Asked,
    logs(),
    st.just(0),
    st.integers(0, 1),
    st.integers(60, 3000) | st.just(CHUNK),
    st.booleans(),
    st.integers(0, 300),
)


def answer(question: Asked, magic: int) -> bytes:
    conversion = answered(question.log, question.offset, magic, keep_codec=question.keep_codec, chunk=question.chunk)
    found = []
    while (piece := conversion.piece()) is not None:
        found.append(piece)
    assert conversion.failure is None
    return b"".join((*found, *(overflow(question.padding) if question.padding and any(found) else ())))


@settings(max_examples=60)
@given(question=asked)
def test_every_version_reads_what_a_modern_consumer_would(old_code: Sets, question: Asked) -> None:
    magic = min(question.magic, old_code.newest)
    found = old_code.read(answer(question, magic))
    assert found == as_magic(question.log.committed, magic)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("bits", [0, LOG_APPEND_TIME])
def test_batches_of_many_wrappers(old_code: Sets, codec: Codec, bits: int) -> None:
    log = Log(5000)
    log.batch(
        [record._replace(key=b"k" * (number % 5)) for number, record in enumerate(numbers(6000))],
        codec=codec,
        bits=bits,
    )
    log.batch(
        [NewRecord(5, None, None), NewRecord(-1, b"", bytes(400_000)), NewRecord(7, b"k", b"")], codec=codec, bits=bits
    )
    for magic in range(old_code.newest + 1):
        question = Asked(log, 7003, magic, 16 * 1024, codec is not Codec.ZSTD, 100_000)
        assert old_code.read(answer(question, magic)) == after(log.all, magic, 7003)


@pytest.mark.parametrize("size", [*range(1, 20), 61, 62, 200, 70_000])
def test_what_fills_a_set_up_is_dropped(old_code: Sets, size: int) -> None:
    log = Log(9)
    log.batch(numbers(3))
    question = Asked(log, 9, old_code.newest, CHUNK, True, size)
    assert len(old_code.read(answer(question, old_code.newest))) == 3
