"""Run limits above the clients' defaults: the lines that `shoal mirror` prints are sufficient for a mirror."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from itertools import count
from typing import TYPE_CHECKING

import pytest

from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.proxy.cli.main import main
from shoal.scenarios.kafka.content.records import sized
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.process import until
from tests.brokers.mirror.rig.flow import WITHIN, Wiring, flowing

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Aliases
    from tests.support.kafka.clusters import Pair

pytestmark = pytest.mark.slow

MIB = 1 << 20
NUMBERS = count(1)


def printed(aliases: Aliases, limit: str) -> dict[str, str | None]:
    """The sizes among the lines for mm2.properties."""
    output = io.StringIO()
    alias = ["--source-alias", aliases.source, "--target-alias", aliases.target]
    with redirect_stdout(output):
        main(
            [
                "mirror",
                "--source",
                "a:1",
                "--target",
                "b:1",
                "--print-only",
                "--form=dedicated",
                *alias,
                "--run-limit",
                limit,
            ]
        )
    lines = (line.partition(" = ") for line in output.getvalue().splitlines())
    return {key: value for key, _, value in lines if value.isdecimal()}


@pytest.mark.parametrize(("limit", "size"), [("2MiB", 2 * MIB), ("8MiB", 8 * MIB)])
async def test_long_runs_arrive_with_the_printed_lines(
    limit: str, size: int, pair: Pair, topic: str, aliases: Aliases, tmp_path: Path
) -> None:
    bootstrap = pair.source.bootstrap
    await Topics(bootstrap).create(topic, 1, config={"max.message.bytes": str(9 * MIB)})  # the copy gets it, too
    sizes = printed(aliases, limit)
    print(limit, sizes)

    async def produce(number: int, record: int, run: int) -> None:
        layout = Layout(run=run, exact=True)
        await fill(
            bootstrap,
            topic,
            sized(number, record, seed=next(NUMBERS)),
            layout=layout,
            compression_type="zstd",
            message_max_bytes=9 * MIB,
            batch_size=9 * MIB,
            linger_ms=1000,
        )

    async def is_proven() -> bool:
        await produce(8, 20_000, 2)
        return f"records of {topic} came back" in flow.shoal.log.read_text()

    wiring = Wiring(topics=topic, tasks=1, extra=sizes, shoal=("--run-limit", limit))
    async with flowing(pair, aliases, tmp_path, wiring) as flow:
        await until(is_proven, within=WITHIN, what=f"{topic} to be proven", poll_s=0.5)
        await produce(9, size * 3 // 10, 3)  # batches that nearly fill a run each
        await produce(40 * size // MIB, 100_000, 5)  # many in a run
        await flow.check(topic)
        await flow.until_opened()
        assert "RecordTooLargeException" not in flow.running.process.output()
    counts = flow.counts("total")
    print(counts)
    assert counts[Reason.TOO_LARGE] == 0
    assert counts["wrapped_bytes"] > 6 * size, (
        "the large batches, too: an envelope for each, which the default would refuse"
    )
