"""Brokers of a run: existing ones, or temporary clusters, started on first use and kept for the next case."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.scan import Scanner
from shoal.scenarios.kafka.metrics import requests
from shoal.scenarios.running.cluster_toml import security_lines
from shoal.scenarios.running.shoal_run import running_shoal_run

if TYPE_CHECKING:
    from pathlib import Path

    from shoal.proxy.config.settings import ClusterSettings

__all__ = ["Brokers", "Site"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster; `cluster` is None when we did not start its brokers.

    `bootstrap`: for clients without TLS and logins: the brokers, or a Shoal in front of them. `brokers` and `security`
    (lines of shoal.toml): how Shoal reaches the brokers.
    """

    bootstrap: str
    brokers: str
    security: str = ""
    cluster: Cluster | None = None
    scanner: Scanner

    async def requests(self, api: str) -> int | None:
        """Counted by its brokers, in under a second; None for brokers that we did not start."""
        if self.cluster is None:
            return None
        return sum([await requests(node, api) for node in self.cluster.nodes.values()])


class Brokers:
    """`target`: brokers to use instead of a temporary cluster. Use it as an async context manager."""

    def __init__(self, work: Path, kafka: str, target: ClusterSettings | None = None) -> None:
        self._work = work
        self._kafka = kafka
        self._target = target
        self._sites: dict[str, Site] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Brokers:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    @property
    def are_ours(self) -> bool:
        return self._target is None

    async def target(self) -> Site:
        if self._target is not None and "target" not in self._sites:
            self._sites["target"] = await self._given(self._target)
        return await self._site("target")

    async def _given(self, target: ClusterSettings) -> Site:
        """The run's own clients know neither TLS nor logins: a plain Shoal of their own has both."""
        brokers, security = ",".join(map(str, target.bootstrap)), security_lines(target)
        bootstrap = brokers
        if security:
            bridge = running_shoal_run(self._work / "bridge", brokers, cluster=security)
            bootstrap = (await self._stack.enter_async_context(bridge)).bootstrap
        return Site(bootstrap=bootstrap, brokers=brokers, security=security, scanner=Scanner(bootstrap))

    async def source(self) -> Site:
        """The source cluster of a mirror, always temporary."""
        return await self._site("source")

    async def _site(self, role: str) -> Site:
        if role not in self._sites:
            spec = ClusterSpec(version=self._kafka, jmx=True)
            cluster = await self._stack.enter_async_context(running_cluster(self._work / role, spec))
            bootstrap = cluster.bootstrap
            self._sites[role] = Site(
                bootstrap=bootstrap, brokers=bootstrap, cluster=cluster, scanner=Scanner(bootstrap)
            )
        return self._sites[role]
