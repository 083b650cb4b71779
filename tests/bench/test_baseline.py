import json
from pathlib import Path

import pytest

from bench.overhead import baseline
from bench.overhead.connections import Connections
from bench.overhead.report import HEARTBEAT, LITTLE, Figures
from bench.proxies.names import HAPROXY, SHOAL
from bench.runs import Forwarding, Lone
from shoal.scenarios.spread import Spread

NOW = {"fetch": Spread(1.3, 1.2, 1.4), "produce": Spread(1.0, 0.9, 1.1), "wrap": Spread(2.0, 1.9, 2.1)}
KEPT = {"fetch": Spread(1.0, 0.9, 1.1), "produce": Spread(2.0, 1.9, 2.1)}


@pytest.fixture
def figures() -> Figures:
    """The first of two rounds was disturbed, for both proxies."""
    figures = Figures()
    for slow in (10, 1):
        for way, cost in ((HAPROXY, 1.0), (SHOAL, 1.5)):
            figures.forwarding["fetch"][way].append(Forwarding(cost * slow, 2.0, 2.5))
            figures.forwarding[HEARTBEAT][way].append(Forwarding(cost * slow, 0.1, 2.5, 1_000))
            figures.lone["Fetch"][way].append(Lone(p50=100 * cost * slow, p99=500))
            figures.connections[way].append(Connections(100, cost * slow, 1.0))
        figures.forwarding["wrap"][SHOAL].append(Forwarding(3.0 * slow, 2.0, 2.5))
        for name, cpu in zip(LITTLE, (1.0, 1.2), strict=True):
            figures.forwarding[name][SHOAL].append(Forwarding(cpu * slow, 0.1, 2.5, 1_000))
    figures.idle_mib = {HAPROXY: {1: 10.0, 9_750: 50.0}, SHOAL: {1: 40.0, 9_750: 200.0}}
    return figures


def test_what_disturbs_a_whole_round_is_in_no_ratio(figures: Figures) -> None:
    same = (1.5, 1.5, 1.5)
    assert baseline.compared(figures) == {
        "fetch, CPU: Shoal/HAProxy": same,
        "Heartbeat, CPU: Shoal/HAProxy": same,
        "a lone Fetch, p50: Shoal/HAProxy": same,
        "a new connection, CPU: Shoal/HAProxy": same,
        "CPU: wrap/fetch": (2.0, 2.0, 2.0),
        f"CPU: {LITTLE[1]}/{LITTLE[0]}": (1.2, 1.2, 1.2),
        "memory, 1 idle connections: Shoal/HAProxy": (4.0, 4.0, 4.0),
        "memory, most idle connections: Shoal/HAProxy": (4.0, 4.0, 4.0),
    }


def test_without_haproxy_what_is_within_shoal_is_left(figures: Figures) -> None:
    for ways in (*figures.forwarding.values(), *figures.lone.values(), figures.connections, figures.idle_mib):
        ways.pop(HAPROXY, None)  # type: ignore[attr-defined]
    assert set(baseline.compared(figures)) == {"CPU: wrap/fetch", f"CPU: {LITTLE[1]}/{LITTLE[0]}"}


@pytest.mark.parametrize(("name", "verdict"), [("fetch", "WORSE"), ("produce", "better"), ("wrap", "new")])
def test_the_verdict_is_by_spread(name: str, verdict: str) -> None:
    assert baseline.verdict(NOW[name], KEPT.get(name)) == verdict


def test_the_same_again_needs_no_verdict() -> None:
    assert baseline.verdict(KEPT["fetch"], KEPT["fetch"]) == ""


def test_the_table_says_what_is_worse() -> None:
    lines = baseline.verdict_table(NOW, KEPT).splitlines()
    assert ["fetch", "1.30", "1.20", "1.40", "1.00", "0.90", "1.10", "WORSE"] in [line.split() for line in lines]
    assert ["wrap", "2.00", "1.90", "2.10", "-", "-", "-", "new"] in [line.split() for line in lines]
    assert lines[-1].startswith("1 worse")


def test_a_part_that_was_not_measured_keeps_its_baseline(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    baseline.write(KEPT, {"cores": 2}, path)
    baseline.write(NOW, {"cores": 4}, path)
    assert baseline.read(path) == {**KEPT, **NOW}
    baseline.write({"fetch": KEPT["fetch"]}, {"cores": 4}, path)
    assert baseline.read(path) == {**NOW, "fetch": KEPT["fetch"]}
    assert json.loads(path.read_text())["cores"] == 4


def test_there_may_be_no_baseline(tmp_path: Path) -> None:
    assert baseline.read(tmp_path / "none.json") == {}
    assert "no baseline" in baseline.verdict_table(NOW, {})


def test_the_kept_baseline_has_ratios_only() -> None:
    kept = json.loads(baseline.BASELINE.read_text())
    assert set(kept) == {"kafka", "python", "cores", "ratios"}
    assert all(0 < spread.low <= spread.median <= spread.high < 100 for spread in baseline.read().values())
