"""`shoal replay` on given brokers: short cases, a captured trace, and a false fact."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.cli import main
from shoal.protocol.capture.frames.pcapng import Encoder
from shoal.scenarios.cases import CASES
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.replay.facts import equals
from shoal.scenarios.replay_command import main as replay
from shoal.scenarios.running.shoal_run import running_shoal_run
from tests.support.captures.raw_frames import PROXY, short_recording
from tests.support.captures.synthetic import Client, Traffic, chunks
from tests.support.captures.synthetic_files import IndexFiles

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster
    from tests.support.kafka.clusters import Pair

CLIENTS = (
    Client(name="many", topic="orders", weight=10, records=2, record_bytes=200, connections=6),
    Client(name="wide", topic="clicks", weight=3, records=50, record_bytes=200, batches=4, codec=4, ratio=0.2),
)


def names(pair: Pair) -> set[str]:
    """Except the topic that every consumer group creates."""
    return set(trio.run(Topics(pair.target.bootstrap).names)) - {"__consumer_offsets"}


@pytest.mark.slow
def test_a_short_case_passes_and_tidies_up(pair: Pair, tmp_path: Path) -> None:
    before = names(pair)

    code = main(["replay", "oldest-consumer", "--target", pair.target.bootstrap, "--out", str(tmp_path)])

    report = json.loads((tmp_path / "report.json").read_text())
    assert (code, report["oldest-consumer"]["good"]) == (0, True), report
    assert names(pair) == before


@pytest.mark.slow
def test_a_mirror_copies_to_the_brokers_that_are_given_and_leaves_nothing_there(pair: Pair, tmp_path: Path) -> None:
    """Its source is the run's own broker."""
    before = names(pair)

    target = ("--target", pair.target.bootstrap, "--speed", "10x", "--out", str(tmp_path))
    code = main(["replay", "mirror-tailing", "mirror-catching-up", *target])

    report = json.loads((tmp_path / "report.json").read_text())
    assert (code, [report[name]["good"] for name in report]) == (0, [True, True]), report
    assert names(pair) == before


def test_a_false_fact_fails_by_name(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    honest = CASES["oldest-consumer"]
    wrong = equals("Fetch v4 reads one record too many", "v4", 5_001)
    liar = replace(honest, name="liar", facts=(*honest.facts, wrong))

    assert replay(["liar", "--target", pair.target.bootstrap, "--out", str(tmp_path)], known={"liar": liar}) == 1

    told = capsys.readouterr().out.splitlines()
    assert told[-1] == "liar: Fetch v4 reads one record too many: 5,000, wanted: 5001"


@pytest.mark.parametrize("more", [[], ["--coalesce", "--coalescing", "linger=0.005"]], ids=["plain", "coalescing"])
def test_a_captured_index_comes_again(pair: Pair, tmp_path: Path, more: list[str]) -> None:
    traffic = Traffic(rows=2_000, seconds=20, partitions=8, clients=CLIENTS)
    (tmp_path / "capture").mkdir()
    IndexFiles(directory=tmp_path / "capture").write(chunks(traffic))
    before = names(pair)

    arguments = ["--target", pair.target.bootstrap, "--speed", "10x", "--out", str(tmp_path), *more]
    code = main(["replay", str(tmp_path / "capture"), *arguments])

    report = json.loads((tmp_path / "replay.json").read_text())
    assert (code, report["errors"], report["audit"]["complete"]) == (0, {}, 2_000), report
    assert report["produce_requests"] == report["captured"]["requests"]
    assert report["connections"] == 7
    assert report["bytes"] == pytest.approx(report["bytes_wanted"], rel=0.02)
    assert report["seconds"] >= report["captured"]["seconds"] / 10
    assert bool(report["shoal_joined"]) is bool(more)
    assert names(pair) == before


@pytest.mark.slow
def test_a_raw_capture_comes_again(pair: Pair, tmp_path: Path) -> None:
    """Eight batches of five records are produced; then a consumer on the same connection gets each once."""
    encoder = Encoder(PROXY)
    path = tmp_path / "short.pcapng"
    path.write_bytes(b"".join(encoder.frame(frame) for frame in short_recording(fetching=1).frames))
    before = names(pair)

    code = main(["replay", str(path), "--target", pair.target.bootstrap, "--out", str(tmp_path)])

    report = json.loads((tmp_path / "replay.json").read_text())
    assert (code, report["errors"], report["audit"]["complete"]) == (0, {}, 8), report
    assert (report["produce_requests"], report["records"], report["fetch_requests"]) == (4, 40, 6)
    assert report["fetched_records"] == 40
    assert sum(report["captured"]["left_out"].values()) == 3
    assert names(pair) == before


@pytest.mark.slow
def test_each_partition_s_requests_go_to_its_leader_of_today(three_brokers: Cluster, tmp_path: Path) -> None:
    """The trace names other brokers."""
    traffic = Traffic(rows=1_000, seconds=10, partitions=9, clients=CLIENTS)
    (tmp_path / "capture").mkdir()
    IndexFiles(directory=tmp_path / "capture").write(chunks(traffic))

    target = ("--target", three_brokers.bootstrap, "--speed", "max", "--keep-topics", "--out", str(tmp_path))
    code = main(["replay", str(tmp_path / "capture"), *target])

    report = json.loads((tmp_path / "replay.json").read_text())
    assert (code, report["errors"], report["audit"]["complete"]) == (0, {}, 1_000), report
    assert report["produce_requests"] >= report["captured"]["requests"]
    topics = [name for name in trio.run(Topics(three_brokers.bootstrap).names) if name.startswith("replay-")]
    for node in three_brokers.nodes.values():
        sizes = [path.stat().st_size for name in topics for path in node.data.glob(f"{name}-*/*.log")]
        assert sum(sizes) > 0, "every broker leads some of the partitions"
    for name in topics:
        trio.run(Topics(three_brokers.bootstrap).delete, name)


async def captured(bootstrap: str, work: Path, topic: str) -> None:
    """Traffic of librdkafka, which uses topic ids, through a Shoal that writes its frames: produced in two codecs, and
    consumed."""
    await Topics(bootstrap).create(topic, 2)
    async with running_shoal_run(work, bootstrap, capture=work / "capture", raw=True) as shoal:
        for seed, codec in enumerate(("lz4", "none")):
            layout = Layout(partitions=2, run=50)
            await fill(shoal.bootstrap, topic, orders(1_000, seed=seed), layout=layout, compression_type=codec)
        assert (await read_copy(shoal.bootstrap, topic)).records == 2_000
        await shoal.stop()


def test_what_the_raw_tap_wrote_comes_again(pair: Pair, tmp_path: Path) -> None:
    topic = f"raw-{os.urandom(3).hex()}"
    trio.run(captured, pair.target.bootstrap, tmp_path, topic)

    target = ("--target", pair.target.bootstrap, "--speed", "max", "--out", str(tmp_path / "out"))
    code = main(["replay", str(tmp_path / "capture"), "--raw", *target])

    report = json.loads((tmp_path / "out" / "replay.json").read_text())
    assert (code, report["errors"], report["audit"]["clean"]) == (0, {}, True), report
    assert report["records"] == 2_000
    assert report["audit"]["complete"] == report["batches"] > 0
    assert report["fetch_requests"] > 0
    trio.run(Topics(pair.target.bootstrap).delete, topic)


@pytest.mark.parametrize("name", ["short.pcapng", "capture"])
def test_a_replay_logs_in_as_it_is_told(sasl_cluster: Cluster, tmp_path: Path, name: str) -> None:
    (tmp_path / "capture").mkdir()
    IndexFiles(directory=tmp_path / "capture").write(chunks(Traffic(rows=50, seconds=2, partitions=2, clients=CLIENTS)))
    encoder = Encoder(PROXY)
    (tmp_path / "short.pcapng").write_bytes(b"".join(map(encoder.frame, short_recording(fetching=1).frames)))
    (tmp_path / "password").write_text("right\n")
    (tmp_path / "password").chmod(0o600)
    login = ("--sasl-mechanism", "SCRAM-SHA-256", "--sasl-username", "alice")

    target = ("--target", sasl_cluster.sasl_bootstrap, "--out", str(tmp_path))
    code = main(["replay", str(tmp_path / name), *target, *login, "--sasl-password-file", str(tmp_path / "password")])

    report = json.loads((tmp_path / "replay.json").read_text())
    assert (code, report["errors"], report["audit"]["clean"]) == (0, {}, True), report
