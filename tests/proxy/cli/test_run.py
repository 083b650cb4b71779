"""A running `shoal mirror` or `shoal run`: output, log, exit."""

from __future__ import annotations

import json
import signal
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING

from shoal.proxy.cli import main
from shoal.proxy.config.problems import OperatorError
from tests.proxy.config.test_toml import GOOD
from tests.support.log_lines import problems
from tests.support.processes import DEADLINE, knock, mirror_flags, read_until, running, shoal

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
    assert [problem for entry in entries for problem in problems(entry)] == []
    assert {name: entries[0][name] for name in ("event", "version", "pid", "configuration", "state_dir")} == {
        "event": "starting",
        "version": version("shoal"),
        "pid": process.pid,
        "configuration": "flags",
        "state_dir": str(tmp_path),
    }
    assert [(e["listener"], e["mode"]) for e in entries if e["event"] == "listening"] == [
        ("source", "wrap"),
        ("target", "unwrap"),
    ]
    totals = {entry["listener"]: entry["closed"] for entry in entries if entry["event"] == "total"}
    assert totals == {name: {"upstream_unreachable": 1} for name in ("source", "target")}


def test_a_cluster_that_cannot_be_reached_is_told_at_once(tmp_path: Path) -> None:
    flags, (*_, unused) = mirror_flags(tmp_path)

    with running("mirror", *flags, "--form", "dedicated", "--log-format", "json") as process:
        assert process.stderr is not None
        entries = (json.loads(line) for line in process.stderr)
        told = [next(entry for entry in entries if entry["level"] == "warning") for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE)

    for name, entry in zip(("source", "target"), sorted(told, key=lambda entry: entry["cluster"]), strict=True):
        assert (
            f"cluster '{name}': cannot reach the broker: 127.0.0.{1 if name == 'source' else 2}:{unused}: Connection "
            "refused" in entry["message"]
        )


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
    assert errors.count("broker unreachable: 1") == 1  # the total; no further traffic lines


def test_a_reader_that_has_seen_enough_does_not_end_the_proxy(tmp_path: Path) -> None:
    flags, (source, *_) = mirror_flags(tmp_path)

    with running("mirror", *flags) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert [next(line for line in process.stderr if "listening" in line) for _ in range(2)]
        knock(source)
        process.send_signal(signal.SIGTERM)
        process.stdout = None  # communicate() would read it
        _, errors = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_name_for_clients_elsewhere_needs_an_address_for_them(tmp_path: Path) -> None:
    flags, _ = mirror_flags(tmp_path)

    with running("mirror", *flags, "--advertise", "shoal.example", "--log-format", "json") as process:
        read_until(process, "batch.size")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=DEADLINE)

    told = [entry for entry in map(json.loads, errors.splitlines()) if entry["event"] == "advertised-not-reachable"]
    assert [(entry["level"], entry["listener"]) for entry in told] == [("warning", "source"), ("warning", "target")]


def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    flags, (source, *_) = mirror_flags(tmp_path)

    with socket.create_server(("127.0.0.1", source)):
        done = shoal("mirror", *flags)

    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"shoal: error: listener 'source': cannot listen on 127.0.0.1:{source}: Address already in use: choose another "
        "with --source-listen"
    )


def test_a_program_that_reads_the_log_learns_why_shoal_does_not_run(tmp_path: Path) -> None:
    flags, (source, *_) = mirror_flags(tmp_path)

    with socket.create_server(("127.0.0.1", source)):
        done = shoal("mirror", *flags, "--log-format", "json")

    entry = json.loads(done.stderr.splitlines()[-2])
    assert (entry["event"], entry["level"], entry["setting"]) == ("could-not-run", "error", "listener 'source'")
    assert list(problems(entry)) == []


def test_an_error_in_shoal_is_one_line_for_programs(caplog: pytest.LogCaptureFixture) -> None:
    main._log_failure(ExceptionGroup("trio", [OperatorError.of("a", "b"), ZeroDivisionError()]))

    assert [(record.event, bool(record.exc_info)) for record in caplog.records] == [("ended-by-error", True)]  # type: ignore[attr-defined]


def test_run_takes_its_file_and_flags_win(tmp_path: Path) -> None:
    _, (source, target, first, second, unused) = mirror_flags(tmp_path)
    text = (
        GOOD.replace("a1:9092,[::1]:9092", f"127.0.0.1:{unused}")
        .replace('"b1:9092", "b2:9092"', f'"127.0.0.2:{unused}"')
        .replace("19092", str(source))
        .replace('"19093-19192"', f'"{first}-{first}"')
        .replace("0.0.0.0:29092", f"127.0.0.1:{target}")
        .replace("{ 1 = 29093, 2 = 29094 }", f"{{ 1 = {second} }}")
    )
    (tmp_path / "shoal.toml").write_text(text, encoding="utf-8")

    with running("run", "-c", str(tmp_path / "shoal.toml"), "--log-level", "info") as process:
        assert process.stderr is not None
        start = json.loads(next(process.stderr))
        entry = json.loads(next(line for line in process.stderr if "listening" in line))
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE)

    assert (start["event"], start["configuration"]) == ("starting", str(tmp_path / "shoal.toml"))
    assert (entry["event"], entry["listener"], entry["address"]) == ("listening", "source", f"127.0.0.1:{source}")
    assert output == ""
    assert process.returncode == 0
