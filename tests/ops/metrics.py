"""Metrics of a live run: promtool has no complaint, and every metric of the table is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from shoal.proxy.admin.metrics.table import METRICS
from tests.ops.promtool import metric_problems
from tests.support.admin import scrape
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from tests.ops.stage import Stage

__all__ = ["run"]


async def run(stage: Stage) -> dict[str, object]:
    admin, first = free_port_block(1), free_port_block(10)
    config = write_toml(
        stage.work / "shoal.toml",
        {
            "admin": {"listen": f"127.0.0.1:{admin}"},
            "cluster": [{"name": "c", "bootstrap": "127.0.0.1:1"}],
            "listener": [
                {
                    "name": "plain",
                    "cluster": "c",
                    "listen": f"127.0.0.1:{first}",
                    "ports": f"{first + 1}-{first + 9}",
                }
            ],
        },
    )
    async with running_shoal(ShoalProcess(["run", "-c", str(config)], work=stage.work, ports=[first, admin])):
        text = await scrape(admin)
    problems = metric_problems(text)
    for problem in problems:
        stage.progress.say(f"promtool: {problem}")
    names = {family.name for family in text_string_to_metric_families(text.decode())}
    missing = {metric.name.removesuffix("_total") for metric in METRICS} - names
    assert not missing, f"metrics of the table that the run does not expose: {sorted(missing)}"
    return {"promtool": len(problems), "names": len(names)}
