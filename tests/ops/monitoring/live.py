"""A section of `make ops`: the rules, the board and the metrics on a live run, read by a real Prometheus.

promtool: the rules and their tests
a mirror, coalescing and old clients run; the mirror is stopped, and records that it has not copied are deleted
every query of the board has an answer, every metric of an alert exists, and the alert about the gap fires
what a scrape each second costs; the counters at the end are those of the log
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from shoal.proxy.admin.metrics.table import METRICS
from shoal.scenarios.kafka.content.topics import Topics
from tests.ops.monitoring.alerts import ALERTS
from tests.ops.monitoring.board import ROWS, expression
from tests.ops.monitoring.charts import draw
from tests.ops.monitoring.expressions import exposed, selectors, without_variables
from tests.ops.monitoring.files import RULES, TRIALS
from tests.ops.monitoring.prometheus import Span, running_prometheus
from tests.ops.monitoring.scene import TOPIC, running_scene
from tests.ops.promtool import metric_problems, rule_problems, trial_problems
from tests.support.admin import scrape
from tests.support.log_lines import problems
from tests.support.totals import differences, scrape_without_clients

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.ops.monitoring.prometheus import Prometheus
    from tests.ops.monitoring.scene import Scene
    from tests.ops.stage import Stage

__all__ = ["run"]

_ROUNDS: Final = 4
_RECORDS: Final = 20_000  # of a round
_STOPPED_S: Final = 12.0  # the mirror, while a producer runs
_MEASURED_S: Final = 30.0
_WITHIN_S: Final = 180.0


class _Cost(NamedTuple):
    """Shares of a core for one scrape a second."""

    of_process: float  # CPU of the process with scrapes, less that without
    in_loop: float  # by shoal_admin_busy_seconds_total
    samples: int
    size: int  # bytes of a scrape


async def run(stage: Stage) -> dict[str, object]:
    refused = [*rule_problems(RULES), *trial_problems(TRIALS)]
    assert refused == [], refused
    async with running_scene(stage) as scene:
        begin = time.time()
        async with running_prometheus(scene.admin, RULES, stage.work / "prometheus") as prometheus:
            await _work(scene, prometheus, stage.progress.say)
            span = Span(begin, time.time())
            empty = [query for query in _queries() if not await prometheus.over(query, span)]
            missing = [name for name in _names() if not await prometheus.over(name, span)]
            firing = sorted(await prometheus.alerts("firing"))
            picture = await draw(prometheus, span, stage.kept / "board.png")
            cost = await _cost(scene, prometheus)
        quiet = await _cpu(scene, _MEASURED_S)
        text = await scrape(scene.admin)
        await scene.mirror.stop()
        found = await scrape_without_clients(scene.admin)
    unequal = [line for total in _totals(scene) for line in differences(found, total)]
    assert unequal == [], unequal
    assert empty == [], f"queries of the board without an answer: {empty}"
    assert missing == [], f"series that no Shoal has exposed: {missing}"
    assert "ShoalMirrorGap" in firing, firing
    return {
        "rules": len(ALERTS),
        "promtool": len(metric_problems(text)),
        "queries": len(_queries()),
        "without_an_answer": len(empty),
        "firing": firing,
        "scrape": {
            "samples": cost.samples,
            "bytes": cost.size,
            "of_a_core": round(cost.of_process - quiet, 4),
            "of_the_loop": round(cost.in_loop, 4),
        },
        "unequal_to_the_log": len(unequal),
        "picture": str(picture.name),
    }


def _queries() -> list[str]:
    return [without_variables(expression(query)) for row in ROWS for panel in row.panels for query in panel.queries]


def _names() -> list[str]:
    """Series that alerts read, and of each metric in the table one."""
    of_alerts = {selector.metric for alert in ALERTS for selector in selectors(alert.expression)}
    histograms = {f"{metric.name}_count" for metric in METRICS if metric.kind == "histogram"}
    others = {metric.name for metric in METRICS if metric.kind != "histogram"}
    return sorted((of_alerts | histograms | others) & set(exposed()))


async def _work(scene: Scene, prometheus: Prometheus, say: Callable[[str], None]) -> None:
    async with scene.clients():
        await scene.put(_RECORDS, seed=0)
        await _until(prometheus, "sum(shoal_wrapped_batches_total) > 0", "something is wrapped", _feed(scene))
        for seed in range(1, _ROUNDS):
            await scene.put(_RECORDS, seed=seed)
        await _until(prometheus, "sum(shoal_mirror_lag_records) == 0", "the mirror has caught up")
        say("the mirror is stopped, and records are deleted")
        await scene.mirror.stop()
        await scene.put(_RECORDS, seed=10)
        await trio.sleep(_STOPPED_S)
        topics = Topics(scene.source.bootstrap)
        ends = await topics.ends(TOPIC)
        await topics.delete_records(TOPIC, {0: ends[0]})
        await scene.put(_RECORDS, seed=11)
        scene.mirror.restart()
        await _until(prometheus, "sum(shoal_mirror_gaps_total) > 0", "the gap is seen", _feed(scene))
        await _until(prometheus, "sum(shoal_mirror_lag_records) == 0", "the mirror has caught up")
        await _until(prometheus, 'ALERTS{alertname="ShoalMirrorGap",alertstate="firing"}', "the alert fires")


def _feed(scene: Scene) -> Callable[[], Awaitable[None]]:
    """A mirror is proven by records that come back."""
    return lambda: scene.put(2_000, seed=99)


async def _until(
    prometheus: Prometheus, expression: str, what: str, meanwhile: Callable[[], Awaitable[None]] | None = None
) -> None:
    with trio.move_on_after(_WITHIN_S):
        while not await prometheus.now(expression):
            if meanwhile is not None:
                await meanwhile()
            await trio.sleep(0.5)
        return
    raise AssertionError(f"not within {_WITHIN_S:g} s: {what}")


async def _cost(scene: Scene, prometheus: Prometheus) -> _Cost:
    """While Prometheus scrapes each second, and clients are idle."""
    before = await _busy(prometheus)
    begin = trio.current_time()
    share = await _cpu(scene, _MEASURED_S)
    busy = (await _busy(prometheus) - before) / (trio.current_time() - begin)
    text = await scrape(scene.admin)
    lines = [line for line in text.splitlines() if not line.startswith(b"#")]
    return _Cost(share, busy, len(lines), len(text))


async def _busy(prometheus: Prometheus) -> float:
    (seconds,) = (await prometheus.now("last_over_time(shoal_admin_busy_seconds_total[1m])")).values()
    return seconds


async def _cpu(scene: Scene, seconds: float) -> float:
    """Share of a core of the process."""
    process = scene.shoal.process
    before, begin = process.usage(), trio.current_time()
    await trio.sleep(seconds)
    return process.usage().since(before).cpu_s / (trio.current_time() - begin)


def _totals(scene: Scene) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in scene.shoal.output().splitlines()]
    assert [problem for line in lines for problem in problems(line)] == []  # each is as docs/events.md has it
    found = [line for line in lines if line["event"] == "total"]
    assert len(found) == len(scene.ports), found
    return found
