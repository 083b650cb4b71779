"""`shoal spark audit` on the index of a mirror that keeps offsets: each record is proven by what the brokers said."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.protocol.capture.index.columns import Direction, Handling
from shoal.scenarios.kafka.content.copies import read_copy
from shoal.scenarios.kafka.content.reading import READ_COMMITTED
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, Transaction, fill, fill_transactions
from tests.brokers.mirror.rig.flow import flowing
from tests.brokers.mirror.rig.steady import steady, wrapped_more
from tests.brokers.mirror.same_offsets.rig import until_ends_equal, until_equal, wiring
from tests.support.captures.capture_index import content, files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.brokers.mirror.rig.flow import Flow
    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]
PARTITIONS = 3
THREE = Layout(partitions=PARTITIONS)


async def audited(work: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """-> exit code, what it printed, and its figures."""
    command = [sys.executable, "-m", "shoal", "spark", "audit", str(work / "index"), str(work / "audit"), *arguments]
    done = await trio.run_process(command, check=False, capture_stdout=True, stderr=subprocess.STDOUT)
    told = done.stdout.decode()
    report = work / "audit" / "report.json"
    assert report.exists(), told
    return done.returncode, told, json.loads(report.read_text())["audit"]


async def committed(flow: Flow, topic: str) -> int:
    return (await read_copy(flow.pair.source.bootstrap, topic, isolation=READ_COMMITTED)).records


async def transact(pair: Pair, topic: str, seed: int) -> None:
    """Two of four are aborted, the last one, too: their markers are the log's end."""
    made = [Transaction(records=tuple(orders(400, seed=seed + number)), commit=number % 2 == 0) for number in range(4)]
    await fill_transactions(pair.source.bootstrap, topic, made, transactional_id=topic, compression_type="lz4")


async def test_all_is_proven_with_transactions_and_without_a_fault(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """A log that begins late and has aborted records, markers and fillers, beside an ordinary topic."""
    pair, plain = offsets_pair, f"plain-{kept}"
    source = Topics(pair.source.bootstrap)
    await source.create(kept)
    await source.create(plain)
    await fill(pair.source.bootstrap, kept, orders(2_000), layout=Layout(run=100, exact=True))
    await source.delete_records(kept, {0: 730})
    await fill(pair.source.bootstrap, plain, orders(2_000), layout=Layout(run=100))
    wired = wiring(f"{kept},{plain}", flags=("--capture", str(tmp_path / "index")))
    (tmp_path / "index").mkdir()
    async with flowing(pair, aliases, tmp_path, wired) as flow:
        await until_ends_equal(flow, kept)
        await transact(pair, kept, 10)
        await until_ends_equal(flow, kept)
        await transact(pair, kept, 20)
        await until_ends_equal(flow, kept)
        await flow.check(plain)
        records, prefix = await committed(flow, kept), flow.remote(kept).removesuffix(kept)
    rows = [row for path in files(tmp_path / "index") for row in content(path)[1]]
    assert any(row["handling"] is Handling.ABORTED for row in rows)
    assert any(row["direction"] is Direction.PRODUCED and row["source_first"] == 700 for row in rows)
    code, told, figures = await audited(tmp_path, "--tolerance", "0", "--prefix", prefix)
    assert code == 0, told
    [topic] = figures["mirror_topics"]
    deleted = 30  # from 700 on, in the first batch
    assert (topic["topic"], topic["same_offset"]) == (kept, records + deleted), told
    assert (topic["wrong"], topic["missing"], topic["below_end"]) == (0, 0, 0)


async def test_all_is_proven_though_shoal_is_killed_at_work(
    offsets_pair: Pair, kept: str, aliases: Aliases, tmp_path: Path
) -> None:
    """The rows of its last moments are lost; what they would prove, the end of the log does."""
    pair = offsets_pair
    await Topics(pair.source.bootstrap).create(kept, PARTITIONS)
    (tmp_path / "index").mkdir()
    async with flowing(pair, aliases, tmp_path, wiring(kept, flags=("--capture", str(tmp_path / "index")))) as flow:
        async with steady(pair, kept, partitions=PARTITIONS):
            await wrapped_more(flow)
            flow.shoal.kill()
            await flow.shoal.start()
            await wrapped_more(flow)
        await transact(pair, kept, 10)
        await until_equal(flow, kept)
        records = await committed(flow, kept)
    assert len(files(tmp_path / "index")) == 2
    code, told, figures = await audited(tmp_path, "--tolerance", "0")
    assert code == 0, told
    [topic] = figures["mirror_topics"]
    assert (topic["topic"], topic["partitions"]) == (kept, PARTITIONS)
    assert (topic["wrong"], topic["missing"], figures["doubled"]) == (0, 0, 0)
    lost = records - topic["same_offset"] - topic["below_end"]  # the rows of both sides were lost
    assert 0 <= lost < records / 2
    assert topic["same_offset"] > records / 2
