"""Message sets of the old clients' own code become the batch that a modern producer would write."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.brokers.legacy.old_clients.kinds import JAVA
from tests.protocol.legacy.produce.test_up_conversion import as_records, converted
from tests.support.batches import consumed
from tests.support.kafka.old_clients import compiled, java_client
from tests.support.legacy.sets import codecs, message_lists, numbered, read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from shoal.protocol.legacy.message import Message
    from shoal.protocol.wire.compression import Codec
    from shoal.protocol.wire.crc import Buffer

_MAKERS = {"0.8.2.2": "Written08", "0.9.0.1": "Written09", "0.10.2.2": "Written010"}


class Written:
    """A JVM that writes sets."""

    def __init__(self, version: str, log: Path) -> None:
        self.newest = 1 if version == "0.10.2.2" else 0
        self.counts_from = version != "0.8.2.2"
        maker = _MAKERS[version]
        sources = [JAVA / f"{name}.java" for name in ("Written", "Words", maker)]
        class_path = f"{trio.run(compiled, version, maker, sources)}:{trio.run(java_client, version)}/*"
        argv = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", class_path, "Written", maker]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="ascii"
            )

    def write(self, magic: int, codec: Codec, offset: int, messages: Sequence[Message]) -> bytes:
        lines = [f"{message.timestamp} {_word(message.key)} {_word(message.value)}" for message in messages]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(f"set {magic} {codec:d} {offset} {len(lines)}", *lines, sep="\n", file=self._process.stdin, flush=True)
        return bytes.fromhex(self._process.stdout.readline().strip().removeprefix("x"))

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _word(value: Buffer | None) -> str:
    return "-" if value is None else f"x{value.hex()}"


@pytest.fixture(scope="module", params=_MAKERS)
def old_code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    written = Written(request.param, tmp_path_factory.mktemp("written") / "errors.log")
    yield written
    written.end()


@settings(max_examples=60)
@given(magic=st.integers(0, 1), codec=codecs, offset=st.integers(0, 1 << 40), messages=message_lists)
def test_every_message(old_code: Written, magic: int, codec: Codec, offset: int, messages: list[Message]) -> None:
    magic = min(magic, old_code.newest)
    record_set = old_code.write(magic, codec, offset, messages)
    expected = numbered(messages, magic, offset if old_code.counts_from else 0)
    assert read(record_set) == expected
    assert consumed(converted(record_set)) == as_records(expected)


@given(codec=codecs, runs=st.lists(message_lists, min_size=2, max_size=4))
@settings(max_examples=20)
def test_several_wrappers_in_a_set(old_code: Written, codec: Codec, runs: list[list[Message]]) -> None:
    """Each starts at 0 again, as a producer's do."""
    record_set = b"".join(old_code.write(old_code.newest, codec, 0, messages) for messages in runs)
    everything = [message for messages in runs for message in messages]
    assert consumed(converted(record_set)) == as_records(numbered(everything, old_code.newest))
