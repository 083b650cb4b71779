"""`shoal users`: the file, its mode, and where passwords come from."""

from __future__ import annotations

import io
import stat
from typing import TYPE_CHECKING

import pytest

from shoal.cli import main
from shoal.protocol.sasl.users import read_users

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


def add(file: Path, name: str, password: str, tmp_path: Path) -> int:
    kept = tmp_path / "password"
    kept.write_text(f"{password}\n")
    return main(["users", "add", str(file), name, "--password-file", str(kept), "--iterations", "4096"])


def test_users_come_and_go(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(file, "alice", "first", tmp_path) == 0
    seed = read_users(file.read_text()).seed
    assert add(file, "bob", "b", tmp_path) == 0
    assert add(file, "alice", "second", tmp_path) == 0
    users = read_users(file.read_text())
    assert users.seed == seed
    assert set(users.hashes["alice"]) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert users.accepts("alice", "second")
    assert not users.accepts("alice", "first")
    assert main(["users", "remove", str(file), "bob"]) == 0
    assert main(["users", "list", str(file)]) == 0
    assert capsys.readouterr().out == "alice\n"
    assert main(["users", "remove", str(file), "bob"]) == 2
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_only_the_owner_can_read_the_file(file: Path, tmp_path: Path) -> None:
    add(file, "alice", "secret", tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    add(file, "bob", "secret", tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_file_that_others_can_read_is_refused(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add(file, "alice", "secret", tmp_path)
    file.chmod(0o644)
    assert main(["users", "list", str(file)]) == 2
    assert f"{file} can be read or changed by every user (mode 0644): chmod 0640" in capsys.readouterr().err


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    add(link, "alice", "secret", tmp_path)
    assert link.is_symlink()
    assert file.exists()


def test_a_damaged_file_is_never_overwritten(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("something else\n")
    file.chmod(0o600)
    assert add(file, "alice", "secret", tmp_path) == 2
    assert file.read_text() == "something else\n"
    assert "repair or remove it" in capsys.readouterr().err


@pytest.mark.parametrize("password", ["", "\0"])
def test_an_empty_password(file: Path, tmp_path: Path, password: str) -> None:
    assert add(file, "alice", password, tmp_path) == 2
    assert not file.exists()


def test_without_a_terminal_there_is_a_way_out(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    assert main(["users", "add", str(file), "alice"]) == 2
    assert "--password-file" in capsys.readouterr().err
    assert main(["users", "add", str(file), "alice", "--password-file", "-"]) == 0
    assert read_users(file.read_text()).accepts("alice", "secret")
