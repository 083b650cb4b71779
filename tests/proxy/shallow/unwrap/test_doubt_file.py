"""The next Shoal knows what was in flight and unanswered at the stop: the broker shows which of it was appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from shoal.proxy.config.settings import Limits
from shoal.proxy.shallow.files.doubt import load_doubt, save_doubt
from shoal.proxy.shallow.unwrap.producer_ids import ProducerIds
from tests.support.rig import until
from tests.support.shallow.batches import EARLIER, LATER, NONE, OTHERS, envelope, outer, records
from tests.support.shallow.brokers import ORDERS, Script, TargetBroker
from tests.support.shallow.partition import stamp_of
from tests.support.shallow.rig import shallow_rig
from tests.support.shallow.world import Seen, produced, some_batch
from tests.support.tiny_disk import tiny_disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("lane")

MANY = [some_batch(4 * at, 4) for at in range(12)]
NEVER = trio.Event()
IN_FLIGHT = 6  # requests: the first one goes alone


async def stopped_in_the_middle(path: Path, target: TargetBroker, sent: bytes, *, appends: int) -> None:
    """The first batch is answered, five more are in flight, and this many of them are appended."""
    target.scripts.update({at: Script(appends=at <= appends, gate=NEVER) for at in range(1, IN_FLIGHT)})
    async with shallow_rig(target=target, producers_file=path, learn=True) as r:
        client = await r.producer(agrees=True)
        await client.produce(sent)
        await until(lambda: len(target.requests) == 2)
        await until(lambda: r.server.statistics().listeners[1].in_flight == IN_FLIGHT - 1)
    target.scripts.clear()


@pytest.mark.parametrize("appends", [0, 1])
@pytest.mark.parametrize("sent", [outer(*MANY), produced([Seen(0, EARLIER), *envelope(*MANY), Seen(2, LATER)])])
async def test_what_was_in_flight_at_the_stop_comes_once(sent: bytes, appends: int, tmp_path: Path) -> None:
    target, path = TargetBroker(), tmp_path / "to.producers"
    await stopped_in_the_middle(path, target, sent, appends=appends)
    assert path.with_suffix(".doubt").exists()
    async with shallow_rig(target=target, producers_file=path, learn=True) as r:
        assert not path.with_suffix(".doubt").exists(), "it is read once"
        client = await r.producer(agrees=True)
        await client.produce(sent)
        assert (await client.answers())[0][0] is NONE
    there = [one for one in target.log() if one in records(*MANY)]
    assert there == records(*MANY)
    assert len(target.log()) in (48, 50)
    assert not path.with_suffix(".doubt").exists(), "nothing is in doubt, nothing is kept"


async def test_other_data_after_the_restart_is_appended_behind_it(tmp_path: Path) -> None:
    """No mirror sends the doubtful data again, not even a restarted one."""
    target, path = TargetBroker(), tmp_path / "to.producers"
    await stopped_in_the_middle(path, target, outer(*MANY), appends=1)
    async with shallow_rig(target=target, producers_file=path, learn=True) as r:
        client = await r.producer(agrees=True)
        await client.produce(outer(*OTHERS))
        assert (await client.answers())[0][0] is NONE
    assert target.log() == records(*MANY[:2], *OTHERS)


async def test_the_producer_id_that_is_kept_is_not_used_in_other_partitions(tmp_path: Path) -> None:
    """Its sequences there are unknown now: new data from 0 on would be taken for the earlier data."""
    target, path, before = TargetBroker(), tmp_path / "to.producers", outer(some_batch(0, 4))
    async with shallow_rig(target=target, producers_file=path, learn=True, limits=Limits(close_seconds=0.01)) as r:
        client = await r.producer(agrees=True)
        await client.produce(outer(*MANY), before)
        assert set((await client.answers()).values()) == {(NONE, 47), (NONE, 3)}
        target.scripts[len(target.requests)] = Script(closes=True)
        await client.produce(outer(*OTHERS))
        await r.closed()
    async with shallow_rig(target=target, producers_file=path, learn=True) as r:
        client = await r.producer(agrees=True)
        await client.produce(outer(*OTHERS), outer(some_batch(4, 4)))
        assert [code for code, _ in (await client.answers()).values()] == [NONE, NONE]
    assert target.log() == records(*MANY, *OTHERS)
    assert target.log(1) == records(some_batch(0, 4), some_batch(4, 4))


async def test_doubt_of_another_cluster_says_nothing(tmp_path: Path) -> None:
    path, another = tmp_path / "to.producers", TargetBroker(cluster_id="another")
    await stopped_in_the_middle(path, TargetBroker(), outer(*MANY), appends=1)
    async with shallow_rig(target=another, producers_file=path, learn=True) as r:
        client = await r.producer(agrees=True)
        await client.produce(outer(*MANY))
        assert await client.answers() == {0: (NONE, 47)}
    assert another.log() == records(*MANY)
    ids = [stamp.producer_id for sent in another.requests if (stamp := stamp_of(sent[ORDERS, 0]))]
    assert set(ids) == {another.next_id}


def kept(ids: ProducerIds) -> list[object]:
    return list(ids.in_doubt())


def loaded_from(path: Path, failed: Callable[[], None] = lambda: None) -> ProducerIds:
    ids = ProducerIds("to")
    for doubt in load_doubt(path, failed=failed):
        ids.restore(*doubt)
    return ids


async def doubtful(path: Path) -> ProducerIds:
    await stopped_in_the_middle(path, TargetBroker(), produced([*envelope(*MANY), Seen(2, LATER)]), appends=0)
    ids = loaded_from(path.with_suffix(".doubt"))
    assert len(kept(ids)) == 1
    return ids


async def test_what_is_saved_is_loaded_once(tmp_path: Path) -> None:
    ids, path = await doubtful(tmp_path / "to.producers"), tmp_path / "a.doubt"
    save_doubt(path, ids.in_doubt())
    assert kept(loaded_from(path)) == kept(ids)
    assert not path.exists()


@pytest.mark.parametrize(
    "text",
    [
        "shoal doubt 1\n[",
        "shoal doubt 1\n" + 100_000 * "[",
        'shoal doubt 1\n["c", "t", 0, "s", 1, 0, 5, 4, [["envelope", "00"]], []]\n',
        'shoal doubt 1\n["c", "t", 0, "s", 1, 0, 5, 4, [], [[0, 0, 0, [1], [1, 0]]]]\n',
        'shoal doubt 1\n["c", "t", 0, "s", 1, 0, 5, 4, [["plain"]], []]\n',
        'shoal doubt 1\n{"c": 1}\n',
        "somebody's",
        "\x00",
    ],
)
def test_a_damaged_one_is_not_believed(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, failed = tmp_path / "a.doubt", list[bool]()
    path.write_text(text)
    assert kept(loaded_from(path, lambda: failed.append(True))) == []
    assert failed == [True]
    assert "may be appended twice after a restart" in caplog.text


async def test_a_full_disk_costs_the_memory_and_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ids, failed = await doubtful(tmp_path / "to.producers"), list[bool]()
    with tiny_disk(tmp_path / "disk", 1 << 20) as disk:
        disk.fill(leave=0)
        save_doubt(disk.path / "a.doubt", ids.in_doubt(), failed=lambda: failed.append(True))
        assert [one.name for one in disk.path.iterdir()] == ["filler"], "half a file is none"
    assert failed == [True]
    assert "make room" in caplog.text


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("stamps", [True, False])
async def test_a_broker_that_never_answers_does_not_hold_up_the_stop(
    signals: int, stamps: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be kept of it is logged."""
    target, path = TargetBroker(scripts={1: Script(gate=NEVER)}), tmp_path / "to.producers"
    limits = Limits(drain_seconds=0.1 if signals == 1 else 1000.0, close_seconds=0.01)
    async with shallow_rig(target=target, producers_file=path, learn=True, limits=limits) as r:
        client = await r.producer(agrees=stamps)
        await client.produce(outer(*MANY), outer(*OTHERS))
        await until(lambda: len(target.requests) == 2)
        for _ in range(signals):
            r.server.drain()
        await r.closed()
    assert path.with_suffix(".doubt").exists() is stamps
    said = "of orders-0 and of 1 partitions more has no producer id of Shoal's own, and may be appended twice"
    assert (said in caplog.text) is not stamps
