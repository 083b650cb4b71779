"""`shoal translate` from the files of a state directory, without brokers, or with their groups."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
import trio
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, NewRecord, encode_batch
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.shallow.translate.offset_map import AppendedRange, SourcePartition
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cli.translate.command import main
from shoal.proxy.cli.translate.read import Cannot, ClusterReader
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import ClusterSettings, Limits
from shoal.proxy.shallow.files.offsets import OffsetsFile, OffsetsState
from tests.support.group_brokers import Group, GroupBrokers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from trio.testing import MockClock

SOURCE = SourcePartition("cluster", "orders", 0)
TARGET = TopicPartition("A.orders", 0)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    file = OffsetsFile("target-29092", tmp_path / "target-29092.offsets")
    file.anew(file.write_anew(file.begin_anew(file.load())))
    for known in (AppendedRange(10, 100, 50, SOURCE), AppendedRange(60, 155, 10, SOURCE), (90, 200, 10, SOURCE)):
        file.add(file.appended(TARGET, AppendedRange(*known)))
    file.close()
    return tmp_path


def asked(state: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code = main(["--state-dir", str(state), *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)["offsets"]


def test_exact_offsets(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = asked(state, capsys, "orders-0", "100", "149", "152", "155", "209")
    assert code == 0
    assert [row["translated"] for row in rows] == [10, 59, 60, 60, 99]
    assert [row["why"] for row in rows] == ["appended", "appended", "hole", "appended", "appended"]


def test_bounds(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = asked(state, capsys, "orders-0", "50", "180", "210")
    assert code == 1
    found = [(row["translated"], row["low"], row["high"], row["why"]) for row in rows]
    assert found == [(None, 0, 10, "older"), (None, 70, 90, "raw"), (None, 100, None, "newer")]


def test_to_the_source(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, rows = asked(state, capsys, "A.orders-0", "10", "69", "--to-source")
    assert code == 0
    assert [row["translated"] for row in rows] == [100, 164]


def test_in_words(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--state-dir", str(state), "orders-0", "100", "180"])
    exact, bounds = capsys.readouterr().out.splitlines()
    assert exact == "orders-0 100  ->  A.orders-0 10"
    assert bounds.startswith("orders-0 180  ->  A.orders-0 between 70 and 90 (to continue at 70 misses nothing: ")
    assert "--source-bootstrap" in bounds


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "shoal translate: give TOPIC-PARTITION and at least one OFFSET, or --group"),
        (["orders-0"], "shoal translate: give TOPIC-PARTITION and at least one OFFSET, or --group"),
        (["orders", "1"], "orders: is not TOPIC-PARTITION, as in orders-0"),
        (["order-0", "1"], 'order-0: Shoal knows no offsets .*; did you mean "orders-0"'),
        (
            ["A.orders-0", "1"],
            "A.orders-0: Shoal knows no offsets of this partition in this direction .a mirror topic has its source's",
        ),
        (["--group", "g"], "--group: needs the brokers of the source: give --source-bootstrap, or -c shoal.toml"),
        (["--group", "g", "orders-0", "1"], "--group: translates all partitions of the group: leave out orders-0"),
        (["orders-0", "1", "--reset-file", "x"], "--reset-file: needs --group"),
        (["--group", "g", "--source-bootstrap", "127.0.0.1:1"], "--group: cluster 'source': cannot reach the broker"),
    ],
)
def test_wrong_usage(arguments: list[str], error: str, state: Path) -> None:
    with pytest.raises(OperatorError, match=error):
        main(["--state-dir", str(state), *arguments])


def test_directories_without_offsets(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"has no file NAME.offsets"):
        main(["--state-dir", str(tmp_path), "orders-0", "1"])
    with pytest.raises(OperatorError, match="is no directory"):
        main(["--state-dir", str(tmp_path / "none"), "orders-0", "1"])
    (tmp_path / "x.offsets").write_text("something else")
    with pytest.raises(OperatorError, match="is not a file of appended offsets"):
        main(["--state-dir", str(tmp_path), "orders-0", "1"])


def test_brokers_that_cannot_be_reached_leave_the_bounds(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brokers = ["--source-bootstrap", "127.0.0.1:1", "--target-bootstrap", "127.0.0.1:1"]
    code, (row,) = asked(state, capsys, "orders-0", "180", *brokers)
    assert (code, row["low"], row["high"]) == (1, 70, 90)
    assert "cannot reach the broker" in row["not_read"]


# -- groups of several clusters

DONE = 0, None
_Range = tuple[TopicPartition, AppendedRange]


def keep(file: Path, cluster: str | None, ranges: Iterable[_Range]) -> None:
    """What an unwrapping listener of this target has appended."""
    kept = OffsetsFile(file.stem, file)
    kept.anew(kept.write_anew(kept.begin_anew(OffsetsState(cluster=cluster))))
    for target, known in ranges:
        kept.add(kept.appended(target, known))
    kept.close()


def ranges_of(cluster: str, topic: str, first: int) -> _Range:
    """A hundred records of orders-0 of this source, from this offset of the target's topic on."""
    return TopicPartition(topic, 0), AppendedRange(first, 0, 100, SourcePartition(cluster, "orders", 0))


def at(cluster_id: str, **offsets: int) -> GroupBrokers:
    """A cluster in which a group has committed an offset of partition 0 of these topics."""
    group = Group(offsets={(topic, 0): (offset, None) for topic, offset in offsets.items()})
    return GroupBrokers({(topic, 0): 1 for topic in offsets or ["none"]}, groups={"g": group}, cluster_id=cluster_id)


def translated(
    path: Path, clusters: dict[str, GroupBrokers], sources: str, *arguments: str
) -> tuple[int | None, str | None]:
    """With a shoal.toml in which the others of the clusters are targets. -> exit code, or error."""

    def run_main() -> tuple[int | None, str | None]:
        try:
            return main(["-c", str(path / "shoal.toml"), "--group", "g", *arguments]), None
        except OperatorError as error:
            return None, str(error)

    async def run() -> tuple[int | None, str | None]:
        async with AsyncExitStack() as stack:
            text = f'state-dir = "{path}"\n'
            for number, (name, brokers) in enumerate(clusters.items()):
                await stack.enter_async_context(brokers.running())
                mode, port = "wrap" if name in sources else "unwrap", 39000 + 10 * number
                text += f'[[cluster]]\nname = "{name}"\nbootstrap = "{brokers.bootstrap}"\n[[listener]]\n'
                text += f'name = "to-{name}"\ncluster = "{name}"\nmode = "{mode}"\nlisten = "127.0.0.1:{port}"\n'
                text += f'ports = "{port + 1}-{port + 9}"\n' + "shallow = { unpaired = true }\n" * (mode == "wrap")
            (path / "shoal.toml").write_text(text)
            return await trio.to_thread.run_sync(run_main)

    return trio.run(run)


def asked_at(path: Path, side: str, brokers: GroupBrokers, *arguments: str) -> tuple[int | None, str | None]:
    """With the address of one side alone. -> exit code, or error."""

    def run_main() -> tuple[int | None, str | None]:
        where = ("--state-dir", str(path), f"--{side}-bootstrap", str(brokers.bootstrap))
        try:
            return main([*where, "--group", "g", *arguments]), None
        except OperatorError as error:
            return None, str(error)

    async def run() -> tuple[int | None, str | None]:
        async with brokers.running():
            return await trio.to_thread.run_sync(run_main)

    return trio.run(run)


def test_a_group_s_offsets_of_one_source_say_nothing_of_another(tmp_path: Path) -> None:
    """Two sources have a topic of one name, and the group has read one of them further. Of the other only its name was
    known.
    """
    keep(tmp_path / "to-c.offsets", "id c", [ranges_of("id a", "a.orders", 0), ranges_of("b", "b.orders", 0)])
    clusters, file = {"a": at("id a", orders=10), "b": at("id b", orders=90), "c": at("id c")}, tmp_path / "reset.csv"
    assert translated(tmp_path, clusters, "ab", "--reset-file", str(file)) == DONE
    assert file.read_text().splitlines() == ["a.orders,0,10", "b.orders,0,90"]


def test_a_reset_file_is_for_one_cluster(tmp_path: Path) -> None:
    """Two targets have the topic of one source, at other offsets."""
    for name, first in (("b", 500), ("c", 0)):
        keep(tmp_path / f"to-{name}.offsets", f"id {name}", [ranges_of("id a", "orders", first)])
    clusters, file = {"a": at("id a", orders=10), "b": at("id b"), "c": at("id c")}, tmp_path / "reset.csv"
    what = "--reset-file: the offsets are of several clusters (id b, id c): write a file for each, with --at"
    assert translated(tmp_path, clusters, "a", "--reset-file", str(file)) == (None, what)
    assert not file.exists()
    unknown = "--at: nothing is known of d; known: b, c, id b, id c"
    assert translated(tmp_path, clusters, "a", "--at", "d") == (None, unknown)
    for which, wanted in (("b", 510), ("id b", 510), ("c", 10)):
        assert translated(tmp_path, clusters, "a", "--reset-file", str(file), "--at", which) == DONE
        assert file.read_text().splitlines() == [f"orders,0,{wanted}"]


def test_back_to_one_of_two_sources(tmp_path: Path) -> None:
    keep(tmp_path / "to-c.offsets", "id c", [ranges_of("id a", "a.orders", 0), ranges_of("id b", "b.orders", 500)])
    clusters = {"a": at("id a"), "b": at("id b"), "c": at("id c", **{"a.orders": 10, "b.orders": 590})}
    file = tmp_path / "reset.csv"
    assert translated(tmp_path, clusters, "ab", "--to-source", "--reset-file", str(file), "--at", "b") == DONE
    assert file.read_text().splitlines() == ["orders,0,90"]


def test_topics_that_were_merged_begin_where_none_misses_a_record(tmp_path: Path) -> None:
    merged = TopicPartition("merged", 0)
    ranges = [
        (merged, AppendedRange(first, 0, 100, SourcePartition("id a", topic, 0)))
        for topic, first in (("orders", 0), ("other", 100))
    ]
    keep(tmp_path / "to-b.offsets", "id b", ranges)
    file = tmp_path / "reset.csv"
    clusters = {"a": at("id a", orders=40, other=30), "b": at("id b")}
    assert translated(tmp_path, clusters, "a", "--reset-file", str(file)) == DONE
    assert file.read_text().splitlines() == ["merged,0,40"]


def test_a_leader_that_is_behind_leaves_the_bounds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has just been elected, and gives nothing of its log yet. That must not look as if nothing was copied."""
    keep(tmp_path / "to-b.offsets", "id b", [ranges_of("id a", "orders", 0)])
    source, target = at("id a", orders=150), at("id b", orders=0)
    source.ends["orders", 0] = target.ends["orders", 0] = 200
    assert translated(tmp_path, {"a": source, "b": target}, "a", "--json") == (1, None)
    (row,) = json.loads(capsys.readouterr().out)["offsets"]
    assert (row["exact"], row["low"]) == (False, 100)
    assert "has nothing of orders-0 at offset 100" in row["not_read"]


@pytest.mark.parametrize(
    ("appended_at", "source", "target", "exact", "low"),
    [
        (None, "xabc", "xabc", True, 101),
        (9, "xabc", "xabc", True, 101),
        (None, "xaab", "xaaba", True, 101),  # equal but for their timestamps
        (9, "xaab", "xaaba", False, 100),
    ],
)
def test_a_copy_in_a_topic_with_log_append_time_is_found(
    appended_at: int | None,
    source: str,
    target: str,
    exact: bool,
    low: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The broker of the target gives it another timestamp."""
    keep(tmp_path / "to-b.offsets", "id b", [ranges_of("id a", "orders", 0)])
    clusters = {"a": at("id a", orders=101), "b": at("id b", orders=0)}
    for brokers, values, time in zip(clusters.values(), (source, target), (None, appended_at), strict=True):
        records = [NewRecord(number, b"", value.encode()) for number, value in enumerate(values)]
        bits = 0 if time is None else LOG_APPEND_TIME
        brokers.logs["orders", 0] = encode_batch(records, base_offset=100, attributes=bits, max_timestamp=time)
        brokers.ends["orders", 0] = 100 + len(values)
    assert translated(tmp_path, clusters, "a", "--json") == (0 if exact else 1, None)
    (row,) = json.loads(capsys.readouterr().out)["offsets"]
    assert (row["exact"], row["low"]) == (exact, low)


def test_a_cluster_of_which_shoal_had_first_the_name_is_one_cluster(tmp_path: Path) -> None:
    """One side of a reset file, whichever it is: the source, or a target with two listeners."""
    keep(tmp_path / "to-c.offsets", "id c", [ranges_of("id a", "a.orders", 0), ranges_of("a", "a.old", 0)])
    clusters, file = {"a": at("id a"), "c": at("id c", **{"a.orders": 10, "a.old": 20})}, tmp_path / "reset.csv"
    assert translated(tmp_path, clusters, "a", "--to-source", "--reset-file", str(file)) == DONE
    assert file.read_text().splitlines() == ["orders,0,10"]


def test_a_target_that_has_no_id_is_one_cluster(tmp_path: Path) -> None:
    keep(tmp_path / "to-c.offsets", None, [ranges_of("id a", "a.orders", 0)])
    keep(tmp_path / "other-to-c.offsets", "id c", [ranges_of("id a", "b.orders", 0)])
    clusters, file = {"a": at("id a", orders=10), "c": at("id c")}, tmp_path / "reset.csv"
    for chosen in ((), ("--at", "c"), ("--at", "id c")):
        assert translated(tmp_path, clusters, "a", "--reset-file", str(file), *chosen) == DONE
        assert file.read_text().splitlines() == ["b.orders,0,10", "a.orders,0,10"]


def test_a_listener_that_has_another_name_now(tmp_path: Path) -> None:
    keep(tmp_path / "renamed.offsets", "id c", [ranges_of("id a", "a.orders", 0)])
    clusters, file = {"a": at("id a"), "c": at("id c", **{"a.orders": 10})}, tmp_path / "reset.csv"
    assert translated(tmp_path, clusters, "a", "--to-source", "--reset-file", str(file)) == DONE
    assert file.read_text().splitlines() == ["orders,0,10"]


@pytest.mark.parametrize("cluster", ["id c", None])
def test_without_a_configuration_a_group_is_of_the_target_that_is_asked(tmp_path: Path, cluster: str | None) -> None:
    """Shoal has two targets with a topic of one name."""
    keep(tmp_path / "to-c.offsets", cluster, [ranges_of("id a", "orders", 0)])
    keep(tmp_path / "to-d.offsets", "id d", [ranges_of("id b", "orders", 50)])
    file = tmp_path / "reset.csv"
    target = at("id c", orders=10)
    assert asked_at(tmp_path, "target", target, "--to-source", "--reset-file", str(file)) == DONE
    assert file.read_text().splitlines() == ["orders,0,10"]


def test_without_a_configuration_a_source_that_has_no_id_is_the_one_that_is_asked(tmp_path: Path) -> None:
    keep(tmp_path / "to-c.offsets", "id c", [ranges_of("a", "a.orders", 0)])
    source, file = at("", orders=10), tmp_path / "reset.csv"
    assert asked_at(tmp_path, "source", source, "--reset-file", str(file)) == DONE
    assert file.read_text().splitlines() == ["a.orders,0,10"]


def test_a_group_with_nothing_at_the_chosen_cluster(tmp_path: Path) -> None:
    keep(tmp_path / "to-b.offsets", "id b", [ranges_of("id a", "orders", 0)])
    other = TopicPartition("other", 0), AppendedRange(0, 0, 100, SourcePartition("id a", "other", 0))
    keep(tmp_path / "to-c.offsets", "id c", [other])
    clusters, file = {"a": at("id a", orders=10), "b": at("id b"), "c": at("id c")}, tmp_path / "reset.csv"
    found = translated(tmp_path, clusters, "a", "--reset-file", str(file), "--at", "c")
    assert found == (None, "--at: nothing that g has committed is at c, too: without --at, all copies are shown")
    assert not file.exists()


@pytest.mark.parametrize(
    ("answers", "says", "seconds"),
    [(3, "has nothing of orders-0 at offset 0", 1.5), (1000, "raise the quotas of client id shoal-translate", 60)],
)
async def test_a_client_over_its_quota_reads_again(clock: MockClock, answers: int, says: str, seconds: float) -> None:
    """A broker answers it without a partition, and without an error."""
    brokers = at("id b", orders=0)
    brokers.over_quota, brokers.ends["orders", 0] = answers, 200
    async with brokers.running():
        reader = ClusterReader(ClusterSettings(name="b", bootstrap=(brokers.bootstrap,)), Limits())
        with closing(reader), pytest.raises(Cannot, match=says):
            await reader.read(TopicPartition("orders", 0), 0, None)
    assert trio.current_time() == pytest.approx(seconds, abs=0.5)
    assert brokers.asked.count(ApiKey.FETCH) > min(answers, 100)


@pytest.mark.parametrize(
    ("log", "aborted", "given"),
    [
        ("a7 C7 b7", [], 3),
        ("a7 C7 b7 A7", [(7, 2)], 2),
        ("a7 C7 b7 b7 A7 c8 A8", [(7, 2), (8, 5)], 2),
        ("a7 C7 b7 A7 c8 C8", [(7, 2)], 6),
        ("a7 A7", [(7, 0)], 0),
        ("a7 c8 A7 C8", [(7, 0)], 4),
        ("x C7", [], 2),
        ("x " + "y7 " * 70 + "A7", [(7, 1)], 1),
    ],
)
def test_a_group_at_the_target_goes_back_to_before_what_was_aborted(
    log: str, aborted: list[tuple[int, int]], given: int, tmp_path: Path
) -> None:
    """It was not given these records, and the mirror has yet to copy them again. `log`: a record of a producer id in
    each batch, or its marker (Commit, Abort).
    """
    keep(tmp_path / "to-c.offsets", "id c", [ranges_of("id a", "a.orders", 0)])
    target, file = with_log(log, aborted, len(log.split())), tmp_path / "reset.csv"
    assert translated(tmp_path, {"a": at("id a"), "c": target}, "a", "--to-source", "--reset-file", str(file)) == DONE
    assert file.read_text().splitlines() == [f"orders,0,{given}"]


def with_log(log: str, aborted: list[tuple[int, int]], committed: int) -> GroupBrokers:
    batches, place = log.split(), ("a.orders", 0)
    target = at("id c", **{"a.orders": committed})
    target.ends[place], target.aborted[place], target.logs[place] = len(batches), tuple(aborted), b""
    for offset, batch in enumerate(batches):
        kind, digits = batch[0], batch[1:]
        bits = (TRANSACTIONAL if digits else 0) | (CONTROL if kind.isupper() else 0)
        key = b"\0\0\0" + bytes([kind == "C"]) if kind.isupper() else kind.encode()
        producer_id = int(digits or -1)
        target.logs[place] += encode_batch(
            [NewRecord(0, key, b"")], base_offset=offset, producer_id=producer_id, attributes=bits
        )
    return target


async def test_what_is_before_an_aborted_transaction_is_hardly_read() -> None:
    target, place = with_log("x " * 5000 + "y7 " * 70 + "A7", [(7, 5000)], 5071), TopicPartition("a.orders", 0)
    async with target.running():
        with closing(ClusterReader(ClusterSettings(name="c", bootstrap=(target.bootstrap,)), Limits())) as reader:
            assert await reader.given_below({place: 5071}) == {place: 5000}
    assert min(target.fetched) > 4500


@pytest.mark.parametrize(
    ("aborted", "source"),
    [
        ([(7, 2), (8, 5)], 1),
        ([(8, 5)], 3),  # b and c were committed
    ],
)
def test_a_group_in_the_middle_of_what_is_copied_again_goes_back_to_its_begin(
    aborted: list[tuple[int, int]], source: int, tmp_path: Path
) -> None:
    """The mirror copies raw what its aborted transaction had copied from an envelope, and its first attempt fails."""
    ranges = [
        (TopicPartition("a.orders", 0), AppendedRange(target, at, records, SourcePartition("id a", "orders", 0)))
        for target, at, records in ((0, 0, 1), (2, 1, 2))
    ]
    keep(tmp_path / "to-c.offsets", "id c", ranges)
    log = "a7 C7 b7 c7 A7 b8 A8 b8 c8 C8"
    target, file = with_log(log if len(aborted) > 1 else log.replace("A7", "C7"), aborted, 8), tmp_path / "reset.csv"
    found = translated(tmp_path, {"a": at("id a"), "c": target}, "a", "--to-source", "--reset-file", str(file))
    assert (found, file.read_text()) == ((1, None), f"orders,0,{source}\n")


def test_a_record_that_is_copied_again_is_not_taken_for_an_equal_one_behind_it(tmp_path: Path) -> None:
    """The mirror copies raw what its aborted transaction had copied from an envelope, and then an equal record."""
    keep(tmp_path / "to-c.offsets", "id c", [copied(0, 0, 3)])
    source, target = with_records("xaba"), with_log("x7 a7 b7 A7 x8 a8 b8 a8 C8", [(7, 0)], 5)
    file = tmp_path / "reset.csv"
    assert translated(tmp_path, {"a": source, "c": target}, "a", "--to-source", "--reset-file", str(file)) == DONE
    assert file.read_text() == "orders,0,1\n"


def test_an_aborted_copy_is_not_taken_for_that_of_an_equal_record(tmp_path: Path) -> None:
    """Only the first two were copied raw. The consumer that continues at the target does not get what was aborted."""
    keep(tmp_path / "to-c.offsets", "id c", [copied(3, 2, 2), copied(6, 2, 2)])
    source, target = with_records("cacc"), with_log("c7 a7 C7 c8 c8 A8 c9 c9 C9", [(8, 3)], 0)
    file = tmp_path / "reset.csv"
    assert translated(tmp_path, {"a": source, "c": target}, "a", "--reset-file", str(file)) == DONE
    assert file.read_text() == "a.orders,0,0\n"


def copied(target: int, source: int, records: int) -> _Range:
    return TopicPartition("a.orders", 0), AppendedRange(target, source, records, SourcePartition("id a", "orders", 0))


def with_records(keys: str) -> GroupBrokers:
    """A source that has them as `with_log`, without transactions; its group is at the first one."""
    source = at("id a", orders=0)
    source.logs["orders", 0] = encode_batch([NewRecord(0, key.encode(), b"") for key in keys])
    source.ends["orders", 0] = len(keys)
    return source


def test_a_group_whose_partition_cannot_be_read_is_in_doubt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The others go on."""
    keep(tmp_path / "to-c.offsets", "id c", [ranges_of("id a", "a.orders", 0)])
    target, file = at("id c", **{"a.orders": 10}), tmp_path / "reset.csv"
    target.ends["a.orders", 0] = 10
    target.errors[ApiKey.FETCH] = [ErrorCode.topic_authorization_failed]
    found = translated(tmp_path, {"a": at("id a"), "c": target}, "a", "--to-source", "--reset-file", str(file))
    assert (found, file.read_text()) == ((1, None), "orders,0,10\n")
    assert "orders-0 at least 10 (to continue at 10 misses nothing: unless a transaction" in capsys.readouterr().out


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH])
async def test_a_broker_that_hangs_does_not_hold_up_the_reader(clock: MockClock, key: ApiKey) -> None:
    brokers = at("id b", orders=0)
    brokers.silent, brokers.ends["orders", 0] = {key}, 200
    async with brokers.running():
        reader = ClusterReader(ClusterSettings(name="b", bootstrap=(brokers.bootstrap,)), Limits())
        with closing(reader), pytest.raises(Cannot, match="no answer within 30 s"):
            await reader.read(TopicPartition("orders", 0), 0, None)
    assert trio.current_time() == pytest.approx(30, abs=0.5)


@pytest.mark.parametrize("key", [ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH])
async def test_a_broker_that_hangs_does_not_hold_up_a_question_for_a_group(clock: MockClock, key: ApiKey) -> None:
    brokers = at("id b", orders=0)
    brokers.silent = {key}
    async with brokers.running():
        reader = ClusterReader(ClusterSettings(name="b", bootstrap=(brokers.bootstrap,)), Limits())
        with closing(reader), pytest.raises(Cannot, match="no answer within 30 s"):
            await reader.committed("g")
    assert trio.current_time() == pytest.approx(30, abs=0.5)


async def test_the_marker_of_a_transaction_is_no_hole() -> None:
    brokers = at("id a", orders=0)
    records, marker = [NewRecord(0, None, b"a"), NewRecord(0, None, b"b")], NewRecord(0, b"\0\0\0\1", b"\0\0\0\0\0\0")
    brokers.logs["orders", 0] = encode_batch(records) + encode_batch([marker], base_offset=2, attributes=CONTROL)
    brokers.ends["orders", 0] = 3
    async with brokers.running():
        with closing(ClusterReader(ClusterSettings(name="a", bootstrap=(brokers.bootstrap,)), Limits())) as reader:
            window = await reader.read(TopicPartition("orders", 0), 0, None)
    assert [(seen.offset, bool(seen.mark)) for seen in window.records] == [(0, True), (1, True), (2, False)]
