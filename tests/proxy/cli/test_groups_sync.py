"""`shoal groups sync` against brokers on real sockets: what is copied, what is left out and why, and how it ends."""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager, closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from shoal.cli import main as shoal
from shoal.command_line import report_errors
from shoal.protocol.schema.api import ApiKey
from shoal.proxy.cli.asking.survey import brokers_of
from shoal.proxy.cli.groups.command import _show, main
from shoal.proxy.cli.groups.decision import Verdict, decide
from shoal.proxy.cli.groups.sync import GroupSync, Options, follow, open_sync
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address, ClusterSettings, Limits
from tests.support.group_brokers import Group, GroupBrokers, Offsets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from shoal.proxy.cli.groups.report import Report

ORDERS = ("orders", 0), ("orders", 1)
LEADERS = {("orders", 0): 1, ("orders", 1): 2}
DONE = "1 group: {} copied, {} in place, {} kept"


def source(**groups: Group) -> GroupBrokers:
    return GroupBrokers({("orders", 0): 1, ("orders", 1): 2, ("other", 0): 2}, groups=groups)


def target(*, ends: Sequence[int] = (100, 100), **fields: Any) -> GroupBrokers:
    return GroupBrokers(LEADERS, ends=Counter(dict(zip(ORDERS, ends, strict=True))), **fields)


def billing(first: int = 12, second: int = 7, **fields: Any) -> Group:
    return Group(offsets={ORDERS[0]: (first, "a state"), ORDERS[1]: (second, None)}, **fields)


def used(brokers: GroupBrokers) -> tuple[ClusterSettings, Limits]:
    return ClusterSettings(name="cluster", bootstrap=(brokers.bootstrap,)), Limits()


@asynccontextmanager
async def syncing(theirs: GroupBrokers, ours: GroupBrokers, **options: Any) -> AsyncIterator[GroupSync]:
    async with theirs.running(), ours.running():
        with patient_sync(theirs, ours, **options) as sync:
            yield sync


@contextmanager
def patient_sync(theirs: GroupBrokers, ours: GroupBrokers, **options: Any) -> Iterator[GroupSync]:
    """However short the time of a question: a slow machine's answer is waited for."""
    options = {"seconds": 5.0, "pause_seconds": 0.01, **options}
    first, second = (brokers_of(*used(one), client_id="shoal-groups", patience=30) for one in (theirs, ours))
    with closing(first), closing(second):
        yield GroupSync(first, second, Options(**options))


async def run_once(theirs: GroupBrokers, ours: GroupBrokers, **options: Any) -> Report:
    async with syncing(theirs, ours, **options) as sync:
        return await sync.run_once()


def flags(report: Report) -> tuple[bool, bool]:
    return report.is_partial, report.is_untried


# -- the decision

OFFSETS = st.integers(0, 1 << 62)


@given(OFFSETS, st.none() | OFFSETS, OFFSETS, st.booleans())
def test_no_offset_goes_beyond_the_log_or_backwards(
    theirs: int, ours: int | None, end: int, allow_backwards: bool
) -> None:
    made = decide(theirs, ours, end, allow_backwards=allow_backwards)
    after = made.offset if made.verdict is Verdict.COPY else ours
    assert after is not None
    if made.verdict is Verdict.COPY:
        assert made.offset <= end
        assert made.offset <= theirs
        assert ours != made.offset
    if not allow_backwards:
        assert ours is None or after >= ours
    assert made.is_short == (end < theirs)
    assert decide(theirs, after, end, allow_backwards=allow_backwards).verdict is not Verdict.COPY, "once is enough"


# -- it copies


async def test_offsets_and_metadata_are_copied_as_they_are() -> None:
    ours = target()
    report = await run_once(source(billing=billing()), ours)
    assert report.lines == ["billing: copied orders-0:12, orders-1:7", DONE.format("2 offsets", 0, 0)]
    assert flags(report) == (False, False)
    assert ours.groups["billing"].offsets == {ORDERS[0]: (12, "a state"), ORDERS[1]: (7, None)}


async def test_groups_of_all_coordinators_are_copied() -> None:
    names = {f"g{number}": billing(coordinator=1 + number % 2) for number in range(120)}
    ours = target(groups={"g7": Group(coordinator=2)})
    report = await run_once(source(**names), ours)
    assert report.lines[-1] == "120 groups: 240 offsets copied, 0 in place, 0 kept"
    assert {name: group.offsets for name, group in ours.groups.items()} == {
        name: group.offsets for name, group in names.items()
    }
    assert len(ours.probes) == 2
    assert set(ours.probes.values()) == {1}


async def test_many_partitions_are_committed_in_parts() -> None:
    many: Offsets = {("orders", index): (5, "x" * 4000) for index in range(200)}
    ours = GroupBrokers(dict.fromkeys(many, 1), ends=Counter(dict.fromkeys(many, 9)))
    theirs = GroupBrokers(dict.fromkeys(many, 1), groups={"billing": Group(offsets=many)})
    report = await run_once(theirs, ours)
    assert ours.groups["billing"].offsets == many
    assert len(ours.commits) == 4
    assert report.lines[0].startswith("billing: copied orders-0:5, orders-1:5, ")
    assert report.lines[0].endswith(" and 190 more")


async def test_a_second_pass_finds_all_in_place() -> None:
    ours = target()
    async with syncing(source(billing=billing()), ours) as sync:
        await sync.run_once()
        assert (await sync.run_once()).lines == [DONE.format("0 offsets", 2, 0)]
    assert len(ours.commits) == 1


async def test_a_prefix_of_the_mirror() -> None:
    ours = GroupBrokers({("A.orders", 0): 1}, ends=Counter({("A.orders", 0): 100}))
    theirs = source(billing=Group(offsets={ORDERS[0]: (3, "")}))
    assert (await run_once(theirs, ours, prefix="A.", topics="orders")).lines[0] == "billing: copied A.orders-0:3"


async def test_promoted_topics_count() -> None:
    ours = target(promoted={"orders": "id"})
    assert (await run_once(source(billing=billing()), ours)).lines[0] == "billing: copied orders-0:12, orders-1:7"


async def test_a_dry_run_changes_nothing() -> None:
    ours = target()
    report = await run_once(source(billing=billing()), ours, dry_run=True)
    assert report.lines == [
        "billing: would copy orders-0:12, orders-1:7",
        "1 group: 2 offsets to copy, 0 in place, 0 kept",
    ]
    assert ApiKey.OFFSET_COMMIT not in ours.asked


async def test_groups_are_chosen_by_their_names() -> None:
    theirs = source(billing=billing(), billing2=billing(), __own=billing())
    ours = target()
    await run_once(theirs, ours)
    assert set(ours.groups) == {"billing", "billing2"}
    ours = target()
    await run_once(theirs, ours, groups="billing|__own")
    assert set(ours.groups) == {"billing", "__own"}


# -- it keeps


async def test_offsets_never_go_backwards() -> None:
    ours = target(groups={"billing": billing(20, 5)})
    report = await run_once(source(billing=billing()), ours)
    assert report.lines == [
        "billing: copied orders-1:7",
        "billing: kept, the target is ahead: orders-0:20 (source 12)",
        DONE.format("1 offset", 0, 1),
    ]
    assert flags(report) == (False, False)
    assert ours.groups["billing"].offsets[ORDERS[0]] == (20, "a state")


async def test_they_go_backwards_if_that_is_wanted() -> None:
    ours = target(groups={"billing": billing(20, 5)})
    report = await run_once(source(billing=billing()), ours, allow_backwards=True)
    assert report.lines[0] == "billing: copied orders-0:12, orders-1:7"


async def test_no_offset_goes_beyond_the_log() -> None:
    ours = target(ends=(10, 100), groups={"billing": billing(4, 7)})
    async with syncing(source(billing=billing()), ours) as sync:
        report = await sync.run_once()
        short = "billing: only up to the end of the target's log: orders-0:10 (source 12)"
        assert report.lines == ["billing: copied orders-0:10", short, DONE.format("1 offset", 1, 0)]
        assert flags(report) == (True, False)
        report = await sync.run_once()
        assert report.lines == [short, DONE.format("0 offsets", 2, 0)]
        ours.ends[ORDERS[0]] = 40
        report = await sync.run_once()
        assert report.lines == ["billing: copied orders-0:12", DONE.format("1 offset", 1, 0)]


async def test_the_end_is_that_which_consumers_see() -> None:
    ours = target(watermarks={ORDERS[0]: 11})
    assert (await run_once(source(billing=billing()), ours)).lines[0] == "billing: copied orders-0:11, orders-1:7"


# -- it leaves out


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "Assigning", "Reconciling"])
async def test_a_group_with_members_at_the_target_is_left_out(state: str) -> None:
    ours = target(groups={"billing": billing(1, 1, state=state)})
    report = await run_once(source(billing=billing(state="Stable"), other=billing()), ours)
    assert report.lines[:2] == [
        "other: copied orders-0:12, orders-1:7",
        f"billing: left out: it has members at the target ({state})",
    ] or report.lines[:2] == [
        "other: copied orders-0:12, orders-1:7",
        f"billing: left out: it has members at the target ({state})",
    ]
    assert flags(report) == (True, False)
    assert [name for name, _ in ours.commits] == ["other"]


async def test_the_coordinator_knows_better_than_the_list() -> None:
    ours = target(groups={"billing": Group(joins_late=True)})
    report = await run_once(source(billing=billing()), ours)
    assert report.notes[0].text == "billing: left out: it has members at the target"
    assert flags(report) == (True, False)


@pytest.mark.parametrize("kind", ["share", "connect", "streams"])
async def test_only_groups_of_consumers_are_copied(kind: str) -> None:
    ours = target()
    report = await run_once(source(billing=billing(protocol_type=kind)), ours)
    text = f'billing: left out: it is no group of consumers at the source (its protocol type is "{kind}")'
    assert report.notes[0].text == text
    assert flags(report) == (False, False)
    ours = target(groups={"billing": Group(protocol_type=kind)})
    report = await run_once(source(billing=billing()), ours)
    assert report.notes[0].text == text.replace("source", "target")
    assert flags(report) == (True, False)
    assert ours.commits == []


@pytest.mark.parametrize(("topics", "is_partial"), [(None, False), ("orders|other", True)])
async def test_partitions_that_are_no_mirror_topics_are_left_out(topics: str | None, is_partial: bool) -> None:
    offsets: Offsets = {ORDERS[0]: (3, ""), ORDERS[1]: (4, ""), ("orders", 7): (1, ""), ("other", 0): (9, "")}
    ours = target(without_agent={2})
    report = await run_once(source(billing=Group(offsets=offsets)), ours, topics=topics)
    assert report.lines == [
        "billing: copied orders-0:3",
        "orders-1: left out: not a mirror topic there: the broker has no agent, or shoal.mirror.topics does not match "
        "the topic",
        "orders-7: left out: the target has no such partition",
        "other-0: left out: the target has no such topic",
        DONE.format("1 offset", 0, 0),
    ]
    assert flags(report) == (is_partial, False)


async def test_the_brokers_own_words_are_reported() -> None:
    ours = target(answers={ORDERS[0]: [ErrorCode.topic_authorization_failed]})
    report = await run_once(source(billing=billing()), ours)
    name = f"broker 1 ({ours.brokers[1].address})"
    assert report.notes[0].text == f"orders-0: left out: {name}: error 29 (TOPIC_AUTHORIZATION_FAILED): as scripted"


async def test_an_offset_that_the_target_refuses_is_named() -> None:
    group = Group(refused={ORDERS[0]: ErrorCode.offset_metadata_too_large})
    report = await run_once(source(billing=billing()), target(groups={"billing": group}))
    assert report.lines == [
        "billing: copied orders-1:7",
        "billing: orders-0: left out: error 12 (OFFSET_METADATA_TOO_LARGE)",
        DONE.format("1 offset", 0, 0),
    ]
    assert flags(report) == (True, False)


async def test_no_group_is_an_answer() -> None:
    text = "no group has committed offsets of partitions that are mirror topics at the target"
    assert (await run_once(source(), target())).lines == [text]


# -- brokers that are not ready

MOVES = [ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available]


@pytest.mark.parametrize(
    "key", [ApiKey.LIST_GROUPS, ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT]
)
async def test_coordinators_that_move_are_asked_again(key: ApiKey) -> None:
    theirs, ours = source(billing=billing()), target()
    theirs.errors[key], ours.errors[key] = list(MOVES), list(MOVES)
    report = await run_once(theirs, ours)
    assert report.lines == ["billing: copied orders-0:12, orders-1:7", DONE.format("2 offsets", 0, 0)]


async def test_a_coordinator_that_has_moved_is_found() -> None:
    ours = target()
    theirs = source(billing=billing())
    async with syncing(theirs, ours) as sync:
        await sync.run_once()
        theirs.groups["billing"] = billing(13, 8, coordinator=2)
        ours.groups["billing"].coordinator = 2
        assert (await sync.run_once()).copied == ["billing: copied orders-0:13, orders-1:8"]


async def test_the_targets_offset_is_read_again_before_each_attempt() -> None:
    ours = target()
    ours.errors[ApiKey.OFFSET_COMMIT] = [ErrorCode.coordinator_load_in_progress]
    await run_once(source(billing=billing()), ours)
    order = [key for key in ours.asked if key in (ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT)]
    assert order == [ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT] * 2


async def test_a_leader_change_is_waited_for() -> None:
    ours = target(answers={ORDERS[1]: [ErrorCode.not_leader_or_follower]})
    ours.errors[ApiKey.LIST_OFFSETS] = [ErrorCode.offset_not_available]
    assert (await run_once(source(billing=billing()), ours)).copied == ["billing: copied orders-0:12, orders-1:7"]


@pytest.mark.parametrize("key", [ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT])
async def test_a_move_without_end_is_given_up(key: ApiKey) -> None:
    ours = target()
    ours.errors[key] = [ErrorCode.not_coordinator] * 10_000
    report = await run_once(source(billing=billing()), ours, seconds=0.2)
    assert report.notes[0].text == "billing: left out: target: error 16 (NOT_COORDINATOR)"
    assert flags(report) == (True, True)


async def test_a_broker_that_does_not_list_its_groups_is_named() -> None:
    theirs = source(billing=billing())
    theirs.errors[ApiKey.LIST_GROUPS] = [ErrorCode.coordinator_load_in_progress] * 10_000
    report = await run_once(theirs, target(), seconds=0.2)
    assert [note.text.partition(" (")[0] for note in report.notes] == [
        "the groups of broker 1",
        "the groups of broker 2",
    ]
    assert flags(report) == (True, True)


async def test_a_partition_without_a_leader_is_named() -> None:
    ours = target()
    ours.leaders = {**LEADERS, ORDERS[1]: -1}
    report = await run_once(source(billing=billing()), ours, seconds=0.2)
    assert report.lines[:2] == ["billing: copied orders-0:12", "orders-1: left out: has no leader"]
    assert flags(report) == (True, True)


async def test_a_cluster_that_is_not_there_is_an_operators_error() -> None:
    nowhere = ClusterSettings(name="target", bootstrap=(Address("127.0.0.1", 1),)), Limits()
    with open_sync(nowhere, nowhere, Options(seconds=5)) as sync:
        with pytest.raises(OperatorError, match=r"^127\.0\.0\.1:1: cannot reach the broker"):
            await sync.run_once()
        with pytest.raises(OperatorError):
            await follow(sync, 60, print)


# -- again and again


async def test_passes_show_what_has_changed() -> None:
    theirs, ours = source(billing=billing(), idle=billing()), target(groups={"idle": Group(state="Stable")})
    shown: list[list[str]] = []
    changes = iter(_changes(theirs, ours))

    def show(lines: Sequence[str]) -> None:
        shown.append(list(lines))
        if next(changes, None) is None:
            scope.cancel()

    with trio.fail_after(20):
        async with syncing(theirs, ours) as sync:
            with trio.CancelScope() as scope:
                await follow(sync, 0.01, show)
    assert shown == [
        ["billing: copied orders-0:12, orders-1:7", "idle: left out: it has members at the target (Stable)"],
        [],
        ["billing: copied orders-0:13"],
        ["billing: kept, the target is ahead: orders-0:50 (source 13)"],
        ["idle: copied orders-0:12, orders-1:7"],
    ]


def _changes(theirs: GroupBrokers, ours: GroupBrokers) -> Iterator[bool]:
    """Before the second pass, the third and so on."""
    yield True
    theirs.groups["billing"].offsets[ORDERS[0]] = (13, None)
    yield True
    ours.groups["billing"].offsets[ORDERS[0]] = (50, None)
    yield True
    ours.groups["idle"].state = "Empty"
    yield True


async def test_passes_end_where_a_topic_is_promoted() -> None:
    """Its consumers have moved to the target, read the first of its own records there, and restart. At the source
    others go on: their offset is of other records."""
    theirs, ours = source(billing=billing(90, 90)), target()
    shown = list[str]()

    def show(lines: Sequence[str]) -> None:
        if not shown:
            ours.promoted["orders"] = "id"
            ours.ends.update(dict.fromkeys(ORDERS, 100))
            ours.groups["billing"].offsets |= dict.fromkeys(ORDERS, (110, None))
            theirs.groups["billing"].offsets |= dict.fromkeys(ORDERS, (190, None))
        shown.extend(lines)
        if len(shown) == 2:
            scope.cancel()

    with trio.fail_after(20):
        async with syncing(theirs, ours, topics="orders") as sync:
            with trio.CancelScope() as scope:
                await follow(sync, 0.01, show)
    assert shown[0] == "billing: copied orders-0:90, orders-1:90"
    assert shown[1].startswith("orders-0, orders-1: left out: it was promoted, ")
    assert ours.groups["billing"].offsets == dict.fromkeys(ORDERS, (110, None))


async def test_a_cluster_that_is_away_for_a_while_is_reported() -> None:
    theirs, ours = source(billing=billing()), target()
    shown: list[str] = []

    def show(lines: Sequence[str]) -> None:
        shown.extend(lines)
        if len(shown) == 1:
            inner.cancel()
        elif len(shown) == 2:
            scope.cancel()

    with trio.fail_after(30):
        async with theirs.running(), trio.open_nursery() as nursery:
            inner = await nursery.start(_run, ours)
            with patient_sync(theirs, ours, seconds=1.0) as sync, trio.CancelScope() as scope:
                await follow(sync, 0.05, show)
    assert shown[0] == "billing: copied orders-0:12, orders-1:7"
    assert "left out: " in shown[1]


async def _run(ours: GroupBrokers, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
    with trio.CancelScope() as scope:
        async with ours.running():
            task_status.started(scope)
            await trio.sleep_forever()


# -- the command


def run(theirs: GroupBrokers, ours: GroupBrokers, *arguments: str) -> int:
    return trio.run(_run_command, theirs, ours, arguments)


async def _run_command(theirs: GroupBrokers, ours: GroupBrokers, arguments: Sequence[str]) -> int:
    """In a thread beside the brokers."""
    async with theirs.running(), ours.running():
        brokers = ["--from", str(theirs.bootstrap), "--to", str(ours.bootstrap)]
        return await trio.to_thread.run_sync(shoal, ["groups", "sync", *brokers, *arguments])


def test_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source(billing=billing()), target()) == 0
    assert capsys.readouterr().out.splitlines() == [
        "billing: copied orders-0:12, orders-1:7",
        DONE.format("2 offsets", 0, 0),
    ]
    assert run(source(billing=billing()), target(groups={"billing": Group(state="Stable")})) == 1
    assert run(source(billing=billing()), target(ends=(1, 100))) == 1
    assert run(source(billing=billing()), target(mute={1}), "--seconds", "1") == 5


def test_clusters_of_a_file_are_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    async def with_file() -> int:
        theirs, ours = source(billing=billing()), target()
        async with theirs.running(), ours.running():
            file = tmp_path / "shoal.toml"
            clusters = "".join(
                f'[[cluster]]\nname = "{name}"\nbootstrap = "{brokers.bootstrap}"\n'
                for name, brokers in (("dc1", theirs), ("target", ours))
            )
            listener = '[[listener]]\nname = "l"\ncluster = "dc1"\nlisten = "127.0.0.1:39092"\nports = "39093-39099"\n'
            file.write_text(clusters + listener)
            return await trio.to_thread.run_sync(
                shoal, ["groups", "sync", "-c", str(file), "--source", "dc1", "--topics", "orders"]
            )

    assert trio.run(with_file) == 0
    assert capsys.readouterr().out.startswith("billing: copied ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--to", "b:1"], "--from: is missing: give HOST:PORT, or -c shoal.toml"),
        (["--from", "a:1"], "--to: is missing: give HOST:PORT, or -c shoal.toml"),
        (["--source", "dc1", "--to", "b:1"], "--source: needs -c shoal.toml: give the address as --from HOST:PORT"),
        (["-c", "x.toml", "--source-tls"], "-c: is given together with TLS or SASL flags: the file has these settings"),
        (["--from", "a:1", "--to", "b:1", "--target-sasl-username", "x"], "--target-sasl-mechanism: is missing: "),
        (
            ["--from", "a:1", "--to", "b:1", "--source-sasl-mechanism", "PLAIN"],
            "--source-sasl-password-file: is missing: ",
        ),
    ],
)
def test_wrong_flags(arguments: list[str], text: str) -> None:
    with pytest.raises(OperatorError) as raised:
        main(["sync", *arguments])
    assert str(raised.value).startswith(text)


def test_names_of_groups_are_escaped_for_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Any client that may commit offsets names a group."""
    _show(["\x1b[2J\u202eevil: copied orders-0:12"])
    assert capsys.readouterr().out == "\\x1b[2J\\u202eevil: copied orders-0:12\n"


def test_an_error_is_one_line_whatever_a_broker_says(capsys: pytest.CaptureFixture[str]) -> None:
    report_errors([("broker 1", "INVALID_CONFIG: \x1b[2J\nshoal: error: forged")], as_json=False)
    assert capsys.readouterr().err == "shoal: error: broker 1: INVALID_CONFIG: \\x1b[2J\\nshoal: error: forged\n"
