"""SIGHUP twenty times under load: producers whose listener stays the same lose no connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec
from shoal.scenarios.kafka.content.topics import Topics
from tests.support.reload_load import reload_under_load

if TYPE_CHECKING:
    from tests.ops.stage import Stage

__all__ = ["run"]

_TOPIC = "load"


async def run(stage: Stage) -> dict[str, object]:
    cluster = await Cluster.start(stage.work / "kafka", ClusterSpec(version=stage.kafka))
    try:
        await Topics(cluster.bootstrap).create(_TOPIC, 3)
        found = await reload_under_load([cluster.bootstrap], _TOPIC, stage.work)
    finally:
        cluster.kill_all()  # its data is no longer needed
    assert found.errors == 0, found
    assert found.produced == found.acknowledged, found
    return {"dropped_connections": found.dropped, "opened": found.opened, "reloads": found.reloads}
