"""A Prometheus of Debian that scrapes every second, and its answers to queries."""

from __future__ import annotations

import json
import shutil
import urllib.parse
import urllib.request
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from shoal.scenarios.kafka.ports import LOOPBACK, free_port_block
from shoal.scenarios.kafka.process import Process, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

__all__ = ["Prometheus", "Series", "Span", "running_prometheus"]

_CONFIG = """\
global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: [{rules}]
scrape_configs:
  - job_name: shoal
    static_configs: [{{ targets: ["{loopback}:{admin}"] }}]
"""
_START_S = 60.0
_QUERY_S = 30.0


class Span(NamedTuple):
    """Seconds since 1970."""

    start: float
    end: float
    step: float = 1.0


class Series(NamedTuple):
    labels: Mapping[str, str]
    points: list[tuple[float, float]]


class Prometheus:
    def __init__(self, port: int, process: Process) -> None:
        self._address = f"http://{LOOPBACK}:{port}"
        self.process = process

    async def over(self, expression: str, span: Span) -> list[Series]:
        found = await self._ask("query_range", query=expression, **span._asdict())
        return [Series(one["metric"], [(at, float(value)) for at, value in one["values"]]) for one in found["result"]]

    async def now(self, expression: str) -> dict[tuple[str, ...], float]:
        """Values of labels, in the order of their names -> number."""
        found = await self._ask("query", query=expression)
        return {
            tuple(value for _, value in sorted(one["metric"].items())): float(one["value"][1])
            for one in found["result"]
        }

    async def alerts(self, state: str) -> set[str]:
        """Names of those that are `pending` or `firing`."""
        found = await self._ask("alerts")
        return {one["labels"]["alertname"] for one in found["alerts"] if one["state"] == state}

    async def is_up(self) -> bool:
        try:
            return bool(await self.now("up == 1"))
        except OSError:
            return False

    async def _ask(self, what: str, **parameters: object) -> Any:
        url = f"{self._address}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        return await trio.to_thread.run_sync(partial(_get, url))


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=_QUERY_S) as answer:
        return json.load(answer)["data"]


def _configured(admin: int, rules: Path, work: Path) -> Path:
    work.mkdir(exist_ok=True)
    config = work / "prometheus.yml"
    config.write_text(_CONFIG.format(rules=rules, admin=admin, loopback=LOOPBACK))
    return config


@asynccontextmanager
async def running_prometheus(admin: int, rules: Path, work: Path) -> AsyncIterator[Prometheus]:
    """It has scraped the admin port of a Shoal once. Raises FileNotFoundError if Prometheus is not installed."""
    program = shutil.which("prometheus")
    if program is None:
        raise FileNotFoundError("prometheus is not installed: scripts/setup prometheus")
    port = free_port_block(1)
    argv = [
        program,
        f"--config.file={_configured(admin, rules, work)}",
        f"--storage.tsdb.path={work / 'data'}",
        f"--web.listen-address={LOOPBACK}:{port}",
        "--log.level=warn",
    ]
    process = Process(argv, log=work / "prometheus.log", name="prometheus")
    try:
        prometheus = Prometheus(port, process)
        await until(prometheus.is_up, within=_START_S, what="a scrape", process=process, poll_s=0.2)
        yield prometheus
    finally:
        process.kill()
