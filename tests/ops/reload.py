"""SIGHUP twenty times under load: producers whose listener stays the same lose no connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.reload_load import reload_under_load

if TYPE_CHECKING:
    from tests.ops.stage import Stage

__all__ = ["run"]

_TOPIC = "load"


async def run(stage: Stage) -> dict[str, object]:
    async with stage.one_broker(_TOPIC) as cluster:
        found = await reload_under_load([cluster.bootstrap], _TOPIC, stage.work)
    assert found.errors == 0, found
    assert found.produced == found.acknowledged, found
    return {"dropped_connections": found.dropped, "opened": found.opened, "reloads": found.reloads}
