"""The users file while Shoal runs: read again when it changes, and not replaced by a broken one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.listener.login.users_file import read_users_file
from shoal.proxy.listener.login.watched_file import WatchedFile
from tests.support.secrets import users_file

if TYPE_CHECKING:
    from pathlib import Path


class Watched:
    """The file, looked at every second of its own clock."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self._file = WatchedFile(path, "test: users", "users", read_users_file, clock=lambda: self.now)

    def names(self) -> set[str]:
        self.now += 1
        return set(self._file.value.hashes)


def test_a_new_file_counts_and_a_broken_one_does_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = users_file(tmp_path / "users", {"alice": "a"})
    watched = Watched(path)
    assert watched.names() == {"alice"}
    users_file(path, {"bob": "b"})
    assert watched.names() == {"bob"}
    path.write_text("broken")
    assert watched.names() == watched.names() == {"bob"}
    path.unlink()
    assert watched.names() == watched.names() == {"bob"}
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert all(record.getMessage().endswith("the users from before stay") for record in caplog.records)
    users_file(path, {"eve": "e"})
    assert watched.names() == {"eve"}


def test_a_file_that_others_can_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = users_file(tmp_path / "users", {"alice": "a"})
    watched = Watched(path)
    path.chmod(0o644)
    assert watched.names() == {"alice"}
    assert f"{path} can be read or changed by every user (mode 0644): chmod 0640" in caplog.text
    with pytest.raises(OperatorError, match="can be read or changed by every user"):
        Watched(path)


def test_no_file_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="shoal users add makes it"):
        Watched(tmp_path / "users")
