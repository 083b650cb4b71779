"""Copies that keep the offsets of their source, through a stock MirrorMaker 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import read_all
from shoal.scenarios.kafka.content.records import Record, oddities, orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill, fill_transactions
from shoal.scenarios.kafka.ports import free_port
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, flowing
from tests.brokers.mirror.same_offsets.rig import until_ends_equal, until_equal, wiring
from tests.support.admin import get_json

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

THREE = Layout(partitions=3)


async def test_records_have_the_offsets_of_the_source(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Also beside an ordinary topic of the same mirror, and of a topic that is empty at first."""
    pair, plain = offsets_pair, f"plain-{kept}"
    source = Topics(pair.source.bootstrap)
    await source.create(kept, 3)
    await source.create(f"{kept}-late", 2)
    await source.create(plain)
    await fill(pair.source.bootstrap, kept, orders(20_000), layout=THREE, compression_type="zstd")
    await fill(pair.source.bootstrap, plain, orders(2_000))
    admin = free_port()
    wired = wiring(f"{kept},{kept}-late,{plain}", flags=("--admin", f"127.0.0.1:{admin}"))
    async with flowing(pair, aliases, tmp_path, wired) as flow:
        await until_equal(flow, kept)
        await fill(pair.source.bootstrap, kept, orders(5_000, seed=1), layout=THREE, compression_type="none")
        await fill(pair.source.bootstrap, f"{kept}-late", orders(500), layout=Layout(partitions=2, run=1))
        await fill(pair.source.bootstrap, kept, oddities(200), layout=THREE, compression_type="gzip")
        await until_equal(flow, kept, f"{kept}-late")
        await flow.check(plain)
        (source_listener,) = [one for one in (await get_json(admin, "/status"))["listeners"] if one["mode"] == "wrap"]
        assert source_listener["same_offsets"]["number_of_partitions"] <= 5
        assert 5 <= source_listener["same_offsets"]["locators"] <= 10  # a mirror is located once, and after a rebalance
        assert source_listener["same_offsets"]["stopped"] == []


async def test_aborted_records_and_markers_are_gaps(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """The copy begins and ends where the source does, also if the first transaction or the last one is aborted."""
    pair = offsets_pair
    await Topics(pair.source.bootstrap).create(kept)

    async def transact(seed: int, *commits: bool) -> None:
        made = [
            Transaction(records=tuple(orders(300, seed=seed + number)), commit=commit)
            for number, commit in enumerate(commits)
        ]
        await fill_transactions(pair.source.bootstrap, kept, made, transactional_id=kept, compression_type="lz4")

    await transact(0, False, True, False, True, False)
    async with flowing(pair, aliases, tmp_path, wiring(kept)) as flow:
        await until_equal(flow, kept)
        assert (await Topics(pair.target.bootstrap).spans(flow.remote(kept)))[0].begin == 0
        await transact(10, False, False, True)
        await until_equal(flow, kept)
        await transact(20, False)
        await until_equal(flow, kept)


@pytest.mark.slow
async def test_append_times_stay(offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path) -> None:
    pair, config = offsets_pair, {"message.timestamp.type": "LogAppendTime"}
    await Topics(pair.source.bootstrap).create(kept, config=config)
    await fill(pair.source.bootstrap, kept, orders(5_000), compression_type="snappy")
    async with flowing(pair, aliases, tmp_path, wiring(kept)) as flow:
        await until_equal(flow, kept)


@pytest.mark.slow
async def test_holes_of_compaction_stay(offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path) -> None:
    pair = offsets_pair
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1024 * 1024),
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
    }
    source = Topics(pair.source.bootstrap)
    await source.create(kept, config=config)
    records = [
        Record(timestamp=1_700_000_000_000 + number, key=b"k%d" % (number % 700), value=b"%d" % number * 400)
        for number in range(6_000)
    ]
    await fill(pair.source.bootstrap, kept, iter(records), layout=Layout(run=10, exact=True))

    async def is_cleaned() -> bool:
        return (await read_copy(pair.source.bootstrap, kept)).records < 3_000

    await until(is_cleaned, within=WITHIN, what="the cleaner", poll_s=0.5)
    async with flowing(pair, aliases, tmp_path, wiring(kept)) as flow:
        await until_ends_equal(flow, kept)
        ours = await by_offset(pair.source.bootstrap, kept)
        theirs = await by_offset(pair.target.bootstrap, flow.remote(kept))  # has a cleaner of its own
        assert [offset for offset in ours.keys() & theirs.keys() if ours[offset] != theirs[offset]] == []
        assert newest(ours) == newest(theirs)
        assert await pair.envelopes() == []


async def by_offset(bootstrap: str, topic: str) -> dict[int, tuple[object, ...]]:
    found: dict[int, tuple[object, ...]] = {}

    def take(messages: list[Message]) -> None:
        for message in messages:
            found[message.offset() or 0] = message.key(), message.value(), message.timestamp()

    await read_all(bootstrap, topic, take)
    return found


def newest(records: dict[int, tuple[object, ...]]) -> dict[object, tuple[int, tuple[object, ...]]]:
    """The last record of each key, and its offset."""
    return {record[0]: (offset, record) for offset, record in sorted(records.items())}


@pytest.mark.slow
@pytest.mark.parametrize(("is_aborted", "begin"), [(False, 1_200), (True, 120)])
async def test_a_log_that_begins_late_begins_there(
    is_aborted: bool, begin: int, offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """Also among aborted records: a group's offset there is valid at both clusters."""
    pair = offsets_pair
    source = Topics(pair.source.bootstrap)
    await source.create(kept)
    if is_aborted:
        made = [Transaction(records=tuple(orders(300, seed=commit)), commit=commit) for commit in (False, True)]
        await fill_transactions(pair.source.bootstrap, kept, made, transactional_id=kept)
    else:
        await fill(pair.source.bootstrap, kept, orders(3_000), layout=Layout(run=100, exact=True))
    await source.delete_records(kept, {0: begin})
    async with flowing(pair, aliases, tmp_path, wiring(kept)) as flow:
        await until_equal(flow, kept)
        spans = await Topics(pair.target.bootstrap).spans(flow.remote(kept))
        assert spans[0].begin == begin


async def test_a_log_without_records_ends_where_its_source_ends(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    pair = offsets_pair
    source = Topics(pair.source.bootstrap)
    await source.create(kept)
    await fill(pair.source.bootstrap, kept, orders(500))
    await source.delete_records(kept, {0: 500})
    async with flowing(pair, aliases, tmp_path, wiring(kept)) as flow:
        await until_ends_equal(flow, kept)
        await fill(pair.source.bootstrap, kept, orders(500, seed=1))
        await until_equal(flow, kept)
