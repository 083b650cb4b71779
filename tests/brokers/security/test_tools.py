"""`shoal probe` and `shoal replay` on brokers with TLS and SASL, as operators call them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shoal.cli import main
from tests.brokers.security.conftest import USER
from tests.scenarios.replay.test_brokers import CLIENTS
from tests.support.captures.synthetic import Traffic, chunks
from tests.support.captures.synthetic_files import IndexFiles
from tests.support.processes import shoal

if TYPE_CHECKING:
    from shoal.scenarios.kafka.broker import Cluster
    from shoal.scenarios.kafka.security.certificates import Authority

REFUSES = "the broker answers 2 batches (uncompressed) with error 87 (INVALID_RECORD)"


@pytest.fixture
def flags(secured: Cluster, authority: Authority, password_file: str) -> dict[str, list[str]]:
    """Address and security of each listener."""
    tls = ["--tls-ca", str(authority.certificate)]
    login = ["--sasl-mechanism=SCRAM-SHA-512", f"--sasl-username={USER}", f"--sasl-password-file={password_file}"]
    return {
        "SASL": [secured.sasl_bootstrap, *login],
        "SSL": [secured.ssl_bootstrap, *tls],
        "SASL_SSL": [secured.sasl_ssl_bootstrap, *tls, *login],
    }


@pytest.mark.parametrize("listener", ["SASL", "SSL", "SASL_SSL"])
def test_a_secured_broker_is_probed(flags: dict[str, list[str]], listener: str) -> None:
    done = shoal("probe", *flags[listener])

    assert done.returncode == 1, done.stderr
    assert REFUSES in done.stdout


def test_a_cluster_of_the_file_is_probed(
    secured: Cluster, authority: Authority, password_file: str, tmp_path: Path
) -> None:
    (tmp_path / "shoal.toml").write_text(
        f"""
[[cluster]]
name = "plain"
bootstrap = "{secured.bootstrap}"
[[cluster]]
name = "secured"
bootstrap = "{secured.sasl_ssl_bootstrap}"
[cluster.tls]
ca = "{authority.certificate}"
[cluster.sasl]
mechanism = "PLAIN"
username = "{USER}"
password = {{ file = "{password_file}" }}
[[listener]]
name = "clients"
cluster = "secured"
listen = "127.0.0.1:19092"
ports = "19093-19192"
""",
        encoding="utf-8",
    )

    done = shoal("probe", "-c", "shoal.toml", "--cluster", "secured", cwd=tmp_path)
    unnamed = shoal("probe", "-c", "shoal.toml", cwd=tmp_path)
    misspelt = shoal("probe", "-c", "shoal.toml", "--cluster", "secure", cwd=tmp_path)

    assert REFUSES in done.stdout, done.stderr
    assert "--cluster: is missing: shoal.toml has plain, secured" in unnamed.stderr
    assert 'has no cluster "secure"; did you mean "secured"?' in misspelt.stderr
    assert {unnamed.returncode, misspelt.returncode} == {2}


def test_a_password_comes_from_standard_input(secured: Cluster, password_file: str) -> None:
    login = ("--sasl-mechanism=PLAIN", f"--sasl-username={USER}", "--sasl-password-file=-")

    done = shoal("probe", secured.sasl_bootstrap, *login, stdin=Path(password_file).read_text(encoding="utf-8"))

    assert REFUSES in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("listener", "more", "told"),
    [
        ("SASL", ["--sasl-username=nobody"], "cannot log in at the broker"),
        ("SASL", ["--sasl-mechanism=GSSAPI"], "--sasl-keytab: is missing"),
        ("SASL", ["--sasl-password-file=/nowhere"], "--sasl-password-file: /nowhere cannot be read"),
        ("SSL", ["--tls-ca=/etc/hostname"], "--tls-ca: /etc/hostname"),
        ("SSL", ["--tls-server-name=kafka.example"], "not for kafka.example"),
        ("plain", ["--tls"], "does not use TLS"),
        ("hidden", [], "TLS"),
    ],
)
def test_what_is_wrong_is_told_within_two_seconds(
    secured: Cluster, flags: dict[str, list[str]], listener: str, more: list[str], told: str
) -> None:
    """After the time that it needs to start and to find that nothing listens, with the same modules."""
    given = {**flags, "plain": [secured.bootstrap], "hidden": [secured.ssl_bootstrap]}
    begin = time.monotonic()
    shoal("probe", "127.0.0.1:1", *given[listener][1:], *more)
    start = time.monotonic() - begin

    begin = time.monotonic()
    done = shoal("probe", *given[listener], *more)
    seconds = time.monotonic() - begin - start

    assert told in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert done.returncode in (2, 5)
    assert seconds < 2.5


@pytest.mark.parametrize("listener", ["SASL", "SASL_SSL"])
def test_a_capture_is_replayed(flags: dict[str, list[str]], listener: str, tmp_path: Path) -> None:
    traffic = Traffic(rows=500, seconds=5, partitions=2, clients=CLIENTS)
    (tmp_path / "capture").mkdir()
    IndexFiles(directory=tmp_path / "capture").write(chunks(traffic))
    address, *security = flags[listener]

    code = main(
        ["replay", str(tmp_path / "capture"), "--target", address, *security, "--speed=max", "--out", str(tmp_path)]
    )

    report = json.loads((tmp_path / "replay.json").read_text())
    assert (code, report["errors"], report["audit"]["complete"]) == (0, {}, 500), report


@pytest.mark.slow
def test_a_scenario_runs(flags: dict[str, list[str]], tmp_path: Path) -> None:
    address, *security = flags["SASL_SSL"]

    code = main(["replay", "oldest-consumer", "--target", address, *security, "--out", str(tmp_path)])

    report = json.loads((tmp_path / "report.json").read_text())
    assert (code, report["oldest-consumer"]["good"]) == (0, True), report
