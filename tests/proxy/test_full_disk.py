"""A Shoal process whose state, captures, log and standard output are on a full disk: its clients notice nothing."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from shoal.protocol.records.batch import encode_batch
from shoal.scenarios.kafka.process import until
from tests.support.captures.capture_index import content, files, whole_raw_capture
from tests.support.rig import FakeBroker
from tests.support.shallow.batches import BATCHES, LATER, NONE, envelope, records
from tests.support.shallow.brokers import TargetBroker
from tests.support.shallow.rig import Producer
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml
from tests.support.tiny_disk import tiny_disk

ROUNDS = 40
by_the_mirror = partial(encode_batch, producer_id=5, producer_epoch=2)


@pytest.mark.parametrize("full_at_the_start", [True, False])
async def test_traffic_goes_on_while_the_disk_of_all_files_is_full(tmp_path: Path, full_at_the_start: bool) -> None:
    target, port = TargetBroker(), free_port_block(6)
    broker = FakeBroker(target.answer)
    with tiny_disk(tmp_path / "disk", 12 << 20) as disk:
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            shoal = _shoal(tmp_path, disk.path, broker, port)
            shoal.log.touch()
            if full_at_the_start:
                disk.fill()
            async with running_shoal(shoal), await trio.open_tcp_stream("127.0.0.1", port) as stream:
                client = Producer(stream)
                for number in range(ROUNDS):
                    if number == ROUNDS // 4 and not full_at_the_start:
                        await until(lambda: _sizes(disk.path) > 0, within=10, what="something in both captures")
                        disk.fill()
                    if number == ROUNDS // 2:
                        await until(lambda: not _is_open(shoal, "pcapng"), within=10, what="the raw capture to give up")
                        disk.empty()
                    sent = [LATER] if number else [seen.record for seen in envelope(*BATCHES)]
                    await client.produce(by_the_mirror(sent, base_sequence=number))
                    assert (await client.answers())[0][0] is NONE
                if full_at_the_start:
                    await until(
                        lambda: "lines of this log are missing" in shoal.output(), within=10, what="the log to go on"
                    )
                await stream.aclose()
                await shoal.stop()
            nursery.cancel_scope.cancel()
        assert target.log() == records(*BATCHES) + [LATER] * (ROUNDS - 1)
        said = shoal.output()
        found = [content(path) for path in files(disk.path)]
        assert not any(wrong for _, _, wrong in found)
        assert sum(len(rows) for _, rows, _ in found) == ROUNDS + len(BATCHES) - 1 - max(
            reader.state["dropped"] for reader, _, _ in found
        )
        frames = re.search(r"raw capture: RawStatistics\(written=(\d+), lost=(\d+)", said)
        assert frames, said
        assert len(whole_raw_capture(disk.path)) == int(frames[1])
        assert int(frames[2]) > 0


def _sizes(directory: Path) -> int:
    return min((path.stat().st_size for kind in ("kxb", "pcapng") for path in directory.glob(f"*.{kind}")), default=0)


def _is_open(shoal: ShoalProcess, suffix: str) -> bool:
    for one in Path(f"/proc/{shoal.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it is closed now
            if one.readlink().suffix == f".{suffix}":
                return True
    return False


def _shoal(work: Path, disk: Path, broker: FakeBroker, port: int) -> ShoalProcess:
    listener = {"name": "to", "cluster": "c", "listen": f"127.0.0.1:{port}", "ports": f"{port + 1}-{port + 5}"}
    document = {
        "state-dir": str(disk / "state"),
        "cluster": [{"name": "c", "bootstrap": str(broker.address)}],
        "listener": [{**listener, "mode": "unwrap"}],
        "capture": {"directory": str(disk), "flush-seconds": 0.05, "raw": {}},
        "log": {"report-every": 0.1},
    }
    config = write_toml(work / "shoal.toml", document)
    return ShoalProcess(["run", "-c", str(config)], work=disk, ports=[port])
