"""The configurations of deploy/ are accepted by `shoal check`, and ports, names and limits fit each other."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from shoal.proxy.cli.reload import parser as reload_parser
from shoal.proxy.config.toml import read_config
from shoal.scenarios.kafka.security.certificates import Authority
from tests.support.processes import shoal

DEPLOY = Path(__file__).parents[1] / "deploy"
FILES = [path for path in sorted(DEPLOY.rglob("*.yaml")) if "templates" not in path.parts]


def block(text: str, key: str) -> str:
    """The block scalar of a YAML key."""
    found = re.search(rf"^( *){re.escape(key)}: \|\n((?:\1 +.*\n|\n)+)", text, re.MULTILINE)
    return "" if found is None else textwrap.dedent(found[2])


def configuration(path: Path) -> str:
    text = path.read_text()
    return block(text, "shoal.toml") or block(text, "config")


WITH_CONFIGURATION = [path for path in FILES if configuration(path)]


def test_they_are_found() -> None:
    found = {path.name for path in WITH_CONFIGURATION}
    assert found == {"mirror-sidecar.yaml", "service.yaml", "sni.yaml", "strimzi-shoal.values.yaml", "values.yaml"}


@pytest.mark.parametrize("path", WITH_CONFIGURATION, ids=lambda path: path.name)
def test_check_accepts_the_configuration(path: Path, tmp_path: Path) -> None:
    server = Authority.create(tmp_path / "ca").server("shoal.example", "*.shoal.example")
    text = configuration(path)
    for name, file in {"tls.crt": server.certificate, "tls.key": server.key}.items():
        text = text.replace(f"/etc/shoal-tls/{name}", str(file))
    (tmp_path / "shoal.toml").write_text(text.replace("/var/lib/shoal", str(tmp_path)))

    done = shoal("check", "-c", "shoal.toml", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok: " in done.stdout.lower()
    warnings = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("warning")]
    assert [line for line in warnings if "admin.listen: 0.0.0.0:9190" not in line] == []  # network-policy.yaml


def test_check_accepts_the_mirror_of_the_sidecar(tmp_path: Path) -> None:
    text = (DEPLOY / "kubernetes" / "mirror-sidecar.yaml").read_text()
    (tmp_path / "shoal.toml").write_text(configuration(DEPLOY / "kubernetes" / "mirror-sidecar.yaml"))
    (tmp_path / "mm2.properties").write_text(block(text, "mm2.properties"))

    done = shoal("check", "mm2.properties", "-c", "shoal.toml", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WITH_CONFIGURATION, ids=lambda path: path.name)
def test_ports_that_others_reach_are_declared(path: Path) -> None:
    text = path.read_text()
    settings = read_config(configuration(path), Path("/etc/shoal/shoal.toml"))
    declared = {int(port) for port in re.findall(r"(?:containerPort|port): (\d+)", text)}
    for listener in tomllib.loads(configuration(path))["listener"]:
        host, port = listener["listen"].split(":")
        if host == "*":
            nodes = listener.get("ports", {})
            assert not isinstance(nodes, str), "from a range, each replica could give a broker another port"
            assert {int(port), *nodes.values()} <= declared
    assert settings.admin.listen is not None
    assert settings.admin.listen.port in declared


WITH_PODS = [path for path in FILES if "terminationGracePeriodSeconds: " in path.read_text()]


@pytest.mark.parametrize("path", WITH_PODS, ids=lambda path: path.name)
def test_the_end_has_time_for_the_drain(path: Path) -> None:
    grace = re.search(r"terminationGracePeriodSeconds: (\d+)", path.read_text())
    assert grace is not None
    limits = read_config(configuration(path), Path("/etc/shoal/shoal.toml")).limits
    wait = re.search(r'(?:sleep, "|preStopSeconds: )(\d+)', path.read_text())
    pre_stop = 0 if wait is None else int(wait[1])
    assert int(grace[1]) > limits.drain_wait_seconds + limits.drain_seconds + pre_stop


def test_the_unit_waits_for_the_drain_and_the_stall_exit() -> None:
    unit = (DEPLOY / "systemd" / "shoal.service").read_text()
    seconds = {key: float(value) for key, value in re.findall(r"^(\w+Sec)=(\d+)$", unit, re.MULTILINE)}
    limits = read_config(configuration(DEPLOY / "kubernetes" / "service.yaml"), Path("/etc/shoal/shoal.toml")).limits
    assert seconds["TimeoutStopSec"] > limits.drain_wait_seconds + limits.drain_seconds
    assert seconds["WatchdogSec"] > limits.stall_exit


def test_a_reload_of_the_unit_has_the_result_of_the_reload() -> None:
    """A signal has none, and systemd takes the end of the command that sends it for the end of the reload."""
    unit = (DEPLOY / "systemd" / "shoal.service").read_text()
    command = {key: value.split() for key, value in re.findall(r"^Exec(Start|Reload)=(.*)$", unit, re.MULTILINE)}
    assert command["Reload"][:2] == [command["Start"][0], "reload"]
    assert command["Reload"][2:] == command["Start"][2:]
    assert reload_parser().parse_args(command["Reload"][2:]).config == Path("/etc/shoal/shoal.toml")


def test_the_unit_shows_the_boot_id_to_the_state_files() -> None:
    unit = (DEPLOY / "systemd" / "shoal.service").read_text()
    assert not re.search(r"^ProcSubset=", unit, re.MULTILINE)  # shallow/files/producers.py reads below /proc/sys


def test_every_image_is_this_version() -> None:
    version = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["version"]
    tags = {tag for path in FILES for tag in re.findall(r"image: shoal:(\S+)", path.read_text())}
    assert tags == {version}
