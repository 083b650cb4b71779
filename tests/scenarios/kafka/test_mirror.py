"""The harness itself on real brokers: a plain MirrorMaker 2 makes an exact copy, and the comparison detects an inexact
one."""

from pathlib import Path

import pytest

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.scenarios.kafka.content.compare import Counts, first_difference, reconcile
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.records import EPOCH_MS, oddities, orders, sized
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.content.topics import OffsetRange, Topics
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill, fill_transactions
from shoal.scenarios.kafka.errors import TrafficFailed
from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.kafka.mirror import MirrorSpec, running_mirror
from tests.brokers.agent.sets import produce_one
from tests.conftest import Aliases
from tests.support.kafka.catchup import until_copied
from tests.support.kafka.clusters import Pair

RECORDS = 50_000


@pytest.fixture
def spec(pair: Pair, topic: str, aliases: Aliases) -> MirrorSpec:
    return MirrorSpec(
        source=pair.source.bootstrap,
        target=pair.target.bootstrap,
        topics=topic,
        tasks=2,
        source_alias=aliases.source,
        target_alias=aliases.target,
    )


@pytest.mark.slow
async def test_a_plain_mirror_makes_an_equal_copy(pair: Pair, topic: str, spec: MirrorSpec, tmp_path: Path) -> None:
    source, target = Topics(pair.source.bootstrap), Topics(pair.target.bootstrap)
    await source.create(topic, 4)
    layout = Layout(partitions=4)
    await fill(pair.source.bootstrap, topic, orders(RECORDS - 1_000), layout=layout, compression_type="zstd")
    await fill(pair.source.bootstrap, topic, oddities(1_000), layout=layout, compression_type="zstd")

    async with running_mirror(tmp_path, spec) as mirror:
        await target.until_total(spec.remote_topic(topic), RECORDS, within=120, process=mirror.process)
        used = mirror.usage()

    ours = await read_copy(pair.source.bootstrap, topic, timestamp_types=True)
    theirs = await read_copy(pair.target.bootstrap, spec.remote_topic(topic), timestamp_types=True)
    assert await first_difference(ours, theirs, offsets=True) is None
    assert reconcile(ours, theirs) == Counts(source=RECORDS, target=RECORDS, equal=RECORDS)
    assert used.cpu_s > 1
    assert used.peak_mib > 50


@pytest.mark.slow
async def test_a_killed_mirror_loses_nothing_and_repeats_no_more_than_it_had_done(
    pair: Pair, topic: str, spec: MirrorSpec, tmp_path: Path
) -> None:
    target, remote = Topics(pair.target.bootstrap), spec.remote_topic(topic)
    await Topics(pair.source.bootstrap).create(topic, 2)
    await fill(pair.source.bootstrap, topic, orders(5_000), layout=Layout(partitions=2))

    async with running_mirror(tmp_path, spec) as mirror:
        await target.until_total(remote, 5_000, within=120, process=mirror.process)
        mirror.kill()
        await fill(pair.source.bootstrap, topic, orders(5_000, seed=1), layout=Layout(partitions=2))
        mirror.restart()
        ours = await read_copy(pair.source.bootstrap, topic)
        theirs = await until_copied(ours, pair.target.bootstrap, remote, within=120, process=mirror.process)

    counts = reconcile(ours, theirs)
    assert counts.faithful
    assert counts.equal == 10_000
    assert counts.duplicates <= 5_000


async def test_a_difference_is_told_with_both_records(pair: Pair, topic: str) -> None:
    bootstrap, other = pair.source.bootstrap, f"{topic}-copy"
    for name, seed in ((topic, 0), (other, 1)):
        await Topics(bootstrap).create(name, 1)
        await fill(bootstrap, name, orders(10))
        await fill(bootstrap, name, orders(5, seed=seed))

    difference = await first_difference(await read_copy(bootstrap, topic), await read_copy(bootstrap, other))

    assert difference is not None
    assert f"{topic} and {other} differ in partition 0 at record 10 (15 records, the copy has 15)" in difference
    assert difference.count("offset 10: timestamp=1704067200000, timestamp_type=None, key=b'customer-") == 2


async def test_aborted_records_are_read_or_not_as_the_isolation_says(pair: Pair, topic: str) -> None:
    bootstrap = pair.source.bootstrap
    await Topics(bootstrap).create(topic, 2)
    made = tuple(orders(60))
    transactions = [
        Transaction(records=made[:20], commit=True),
        Transaction(records=made[20:30], commit=False),
        Transaction(records=made[30:], commit=True),
    ]
    await fill_transactions(bootstrap, topic, transactions, transactional_id=topic, layout=Layout(partitions=2, run=5))

    assert (await read_copy(bootstrap, topic)).records == 60
    assert (await read_copy(bootstrap, topic, isolation=READ_COMMITTED)).records == 50


async def test_exact_runs_are_batches(pair: Pair, topic: str) -> None:
    await Topics(pair.source.bootstrap).create(topic, 1)
    layout = Layout(run=7, exact=True)
    await fill(pair.source.bootstrap, topic, sized(20, 100), layout=layout, compression_type="lz4")

    log = pair.source.nodes[1].data / f"{topic}-0" / "00000000000000000000.log"
    dump = await run_tool("DumpLogSegments", "--files", str(log))

    assert [line.split(" count: ")[1].split()[0] for line in dump.splitlines() if " count: " in line] == ["7", "7", "6"]
    assert dump.count("compresscodec: none") + dump.count("compresscodec: lz4") == 3


async def test_a_scan_finds_magic_in_keys_and_values_and_goes_on_where_it_ended(pair: Pair, topic: str) -> None:
    bootstrap, magic = pair.source.bootstrap, f"magic of {topic}".encode()
    scanner = Scanner(bootstrap, magic=magic)
    await Topics(bootstrap).create(topic, 1)
    await fill(bootstrap, topic, (record._replace(key=b"xx" + magic) for record in orders(1)))
    assert [finding[1:] for finding in await scanner.scan()] == [(0, 0, "key")]

    looked_at = scanner.records
    await fill(bootstrap, topic, (record._replace(value=magic + b"!") for record in orders(1)))
    assert [finding[1:] for finding in await scanner.scan()] == [(0, 0, "key"), (0, 1, "value")]
    assert scanner.records == looked_at + 1


async def test_a_scan_goes_on_behind_a_header_whose_name_is_no_text(pair: Pair, topic: str) -> None:
    scanner = Scanner(pair.source.bootstrap, magic=f"magic of {topic}".encode())
    await Topics(pair.source.bootstrap).create(topic, 1)
    record = NewRecord(EPOCH_MS, None, b"value", ((b"\xff", b""),))
    many = [record] * 1000  # Python specializes calls that are repeated
    assert produce_one(pair.source.nodes[1].address, topic, [encode_batch(many)]).error == 0

    assert await scanner.scan() == []
    assert scanner.records >= len(many)


async def test_topics_are_made_changed_and_gone_when_the_call_returns(pair: Pair, topic: str) -> None:
    topics = Topics(pair.source.bootstrap)
    await topics.create(topic, 2, config={"cleanup.policy": "compact"})
    await topics.add_partitions(topic, 3)
    await topics.alter(topic, {"cleanup.policy": "delete"})
    await fill(pair.source.bootstrap, topic, orders(30), layout=Layout(partitions=3, run=10))
    await topics.delete_records(topic, {1: 4})

    assert await topics.spans(topic) == {0: OffsetRange(0, 10), 1: OffsetRange(4, 10), 2: OffsetRange(0, 10)}
    described = await run_tool(
        "TopicCommand", "--bootstrap-server", pair.source.bootstrap, "--describe", "--topic", topic
    )
    assert "cleanup.policy=delete" in described

    await topics.delete(topic)
    assert topic not in await topics.names()


async def test_a_record_that_cannot_be_delivered_is_an_error(pair: Pair) -> None:
    with pytest.raises(TrafficFailed, match="was not delivered"):
        await fill(pair.source.bootstrap, "no-such-topic", orders(1), message_timeout_ms=1_000)
