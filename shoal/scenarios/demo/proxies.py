"""`shoal mirror` for the runs that go through it, a fresh process for each.

The first one starts with the clusters, so that its pages can be looked at from the demo's beginning. It is idle until
its run. The others take its place, and the address of its pages.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from shoal.scenarios.running.shoal_mirror import Shoal, running_shoal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.scenarios.demo.plan import Plan, Turn
    from shoal.scenarios.kafka.broker import Cluster

__all__ = ["Proxies"]


class Proxies:
    def __init__(self, plan: Plan, source: Cluster, targets: Mapping[bool, Cluster]) -> None:
        self._plan, self._source, self._targets = plan, source, targets
        self._running = AsyncExitStack()
        self._shoal: tuple[Turn, Shoal] | None = None

    async def start_first(self) -> None:
        """Raises NotReady, as `of` does, if it does not start."""
        await self.of(next(turn for turn in self._plan.turns()[0] if turn.how.shoal is not None))

    async def of(self, turn: Turn) -> Shoal | None:
        """The Shoal of this run, which it starts if there is none yet; None for a run without Shoal."""
        if turn.how.shoal is None:
            return None
        if self._shoal is None or self._shoal[0] != turn:
            await self.end()
            target = self._targets[turn.how.agent].bootstrap
            options = (*turn.how.shoal, *self._plan.shoal_options())
            starting = running_shoal(self._plan.work / turn.alias, self._source.bootstrap, target, options)
            self._shoal = turn, await self._running.enter_async_context(starting)
        return self._shoal[1]

    async def end(self) -> None:
        self._shoal = None
        await self._running.aclose()
