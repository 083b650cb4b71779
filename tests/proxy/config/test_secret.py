"""Secrets from files and the environment; an error never has the value."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.secret import read_secret
from shoal.proxy.config.security import Secret

if TYPE_CHECKING:
    from pathlib import Path


def secret_file(directory: Path, data: bytes, mode: int = 0o600) -> Secret:
    path = directory / "password"
    path.write_bytes(data)
    path.chmod(mode)
    return Secret(file=path)


@pytest.mark.parametrize(
    ("data", "value"), [(b"s3cret", "s3cret"), (b"s3cret\n", "s3cret"), (b" s3 \r\n", " s3 "), (b"s\n\n", "s\n")]
)
def test_one_newline_at_the_end_is_not_part_of_it(tmp_path: Path, data: bytes, value: str) -> None:
    assert read_secret(secret_file(tmp_path, data), "x") == value


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644, 0o666, 0o777])
def test_a_file_for_everybody_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(
        OperatorError, match=r"cluster.sasl.password: .* every user \(mode 0[0-7]{3}\): chmod 0"
    ) as error:
        read_secret(secret_file(tmp_path, b"s3cret", mode), "cluster.sasl.password")
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640])
def test_the_owner_and_the_group_may_read(tmp_path: Path, mode: int) -> None:
    assert read_secret(secret_file(tmp_path, b"s3cret", mode), "x") == "s3cret"


def test_other_problems(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    cases = [
        (Secret(file=tmp_path / "no"), "No such file"),
        (Secret(file=tmp_path), "cannot be read|is not a file"),
        (Secret(file=tmp_path / "pipe"), "is not a file"),
        (secret_file(tmp_path, b"\n"), "is empty"),
        (Secret(env="NOT_SET"), "environment variable NOT_SET is not set or empty"),
        (Secret(env="EMPTY"), "environment variable EMPTY is not set or empty"),
        (Secret(), "write { file"),
    ]
    for secret, words in cases:
        with pytest.raises(OperatorError, match=words):
            read_secret(secret, "x", {"EMPTY": ""})
    with pytest.raises(OperatorError, match="not UTF-8"):
        read_secret(secret_file(tmp_path, b"\xff"), "x")
    assert read_secret(Secret(env="A"), "x", {"A": "b\n"}) == "b\n"
