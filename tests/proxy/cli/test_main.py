"""The command line as operators see it: real processes, their output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import pytest

from shoal.proxy.cli.exit_codes import INTERRUPTED, exit_code
from shoal.proxy.cli.flags.arguments import parse_arguments
from shoal.proxy.cli.flags.mirror import adopt_former_state, mirror_settings
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address, Mode, PortRange, RawCaptureSettings
from tests.proxy.config.test_toml import GOOD
from tests.support.mirror_configs import CONNECTOR, WIRED
from tests.support.processes import CLUSTERS, DEADLINE, mirror_flags, shoal

if TYPE_CHECKING:
    from pathlib import Path

# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "taught"),
    [
        (["--help"], ["shoal mirror --source a1:9092 --target b1:9092", "shoal check mm2.properties", "exit codes:"]),
        (
            ["mirror", "--help"],
            ["--source HOST:PORT", "examples:", "next: shoal check", "mirrors as before, and Shoal logs why"],
        ),
        (["run", "--help"], ["[[cluster]]", 'mode = "wrap"', "docs/configuration.md"]),
        (
            ["probe", "--help"],
            ["shoal probe b1:9092 --topic shoal-probe", "UNSAFE", "exit codes: 0", "4 a broker is unsafe"],
        ),
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

    assert done.stdout.endswith("OK: 2 listeners (source, target)\n")
    assert done.returncode == 0


def test_the_version_is_told() -> None:
    assert shoal("--version").stdout == "shoal 0.1.0\n"


# -- errors are one line -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["mirror", *CLUSTERS, "--deep-topics", "("], "--deep-topics: '(' is not a regular expression"),
        (["mirror", *CLUSTERS, "--tag", "x"], "--tag: 'x': write NAME=VALUE"),
        (["mirror", *CLUSTERS, "--report-every", "often"], "'often' is not a number of seconds"),
        (["mirror", *CLUSTERS, "--source-ports", "1"], "--source-ports: '1' is not a range"),
        (
            ["mirror", *CLUSTERS, "--target-listen", "127.0.0.1:19100"],
            "--target-listen (19100): port 19100 is also used by --source-ports (19093-19192)",
        ),
        (["mirror", *CLUSTERS, "--run-limit", "1KiB"], "--min-batch-bytes: 4096 is above run-limit (1024)"),
        (["run", "-c", "none.toml"], "shoal: error: none.toml: cannot be read: No such file or directory"),
        (["check"], "give the file to check, or -c shoal.toml, or both"),
        (["check", "none.properties"], "shoal: error: none.properties: cannot be read: No such file or directory"),
        (["probe"], "shoal probe: give HOST:PORT, or -c shoal.toml"),
        (["probe", "--tls"], "--tls and --sasl flags: need HOST:PORT"),
        (["probe", "b1:9092", "--cluster", "x"], "--cluster: needs -c shoal.toml"),
        (["probe", "b1:9092", "--tls-key", "x"], "--tls-key: needs certificate"),
        (["probe", "127.0.0.1:1"], "127.0.0.1:1: cannot reach the broker: Connection refused"),
        (["probe", "b1:9092", "--topic", "a b"], "--topic: 'a b' cannot be the name of a topic"),
        (["probe", "b1:9092", "--sasl-username", "x"], "--sasl-mechanism: is missing: give one of PLAIN, SCRAM"),
        (["check", "-"], "standard input: is not a MirrorMaker 2 configuration"),
    ],
)
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


# -- mirror ------------------------------------------------------------------------------------------------------------


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


def test_the_flags_of_captures_go_without_each_other(tmp_path: Path) -> None:
    given = ["mirror", *CLUSTERS, "--capture-raw", str(tmp_path), "--capture-topic", "a", "--capture-topic", "b"]
    settings = mirror_settings(parse_arguments(given))
    assert settings.capture is None
    assert settings.raw_capture == RawCaptureSettings(directory=tmp_path, topics=frozenset("ab"))
    with pytest.raises(OperatorError, match="--capture-topic: needs --capture-raw"):
        mirror_settings(parse_arguments(["mirror", *CLUSTERS, "--capture", str(tmp_path), "--capture-topic", "a"]))


def test_the_flags_of_mirror_become_a_paired_wrap_and_unwrap_listener(tmp_path: Path) -> None:
    flags = parse_arguments(
        [
            "mirror",
            "--source",
            "a1:1,[::1]:2",
            "--target",
            "b1:3",
            "--target-ports",
            "30000-30010",
            "--state-dir",
            str(tmp_path),
            "--deep-topics",
            "^x$",
            "--deep-topics",
            "y",
            "--run-limit",
            "256KiB",
            "--tag",
            "site=north",
            "--min-batch-bytes",
            "0",
            "--plain-compression",
            "zstd",
            "--producer-slots",
            "50000",
        ]
    )

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
    assert settings.tags == {"site": "north"}
    assert unwrap.shallow.plain_compression == "zstd"
    assert unwrap.shallow.producer_slots == 50_000
    assert isinstance(wrap.nodes, PortRange)
    assert isinstance(unwrap.nodes, PortRange)
    assert (wrap.nodes.first, wrap.nodes.last) == (19093, 19192)
    assert (unwrap.nodes.first, unwrap.nodes.last) == (30000, 30010)
    assert wrap.nodes.state_file is not None
    assert wrap.nodes.state_file.parent == tmp_path


def test_a_host_more_keeps_the_state() -> None:
    """The files name their cluster; the brokers are asked for its id."""
    files = set()
    for source, target in (("a1:1,a2:1", "b1:1"), ("a2:1", "b1:1,b2:1")):
        wrap, unwrap = mirror_settings(parse_arguments(["mirror", "--source", source, "--target", target])).listeners
        assert isinstance(wrap.nodes, PortRange)
        files |= {wrap.nodes.state_file, unwrap.producers_file}

    assert {file and file.name for file in files} == {"source-19092.json", "target-29092.producers"}


def test_files_with_the_names_that_they_had_once_are_found(tmp_path: Path) -> None:
    given = ["mirror", "--source", "a1:1", "--target", "b1:1,b2:1", "--state-dir", str(tmp_path)]
    for name in ("source-19092-0b4a9b4d", "target-29092-2b0e1f3a"):
        (tmp_path / f"{name}.json").write_text("another's")
    names = {
        side: f"{side}-{port}-{zlib.crc32(hosts.encode()):08x}"
        for side, port, hosts in (("source", 19092, "a1:1"), ("target", 29092, "b1:1,b2:1"))
    }
    (tmp_path / f"{names['source']}.json").write_text("ports")
    (tmp_path / f"{names['target']}.json").write_text("old")
    (tmp_path / "target-29092.json").write_text("new")
    (tmp_path / f"{names['target']}.producers").write_text("sequences")

    adopt_former_state(parse_arguments(given))

    assert (tmp_path / "source-19092.json").read_text() == "ports"
    assert (tmp_path / "target-29092.json").read_text() == "new"
    assert (tmp_path / f"{names['target']}.json").read_text() == "old"
    assert (tmp_path / "target-29092.producers").read_text() == "sequences"


@pytest.mark.parametrize("place", ["file/state", "/proc/state"])
def test_a_state_dir_that_cannot_be_written_is_an_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    flags, _ = mirror_flags(tmp_path / place)

    done = shoal("mirror", *flags)

    assert done.returncode == 2
    assert done.stdout == ""
    _, error = done.stderr.splitlines()  # the first one is that of each start
    assert error.startswith(f"shoal: error: --state-dir: {tmp_path / place} cannot be written to: ")
    assert error.endswith("choose another directory, or change its owner or its rights")


def test_check_finds_a_state_dir_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    (tmp_path / "shoal.toml").write_text(GOOD, encoding="utf-8")
    done = shoal("check", "-c", "shoal.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "shoal: error: state-dir: state cannot be written to: state is not a directory: choose"
    )


def test_flags_that_do_not_fit_together_are_named() -> None:
    with pytest.raises(OperatorError, match=r"--source-ports \(1-100\)|--target-ports \(50-60\)"):
        mirror_settings(parse_arguments(["mirror", *CLUSTERS, "--source-ports", "1-100", "--target-ports", "50-60"]))


# -- check -------------------------------------------------------------------------------------------------------------


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
    assert (
        "Set these lines in standard input:\n\n    A.consumer.bootstrap.servers = shoal.example:19092\n" in done.stdout
    )
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
    code = "import sys, shoal.proxy.cli.main; print(sorted({'trio', 'crc32c', 'cramjam'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BaseExceptionGroup("trio", [KeyboardInterrupt()])])
def test_ctrl_c_before_the_ports_are_open_ends_without_a_traceback(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> int:
        raise error

    assert exit_code(interrupted) == INTERRUPTED
    assert capsys.readouterr().err == ""
