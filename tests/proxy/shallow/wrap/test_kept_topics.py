"""Topics that keep their offsets, over restarts, crashes and full disks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.shallow.files.kept_topics import KeptTopics

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ("orders", 'odd"\n name', "Grüße")


def failed() -> None:
    raise AssertionError


def kept(path: Path) -> KeptTopics:
    return KeptTopics("source", path, failed)


def test_topics_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "state" / "source.same-offsets"
    topics = kept(path)
    assert not any(name in topics for name in NAMES)
    assert all(topics.add(name) for name in (*NAMES, *NAMES))
    assert all(name in kept(path) for name in NAMES)
    assert "other" not in kept(path)
    assert len(path.read_text().splitlines()) == 1 + len(NAMES)


@pytest.mark.parametrize("lost", range(1, 9))
def test_a_line_that_was_not_written_whole_says_nothing(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "source.same-offsets"
    assert kept(path).add("payments")
    assert kept(path).add("orders")
    path.write_bytes(path.read_bytes()[:-lost])
    topics = kept(path)
    assert "payments" in topics
    assert "orders" not in topics
    assert topics.add("orders")
    assert "orders" in kept(path)


@pytest.mark.parametrize("begun", [b"", b"shoal", b"shoal same-offsets 1"])
def test_a_first_line_that_was_not_written_whole_is_begun_anew(tmp_path: Path, begun: bytes) -> None:
    """A crash, or a full disk: Shoal starts."""
    path = tmp_path / "source.same-offsets"
    path.write_bytes(begun)
    assert kept(path).add("orders")
    assert "orders" in kept(path)


def test_two_processes_add_to_one_file(tmp_path: Path) -> None:
    """While one takes over from the other."""
    path = tmp_path / "source.same-offsets"
    old, new = kept(path), kept(path)
    assert old.add("orders")
    assert new.add("payments")
    assert "orders" not in new
    new.read()
    assert "orders" in new
    assert all(name in kept(path) for name in ("orders", "payments"))


def test_a_file_that_is_not_shoals_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "source.same-offsets"
    path.write_text("my notes\n")
    with pytest.raises(OperatorError, match="Shoal does not write over it"):
        kept(path)
    assert path.read_text() == "my notes\n"


def test_what_can_not_be_written_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[int] = []
    topics = KeptTopics("source", tmp_path / "state" / "source.same-offsets", lambda: failures.append(1))
    (tmp_path / "state").write_text("a file")
    assert not topics.add("orders")
    assert not topics.add("orders")
    assert failures == [1, 1]
    assert "orders" not in topics
    assert ["cannot write" in record.getMessage() for record in caplog.records] == [True]
    assert not KeptTopics("source", None, failed).add("orders")
