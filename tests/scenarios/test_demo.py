"""The parts of the demo that need no broker: requests, reading from disk, progress and time limits."""

import io
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio.testing
from kio import index
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v1 import response as kio_response
from kio.serial import entity_reader, entity_writer

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.wire.compression import Codec
from shoal.proxy.config.settings import Address
from shoal.scenarios.demo.__main__ import parser
from shoal.scenarios.demo.ends import read_ends, request
from shoal.scenarios.demo.measure import STALL_S, Cast, Measured, Sample, watch
from shoal.scenarios.demo.mirror_run import MirrorRun
from shoal.scenarios.demo.page import demo_page
from shoal.scenarios.demo.phases import Phase, Phases
from shoal.scenarios.demo.plan import ALONE, LARGE, SMALL, Plan, Turn, mirror_spec
from shoal.scenarios.demo.report import DemoRun, Ratio, Report, as_json
from shoal.scenarios.demo.table import as_table
from shoal.scenarios.kafka.broker import Cluster
from shoal.scenarios.kafka.errors import NotReady
from shoal.scenarios.kafka.java.jvm import Jvm
from shoal.scenarios.kafka.security.certificates import Authority
from shoal.scenarios.kafka.segments import SegmentContents, segment_contents
from shoal.scenarios.progress import Progress
from shoal.scenarios.running.shoal_mirror import Shoal, read_wiring

if TYPE_CHECKING:
    from shoal.scenarios.kafka.process import Process

SOURCE = SegmentContents(records=1_000, batches=10, size=40_000, codecs=("zstd",))
MM2 = DemoRun(
    column="MM2 alone",
    wall_s=20.0,
    cpu_s={"mirror": 40.0, "source_broker": 4.0, "target_broker": 9.0},
    peak_mib={"mirror": 900.0, "source_broker": 400.0, "target_broker": 500.0},
    difference=None,
    copy=replace(SOURCE, batches=20),
)
SHOAL = DemoRun(
    column="through Shoal",
    wall_s=2.5,
    cpu_s={"mirror": 3.0, "proxy": 1.0, "source_broker": 1.0, "target_broker": 2.0},
    peak_mib={"mirror": 500.0, "proxy": 50.0, "source_broker": 400.0, "target_broker": 500.0},
    difference=None,
    copy=SOURCE,
)
REPORT = Report(
    kafka="4.3.0",
    source=SOURCE,
    rounds=[{"mm2": MM2, "shoal": SHOAL}],
    ratios=(Ratio("times less", "mm2", "shoal"),),
    envelopes_left=0,
)


def test_end_offsets_are_asked_as_kio_reads_it() -> None:
    frame = request("A.orders", 3)
    schema: Any = index.load_request_schema(2, 1)
    _, header = entity_reader(schema.__header_schema__)(frame, 4)
    asked, body = entity_reader(schema)(frame, 4 + header)
    assert 4 + header + body == len(frame) == 4 + int.from_bytes(frame[:4], "big")
    (topic,) = asked.topics
    assert topic.name == "A.orders"
    assert [(place.partition_index, place.timestamp) for place in topic.partitions] == [(0, -1), (1, -1), (2, -1)]


def ends_answer(partitions: Mapping[int, tuple[ErrorCode, int]]) -> bytes:
    places = [
        kio_response.ListOffsetsPartitionResponse(partition_index=at, error_code=error, offset=offset)  # type: ignore[arg-type]
        for at, (error, offset) in partitions.items()
    ]
    topic = kio_response.ListOffsetsTopicResponse(name="A.orders", partitions=tuple(places))  # type: ignore[arg-type]
    out = io.BytesIO()
    entity_writer(kio_response.ListOffsetsResponse)(out, kio_response.ListOffsetsResponse(topics=(topic,)))
    return bytes(4) + out.getvalue()


def test_end_offsets_of_a_topic_that_comes_into_being_are_zero() -> None:
    answer = ends_answer(
        {0: (ErrorCode.none, 7), 1: (ErrorCode.unknown_topic_or_partition, -1), 2: (ErrorCode.none, 1 << 40)}
    )
    assert read_ends(answer) == {0: 7, 1: 0, 2: 1 << 40}


def test_any_other_error_of_end_offsets_is_one() -> None:
    with pytest.raises(OSError, match=r"error 29 \(TOPIC_AUTHORIZATION_FAILED\) for partition 1"):
        read_ends(ends_answer({0: (ErrorCode.none, 7), 1: (ErrorCode.topic_authorization_failed, -1)}))


def test_shape_counts_the_batches_of_all_segments(tmp_path: Path) -> None:
    zstd, plain = (
        encode_batch([NewRecord(5, b"k", b"v" * 50)] * count, codec=codec, base_offset=100)
        for count, codec in ((3, Codec.ZSTD), (1, Codec.NONE))
    )
    segments = {
        "orders-0/00000000000000000000.log": zstd + plain,
        "orders-0/00000000000000000004.log": zstd + bytes(200),  # preallocated
        "orders-12/00000000000000000000.log": zstd + zstd[:40],  # half written
        "orders-12/00000000000000000000.index": b"no batches",
        "orders-old-0/00000000000000000000.log": plain,  # another topic
    }
    for name, content in segments.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    size = 3 * len(zstd) + len(plain)
    assert segment_contents(tmp_path, "orders") == SegmentContents(
        records=10, batches=4, size=size, codecs=("zstd", "none")
    )


def test_shape_refuses_what_is_no_batch(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "0.log").write_bytes(b"\1" * 100)
    with pytest.raises(ValueError, match="magic 1 at 0"):
        segment_contents(tmp_path, "orders")


def test_report_has_exactly_the_form_that_was_promised() -> None:
    cpu = {"mirror": 40.0, "proxy": 0.0, "source_broker": 4.0, "target_broker": 9.0}
    peak = {"mirror": 900.0, "proxy": 0.0, "source_broker": 400.0, "target_broker": 500.0}
    report = as_json(REPORT)
    assert report["runs"].pop("mm2") == {"wall_s": 20.0, "cpu_s": cpu, "peak_mib": peak, "equal": True}
    assert report["runs"].pop("shoal").keys() == {"wall_s", "cpu_s", "peak_mib", "equal"}
    assert report == {"kafka": "4.3.0", "records": 1_000, "compressed_bytes": 40_000, "runs": {}, "envelopes_left": 0}


def test_requests_are_told_where_they_were_counted() -> None:
    counted = replace(REPORT, rounds=[{"mm2": replace(MM2, requests=9_000), "shoal": replace(SHOAL, requests=30)}])
    report = as_json(counted)
    assert report["batches"] == 10
    assert [run["requests"] for run in report["runs"].values()] == [9_000, 30]
    (row,) = [line for line in as_table(counted).splitlines() if line.startswith("produce requests")]
    assert row.split()[-3:] == ["9,000", "30", "300.0x"]
    assert "produce requests" not in as_table(REPORT)


def test_the_small_demo_has_the_runs_that_were_promised() -> None:
    assert {"mm2", "shoal_single", "shoal_multi"} <= SMALL.runs.keys()
    assert SMALL.counts_requests
    assert [name for name, run in SMALL.runs.items() if run.agent] == ["shoal_multi", "shoal_multi_tuned"]


def test_with_tls_brokers_mirror_and_shoal_have_no_listener_without(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "ca")
    admin = Address("127.0.0.1", 9190)
    plan = Plan(comparison=LARGE, kafka="4.3.0", records=1_000, work=tmp_path, admin=admin, authority=authority)
    source, target = (Cluster(tmp_path / role, plan.cluster(), Jvm(lib=tmp_path)) for role in ("source", "target"))
    broker = (tmp_path / "source" / "node-1" / "server.properties").read_text()
    assert "PLAINTEXT" not in next(line for line in broker.splitlines() if line.startswith("listeners"))

    alone = Turn(round=1, run="a", how=LARGE.runs[ALONE])
    for shoal in (None, Shoal(cast("Process", None), "127.0.0.1:1", "127.0.0.1:2")):
        mirror = mirror_spec(plan, alone, source, target, shoal).properties()
        assert mirror["a.security.protocol"] == mirror["B.security.protocol"] == "SSL"
        assert mirror["a.ssl.truststore.location"] == str(authority.certificate)
    assert set(plan.shoal_options()[::2]) == {
        "--source-tls-ca",
        "--target-tls-ca",
        "--listen-tls-cert",
        "--listen-tls-key",
        "--admin",
    }
    assert replace(plan, authority=None).shoal_options() == ("--admin", "127.0.0.1:9190")


def test_table_sets_mirror_and_proxy_against_the_mirror_alone() -> None:
    rows = {
        line.split("  ")[0].strip() or line.strip().split("  ")[0]: line.split()
        for line in as_table(REPORT).splitlines()
    }
    assert rows["wall time, s"][-3:] == ["20.0", "2.5", "8.0x"]
    assert rows["mirror and proxy"][-3:] == ["40.0", "4.0", "10.0x"]
    assert rows["all of them"][-3:] == ["53.0", "7.0", "7.6x"]
    assert rows["batches"][-2:] == ["20", "10"]


def test_figures_of_several_rounds_are_medians_with_their_range() -> None:
    slow, fast = replace(SHOAL, wall_s=4.0), replace(SHOAL, wall_s=2.0)
    report = replace(REPORT, rounds=[{"mm2": MM2, "shoal": shoal} for shoal in (slow, SHOAL, fast)])
    lines = [" ".join(line.split()) for line in as_table(report).splitlines()]
    assert "wall time, s 20.0 2.5 8.0x" in lines
    assert "range of 3 rounds" in lines
    assert "wall time, s 20.0 to 20.0 2.0 to 4.0 5.0 to 10.0" in lines

    found = as_json(report)["runs"]["shoal"]
    assert found["wall_s"] == 2.5
    assert [each["wall_s"] for each in found["rounds"]] == [4.0, 2.5, 2.0]
    assert found["rounds"][0].keys() == {"wall_s", "cpu_s", "peak_mib", "equal"}


def test_a_difference_in_any_round_makes_the_report_bad() -> None:
    bad = replace(SHOAL, difference="partition 0 differs")
    report = replace(REPORT, rounds=[{"mm2": MM2, "shoal": shoal} for shoal in (SHOAL, bad, SHOAL)])
    assert not report.good
    assert report.differences() == ["shoal, round 2: partition 0 differs"]
    assert not as_json(report)["runs"]["shoal"]["equal"]
    assert "NOT EQUAL" in as_table(report)


def test_every_run_is_in_each_round_and_has_its_own_alias(tmp_path: Path) -> None:
    admin = Address("127.0.0.1", 9190)
    plan = Plan(comparison=LARGE, kafka="4.3.0", records=1_000, work=tmp_path, admin=admin, rounds=3)
    first, second, third = ([turn.run for turn in turns] for turns in plan.turns())
    assert first == third == second[::-1] == list(LARGE.runs)
    aliases = [turn.alias for turns in plan.turns() for turn in turns]
    assert len(set(aliases)) == 3 * len(LARGE.runs)
    assert aliases[: len(LARGE.runs)] == list(LARGE.runs)


def test_a_difference_makes_the_report_bad() -> None:
    bad = replace(REPORT, rounds=[{"mm2": MM2, "shoal": replace(SHOAL, difference="partition 0 differs")}])
    assert REPORT.good
    assert not bad.good
    assert [run["equal"] for run in as_json(bad)["runs"].values()] == [True, False]


def test_an_envelope_makes_the_report_bad() -> None:
    bad = replace(REPORT, envelopes_left=1)
    assert not bad.good
    assert as_json(bad)["envelopes_left"] == 1


def test_wiring_is_read_from_what_shoal_mirror_prints() -> None:
    printed = (
        "12:00 info listening\n# Add\nA.consumer.bootstrap.servers = h:1\nB.producer.bootstrap.servers = "
        "h:2\nB.producer.x = n\n"
    )
    assert read_wiring(printed) == {"consumer": "h:1", "producer": "h:2"}


@pytest.mark.parametrize("text", ["4000000", "4_000_000", "4,000,000"])
def test_records_may_be_written_with_separators(text: str) -> None:
    assert parser().parse_args(["--records", text]).records == 4_000_000


def test_too_few_records_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["--records", "999"])
    assert "at least 1,000" in capsys.readouterr().err


# -- phases ------------------------------------------------------------------------------------------------------------


def clock_of(now: list[float]) -> Callable[[], float]:
    return lambda: now[0]


def test_a_phase_leaves_one_line_with_what_came_of_it() -> None:
    out, now = io.StringIO(), [0.0]
    phases = Phases(Progress(out, clock_of(now)), 3, clock_of(now))
    with phases.phase("first") as phase:
        phase.done("well")
        now[0] = 2.5
    with pytest.raises(NotReady), phases.phase("second"):
        raise NotReady("not")
    assert out.getvalue().split() == ["1/3", "first", "well", "2.5", "s"]
    assert phases.current == "second"


# -- watching a mirror -------------------------------------------------------------------------------------------------


@dataclass
class FakeProcess:
    name: str
    running: bool = True
    exit_code: int | None = None

    def tail(self) -> str:
        return f"the end of {self.name}'s log"


def cast_of(*processes: FakeProcess) -> Cast:
    return {process.name: cast("Any", process) for process in processes}


async def test_watch_returns_when_all_records_are_there(autojump_clock: trio.testing.MockClock) -> None:
    totals, shown = iter([0, 3, 3, 8, 12]), list[int]()
    await watch(cast_of(FakeProcess("mirror")), lambda: next(totals), 10, shown.append)
    assert shown == [0, 3, 3, 8]


async def test_watch_names_the_process_that_ended(autojump_clock: trio.testing.MockClock) -> None:
    dead = FakeProcess("proxy", running=False, exit_code=3)
    with pytest.raises(NotReady, match=r"proxy ended with 3 after 5 records\n.*proxy's log"):
        await watch(cast_of(FakeProcess("mirror"), dead), lambda: 5, 10, lambda _: None)


async def test_watch_names_a_process_that_ends_while_it_is_looked_at(autojump_clock: trio.testing.MockClock) -> None:
    mirror = FakeProcess("mirror")

    def show(_: int) -> None:
        """Its memory is gone before its parent can learn how it ended."""
        if trio.current_time() > 1:
            mirror.running, mirror.exit_code = False, 3
        raise ProcessLookupError("process 7 has ended")

    with pytest.raises(NotReady, match=r"mirror ended with 3 after 5 records\n.*mirror's log"):
        await watch(cast_of(mirror), lambda: 5, 10, show)


async def test_watch_gives_up_when_nothing_moves(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(NotReady, match="no record arrived for 60 s after 5"):
        await watch(cast_of(FakeProcess("mirror")), lambda: 5, 10, lambda _: None)
    assert trio.current_time() == pytest.approx(STALL_S, abs=1)


async def test_watch_tells_when_the_target_is_gone(autojump_clock: trio.testing.MockClock) -> None:
    def gone() -> int:
        raise ConnectionError("the broker closed the connection")

    with pytest.raises(NotReady, match=r"the target does not answer .* closed the connection"):
        await watch(cast_of(FakeProcess("mirror")), gone, 10, lambda _: None)


# -- a mirror that runs out of memory ----------------------------------------------------------------------------------

OUT_OF_MEMORY = (
    "MirrorMaker 2 ended with 3 after 5 records\nTerminating due to java.lang.OutOfMemoryError: Java heap space"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingRun(MirrorRun):
    """Its mirror ends with each of `ends`, one after the other, then copies everything."""

    ends: list[str]
    tried: list[str]

    async def _mirrored(self, turn: Turn, phase: Phase) -> tuple[str, Measured]:
        self.tried.append(turn.alias)
        if self.ends:
            raise NotReady(self.ends.pop(0))
        return turn.alias, Measured(wall_s=1.0, cpu_s={}, peak_mib={}, samples=())


@pytest.mark.parametrize(
    ("run", "ends", "tried"),
    [
        (ALONE, [OUT_OF_MEMORY], ["mm2_2", "mm2_2_again"]),
        (ALONE, [OUT_OF_MEMORY] * 2, ["mm2_2", "mm2_2_again"]),
        (ALONE, ["MirrorMaker 2 ended with 1"], ["mm2_2"]),
        ("shoal", [OUT_OF_MEMORY], ["shoal_2"]),
    ],
)
async def test_only_a_mirror_alone_that_runs_out_of_memory_starts_once_more(
    tmp_path: Path, run: str, ends: list[str], tried: list[str]
) -> None:
    out = io.StringIO()
    phases, nothing = Phases(Progress(out), 1), cast("Any", None)
    plan = Plan(comparison=LARGE, kafka="4.3.0", records=10, work=tmp_path, admin=Address("127.0.0.1", 1), rounds=2)
    failing = FailingRun(
        plan=plan,
        phases=phases,
        source=nothing,
        targets={False: nothing},
        original=nothing,
        proxies=nothing,
        ends=list(ends),
        tried=[],
    )
    turn, succeeds = Turn(round=2, run=run, how=LARGE.runs[run]), len(tried) > len(ends)
    with nullcontext() if succeeds else pytest.raises(NotReady), phases.phase("alone") as phase:
        topic, _, before = await failing.mirrored(turn, phase)
        assert (topic, before) == (tried[-1], None)
    assert failing.tried == tried
    assert (f"java.lang.OutOfMemoryError (MirrorMaker 2 alone, {tmp_path / 'mm2_2'}): once more" in out.getvalue()) is (
        len(tried) > 1
    )


def test_the_page_shows_the_figures_and_each_run_over_time() -> None:
    mib = {"mirror": 400.0, "proxy": 50.0}
    looks = tuple(
        Sample(at_s=at / 4, records=at * 10, cpu_s={"mirror": at / 8, "proxy": at / 40}, mib=mib) for at in range(11)
    )
    runs = {"mm2": replace(MM2, samples=looks), "shoal": replace(SHOAL, samples=looks)}
    html = demo_page(replace(REPORT, rounds=[runs]), "demo, Kafka 4.3.0", ["Two cores."])
    for text in ("8.0x", "through Shoal: Shoal", "MM2 alone: MirrorMaker 2", "cores", "Two cores.", "<svg"):
        assert text in html
    assert "MM2 alone: Shoal" not in html
    assert "NO" not in html
    several = demo_page(replace(REPORT, rounds=[runs, runs]), "demo, Kafka 4.3.0", [])
    assert "8.0x (8.0 to 8.0)" in several
    assert "median time" in several


def test_the_page_says_what_is_wrong() -> None:
    look = Sample(at_s=0.0, records=0, cpu_s={"mirror": 0.0, "proxy": 0.0}, mib={"mirror": 1.0, "proxy": 1.0})
    bad = replace(SHOAL, difference="offset 7: other value", samples=(look,))
    runs = {"mm2": replace(MM2, samples=(look,)), "shoal": bad}
    html = demo_page(replace(REPORT, rounds=[runs], envelopes_left=3), "demo", [])
    assert '<div class="bad"><dt>every record equal</dt><dd>NO</dd></div>' in html
    assert '<div class="bad"><dt>envelopes left</dt><dd>3</dd></div>' in html
