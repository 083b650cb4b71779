"""The command line as an operator meets it: real processes, their output and their exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shoal.proxy.arguments import parse_arguments
from shoal.proxy.mirror_settings import mirror_settings
from shoal.proxy.operator_error import OperatorError
from shoal.proxy.settings import Address, Mode, PortRange
from tests.proxy.test_config import GOOD
from tests.proxy.test_doctor import CONNECTOR, WIRED

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE = 20.0
CLUSTERS = ("--source", "a1:9092", "--target", "b1:9092")


def shoal(*arguments: str, stdin: str = "", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shoal.proxy", *arguments]
    environment = {**os.environ, "COLUMNS": "124", "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=DEADLINE, check=False, env=environment, cwd=cwd
    )


# -- help ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "taught"),
    [
        (["--help"], ["shoal mirror --source a1:9092 --target b1:9092", "shoal check mm2.properties", "exit codes:"]),
        (
            ["mirror", "--help"],
            ["--source HOST:PORT", "examples:", "next: shoal check", "as before, and Shoal says why"],
        ),
        (["run", "--help"], ["[[cluster]]", 'mode = "wrap"', "docs/configuration.md"]),
        (["check", "--help"], ["mm2.properties", "shoal check -c shoal.toml connector.json", "exit codes: 0"]),
    ],
)
def test_help_teaches(arguments: list[str], taught: list[str]) -> None:
    done = shoal(*arguments)

    assert done.returncode == 0
    assert done.stderr == ""
    for words in taught:
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 126


def test_the_small_file_of_the_help_is_a_good_file(tmp_path: Path) -> None:
    lines = [line[2:] for line in shoal("run", "--help").stdout.partition("configuration.md):\n")[2].splitlines()]
    (tmp_path / "shoal.toml").write_text("\n".join(lines[: lines.index("")]), encoding="utf-8")

    done = shoal("check", "-c", str(tmp_path / "shoal.toml"))

    assert done.stdout.endswith("in order: 2 listeners (source, target)\n")
    assert done.returncode == 0


def test_the_version_is_told() -> None:
    assert shoal("--version").stdout == "shoal 0.1.0\n"


# -- what is wrong is one line -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "shoal: error: the following arguments are required: {mirror,run,check}"),
        (["miror"], "invalid choice: 'miror'"),
        (["mirror"], "shoal mirror: error: the following arguments are required: --source, --target"),
        (["mirror", *CLUSTERS, "--advertize", "x"], 'unknown argument --advertize; did you mean "--advertise"?'),
        (["mirror", "--source", "a1", "--target", "b:1"], "argument --source: 'a1' has no port: write host:port, for example a1:9092"),
        (["mirror", *CLUSTERS, "--run-limit", "big"], "argument --run-limit: 'big' is not a size"),
        (["mirror", *CLUSTERS, "--deep-topics", "("], "argument --deep-topics: '(' is not a regular expression"),
        (["mirror", *CLUSTERS, "--tag", "x"], "argument --tag: 'x': write NAME=VALUE"),
        (["mirror", *CLUSTERS, "--report-every", "often"], "'often' is not a number of seconds"),
        (["mirror", *CLUSTERS, "--source-ports", "1"], "argument --source-ports: '1' is not a range"),
        (["mirror", *CLUSTERS, "--target-listen", "127.0.0.1:19100"], "--target-listen (19100): port 19100 is taken by --source-ports (19093-19192) too"),
        (["mirror", *CLUSTERS, "--run-limit", "1KiB"], "--min-batch-bytes: 4096 is above run-limit (1024)"),
        (["run"], "the following arguments are required: -c/--config"),
        (["run", "-c", "none.toml"], "shoal: error: none.toml: cannot be read: No such file or directory"),
        (["check"], "give the file to check, or -c shoal.toml, or both"),
        (["check", "none.properties"], "shoal: error: none.properties: cannot be read: No such file or directory"),
        (["check", "-"], "standard input: is not a MirrorMaker 2 configuration"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_without_a_traceback(arguments: list[str], told: str) -> None:
    done = shoal(*arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_a_wrong_file_is_told_with_all_its_keys(tmp_path: Path) -> None:
    (tmp_path / "shoal.toml").write_text(
        GOOD.replace("pair =", "par =").replace("[limits]", "[limit]"), encoding="utf-8"
    )

    done = shoal("run", "-c", "shoal.toml", cwd=tmp_path)

    assert done.returncode == 2
    assert [line.partition(";")[0] for line in done.stderr.splitlines()] == [
        "shoal: error: shoal.toml: limit: unknown key",
        "shoal: error: shoal.toml: listener[0].par: unknown key",
    ]


# -- mirror --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("dedicated", "B.producer.bootstrap.servers = shoal.example:29092\n"),
        ("connect", '"producer.override.bootstrap.servers": "shoal.example:29092"'),
        ("strimzi", 'producer.override.bootstrap.servers: "shoal.example:29092"\n'),
    ],
)
def test_only_the_lines_are_printed_when_asked(form: str, expected: str) -> None:
    listen = ("--source-listen", "0.0.0.0:19092", "--target-listen", "0.0.0.0:29092", "--advertise", "shoal.example")

    done = shoal("mirror", *CLUSTERS, *listen, "--print-only", "--form", form)

    assert done.returncode == 0
    assert expected in done.stdout
    assert expected in shoal("mirror", *CLUSTERS, *listen, "--print-only").stdout
    if form == "connect":
        json.loads(done.stdout)


def test_the_flags_of_mirror_become_a_paired_wrap_and_unwrap_listener(tmp_path: Path) -> None:
    flags = parse_arguments(
        ["mirror", "--source", "a1:1,[::1]:2", "--target", "b1:3", "--target-ports", "30000-30010", "--state-dir", str(tmp_path),
         "--deep-topics", "^x$", "--deep-topics", "y", "--run-limit", "256KiB", "--tag", "site=north", "--min-batch-bytes", "0"]
    )  # fmt: skip

    settings = mirror_settings(flags)

    wrap, unwrap = settings.listeners
    assert [cluster.bootstrap for cluster in settings.clusters] == [
        (Address("a1", 1), Address("::1", 2)),
        (Address("b1", 3),),
    ]
    assert (wrap.mode, wrap.pair, wrap.cluster, wrap.port) == (Mode.WRAP, "target", "source", 19092)
    assert (unwrap.mode, unwrap.pair, unwrap.cluster, unwrap.port) == (Mode.UNWRAP, None, "target", 29092)
    assert wrap.shallow == unwrap.shallow
    assert (wrap.shallow.deep_topics, wrap.shallow.run_limit) == (("^x$", "y"), 256 * 1024)
    assert (wrap.shallow.tags, wrap.shallow.min_batch_bytes) == ({"site": "north"}, 0)
    assert isinstance(wrap.nodes, PortRange)
    assert isinstance(unwrap.nodes, PortRange)
    assert (wrap.nodes.first, wrap.nodes.last) == (19093, 19192)
    assert (unwrap.nodes.first, unwrap.nodes.last) == (30000, 30010)
    assert wrap.nodes.state_file is not None
    assert wrap.nodes.state_file.parent == tmp_path


def test_the_state_of_one_cluster_is_not_that_of_another() -> None:
    files = set()
    for source in ("a1:1,a2:1", "a2:1,a1:1", "c1:1"):
        nodes = mirror_settings(parse_arguments(["mirror", "--source", source, "--target", "b1:1"])).listeners[0].nodes
        assert isinstance(nodes, PortRange)
        files.add(nodes.state_file)

    assert len(files) == 2


def test_flags_that_do_not_fit_together_are_named() -> None:
    with pytest.raises(OperatorError, match=r"--source-ports \(1-100\)|--target-ports \(50-60\)"):
        mirror_settings(parse_arguments(["mirror", *CLUSTERS, "--source-ports", "1-100", "--target-ports", "50-60"]))


# -- a running process ---------------------------------------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal.proxy", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    limit = threading.Timer(DEADLINE, process.kill)  # ends what waits for a line that never comes
    limit.start()
    try:
        yield process
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


def mirror_flags(tmp_path: Path) -> tuple[list[str], list[int]]:
    """Clusters where nobody listens, and free ports for everything else."""
    source, target, first, second, nobody = ports = free_ports(5)
    flags = [
        "--source", f"127.0.0.1:{nobody}", "--target", f"127.0.0.1:{nobody}",
        "--source-listen", f"127.0.0.1:{source}", "--target-listen", f"127.0.0.1:{target}",
        "--source-ports", f"{first}-{first}", "--target-ports", f"{second}-{second}",
        "--state-dir", str(tmp_path),
    ]  # fmt: skip
    return flags, ports


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError("".join(lines) + (process.stderr.read() if process.stderr else ""))


def knock(port: int) -> None:
    """Ask for ApiVersions (v0) at a listener whose broker cannot be reached, and see the connection end."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as client, suppress(ConnectionResetError):
        client.sendall(b"\0\0\0\x0b\0\x12\0\0\0\0\0\1\0\1x")
        assert client.recv(1) == b""


def test_mirror_prints_its_lines_when_its_ports_are_open_and_ends_in_order(tmp_path: Path) -> None:
    flags, (source, target, *_) = mirror_flags(tmp_path)

    with running("mirror", *flags, "--form", "dedicated", "--log-format", "json", "--report-every", "0") as process:
        printed = read_until(process, "emit.heartbeats.enabled")
        for port in (source, target):
            knock(port)
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0
    assert f"A.consumer.bootstrap.servers = 127.0.0.1:{source}\n" in printed
    assert f"B.producer.bootstrap.servers = 127.0.0.1:{target}\n" in printed
    assert rest == ""
    entries = [json.loads(line) for line in errors.splitlines()]
    assert [(e["listener"], e["mode"]) for e in entries if e["event"] == "listening"] == [
        ("source", "wrap"),
        ("target", "unwrap"),
    ]
    totals = {entry["listener"]: entry["closed"] for entry in entries if entry["event"] == "total"}
    assert totals == {name: {"broker unreachable": 1} for name in ("source", "target")}


def test_what_flows_is_told_every_few_seconds_and_only_then(tmp_path: Path) -> None:
    flags, (source, *_) = mirror_flags(tmp_path)

    with running("mirror", *flags, "--form", "connect", "--report-every", "0.2") as process:
        read_until(process, "header.converter")
        knock(source)
        assert process.stderr is not None
        seen = next((line for line in process.stderr if "connections ended" in line), "")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE)

    assert "source: connections ended: broker unreachable: 1; 0 connections" in seen
    assert process.returncode == 0
    assert errors.count("broker unreachable: 1") == 1  # the total; no further line of what flows


def test_a_reader_that_has_seen_enough_does_not_end_the_proxy(tmp_path: Path) -> None:
    flags, (source, *_) = mirror_flags(tmp_path)

    with running("mirror", *flags) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert [next(process.stderr).split()[2] for _ in range(2)] == ["listening"] * 2
        knock(source)
        process.send_signal(signal.SIGTERM)
        process.stdout = None  # communicate() would read it
        _, errors = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_name_for_clients_elsewhere_needs_an_address_for_them(tmp_path: Path) -> None:
    flags, _ = mirror_flags(tmp_path)

    with running("mirror", *flags, "--advertise", "shoal.example", "--log-format", "json") as process:
        read_until(process, "compression.type")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE)

    warned = [entry for entry in map(json.loads, errors.splitlines()) if entry["level"] == "warning"]
    assert [entry["listener"] for entry in warned] == ["source", "target"]
    assert "only this machine can connect" in warned[0]["event"]


def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    flags, (source, *_) = mirror_flags(tmp_path)

    with socket.create_server(("127.0.0.1", source)):
        done = shoal("mirror", *flags)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert (
        f"shoal: error: listener 'source': cannot listen on 127.0.0.1:{source}: Address already in use" in done.stderr
    )


def test_run_takes_its_file_and_flags_win(tmp_path: Path) -> None:
    _, (source, target, first, second, nobody) = mirror_flags(tmp_path)
    text = (
        GOOD.replace("a1:9092,[::1]:9092", f"127.0.0.1:{nobody}").replace('"b1:9092", "b2:9092"', f'"127.0.0.1:{nobody}"')
        .replace("19092", str(source)).replace('"19093-19192"', f'"{first}-{first}"').replace("0.0.0.0:29092", f"127.0.0.1:{target}")
        .replace("{ 1 = 29093, 2 = 29094 }", f"{{ 1 = {second} }}")
    )  # fmt: skip
    (tmp_path / "shoal.toml").write_text(text, encoding="utf-8")

    with running("run", "-c", str(tmp_path / "shoal.toml"), "--log-level", "info") as process:
        assert process.stderr is not None
        entry = json.loads(process.stderr.readline())
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE)

    assert (entry["event"], entry["listener"], entry["address"]) == ("listening", "source", f"127.0.0.1:{source}")
    assert output == ""
    assert process.returncode == 0


# -- check ---------------------------------------------------------------------------------------------------------


def test_check_ends_with_0_where_nothing_must_change(tmp_path: Path) -> None:
    (tmp_path / "mm2.properties").write_text(WIRED, encoding="utf-8")

    done = shoal("check", "mm2.properties", cwd=tmp_path)

    assert done.returncode == 0
    assert done.stdout.startswith("mm2.properties: dedicated MirrorMaker 2, checked A->B")
    assert done.stdout.endswith("start Shoal first, then the mirror.\n")
    assert done.stderr == ""


def test_check_ends_with_1_where_something_must_change() -> None:
    done = shoal("check", "-", "--source-listen", "shoal.example:19092", stdin=WIRED)

    assert done.returncode == 1
    assert "Lines to have in standard input:\n\n    A.consumer.bootstrap.servers = shoal.example:19092\n" in done.stdout
    assert done.stderr == ""


def test_check_reads_a_connector() -> None:
    assert shoal("check", "-", stdin=json.dumps(CONNECTOR)).returncode == 0
    assert shoal("check", "-", stdin=json.dumps(CONNECTOR | {"key.converter": "x.Y"})).returncode == 1


def test_check_takes_listeners_and_limits_from_the_file(tmp_path: Path) -> None:
    toml = GOOD.replace('"256KiB"', '"2MiB"').replace("127.0.0.1:19092", "10.0.0.5:19092")
    (tmp_path / "shoal.toml").write_text(toml, encoding="utf-8")

    done = shoal("check", "-c", "shoal.toml", "-", stdin=WIRED, cwd=tmp_path)

    assert done.returncode == 1
    assert "=> A.consumer.bootstrap.servers = 10.0.0.5:19092" in done.stdout
    assert "=> B.producer.max.request.size = " in done.stdout


def test_check_needs_a_pair_in_the_file(tmp_path: Path) -> None:
    toml = (
        GOOD.replace('mode = "wrap"', 'mode = "plain"')
        .replace('pair = "target"', "")
        .replace("[listener.shallow]", "[x]")
    )
    toml = toml[: toml.index("[x]")] + toml[toml.index("[[listener]]", toml.index("[x]")) :]
    (tmp_path / "shoal.toml").write_text(toml, encoding="utf-8")

    done = shoal("check", "-c", "shoal.toml", "-", stdin=WIRED, cwd=tmp_path)

    assert done.returncode == 2
    assert 'shoal.toml: has no listener with mode = "wrap" and a pair' in done.stderr


def test_check_starts_quickly_because_it_loads_no_proxy() -> None:
    code = "import sys, shoal.proxy.cli; print(sorted({'trio', 'crc32c', 'cramjam'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE, check=True)

    assert done.stdout == "[]\n"
