"""Knowledge of appended parts survives an orderly stop: the next Shoal does not append that part of an envelope
again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.protocol.shallow.unwrap.appended_log import Appended, AppendedLog, Refusal
from shoal.protocol.shallow.unwrap.plan import Plan, plan_record_set
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.config.settings import Limits
from shoal.proxy.shallow.files.deliveries import load_deliveries, save_deliveries
from tests.support.rig import until
from tests.support.shallow.batches import BATCHES, EARLIER, LATER, NONE, NOT_LEADER, envelope, outer, records
from tests.support.shallow.brokers import Script, TargetBroker
from tests.support.shallow.rig import shallow_rig
from tests.support.shallow.world import Seen, produced
from tests.support.tiny_disk import tiny_disk

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("lane")

QUICK = Limits(close_seconds=0.01)


@pytest.mark.parametrize("sent", [outer(*BATCHES), produced([Seen(0, EARLIER), *envelope(*BATCHES), Seen(2, LATER)])])
async def test_a_part_that_was_appended_before_an_orderly_stop_does_not_come_twice(sent: bytes, tmp_path: Path) -> None:
    target, path = TargetBroker(), tmp_path / "state" / "to.producers"
    async with shallow_rig(target=target, producers_file=path, scripts={2: Script(errors={0: NOT_LEADER})}) as r:
        client = await r.producer()
        await client.produce(sent)
        assert await client.answers() == {0: (NOT_LEADER, -1)}
        appended = list(target.log())
    assert appended
    target.scripts.clear()
    async with shallow_rig(target=target, producers_file=path) as r:
        client = await r.producer()
        await client.produce(sent)
        assert (await client.answers())[0][0] is NONE
    assert sum(one in records(*BATCHES) for one in target.log()) == 15
    assert len(target.log()) in (15, 17)


async def test_an_answer_that_was_lost_before_an_orderly_stop_is_given_again(tmp_path: Path) -> None:
    target, path = TargetBroker(), tmp_path / "state" / "to.producers"
    for _ in range(2):
        async with shallow_rig(target=target, producers_file=path, limits=QUICK) as r:
            client = await r.producer()
            await client.produce(outer(*BATCHES))
            await until(lambda: len(target.log()) == 15)
            await client.leave()
            await r.closed()
    assert target.log() == records(*BATCHES)


def plan(sent: bytes) -> Plan:
    made = plan_record_set(sent, 0, len(sent))
    assert isinstance(made, Plan)
    return made


def test_the_file_is_read_once(tmp_path: Path) -> None:
    path, deliveries = tmp_path / "to.deliveries", AppendedLog()
    items = plan(produced([*envelope(*BATCHES), Seen(2, LATER)])).items
    for number, item in enumerate(items):
        done = Appended(
            batches=1, records=number, first=5, last=9, refusal=Refusal(32, ("too old",), 4) if number else None
        )
        deliveries.record(TopicPartition("t", number), item.identity, done)
    save_deliveries(path, deliveries)
    loaded = AppendedLog()
    load_deliveries(path, loaded)
    assert list(loaded.items()) == list(deliveries.items())
    assert not list(tmp_path.iterdir())
    save_deliveries(path, AppendedLog())
    assert not list(tmp_path.iterdir()), "nothing is known, nothing is kept"


@pytest.mark.parametrize(
    "text",
    [
        "somebody's",
        "shoal deliveries 1\n[",
        "shoal deliveries 1\n" + 100_000 * "[",
        'shoal deliveries 1\n["t", 0, "envelope", "00", 1, 0, 2, 3, null]\n',
        'shoal deliveries 1\n["t", 0, "envelope", "00", 1, 2, 3, "x", null]\n',
        "\x00",
    ],
)
def test_another_file_is_neither_believed_nor_written_over(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, deliveries = tmp_path / "to.deliveries", AppendedLog()
    path.write_text(text)
    load_deliveries(path, deliveries)
    assert not list(deliveries.items())
    assert "cannot read" in caplog.text
    deliveries.record(TopicPartition("t", 0), b"digest", Appended(batches=1))
    save_deliveries(path, deliveries)
    if not text.startswith("shoal"):
        assert path.read_text() == text
        assert "not Shoal's" in caplog.text


def test_an_empty_one_is_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The machine stopped after naming the file and before writing it."""
    path, deliveries = tmp_path / "to.deliveries", AppendedLog()
    path.touch()
    deliveries.record(TopicPartition("t", 0), b"digest", Appended(batches=1))
    save_deliveries(path, deliveries)
    assert path.read_text()
    path.write_text("")
    load_deliveries(path, deliveries)
    assert not path.exists()
    assert not caplog.text


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    deliveries = AppendedLog()
    deliveries.record(TopicPartition("t", 0), b"digest", Appended(batches=1))
    save_deliveries(tmp_path / "nowhere" / "to.deliveries", deliveries)
    assert "cannot write" in caplog.text


def test_a_full_disk_costs_the_memory_and_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failed: list[bool] = []
    deliveries = AppendedLog()
    for partition in range(1000):
        deliveries.record(TopicPartition("t", partition), b"digest", Appended(batches=1))
    for room in (0, 8192):
        with tiny_disk(tmp_path / f"disk-{room}", 1 << 20) as disk:
            path = disk.path / "to.deliveries"
            disk.fill(leave=room)
            save_deliveries(path, deliveries, failed=lambda: failed.append(True))
            assert [one.name for one in disk.path.iterdir()] == ["filler"], "half a file is none"
            load_deliveries(path, AppendedLog(), failed=lambda: failed.append(True))
    assert failed == [True, True]
    assert [("No space left on device" in line, "make room" in line) for line in caplog.messages] == [(True, True)] * 2


async def test_what_cannot_be_kept_counts_as_an_error_of_the_state_directory(tmp_path: Path) -> None:
    target, path = TargetBroker(), tmp_path / "state" / "to.producers"
    path.parent.mkdir()
    path.with_suffix(".deliveries").write_text("somebody's")
    async with shallow_rig(target=target, producers_file=path) as r:
        client = await r.producer()
        await client.produce(outer(*BATCHES))
        assert (await client.answers())[0][0] is NONE
        errors = {one.name: one.state_errors for one in r.server.statistics().listeners}
        assert (errors["from"], errors["to"]) == (0, 1)
