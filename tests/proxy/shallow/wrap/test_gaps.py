"""A mirror that passes over source records: reported once, and with on-gap = "stop" refused until acknowledged."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.protocol.schema.api import ApiKey
from shoal.proxy.cli.gaps import main
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import OnGap
from shoal.proxy.shallow.files.gaps import read_gaps
from tests.support.rig import api_key, until
from tests.support.shallow.brokers import ORDERS, Place, SourceBroker
from tests.support.shallow.rig import ShallowRig, shallow_rig
from tests.support.shallow.world import some_batch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.rig import BrokerSide

FIRST, LATER = some_batch(0, 10), some_batch(25, 5)  # the mirror continues at 25 and has got 0..9


def skipping(*, on_gap: OnGap) -> dict[str, object]:
    place: Place = (ORDERS, 0)
    sets: list[Mapping[Place, bytes]] = [{place: FIRST}, *[{place: LATER}] * 9]
    return {"source": SourceBroker(sets=sets), "paired": False, "min_batch_bytes": 0, "on_gap": on_gap}


def tick(r: ShallowRig) -> None:
    r.server.listeners["from"].tick(trio.current_time())


async def test_a_gap_is_reported_once_and_the_mirror_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with shallow_rig(mirrored_file=tmp_path / "from.mirrored", **skipping(on_gap=OnGap.REPORT)) as r:  # type: ignore[arg-type]
        consumer = await r.consumer()
        assert await consumer.fetch(0)
        assert await consumer.fetch(25)
        assert await consumer.fetch(30)
    (found,) = read_gaps(tmp_path / "from.gaps")
    assert (found.kind, found.from_offset, found.to_offset, found.stops) == ("skipped", 10, 25, False)
    assert caplog.text.count("passes over offsets 10..24") == 1
    assert "--acknowledge" not in caplog.text


@pytest.mark.parametrize(("on_gap", "gaps"), [(OnGap.REPORT, 1), (OnGap.REPORT_RUNNING, 0)])
async def test_a_partition_that_comes_back_to_a_worker_may_have_been_copied_through_another_shoal(
    on_gap: OnGap, gaps: int, tmp_path: Path
) -> None:
    source = skipping(on_gap=on_gap)
    async with shallow_rig(mirrored_file=tmp_path / "from.mirrored", **source) as r:  # type: ignore[arg-type]
        consumer = await r.consumer()
        assert await consumer.fetch(0)
        await consumer.stream.aclose()
        await r.closed("from")
        consumer = await r.consumer()
        assert await consumer.fetch(25)
        found = read_gaps(tmp_path / "from.gaps")
        assert [(one.from_offset, one.to_offset) for one in found] == [(10, 25)] * gaps
        assert await consumer.fetch(40)
    assert [(one.from_offset, one.to_offset) for one in read_gaps(tmp_path / "from.gaps")[gaps:]] == [(30, 40)]


class HoldsSecond(SourceBroker):
    """It answers the second Fetch when it may."""

    def __init__(self, *sets: bytes) -> None:
        super().__init__(sets=[{(ORDERS, 0): one} for one in sets])
        self.number, self.go_on = 0, trio.Event()

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        self.number += api_key(frame) == ApiKey.FETCH
        if self.number == 2:
            await self.go_on.wait()
        await super().answer(side, frame)


async def test_a_worker_that_stood_still_makes_no_gap_of_what_another_one_reads(tmp_path: Path) -> None:
    source = HoldsSecond(FIRST, FIRST, some_batch(10, 5), some_batch(15, 5))
    async with shallow_rig(
        mirrored_file=tmp_path / "from.mirrored", source=source, paired=False, min_batch_bytes=0
    ) as r:
        consumer, former = await r.consumer(), await r.consumer()
        assert await consumer.fetch(0)
        await consumer.ask(10)
        await until(lambda: source.number == 2)
        assert await former.fetch(0)
        source.go_on.set()
        await consumer.answer()
        assert await consumer.fetch(15)
    assert read_gaps(tmp_path / "from.gaps") == []


async def test_a_stopped_partition_waits_for_its_acknowledgment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, directory = tmp_path / "from.mirrored", str(tmp_path)
    async with shallow_rig(mirrored_file=file, **skipping(on_gap=OnGap.STOP)) as r:  # type: ignore[arg-type]
        consumer = await r.consumer()
        assert await consumer.fetch(0)
        for _ in range(2):
            assert await consumer.fetch(25) == b""
        assert r.wrap.statistics()[1].values()["stopped_partitions"] == 1
    async with shallow_rig(mirrored_file=file, **skipping(on_gap=OnGap.STOP)) as r:  # type: ignore[arg-type]
        r.source.sets.pop(0)
        consumer = await r.consumer()
        assert await consumer.fetch(25) == b"", "a restart of Shoal lets it go on"
        with pytest.raises(OperatorError, match="orders-7 is not stopped; orders-0"):
            main(["--state-dir", directory, "--acknowledge", "orders-7"])
        assert main(["--state-dir", directory, "--acknowledge", "orders-0"]) == 0
        tick(r)
        assert await consumer.fetch(25)
    main(["--state-dir", directory, "--json"])
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["gaps"]
    assert (row["listener"], row["topic"], row["partition"], row["stops"]) == ("from", "orders", 0, False)


async def test_the_broker_sends_little_of_a_stopped_partition(tmp_path: Path) -> None:
    """The consumer begins another fetch session, with a limit of one byte; and another one when it may go on."""
    source = skipping(on_gap=OnGap.STOP)
    broker = source["source"]
    assert isinstance(broker, SourceBroker)
    broker.session_id = 7
    async with shallow_rig(mirrored_file=tmp_path / "from.mirrored", **source) as r:  # type: ignore[arg-type]
        consumer = await r.consumer()
        assert await consumer.fetch(0, session_epoch=0)
        assert await consumer.fetch(25, session_id=7, session_epoch=1) == b""
        await consumer.ask(25, session_id=7, session_epoch=2)
        assert (await consumer.answer()).error_code.name == "fetch_session_id_not_found"
        assert await consumer.fetch(25, session_epoch=0) == b""
        (topic,) = broker.requests[-1].topics
        assert [partition.partition_max_bytes for partition in topic.partitions] == [1]


async def test_a_file_of_another_program_is_not_overwritten(tmp_path: Path) -> None:
    for name, other in (("from.mirrored", "mine"), ("from.gaps", "mine")):
        (tmp_path / name).write_text(other)
        with pytest.RaisesGroup(
            pytest.RaisesExc(OperatorError, match="Move it away"), allow_unwrapped=True, flatten_subgroups=True
        ):
            async with shallow_rig(mirrored_file=tmp_path / "from.mirrored", paired=False):
                pass
        assert (tmp_path / name).read_text() == other
        (tmp_path / name).unlink()


@pytest.mark.parametrize("line", ["[1, 2]", '["m", "t", 0, null, Infinity, 0, 0, 0]'])
async def test_a_damaged_file_is_set_aside(line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "from.mirrored").write_text(f'shoal mirrored 1\n{{"cluster": null, "closed": true}}\n{line}\n')
    (tmp_path / "from.gaps").write_text("shoal gaps 1\n{}\n")
    async with shallow_rig(mirrored_file=tmp_path / "from.mirrored", **skipping(on_gap=OnGap.STOP)) as r:  # type: ignore[arg-type]
        consumer = await r.consumer()
        assert await consumer.fetch(0)
    assert caplog.text.count(": discarded") == 2
    assert sum(".discarded-" in name for name in os.listdir(tmp_path)) == 2
