"""The parts of `shoal replay` that need no broker: facts, reports, time, topic contents, and the command line."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio.testing

from shoal.cli import main
from shoal.protocol.wire.compression import Codec
from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.cases import CASES
from shoal.scenarios.kafka.errors import NotReady
from shoal.scenarios.replay.arrivals import ArrivedBatch
from shoal.scenarios.replay.brokers import Brokers, Site
from shoal.scenarios.replay.case import Case, Given
from shoal.scenarios.replay.clock import MAX, Clock, parse_speed
from shoal.scenarios.replay.facts import at_least, at_most, check, equals
from shoal.scenarios.replay.ledger import Findings, ReplayLedger, _Reader
from shoal.scenarios.replay.report import as_json, as_table
from shoal.scenarios.replay.runner import Outcome, run_case
from shoal.scenarios.replay.sending.statistics import ReplayStatistics, percentile
from shoal.scenarios.running.shoal_run import totals

if TYPE_CHECKING:
    from pathlib import Path

# -- facts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fact", "seen", "holds", "told"),
    [
        (equals("no errors", "errors", 0), {"errors": 0}, True, "0"),
        (equals("no errors", "errors", 0), {"errors": 3}, False, "3, wanted: 0"),
        (at_least("busy", "requests", 1_000), {"requests": 1_963}, True, "1,963"),
        (at_least("busy", "requests", 1_000), {"requests": 7}, False, "7, wanted: at least 1000"),
        (at_most("soon", "behind", 15.0), {"behind": 15.5}, False, "15.5, wanted: at most 15"),
        (at_most("soon", "behind", 15.0), {}, False, "no value for 'behind'"),
        (at_most("few", "broker requests", 5), {"broker requests": None}, None, "not measured"),
    ],
)
def test_a_fact_is_judged_by_what_was_seen(fact: Any, seen: dict[str, Any], holds: bool | None, told: str) -> None:
    checked = check(fact, seen)

    assert (checked.name, checked.holds) == (fact.name, holds)
    assert checked.text.startswith(told)


def outcome(*facts: Any, seen: dict[str, Any]) -> Outcome:
    async def nothing(_: object) -> None: ...

    case = Case(name="a-case", what="", given=Given(topics={}), traffic=nothing, facts=facts)
    return Outcome(case=case, facts=tuple(check(fact, seen) for fact in facts), seconds=1.0)


def test_a_false_fact_fails_its_case_and_names_itself() -> None:
    true, false = equals("it rains", "rain", True), equals("no one is wet", "wet", 0)

    bad = outcome(true, false, seen={"rain": True, "wet": 2})

    assert not bad.good
    assert "a-case: no one is wet: 2, wanted: 0" in as_table([bad])
    assert "it rains:" not in as_table([bad])
    assert as_json([bad])["a-case"]["facts"][1] == {"fact": "no one is wet", "holds": False, "told": "2, wanted: 0"}


def test_what_is_not_measured_fails_nothing_and_is_counted() -> None:
    fine = outcome(equals("it rains", "rain", True), equals("wet", "wet", 0), seen={"rain": True, "wet": None})

    assert fine.good
    (row,) = [line for line in as_table([fine]).splitlines() if line.startswith("a-case")]
    assert row.split()[1:4] == ["1", "1", "0"]


def test_every_case_says_what_must_be_true() -> None:
    for case in CASES.values():
        names = [fact.name for fact in case.facts]
        assert len(names) >= 2
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("error", [NotReady("no broker"), ConnectionRefusedError("no broker")])
async def test_a_case_that_cannot_be_played_fails_with_the_reason(error: Exception, tmp_path: Path) -> None:
    class NoBrokers(Brokers):
        async def target(self) -> Site:
            raise ExceptionGroup("of a nursery", [error])

    case = CASES["oldest-consumer"]
    result = await run_case(case, NoBrokers(tmp_path, "4.3.0"), tmp_path, kafka="4.3.0", speed=1.0)

    assert not result.good
    assert result.facts == (("it can run to its end", False, "no broker"),)


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "speed"), [("1x", 1.0), ("10x", 10.0), ("0.5", 0.5), ("max", math.inf)])
def test_speeds(text: str, speed: float) -> None:
    assert parse_speed(text) == speed


@pytest.mark.parametrize("text", ["", "x", "0x", "-1x", "fast", "nan"])
def test_what_is_no_speed(text: str) -> None:
    with pytest.raises(ValueError, match="write 1x, 10x or max"):
        parse_speed(text)


async def test_scenario_time_is_scaled(autojump_clock: trio.testing.MockClock) -> None:
    clock = Clock(10.0)
    assert await clock.until(50.0) == 0.0
    assert clock.elapsed() == pytest.approx(5.0)
    await trio.sleep(2.0)
    assert await clock.until(60.0) == pytest.approx(1.0)


async def test_at_the_highest_speed_nothing_waits_and_nothing_is_late(autojump_clock: trio.testing.MockClock) -> None:
    clock = Clock(MAX)
    await trio.sleep(5.0)
    assert await clock.until(1e9) == 0.0
    assert clock.elapsed() == pytest.approx(5.0)


# -- topic contents ----------------------------------------------------------------------------------------------------

EPOCH = 1_000


class Told:
    """A message, as far as the reader needs one."""

    def __init__(self, partition: int, number: int) -> None:
        self._partition, self._number = partition, number

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def timestamp(self) -> tuple[int, int]:
        return 1, EPOCH + self._number


def found(*records: tuple[int, int]) -> Findings:
    """Batches 0 (2 records, partition 0), 1 (1 record, partition 0), 2 (2 records, partition 1) were sent over one
    connection."""
    ledger = ReplayLedger(EPOCH)
    for partition, count in ((0, 2), (0, 1), (1, 2)):
        ledger.sent(ArrivedBatch("t", partition, count, 100, None, Codec.NONE), connection=1)
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    reader = _Reader(array("I", [2, 1, 2]), array("I", [0, 0, 1]), array("Q", [1, 1, 1]), {first: 0, second: 1}, EPOCH)
    assert ledger.partitions == {first: 3, second: 2}
    reader.take([cast("Any", Told(partition, number)) for partition, number in records])
    return reader.findings()


@pytest.mark.parametrize(
    ("records", "findings"),
    [
        ([(0, 0), (1, 2), (0, 0), (1, 2), (0, 1)], {"complete": 3}),
        ([(0, 0), (0, 0), (0, 1)], {"complete": 2, "missing": 1}),
        ([(0, 0), (0, 0), (0, 0), (0, 0), (0, 1), (1, 2), (1, 2)], {"complete": 4, "doubled": 1}),
        ([(0, 0), (0, 1), (1, 2), (1, 2)], {"complete": 2, "torn": 1}),
        ([(0, 1), (0, 0), (0, 0), (1, 2), (1, 2)], {"complete": 3, "out_of_order": 1}),
        ([(0, 0), (0, 0), (1, 1), (1, 2), (1, 2)], {"complete": 3, "misplaced": 1}),
        ([(0, 0), (0, 0), (0, 1), (1, 2), (1, 2), (1, 77)], {"complete": 3, "foreign": 1}),
    ],
)
def test_a_ledger_finds_what_is_wrong(records: list[tuple[int, int]], findings: dict[str, int]) -> None:
    result = found(*records)

    assert result == Findings(**findings)
    assert result.clean is not bool(findings.keys() - {"complete", "foreign"})


def test_figures_are_by_the_nearest_rank() -> None:
    latencies = list(range(1_000, 101_000, 1_000))
    assert [percentile(latencies, share) for share in (50, 99, 100)] == [50.0, 99.0, 100.0]
    assert percentile([], 50) is None
    assert ReplayStatistics().as_json()["latency_ms"] == {"p50": None, "p99": None, "p100": None}


def test_totals_of_all_listeners_are_added_up() -> None:
    log = "\n".join(
        [
            '{"event": "flow", "listener": "a", "wrapped_batches": 100}',
            "A.consumer.bootstrap.servers = x",
            '{"event": "total", "listener": "a", "wrapped_batches": 7, "coalesced_alone": {"large": 1}}',
            '{"event": "total", "listener": "b", "wrapped_batches": 5}',
        ]
    )
    assert totals(log)["wrapped_batches"] == 12


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no-such-case"], "no-such-case: is neither a scenario nor a file; scenarios: bursty-night, "),
        (["broker-restart", "--target", "b1:9092"], "needs brokers of its own: it kills a broker; leave --target out"),
        (["none.kxb"], "none.kxb: cannot be read: No such file or directory"),
        (["none.kxb", "bursty-night"], "takes one capture, or scenarios, not both"),
    ],
)
def test_what_is_wrong_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", *arguments]) == 2
    assert told in capsys.readouterr().err
