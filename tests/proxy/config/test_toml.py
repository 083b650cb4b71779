"""`shoal.toml`: settings take effect; errors name the path, the cause and the fix."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path

import pytest

from shoal.proxy.config.parse import parse_size
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.schema import keys_of
from shoal.proxy.config.security import AccessSettings, ClusterTls, ListenerSasl, ListenerTls, SaslSettings
from shoal.proxy.config.settings import (
    Address,
    AdminSettings,
    CaptureSettings,
    ClusterSettings,
    CoalesceSettings,
    LegacySettings,
    Limits,
    ListenerSettings,
    LogSettings,
    Mode,
    MultiBatch,
    PortMap,
    PortRange,
    RawCaptureSettings,
    Settings,
    ShallowSettings,
)
from shoal.proxy.config.toml import load_config, read_config

FILE = Path("etc/shoal.toml")

GOOD = """
state-dir = "state"

[[cluster]]
name = "source"
bootstrap = "a1:9092,[::1]:9092"

[[cluster]]
name = "target"
bootstrap = ["b1:9092", "b2:9092"]
multi-batch = "never"
probe-topic = "shoal-probe"

[[listener]]
name = "source"
cluster = "source"
listen = "127.0.0.1:19092"
ports = "19093-19192"
mode = "wrap"
pair = "target"
[listener.shallow]
deep-topics = ["^audit$"]
run-limit = "256KiB"
tags = { site = "north" }

[[listener]]
name = "target"
cluster = "target"
listen = "0.0.0.0:29092"
advertise = "shoal.example"
ports = { 1 = 29093, 2 = 29094 }
mode = "unwrap"
max-connections = 100

[limits]
connect-timeout = 2.5
frame-bytes = 1000

[log]
level = "debug"
format = "json"
report-every = 0
"""


def read(text: str) -> Settings:
    return read_config(text, FILE)


def problems(text: str) -> str:
    with pytest.raises(OperatorError) as caught:
        read(text)
    return str(caught.value)


def edited(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1, old
    return GOOD.replace(old, new, 1)


def test_everything_that_is_written_arrives() -> None:
    settings = read(GOOD)

    source, target = settings.listeners
    assert [c.name for c in settings.clusters] == ["source", "target"]
    assert settings.clusters[0].bootstrap == (Address("a1", 9092), Address("::1", 9092))
    assert settings.clusters[1].bootstrap == (Address("b1", 9092), Address("b2", 9092))
    assert settings.clusters[0].multi_batch is MultiBatch.AUTO
    assert settings.clusters[1].multi_batch is MultiBatch.NEVER
    assert [c.probe_topic for c in settings.clusters] == [None, "shoal-probe"]
    assert (source.host, source.port, source.mode, source.pair) == ("127.0.0.1", 19092, Mode.WRAP, "target")
    assert source.nodes == PortRange(first=19093, last=19192, state_file=Path("etc/state/source.json"))
    assert source.shallow == ShallowSettings(deep_topics=("^audit$",), run_limit=256 * 1024, tags={"site": "north"})
    assert (target.host, target.advertised_host, target.mode) == ("0.0.0.0", "shoal.example", Mode.UNWRAP)
    assert target.nodes == PortMap(ports={1: 29093, 2: 29094})
    assert target.max_connections == 100
    assert settings.limits == Limits(connect_timeout=2.5, frame_bytes=1000)
    assert dataclasses.astuple(settings.log) == ("debug", "json", 0)


def test_what_is_not_written_has_the_default_of_the_settings() -> None:
    text = edited("[limits]\nconnect-timeout = 2.5\nframe-bytes = 1000", "").replace('state-dir = "state"', "")

    settings = read(text)

    assert settings.limits == Limits()
    assert settings.listeners[1].shallow == ShallowSettings()
    assert settings.listeners[0].nodes == PortRange(first=19093, last=19192)


GUIDE = Path(__file__).parents[3] / "docs" / "configuration.md"


def guide_rows(title: str) -> dict[str, str]:
    """key -> default, of the table under `## title`."""
    section = GUIDE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(.+?)` \|(?: (.*?))? \| .+ \|$", section, re.MULTILINE)
    return {key: default.strip().strip("`").replace("\\\\|", "\\|") for key, default in rows}


@pytest.mark.parametrize(
    ("title", "settings"),
    [
        ("Top level", Settings),
        ("[[cluster]]", ClusterSettings),
        ("[cluster.tls]", ClusterTls),
        ("[cluster.sasl]", SaslSettings),
        ("[listener.tls]", ListenerTls),
        ("[listener.sasl]", ListenerSasl),
        ("[listener.access]", AccessSettings),
        ("[[listener]]", ListenerSettings),
        ("[listener.shallow]", ShallowSettings),
        ("[listener.coalescing]", CoalesceSettings),
        ("[listener.legacy-options]", LegacySettings),
        ("[limits]", Limits),
        ("[log]", LogSettings),
        ("[admin]", AdminSettings),
        ("[capture]", CaptureSettings),
        ("[capture.raw]", RawCaptureSettings),
    ],
)
def test_the_guide_describes_every_key(title: str, settings: type) -> None:
    assert sorted(guide_rows(title)) == sorted(keys_of(settings))


@pytest.mark.parametrize(
    ("title", "settings"),
    [
        ("[listener.shallow]", ShallowSettings()),
        ("[listener.coalescing]", CoalesceSettings()),
        ("[listener.legacy-options]", LegacySettings()),
        ("[limits]", Limits()),
        ("[log]", LogSettings()),
        ("[capture]", CaptureSettings(directory=Path())),
        ("[capture.raw]", RawCaptureSettings(directory=Path())),
    ],
)
def test_the_guide_tells_the_defaults(title: str, settings: object) -> None:
    rows = {key: told.strip('"') for key, told in guide_rows(title).items() if key not in ("directory", "raw")}
    for key, told in rows.items():
        value = getattr(settings, key.replace("-", "_"))
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert float(told) == value if re.fullmatch(r"[0-9.]+", told) else parse_size(told) == value, key
        else:
            assert told == (str(value).lower() if value else "none" if value is not False else "false"), key


def test_the_guide_tells_the_defaults_of_a_listener() -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(ListenerSettings)}
    rows = guide_rows("[[listener]]")

    assert rows["mode"] == defaults["mode"]
    assert rows["max-connections"] == str(defaults["max_connections"])
    assert rows["pair"] == "none"
    assert defaults["pair"] is None


def test_the_example_of_the_guide_is_a_good_file() -> None:
    text = GUIDE.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]

    assert [listener.name for listener in read(text).listeners] == ["source", "target"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            'pair = "target"',
            'par = "target"',
            ['etc/shoal.toml: listener[0].par: unknown key; did you mean "pair"?', "known keys here: name, cluster,"],
        ),
        ("run-limit", "run_limit", ['listener[0].shallow.run_limit: unknown key; did you mean "run-limit"?']),
        ("[limits]", "[limit]", ['limit: unknown key; did you mean "limits"?']),
        ("connect-timeout", "conect-timeout", ['limits.conect-timeout: unknown key; did you mean "connect-timeout"?']),
        ('name = "source"\nbootstrap', "bootstrap", ["cluster[0].name: is missing", 'name = "source"']),
        ('ports = "19093-19192"', "", ["listener[0].ports: is missing", 'ports = "19093-19192"']),
        ('ports = "19093-19192"', "ports = 19093", ["listener[0].ports: expected text or a table, got an integer"]),
        ("connect-timeout = 2.5", 'connect-timeout = "fast"', ["limits.connect-timeout: expected a number, got text"]),
        ('"a1:9092,[::1]:9092"', '"a1"', ["cluster[0].bootstrap: 'a1' has no port", "a1:9092"]),
        ('"a1:9092,[::1]:9092"', '"::1:9092"', ["write the IPv6 address in brackets", "[::1]:9092"]),
        ('"a1:9092,[::1]:9092"', '"PLAINTEXT://a1:9092"', ["write host:port without 'PLAINTEXT://'"]),
        ('"a1:9092,[::1]:9092"', '"a1:99999"', ["port '99999' is not a number from 1 to 65535"]),
        ('"a1:9092,[::1]:9092"', '"a1:9092,a1:9092"', ["a1:9092 is listed twice"]),
        ('"a1:9092,[::1]:9092"', '""', ["no address given"]),
        (
            'multi-batch = "never"',
            'multi-batch = "always"',
            ['cluster[1].multi-batch: unknown value "always"; write one of: auto, never'],
        ),
        ('"shoal-probe"', '"shoal probe"', ["cluster[1].probe-topic: 'shoal probe' cannot be the name of a topic"]),
        ('"19093-19192"', '"19192-19093"', ["listener[0].ports: '19192-19093': the last port is below the first"]),
        ('"19093-19192"', '"19093"', ["is not a range"]),
        ("{ 1 = 29093, 2 = 29094 }", "{ one = 29093 }", ["listener[1].ports: 'one' is not a node id"]),
        (
            'mode = "wrap"',
            'mode = "warp"',
            ['listener[0].mode: unknown value "warp"; did you mean "wrap"?', "plain, wrap, unwrap"],
        ),
        ('"256KiB"', '"256 kilo"', ["listener[0].shallow.run-limit: '256 kilo' is not a size"]),
        ('"256KiB"', "0", ["listener[0].shallow.run-limit: 0 is too small"]),
        ('"256KiB"', '"1KiB"', ["listener[0].shallow.min-batch-bytes: 4096 is above run-limit (1024)"]),
        ('"256KiB"', '"256KiB"\nfetch-max-bytes = "1GiB"', ["fetch-max-bytes", "limits.held-response-bytes"]),
        ("^audit$", "(", ["listener[0].shallow.deep-topics: '(' is not a regular expression"]),
        ('level = "debug"', 'level = "verbose"', ['log.level: unknown value "verbose"', "debug, info, warning, error"]),
        ("report-every = 0", "report-every = -1", ["log.report-every: -1.0 is too small"]),
        ("connect-timeout = 2.5", "connect-timeout = nan", ["limits.connect-timeout: nan is too small"]),
        (
            "connect-timeout = 2.5",
            "connect-timeout = inf",
            ["limits.connect-timeout: inf is too large: at most 1000000000"],
        ),
        ('"shoal-probe"', '"shoal-probe"\nsasl.username = "a\\u0000"', ["username: has a NUL character"]),
        ('state-dir = "state"', 'state-dir = ""', ["state-dir: is empty: write a path, or remove the key"]),
        ('state-dir = "state"', 'state-dir = "~no-such-user/s"', ["state-dir: '~no-such-user/s': Could not determine"]),
        (
            'listen = "127.0.0.1:19092"',
            'principals = {}\nlisten = "127.0.0.1:19092"',
            ["principals: is empty, and then"],
        ),
        ("connect-timeout = 2.5", "keepalive-idle = 32768", ["keepalive-idle: 32768 is too large: at most 32767"]),
        ("connect-timeout = 2.5", "keepalive-interval = 32768", ["keepalive-interval: 32768 is too large"]),
        ("connect-timeout = 2.5", "keepalive-count = 128", ["keepalive-count: 128 is too large: at most 127 (Linux)"]),
        ("max-connections = 100", "max-connections = 0", ["listener[1].max-connections: 0 is too small"]),
        ("max-connections = 100", "[listener.shallow]\nproducer-slots = 0", ["producer-slots: 0 is too small"]),
        (
            "max-connections = 100",
            "[listener.shallow]\nproducer-slots = 1000001",
            ["producer-slots: 1000001 is too large: at most 1000000"],
        ),
        (
            "max-connections = 100",
            "[listener.shallow]\nplain-compression = 'zip'",
            ['plain-compression: unknown value "zip"; did you mean "gzip"?'],
        ),
        ('pair = "target"', "", ["listener[0].pair: is missing", "known: target", "unpaired = true"]),
        (
            'pair = "target"',
            'pair = "targt"',
            ['there is no listener "targt" with mode = "unwrap"; did you mean "target"?'],
        ),
        ('tags = { site = "north" }', "unpaired = true", ["listener[0].pair: is set together with unpaired = true"]),
        (
            'tags = { site = "north" }',
            'same-offsets = "orders"\npartition-by-key = true',
            ["listener[0].shallow.same-offsets: needs a mirror that keeps partitions"],
        ),
        (
            'tags = { site = "north" }',
            "follow-log-start = true",
            ["listener[0].shallow.follow-log-start: needs same-offsets"],
        ),
        (
            'tags = { site = "north" }',
            'without-agent = "ordinary"',
            ["listener[0].shallow.without-agent: needs same-offsets"],
        ),
        ('mode = "unwrap"', 'mode = "plain"', ['there is no listener "target" with mode = "unwrap"', "known: (none)"]),
        ("max-connections = 100", 'pair = "source"', ["listener[1].pair: only a listener with mode"]),
        ('mode = "wrap"\npair = "target"', "", ['listener[0].shallow: needs mode = "wrap" or mode = "unwrap"']),
        (
            'cluster = "source"',
            'cluster = "sorce"',
            ['listener[0].cluster: there is no cluster "sorce"; did you mean "source"?'],
        ),
        (
            'name = "target"\nbootstrap',
            'name = "source"\nbootstrap',
            ['cluster[1].name: "source" is also the name of cluster[0]'],
        ),
        (
            'name = "target"\ncluster',
            'name = "source"\ncluster',
            ['listener[1].name: "source" is also the name of listener[0]'],
        ),
        (
            '"0.0.0.0:29092"',
            '"0.0.0.0:19100"',
            ["listener[1].listen (19100): port 19100 is also used by listener[0].ports (19093-19192)"],
        ),
        (
            "2 = 29094",
            "2 = 29092",
            ["listener[1].ports (29092): port 29092 is also used by listener[1].listen (29092)"],
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_way_out(old: str, new: str, expected: list[str]) -> None:
    told = problems(edited(old, new))

    assert told.startswith("etc/shoal.toml: ")
    for part in expected:
        assert part in told


def test_all_problems_are_told_at_once() -> None:
    text = edited('"a1:9092,[::1]:9092"', '"a1"').replace('mode = "wrap"', 'mode = "warp"').replace("256KiB", "many")
    text = text.replace("frame-bytes = 1000", "frame-bytes = true").replace('name = "target"\nbootstrap', "bootstrap")

    assert len(problems(text).splitlines()) == 5


def test_a_time_may_have_no_end() -> None:
    settings = read_config(GOOD.replace("connect-timeout = 2.5", "drain-wait-seconds = inf"), FILE)
    assert settings.limits.drain_wait_seconds == math.inf


def test_tags_of_the_top_level_go_everywhere() -> None:
    settings = read(f'tags = {{ site = "south", team = "a" }}\n{GOOD}')
    source, target = settings.listeners
    assert settings.tags == {"site": "south", "team": "a"}
    assert source.shallow.tags == {"site": "north", "team": "a"}  # the listener's own are first
    assert target.shallow.tags == settings.tags


def test_tags_that_an_envelope_cannot_carry_are_told() -> None:
    assert "listener[0].shallow.tags: tag shoal.tag.site is longer than 256 bytes" in problems(
        edited('"north"', f'"{"n" * 300}"')
    )


def test_other_hosts_may_use_the_same_ports() -> None:
    text = edited('"0.0.0.0:29092"', '"127.0.0.2:19092"').replace("{ 1 = 29093, 2 = 29094 }", '"19093-19100"')

    assert read(text).listeners[1].port == 19092


@pytest.mark.parametrize("text", ["", "[[cluster]]\nname='a'\nbootstrap='a:1'\n"])
def test_a_file_without_clusters_or_listeners_says_what_to_write(text: str) -> None:
    assert "is missing: write a [[" in problems(text)


COALESCING = """
[[listener]]
name = "producers"
cluster = "target"
listen = "127.0.0.1:39092"
ports = "39093-39099"
coalesce = true
[listener.coalescing]
linger = 0.005
queue-bytes = "8MiB"
ignore-client-ids = true
"""


def test_a_listener_may_coalesce() -> None:
    (listener,) = [one for one in read(GOOD + COALESCING).listeners if one.name == "producers"]

    assert listener.coalesce
    assert listener.coalescing == CoalesceSettings(linger=0.005, queue_bytes=8 << 20, ignore_client_ids=True)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("coalesce = true\n", "", "listener[2].coalescing: needs coalesce = true"),
        ("coalesce = true\n", 'coalesce = true\nmode = "unwrap"\n', 'listener[2].coalesce: needs mode = "plain"'),
        ("0.005", "-1.0", "listener[2].coalescing.linger: -1.0 is too small"),
        ('"8MiB"', '"100KiB"', "listener[2].coalescing.request-bytes: 1048576 is above queue-bytes"),
        ("linger", "linger-ms", 'listener[2].coalescing.linger-ms: unknown key; did you mean "linger"?'),
    ],
)
def test_what_is_wrong_with_coalescing_is_told(old: str, new: str, expected: str) -> None:
    assert expected in problems(GOOD + COALESCING.replace(old, new))


def test_empty_arrays_are_errors_too() -> None:
    told = problems("cluster = []\nlistener = []")

    assert "cluster: is missing" in told
    assert "listener: is missing" in told


def test_text_that_is_not_toml_is_told_with_its_line() -> None:
    assert "is not valid TOML" in problems("[[cluster]\n")
    assert "line 1" in problems("[[cluster]\n")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="No such file or directory"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(OperatorError, match="it is not UTF-8 text"):
        load_config(tmp_path / "binary.toml")


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "shoal.toml").write_text(GOOD, encoding="utf-8")

    settings = load_config(tmp_path / "shoal.toml")

    ports = settings.listeners[0].nodes
    assert isinstance(ports, PortRange)
    assert ports.state_file == tmp_path / "state" / "source.json"


@pytest.mark.parametrize("name", ['""', '"a\\u0000b"'])
def test_a_name_is_text_that_can_name_a_file(name: str) -> None:
    text = f'[[cluster]]\nname = "c"\nbootstrap = "a:1"\n[[listener]]\nname = {name}\ncluster = "c"\n'
    with pytest.raises(OperatorError, match=r"listener\[0\]\.name: (is empty|has a NUL)"):
        read_config(f'{text}listen = "127.0.0.1:2"\nports = "3-4"\n', FILE)
