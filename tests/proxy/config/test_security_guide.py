"""The configurations of docs/security.md: all are valid, and `shoal check` accepts the example with real files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.proxy.config.settings import MIB, Limits
from shoal.proxy.config.toml import read_config
from shoal.scenarios.kafka.security.certificates import Authority
from tests.support.processes import shoal

GUIDE = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_configuration_is_valid(number: int) -> None:
    settings = read_config(BLOCKS[number], Path("/etc/shoal/shoal.toml"))

    assert settings.clusters
    assert settings.listeners


def test_the_defaults_of_limits_are_those_of_the_code() -> None:
    """Each row names one or several settings, and the default of all or of each."""
    table = GUIDE.partition("## Limits")[2].partition("## Threats")[0]
    rows = [re.fullmatch(r"\| (.*?) \| (.*?) \| .*\|", line) for line in table.splitlines()]
    found = {}
    for row in filter(None, rows):
        values = row[2].split(", ")
        for number, key in enumerate(re.findall(r"`limits\.([a-z-]+)`", row[1])):
            number_of_unit = re.fullmatch(r"([\d,]+)( s| MiB)?", values[number if len(values) > 1 else 0])
            assert number_of_unit is not None, row[0]
            unit = {" MiB": MIB}.get(number_of_unit[2], 1)
            found[key.replace("-", "_")] = int(number_of_unit[1].replace(",", "")) * unit

    assert len(found) >= 11
    assert found == {name: getattr(Limits(), name) for name in found}


def test_the_example_is_accepted_with_its_files(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca")
    server = authority.server("shoal.example")
    for name, content in {
        "shoal.toml": BLOCKS[0].encode(),
        "brokers-ca.pem": authority.certificate.read_bytes(),
        "shoal.pem": server.certificate.read_bytes(),
        "shoal.key": server.key.read_bytes(),
        "shoal.password": b"secret\n",
    }.items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
    password = tmp_path / "alice.password"
    password.write_text("wonderland", encoding="utf-8")
    password.chmod(0o600)
    added = shoal("users", "add", "users", "alice", "--password-file", "-", stdin="wonderland\n", cwd=tmp_path)
    assert added.returncode == 0, added.stderr

    done = shoal("check", "-c", "shoal.toml", cwd=tmp_path)
    (tmp_path / "shoal.key").chmod(0o644)
    readable = shoal("check", "-c", "shoal.toml", cwd=tmp_path)

    assert "OK: 1 listener (clients)" in done.stdout, done.stderr
    assert readable.returncode == 2
    assert "shoal.key" in readable.stderr
    assert "can be read or changed by every user" in readable.stderr
