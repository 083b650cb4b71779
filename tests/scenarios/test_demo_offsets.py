"""The parts of the demo of mirror topics that need no broker: traffic, comparisons, output, its own directory."""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import pytest

from shoal.protocol.records.batch import NewRecord, encode_batch
from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.demo_offsets.__main__ import clear_out, parser
from shoal.scenarios.demo_offsets.compaction import cleaning_settings, first_dirty_offset, is_cleaned
from shoal.scenarios.demo_offsets.compare import Counts, GroupCounts, Identity, compare, compare_group
from shoal.scenarios.demo_offsets.log_ends import behind
from shoal.scenarios.demo_offsets.mirroring import Measured
from shoal.scenarios.demo_offsets.move import at_target
from shoal.scenarios.demo_offsets.plan import COMPACTED, ROUNDS, TOPICS, TRANSACTIONS, Plan, mirrored_name
from shoal.scenarios.demo_offsets.replicas import Replicas, compare_replicas, epochs_with_batches, log_end
from shoal.scenarios.demo_offsets.report import Report, as_json, as_table, demo_figures, figures_table
from shoal.scenarios.demo_offsets.traffic import records_of, transactions_of
from shoal.scenarios.kafka.content.copies import PartitionCopy
from shoal.scenarios.kafka.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ROLES = ("mirror", "proxy", "source_broker", "target_broker")
REPORT = Report(
    kafka="4.3.0",
    topics={"orders": Counts(records=1_000, same_offset=1_000), "compacted": Counts(records=50, same_offset=50)},
    group=GroupCounts(at_source=600, at_target=450, twice=0, missed=0),
    replicas=Replicas(6, ()),
    envelopes=0,
    backlog=700,
    measured=Measured(wall_s=2.0, cpu_s=dict.fromkeys(ROLES, 0.7), peak_mib=dict.fromkeys(ROLES, 100.0)),
)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(kafka="4.3.0", records=200_000, work=tmp_path)


# -- the plan and its traffic ------------------------------------------------------------------------------------------


def test_all_records_are_written_before_or_while_mirroring(plan: Plan) -> None:
    assert sum(topic.percent for topic in TOPICS) == 100
    assert sum(plan.backlog(topic) + ROUNDS * plan.live(topic) for topic in TOPICS) == plan.records


def test_shoal_and_the_agent_have_the_names_of_the_same_topics(plan: Plan) -> None:
    (option,) = plan.target().jvm_options
    at_the_agent = re.compile(option.partition("=")[2])
    _, at_shoal, _ = plan.shoal_options()
    for topic in TOPICS:
        assert re.fullmatch(at_shoal, topic.name)
        assert at_the_agent.fullmatch(mirrored_name(topic.name))
        assert not at_the_agent.fullmatch(topic.name)
    assert plan.target().agent
    assert not plan.source().agent


@pytest.mark.parametrize(
    "topic", [topic for topic in TOPICS if topic is not TRANSACTIONS], ids=lambda topic: topic.name
)
def test_all_records_of_a_topic_differ(topic: object) -> None:
    (chosen,) = [one for one in TOPICS if one is topic]
    written = [
        (record.timestamp, record.key, record.value, tuple(record.headers or ()))
        for seed in range(3)
        for record in records_of(chosen, 3_000, seed)
    ]
    assert len(written) == len(set(written)) == 9_000


def test_some_transactions_of_each_producer_are_aborted() -> None:
    for aborted in (1, 2):
        made = list(transactions_of(1_000, seed=1, aborted=aborted))
        assert {transaction.commit for transaction in made} == {True, False}
        assert sum(len(transaction.records) for transaction in made) == 1_000


def test_compacted_records_have_keys_that_repeat_and_tombstones() -> None:
    made = list(records_of(COMPACTED, 1_000, 0))
    assert len({record.key for record in made}) < 500
    assert any(record.value is None for record in made)
    assert all(record.key for record in made)


def test_segments_of_the_compacted_topic_roll_by_the_timestamps_of_the_traffic() -> None:
    span_ms = int(cleaning_settings(12_000)["segment.ms"])
    times = [record.timestamp for record in records_of(COMPACTED, 12_000, 0)]
    segments = [list(group) for _, group in groupby(times, lambda time: (time - times[0]) // span_ms)]
    assert len(segments) == 6


# -- compaction --------------------------------------------------------------------------------------------------------

CHECKPOINT = "0\n2\ncompacted 0 100\ncompacted 1 70\n"


def log_directory(data: Path, checkpoint: str | None, *bases: int) -> Path:
    (data / "compacted-0").mkdir(parents=True)
    for base in bases:
        (data / "compacted-0" / f"{base:020}.log").touch()
    if checkpoint is not None:
        (data / "cleaner-offset-checkpoint").write_text(checkpoint)
    return data


def test_the_first_dirty_offset_is_that_of_the_partition() -> None:
    assert first_dirty_offset(CHECKPOINT, "compacted", 1) == 70
    assert first_dirty_offset(CHECKPOINT, "compacted", 2) is None


@pytest.mark.parametrize(
    ("checkpoint", "bases", "cleaned"),
    [
        (CHECKPOINT, (0, 50, 100), True),
        (CHECKPOINT, (0, 50, 100, 150), False),  # a segment is left to clean
        (CHECKPOINT, (100,), False),  # nothing has been rolled
        (None, (0, 50), False),  # never cleaned
    ],
)
def test_a_log_is_cleaned_when_only_the_active_segment_is_left(
    tmp_path: Path, checkpoint: str | None, bases: tuple[int, ...], cleaned: bool
) -> None:
    assert is_cleaned(log_directory(tmp_path, checkpoint, *bases), "compacted", 0) is cleaned


# -- records of both sides ---------------------------------------------------------------------------------------------


def copy_of(records: Mapping[int, int]) -> PartitionCopy:
    return PartitionCopy(offsets=array("q", records.keys()), fingerprints=array("q", records.values()))


def test_equal_copies_have_every_record_at_the_same_offset() -> None:
    counts = compare(copy_of({3: 30, 5: 50}), copy_of({3: 30, 5: 50}), compacted=False)
    assert counts == Counts(records=2, same_offset=2)
    assert counts.equal


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({3: 30, 5: 51}, Counts(records=2, same_offset=1, different=1)),
        ({3: 30}, Counts(records=2, same_offset=1, lost=1)),
        ({3: 30, 4: 40, 5: 50}, Counts(records=2, same_offset=2, doubled=1)),
        ({3: 30, 5: 50, 6: 50}, Counts(records=2, same_offset=2, doubled=1)),
        ({4: 30, 5: 50}, Counts(records=2, same_offset=1, lost=1, doubled=1)),  # moved
        ({}, Counts(records=2, lost=2)),
    ],
)
def test_each_difference_is_counted_as_what_it_is(target: Mapping[int, int], expected: Counts) -> None:
    counts = compare(copy_of({3: 30, 5: 50}), copy_of(target), compacted=False)
    assert counts == expected
    assert not counts.equal


def test_a_record_that_was_read_twice_is_doubled() -> None:
    twice = PartitionCopy(offsets=array("q", [3, 3]), fingerprints=array("q", [30, 30]))
    assert compare(copy_of({3: 30}), twice, compacted=False) == Counts(records=1, same_offset=1, doubled=1)


def test_what_the_source_has_compacted_since_is_not_doubled() -> None:
    ours, theirs = copy_of({3: 30, 5: 50}), copy_of({3: 30, 4: 40, 5: 50})
    counts = compare(ours, theirs, compacted=True)
    assert counts == Counts(records=2, same_offset=2, compacted_at_source=1)
    assert counts.equal


@pytest.mark.parametrize("extra", [{4: 50}, {6: 60}], ids=["a record of the source", "behind the source's end"])
def test_in_a_compacted_topic_other_records_are_doubled(extra: Mapping[int, int]) -> None:
    counts = compare(copy_of({3: 30, 5: 50}), copy_of(dict(sorted({3: 30, 5: 50, **extra}.items()))), compacted=True)
    assert counts == Counts(records=2, same_offset=2, doubled=1)


def read(*fingerprints: int) -> Counter[Identity]:
    return Counter(Identity("orders", 0, fingerprint) for fingerprint in fingerprints)


@pytest.mark.parametrize(
    ("at_source", "at_target", "twice", "missed"),
    [
        (read(1, 2), read(3, 4), 0, 0),
        (read(1, 2), read(2, 3, 4), 1, 0),
        (read(1, 2), read(4), 0, 1),
        (read(1, 2), read(3, 4, 9), 1, 0),  # a record that the source does not have
        (read(1, 1, 2), read(4), 1, 1),
    ],
)
def test_a_group_reads_every_record_once_in_both_clusters_together(
    at_source: Counter[Identity], at_target: Counter[Identity], twice: int, missed: int
) -> None:
    counts = compare_group(read(1, 2, 3, 4), at_source, at_target)
    assert (counts.twice, counts.missed) == (twice, missed)


def test_partitions_that_are_behind_are_named() -> None:
    wanted = at_target({TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 7, TopicPartition("orders", 2): 0})
    ends = {TopicPartition("A.orders", 0): 6, TopicPartition("A.orders", 1): 6}
    assert behind(wanted, ends) == ["A.orders-1 ends at 6, not at 7"]


# -- replicas ----------------------------------------------------------------------------------------------------------

EPOCHS = "0\n2\n1 0\n4 2\n"
BATCH = encode_batch([NewRecord(5, b"k", b"v", ()), NewRecord(6, b"k", b"v", ())])  # ends at 2
OTHER = encode_batch([NewRecord(7, b"k", b"w", ())], base_offset=9)
LATER = encode_batch([NewRecord(7, b"k", b"v", ())], base_offset=9)  # ends at 10


def replica(home: Path, name: str, epochs: str, **segments: bytes) -> Path:
    directory = home / name / "A.orders-0"
    directory.mkdir(parents=True)
    for base, content in segments.items():
        (directory / f"{int(base[1:]):020}.log").write_bytes(content)
    (directory / "leader-epoch-checkpoint").write_text(epochs)
    return directory


def test_equal_replicas(tmp_path: Path) -> None:
    replicas = [replica(tmp_path, name, EPOCHS, _0=BATCH, _9=LATER) for name in ("1", "2", "3")]
    assert compare_replicas(replicas) == Replicas(6, ())


def test_an_epoch_without_a_batch_is_no_difference(tmp_path: Path) -> None:
    first = replica(tmp_path, "1", "0\n2\n1 0\n4 2\n", _0=BATCH)  # has become leader at the end
    other = replica(tmp_path, "2", "0\n1\n1 0\n", _0=BATCH)
    assert not compare_replicas([first, other]).differences


@pytest.mark.parametrize(
    ("epochs", "segments", "difference"),
    [
        (EPOCHS, {"_0": BATCH, "_9": OTHER}, "00000000000000000009.log differs"),
        (EPOCHS, {"_0": BATCH}, "segments"),
        ("0\n1\n1 0\n", {"_0": BATCH, "_9": LATER}, "leader-epoch-checkpoint differs"),
    ],
)
def test_differences_of_replicas_are_named(
    tmp_path: Path, epochs: str, segments: Mapping[str, bytes], difference: str
) -> None:
    first = replica(tmp_path, "1", EPOCHS, _0=BATCH, _9=LATER)
    (found,) = compare_replicas([first, replica(tmp_path, "2", epochs, **segments)]).differences
    assert found.startswith(difference)


@pytest.mark.parametrize(
    ("segments", "end"),
    [({"_0": BATCH + LATER}, 10), ({"_0": BATCH, "_9": b""}, 9), ({"_0": BATCH + bytes(200)}, 2), ({}, 0)],
)
def test_the_end_of_a_log(tmp_path: Path, segments: Mapping[str, bytes], end: int) -> None:
    assert log_end(replica(tmp_path, "1", EPOCHS, **segments)) == end


def test_epochs_are_read_from_a_checkpoint() -> None:
    assert epochs_with_batches("0\n3\n1 0\n4 2\n7 5\n", 5) == [(1, 0), (4, 2)]


# -- the report --------------------------------------------------------------------------------------------------------


def test_report_has_the_form_that_was_promised() -> None:
    report = as_json(REPORT)
    promised = {
        "records": 1_050,
        "same_offset": 1_050,
        "different": 0,
        "lost": 0,
        "doubled": 0,
        "compacted_at_source": 0,
        "groups_moved": {"records_twice": 0, "records_missed": 0},
        "replicas_identical": True,
        "envelopes": 0,
    }
    assert {name: report[name] for name in promised} == promised
    assert report["topics"]["compacted"]["records"] == 50
    assert report["backlog"]["cpu_s"] == dict.fromkeys(ROLES, 0.7)
    assert json.loads(json.dumps(report)) == report


@pytest.mark.parametrize(
    "bad",
    [
        replace(REPORT, topics={"orders": Counts(records=10, same_offset=9, lost=1)}),
        replace(REPORT, topics={"orders": Counts(records=10, same_offset=10, doubled=1)}),
        replace(REPORT, topics={"orders": Counts()}),
        replace(REPORT, group=replace(REPORT.group, twice=1)),
        replace(REPORT, group=replace(REPORT.group, missed=1)),
        replace(REPORT, replicas=Replicas(6, ("a segment differs",))),
        replace(REPORT, replicas=Replicas(0, ())),
        replace(REPORT, envelopes=1),
    ],
)
def test_every_difference_makes_the_report_bad(bad: Report) -> None:
    assert REPORT.good
    assert not bad.good


def test_the_table_has_a_row_for_each_topic_and_their_sum() -> None:
    rows = {line.split()[0]: line.split()[1:] for line in as_table(REPORT).splitlines() if line}
    assert rows["orders"] == ["1,000", "1,000", "0", "0", "0", "0"]
    assert rows["all"][:2] == ["1,050", "1,050"]
    assert "MSG_SIZE_TOO_LARGE" not in as_table(REPORT)
    assert "MSG_SIZE_TOO_LARGE" in as_table(replace(REPORT, group=replace(REPORT.group, complaints=3)))


def test_differences_of_replicas_are_printed() -> None:
    bad = replace(REPORT, replicas=Replicas(6, ("x.log differs in 1 and 2",)))
    assert "1 differences\n  x.log differs in 1 and 2" in as_table(bad)
    assert as_json(bad)["replicas_identical"] is False


def test_figures_of_make_demo_are_beside_those_of_this_run() -> None:
    run = {"wall_s": 60.0, "cpu_s": dict(zip(ROLES, (80.0, 0.0, 4.0, 9.0), strict=True))}
    demo = demo_figures({"records": 1_000_000, "runs": {"mm2": run, "mm2_tuned": run}})
    (heading, _, records, *others) = figures_table(REPORT, demo).splitlines()
    assert heading.split() == ["same", "offsets", "make", "demo:", "MM2", "alone"]
    assert records.split() == ["records", "700", "1,000,000"]
    (row,) = [line for line in others if line.strip().startswith("mirror and proxy")]
    assert row.split()[-2:] == ["2,000.0", "80.0"]
    assert "make demo" not in figures_table(REPORT)


# -- the command -------------------------------------------------------------------------------------------------------


def test_too_few_records_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser().parse_args(["--records", "20_000"]).records == 20_000
    with pytest.raises(SystemExit):
        parser().parse_args(["--records", "9999"])
    assert "at least 10,000" in capsys.readouterr().err


def test_a_directory_of_an_earlier_demo_is_used_again(tmp_path: Path) -> None:
    out = tmp_path / "new" / "demo"
    clear_out(out)
    (out / "work" / "source").mkdir(parents=True)
    (out / "report.json").write_text("{}")
    (out / "notes.txt").write_text("of the user")
    clear_out(out)
    assert not (out / "work").exists()
    assert not (out / "report.json").exists()
    assert (out / "notes.txt").read_text() == "of the user"


def test_the_directory_of_another_program_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("of another program")
    with pytest.raises(SetupError, match="--out"):
        clear_out(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    with pytest.raises(SetupError, match="--out"):
        clear_out(tmp_path / "report.json")
