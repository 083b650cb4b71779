"""A round on real brokers detects errors planted into the copy; the same round without them passes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from shoal.protocol.shallow.envelope import MAGIC
from shoal.scenarios.kafka.content.records import Record, orders
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.content.traffic import fill
from tests.torture.environment.pool import Pool
from tests.torture.judge.reading import read_topic

from .draw import keeping_offsets
from .plan import TARGET, ClusterPlan, FaultPlan, MirrorPlan, Plan, ProducerPlan, ShoalPlan, TopicPlan
from .round import run_round

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.torture.environment.world import World

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PLAN = Plan(
    seed=0,
    seconds=20,
    clusters=(ClusterPlan(name="A", nodes=1), ClusterPlan(name=TARGET, nodes=1)),
    topics=(TopicPlan(cluster="A", name="t0", partitions=1),),
    producers=(
        ProducerPlan(
            number=0, cluster="A", topic="t0", kind="idempotent", codec="zstd", shape="orders", run=100, rate=300
        ),
    ),
    mirrors=(MirrorPlan(source="A"),),
    shoal=ShoalPlan(min_batch_bytes=0),
    faults=(
        FaultPlan(at=8, kind="cut-link", where="link:B", seconds=1),
        FaultPlan(at=12, kind="kill-shoal", where="shoal", seconds=1),
    ),
)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    clusters = Pool(tmp_path_factory.mktemp("pool"))
    yield clusters
    clusters.end()


async def test_a_round_passes(pool: Pool, tmp_path: Path) -> None:
    verdict = await run_round(pool, PLAN, "good", tmp_path)
    assert verdict.failures == []
    assert verdict.records > 1_000
    assert verdict.flow["wrapped_records"] > 0
    assert verdict.peak_mib > 0
    assert [fault.kind for fault in verdict.faults] == ["cut-link", "kill-shoal"]


async def test_a_round_with_mirror_topics_passes(pool: Pool, tmp_path: Path) -> None:
    """What is killed doubles nothing."""
    verdict = await run_round(pool, keeping_offsets(PLAN), "kept", tmp_path)
    assert verdict.failures == []
    assert not any(verdict.doubled.values())
    assert verdict.records > 1_000


async def test_what_is_planted_is_found(pool: Pool, tmp_path: Path) -> None:
    """An envelope, a foreign record, a repeated first record, and the loss of ten."""

    async def plant(world: World) -> None:
        (topic,) = world.plan.topics
        bootstrap, name = world.clusters[TARGET].bootstrap, world.target_name(topic)
        assert (await read_topic(bootstrap, name, committed=False))[0]
        put = partial(fill, bootstrap, name)
        await put(iter([Record(b"value", MAGIC + b"rest")]))
        await put(iter([Record(b'{"id":"~0.500~", "altered": true}')]))
        await Topics(bootstrap).delete_records(name, {0: 10})

    verdict = await run_round(pool, PLAN, "bad", tmp_path, before_judging=plant, still_s=5.0)
    assert len(verdict.envelopes) == 1
    assert len(verdict.lost) == 10
    assert [text.partition(" ")[2] for text in verdict.altered] == [
        "was never written",
        "has other bytes than were written",
    ]
    assert verdict.failures


async def test_a_mirror_that_no_longer_copies_is_a_hang(pool: Pool, tmp_path: Path) -> None:
    async def cut_off(world: World) -> None:
        world.links["link:produce"].freezes += 1
        (topic,) = world.plan.topics
        await fill(world.clusters["A"].bootstrap, world.source_name(topic), orders(100))

    verdict = await run_round(pool, PLAN, "stuck", tmp_path, before_judging=cut_off, still_s=5.0)
    assert len(verdict.hangs) >= 1
    assert "at the end have not arrived" in verdict.hangs[0]
