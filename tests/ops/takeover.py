"""`shoal run --takeover` ten times under load: no request fails, and no connection is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.takeover_load import take_over_under_load

if TYPE_CHECKING:
    from tests.ops.stage import Stage

__all__ = ["run"]

_TOPIC = "load"


async def run(stage: Stage) -> dict[str, object]:
    async with stage.one_broker(_TOPIC) as cluster:
        found = await take_over_under_load([cluster.bootstrap], _TOPIC, stage.work)
    assert found.failed == 0, found
    assert found.produced == found.acknowledged, found
    return {
        "failed_requests": found.failed,
        "takeovers": found.takeovers,
        "produced": found.produced,
        "brief_clients": found.brief,
        "sent_again": found.sent_again,
    }
