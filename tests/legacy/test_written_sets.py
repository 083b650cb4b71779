"""What the old Java clients' own code writes, read and converted: wrappers, offsets, the LZ4 header of each release."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, settings

from shoal.protocol.legacy.reading import Room
from shoal.protocol.legacy.up import up_convert
from shoal.protocol.records.batch import read_batch_header
from shoal.scenarios.kafka.old_clients import compiled, java_client
from tests.batches import consumed
from tests.protocol.legacy.sets import codecs, message_lists, numbered, read
from tests.protocol.legacy.test_up import as_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shoal.protocol.compression import Codec
    from shoal.protocol.legacy.message import Message

pytestmark = pytest.mark.kafka

SOURCE = Path(__file__).parent / "java" / "WrittenSets.java"
MAGIC = {"0.8.2.2": 0, "0.9.0.1": 0, "0.10.0.1": 1, "0.10.1.1": 1, "0.10.2.2": 1}


class OldWriter:
    """A JVM that writes sets."""

    def __init__(self, version: str, log: Path) -> None:
        self.magic = MAGIC[version]
        classes = trio.run(compiled, version, "written-sets", [SOURCE])
        class_path = f"{classes}:{trio.run(java_client, version)}/*"
        argv = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", class_path, "WrittenSets"]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)

    def write(self, codec: Codec, listed: Sequence[Message]) -> bytes:
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        into.write(struct.pack(">ii", codec, len(listed)))
        for one in listed:
            into.write(struct.pack(">q", one.timestamp) + _blob(one.key) + _blob(one.value))
        into.flush()
        (length,) = struct.unpack(">i", out.read(4))
        return out.read(int(length))

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _blob(part: bytes | memoryview | None) -> bytes:
    return struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part


@pytest.fixture(scope="module", params=MAGIC)
def writer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldWriter]:
    """Module-scoped, as each is a JVM."""
    writer = OldWriter(request.param, tmp_path_factory.mktemp("written") / "errors.log")
    yield writer
    writer.end()


@settings(max_examples=60)
@given(codec=codecs, listed=message_lists)
def test_what_an_old_client_wrote_is_read_and_converted(writer: OldWriter, codec: Codec, listed: list[Message]) -> None:
    expected = numbered(listed, writer.magic)
    record_set = writer.write(codec, expected)
    assert read(record_set) == expected
    up = up_convert(record_set, 0, len(record_set), Room(1 << 24))
    batch = b"".join(up.parts)
    assert consumed(batch) == as_records(expected)
    assert (up.records, read_batch_header(batch, 0, len(batch)).codec) == (len(listed), codec)
