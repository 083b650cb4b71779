"""Which target offsets source records have is in a file that a kill does not damage, and that is bounded."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from shoal.protocol.shallow.translate.offset_map import AppendedRange, SourcePartition
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.shallow.files.offsets import OffsetsFile, OffsetsState, read_offsets
from tests.support.shallow.batches import BATCHES, outer, records
from tests.support.shallow.brokers import TargetBroker
from tests.support.shallow.rig import shallow_rig
from tests.support.tiny_disk import tiny_disk

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = SourcePartition("cluster", "orders", 3)
TARGET = TopicPartition("A.orders", 3)


def anew(file: OffsetsFile, state: OffsetsState) -> None:
    file.anew(file.write_anew(file.begin_anew(state)))


def opened(path: Path) -> tuple[OffsetsFile, OffsetsState]:
    file = OffsetsFile("to", path)
    state = file.load()
    anew(file, state)
    return file, state


def is_due(file: OffsetsFile) -> bool:
    return file.is_due


def ranges(path: Path) -> list[AppendedRange]:
    return read_offsets(path).known.ranges(TARGET)


def put(file: OffsetsFile, target_first: int, source_first: int, records: int) -> None:
    file.add(file.appended(TARGET, AppendedRange(target_first, source_first, records, SOURCE)))


def test_what_was_added_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "state" / "to.offsets"
    file, _ = opened(path)
    put(file, 0, 100, 10)
    put(file, 10, 110, 5)
    put(file, 20, 130, 5)
    expected = [AppendedRange(0, 100, 15, SOURCE), AppendedRange(20, 130, 5, SOURCE)]
    assert ranges(path) == expected, "while it is open: a kill loses nothing"
    file.close()
    file, state = opened(path)
    assert state.known.ranges(TARGET) == expected
    put(file, 25, 135, 1)
    file.close()
    assert ranges(path)[1:] == [AppendedRange(20, 130, 6, SOURCE)]


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_line_that_is_not_complete_does_not_count(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "to.offsets"
    file, _ = opened(path)
    put(file, 0, 100, 10)
    put(file, 20, 130, 5)
    file.close()
    path.write_bytes(path.read_bytes()[:-cut])
    assert ranges(path) == [AppendedRange(0, 100, 10, SOURCE)]


def test_topics_are_forgotten_and_the_file_is_written_anew_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "to.offsets"
    file, state = opened(path)
    put(file, 0, 100, 10)
    state.known.add(TARGET, SOURCE, 100, 0, 10)
    lines = file.begin_anew(state)
    file.add(file.line({"forget_source": ["cluster", "orders"]}))
    put(file, 10, 0, 3)
    assert ranges(path) == [AppendedRange(10, 0, 3, SOURCE)], "the version before has it, too"
    file.anew(file.write_anew(lines))
    assert ranges(path) == [AppendedRange(10, 0, 3, SOURCE)]
    file.add(file.line({"forget_target": "A.orders"}))
    assert ranges(path) == []
    file.close()


def test_a_version_of_another_cluster_that_is_being_written_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "to.offsets"
    file, state = opened(path)
    lines = file.begin_anew(state)
    file.discard("of another cluster")
    file.anew(file.write_anew(lines))
    put(file, 0, 100, 10)
    assert ranges(path) == []
    anew(file, OffsetsState())
    put(file, 0, 100, 10)
    assert ranges(path) == [AppendedRange(0, 100, 10, SOURCE)]
    file.close()


def test_files_that_cannot_be_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "to.offsets"
    path.write_text("my own list\n")
    with pytest.raises(OperatorError, match="does not write over it"):
        OffsetsFile("to", path).load()
    assert path.read_text() == "my own list\n"
    damaged = ("[7, 0, 0, 1]", "\0\0\0", "5", "null", "[0, Infinity, 0, 1]", '{"begins": ["t", 0, Infinity]}')
    for text in ("shoal offsets 9\n", *(f"shoal offsets 1\n{line}\n" for line in damaged)):
        path.write_text(text)
        assert len(OffsetsFile("to", path).load().known) == 0
        assert not path.exists()
    assert len(list(tmp_path.glob("to.offsets.discarded-*"))) == 3
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * (1 + len(damaged))


def test_a_full_disk(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failed = list[None]()
    with tiny_disk(tmp_path / "disk", 64 * 1024) as disk:
        file = OffsetsFile("to", disk.path / "to.offsets", lambda: failed.append(None))
        state = file.load()
        anew(file, state)
        disk.fill()
        for number in range(500):
            put(file, 20 * number, 30 * number, 10)
            state.known.add(TARGET, SOURCE, 30 * number, 20 * number, 10)
        assert failed == [None]
        assert is_due(file)
        anew(file, state)
        assert is_due(file)
        assert sum("cannot write" in record.getMessage() for record in caplog.records) == 1, "it is said once"
        disk.empty()
        anew(file, state)
        assert not is_due(file)
        assert len(ranges(disk.path / "to.offsets")) == 500, "nothing is lost when there is room again"
        file.close()


@pytest.mark.usefixtures("lane")
async def test_the_listener_stores_what_it_appends(tmp_path: Path) -> None:
    target, path = TargetBroker(), tmp_path / "to.producers"
    for _ in range(2):
        async with shallow_rig(target=target, producers_file=path) as r:
            client = await r.producer()
            await client.produce(outer(*BATCHES))
            await client.answers()
    known = read_offsets(path.with_suffix(".offsets")).known
    (partition,) = known.targets()
    found = {
        one.source_first + number: target.log()[one.target_first + number]
        for one in known.ranges(partition)
        for number in range(one.records)
    }
    assert list(found.values()) == records(*BATCHES)
