"""What an unwrapping listener knows of offsets, when topics and clusters are other ones than before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from shoal.protocol.shallow.translate.offset_map import AppendedRange, SourcePartition
from shoal.protocol.shallow.unwrap.findings import OffsetsAppended
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.shallow.files.offsets import read_offsets
from shoal.proxy.shallow.unwrap.translation import Translation
from tests.support.shallow.world import some_key

if TYPE_CHECKING:
    from pathlib import Path

TARGET = TopicPartition("A.orders", 0)
KEY = some_key()


class Monitors:
    """Those that know the ids of source topics."""

    def __init__(self, topic_id: bytes | None) -> None:
        self.topic_id = topic_id

    def source_of(self, cluster: str, topic: str) -> tuple[str, bytes | None]:
        return "the-id", self.topic_id


def begun(path: Path, topic_id: bytes | None = b"1" * 16) -> tuple[Translation, Any]:
    monitors: Any = Monitors(topic_id)
    translation = Translation("to", monitors, path)
    translation.begin()
    translation.identified("target")
    return translation, monitors


def append(translation: Translation, source_first: int, target_first: int, records: int = 10) -> None:
    translation.appended(OffsetsAppended(TARGET, KEY, source_first, target_first, records))
    translation.flush()


def known(path: Path) -> list[AppendedRange]:
    return read_offsets(path).known.ranges(TARGET)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "to.offsets"


def test_a_source_topic_that_was_made_anew_is_another_one(path: Path) -> None:
    translation, monitors = begun(path)
    append(translation, 0, 0)
    monitors.topic_id = b"2" * 16
    append(translation, 0, 10)
    expected = [AppendedRange(10, 0, 10, SourcePartition("the-id", "orders", 0))]
    assert known(path) == expected
    translation.end()
    assert known(path) == expected


def test_also_while_shoal_is_down(path: Path) -> None:
    translation, _ = begun(path)
    append(translation, 0, 0)
    translation.end()
    translation, _ = begun(path, b"2" * 16)
    append(translation, 0, 10)
    translation.end()
    assert [one.target_first for one in known(path)] == [10]


def test_a_topic_id_that_is_not_known_yet_changes_nothing(path: Path) -> None:
    translation, monitors = begun(path, None)
    append(translation, 0, 0)
    monitors.topic_id = b"1" * 16
    append(translation, 10, 10)
    monitors.topic_id = None
    append(translation, 20, 20)
    translation.end()
    assert [one.records for one in known(path)] == [30]


def test_a_source_partition_that_has_lost_records(path: Path) -> None:
    """Other records get their offsets, and the first of these are raw."""
    translation, _ = begun(path)
    other = TopicPartition("A.orders", 1)
    translation.appended(OffsetsAppended(other, replace(KEY, partition=1), 0, 0, 10))
    append(translation, 0, 0)
    translation.source_truncated("the-id", {TopicPartition("orders", 0), TopicPartition("orders", 2)})
    append(translation, 8, 13)
    for _ in range(2):
        assert known(path) == [AppendedRange(13, 8, 10, SourcePartition("the-id", "orders", 0))]
        assert len(read_offsets(path).known.ranges(other)) == 1
        translation.end()
        translation, _ = begun(path)
    translation.end()


def test_a_target_topic_that_was_deleted(path: Path) -> None:
    translation, _ = begun(path)
    append(translation, 0, 0)
    translation.forget_target("A.orders")
    assert known(path) == []
    append(translation, 10, 0)
    translation.end()
    assert [one.source_first for one in known(path)] == [10]


def test_another_target_cluster(path: Path) -> None:
    translation, _ = begun(path)
    append(translation, 0, 0)
    translation.identified("another")
    assert not path.exists()
    assert len(list(path.parent.glob("to.offsets.discarded-*"))) == 1
    assert translation.statistics() == {"ranges": 0, "partitions": 0}
    translation.end()


def test_one_line_for_each_partition_of_a_request(path: Path) -> None:
    translation, _ = begun(path)
    append(translation, 0, 0)
    before = path.read_text().count("\n")
    for number in range(1, 50):
        translation.appended(OffsetsAppended(TARGET, KEY, 10 * number, 10 * number, 10))
    translation.flush()
    assert path.read_text().count("\n") == before + 1
    assert [one.records for one in known(path)] == [500]
    translation.end()


def test_without_a_state_directory_nothing_is_kept() -> None:
    monitors: Any = Monitors(None)
    translation = Translation("to", monitors)
    translation.begin()
    append(translation, 0, 0)
    assert translation.statistics() == {"ranges": 0, "partitions": 0}
    translation.end()
