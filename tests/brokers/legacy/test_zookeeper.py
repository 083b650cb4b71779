"""OffsetCommit v0 and OffsetFetch v0, which only brokers with ZooKeeper support: Shoal answers like them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.content.topics import Topics
from tests.brokers.legacy.conftest import legacy_shoal
from tests.brokers.proxy.rig.frames import Wire
from tests.support.kafka.zookeeper import zookeeper_cluster

from .test_equivalence import address, ask, commit, commit_codes, committed, fetch_offsets

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster

    from .conftest import Route

pytestmark = pytest.mark.kafka
GROUPS = [f"zk-{number}" for number in range(8)]


def story(wire: Wire, topic: str) -> list[object]:
    return [
        committed(ask(wire, "OffsetFetch", 0, fetch_offsets(0, 1, topic=topic))),
        commit_codes(ask(wire, "OffsetCommit", 0, commit(0, (0, 17, "v0"), (1, 0, ""), (99, 1, ""), topic=topic))),
        commit_codes(ask(wire, "OffsetCommit", 0, commit(0, (0, 17, ""), topic=f"{topic}-missing"))),
        commit_codes(ask(wire, "OffsetCommit", 0, commit(0, (0, 17, "m" * 5000), topic=topic))),
        committed(ask(wire, "OffsetFetch", 0, fetch_offsets(0, 1, 2, 99, topic=topic))),
        commit_codes(ask(wire, "OffsetCommit", 0, commit(0, (0, 5, ""), topic=topic))),
        committed(ask(wire, "OffsetFetch", 0, fetch_offsets(0, topic=topic))),
    ]


def without_metadata(told: object) -> object:
    """ZooKeeper kept none."""
    if not isinstance(told, dict):
        return told
    return {index: one if isinstance(one, int) else (one[0], one[2]) for index, one in told.items()}


def test_any_broker_knows_the_offsets_of_every_group(three_brokers: Cluster, tmp_path: Path, topic: str) -> None:
    """All three used the same ZooKeeper; a group's coordinator is one of them."""
    trio.run(Topics(three_brokers.bootstrap).create, topic, 1)
    shoal, bootstrap = legacy_shoal(three_brokers, tmp_path)
    trio.run(shoal.start)
    try:
        with Wire(*address(bootstrap)) as wire:
            coordinators = {ask(wire, "FindCoordinator", 0, {"Key": group})["NodeId"] for group in GROUPS}
            assert len(coordinators) > 1
            for offset, group in enumerate(GROUPS):
                said = ask(wire, "OffsetCommit", 0, commit(0, (0, offset, "m"), topic=topic, GroupId=group))
                assert commit_codes(said) == {0: 0}
            for offset, group in enumerate(GROUPS):
                told = committed(ask(wire, "OffsetFetch", 0, fetch_offsets(0, topic=topic, group=group)))
                assert told == {0: (offset, "m", 0)}
    finally:
        trio.run(shoal.stop)


@pytest.mark.slow
async def test_offsets_are_told_as_from_zookeeper(through_shoal: Route, tmp_path: Path, topic: str) -> None:
    await Topics(through_shoal.cluster.bootstrap).create(topic, 3)
    async with zookeeper_cluster("3.9.1", tmp_path) as (broker, _):
        await Topics(broker).create(topic, 3)
        with Wire(*address(broker)) as direct, Wire(*address(through_shoal.bootstrap)) as through:
            old, new = story(direct, topic), story(through, topic)
    assert list(map(without_metadata, new)) == list(map(without_metadata, old))
    assert new[4] == {0: (17, "v0", 0), 1: (0, "", 0), 2: (-1, "", 3), 99: (-1, "", 3)}
