"""One pass through the groups, and its repetition."""

from __future__ import annotations

import re
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.groups import Committed
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cli.asking.cluster_groups import HAS_MEMBERS, ClusterGroups, slices
from shoal.proxy.cli.asking.survey import brokers_of
from shoal.proxy.cli.groups.decision import Decision, Verdict, decide
from shoal.proxy.cli.groups.report import Report
from shoal.proxy.cli.groups.target_logs import TargetLogs
from shoal.proxy.cli.probe import unreachable
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.config.problems import OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from shoal.protocol.messages.groups import ListedGroup
    from shoal.proxy.cli.asking.cluster_groups import Failure
    from shoal.proxy.cluster.brokers import Brokers
    from shoal.proxy.config.settings import ClusterSettings, Limits

__all__ = ["GROUPS", "SECONDS", "GroupSync", "Options", "follow", "open_sync"]

GROUPS = "(?!__).*"
SECONDS = 30.0
_PAUSE_SECONDS = 0.5  # before a question is repeated
_ANSWER_SECONDS = 10.0
_CLIENT_ID = "shoal-groups"
_GROUPS_AT_ONCE = 50  # their offsets are in memory, and soon committed after they were read
_OF_CONSUMERS = ("consumer", "")  # protocol types; empty: the group never had a member
_INACTIVE = ("Empty", "Dead")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`groups`, `topics`: regular expressions that match whole names; topics are those of the source, None: all.

    `seconds`: how long one question is repeated until all brokers have answered it.
    """

    groups: str = GROUPS
    topics: str | None = None
    prefix: str = ""
    allow_backwards: bool = False
    dry_run: bool = False
    seconds: float = SECONDS
    pause_seconds: float = _PAUSE_SECONDS


@contextmanager
def open_sync(
    source: tuple[ClusterSettings, Limits], target: tuple[ClusterSettings, Limits], options: Options
) -> Iterator[GroupSync]:
    """Raises OperatorError."""
    patience = min(options.seconds, _ANSWER_SECONDS)
    theirs, ours = (brokers_of(*cluster, client_id=_CLIENT_ID, patience=patience) for cluster in (source, target))
    with closing(theirs), closing(ours):
        yield GroupSync(theirs, ours, options)


async def follow(sync: GroupSync, every: float, show: Callable[[Sequence[str]], None]) -> None:
    """Passes without end; `show` gets what has changed. Raises OperatorError in the first pass only.

    Promoted partitions are left out: consumers that restart there, among the target's own records, would be moved to an
    offset of the source, past what they have not read.
    """
    known = set[str]()
    report = await sync.run_once(with_promoted=False)
    while True:
        show([*report.copied, *(note.text for note in report.notes if note.key not in known)])
        known = {note.key for note in report.notes}
        await trio.sleep(every)
        try:
            report = await sync.run_once(with_promoted=False)
        except OperatorError as error:
            report = Report()
            for where, what in error.problems:
                report.leave_out(where, what)


class GroupSync:
    def __init__(self, source: Brokers, target: Brokers, options: Options) -> None:
        self._options = options
        self._patience = {"seconds": options.seconds, "pause_seconds": options.pause_seconds}
        self._source = ClusterGroups("source", source, **self._patience)
        self._target = ClusterGroups("target", target, **self._patience)

    async def run_once(self, *, with_promoted: bool = True) -> Report:
        """Raises OperatorError if no broker of a cluster returns the metadata."""
        report = Report(dry_run=self._options.dry_run)
        theirs, ours = await _listed(self._source, report), await _listed(self._target, report)
        logs = TargetLogs(self._target.brokers, **self._patience, with_promoted=with_promoted)
        one_pass = _Pass(self._source, self._target, ours, logs, self._options, report)
        names = [name for name in sorted(theirs) if self._is_wanted(theirs[name], report)]
        with _reachable(self._target.brokers):
            for some in slices(names, _GROUPS_AT_ONCE):
                await one_pass.run(some)
        one_pass.report_partitions()
        return report

    def _is_wanted(self, group: ListedGroup, report: Report) -> bool:
        if not re.fullmatch(self._options.groups, group.name):
            return False
        if group.protocol_type not in _OF_CONSUMERS:
            report.leave_out(group.name, _of_type(group, "source"), is_partial=False)
            return False
        return True


async def _listed(groups: ClusterGroups, report: Report) -> dict[str, ListedGroup]:
    with _reachable(groups.brokers):
        listed, silent = await groups.listed()
    for broker, why in silent.items():
        report.leave_out(f"the groups of {broker} at the {groups.side}", why, is_untried=True)
    return listed


class _Pass:
    """`there`: the groups of the target."""

    def __init__(
        self,
        source: ClusterGroups,
        target: ClusterGroups,
        there: Mapping[str, ListedGroup],
        logs: TargetLogs,
        options: Options,
        report: Report,
    ) -> None:
        self._source = source
        self._target = target
        self._there = there
        self._logs = logs
        self._options = options
        self._report = report
        self._others: set[TopicPartition] = set()  # partitions of the target without an end

    async def run(self, names: Sequence[str]) -> None:
        """Raises NoAnswer if the target's metadata is not to be had."""
        committed, failed = await self._source.committed(names)
        for name, failure in failed.items():
            self._report.leave_out(name, f"source: {failure.why}", is_untried=failure.is_passing)
        offsets = {name: self._at_target(rows) for name, rows in committed.items()}
        await self._logs.learn({partition.topic for rows in offsets.values() for partition in rows})
        self._others |= {partition for rows in offsets.values() for partition in rows} - self._logs.ends.keys()
        wanted = {
            name: {partition: row for partition, row in rows.items() if partition in self._logs.ends}
            for name, rows in offsets.items()
        }
        await self._copy({name: rows for name, rows in wanted.items() if rows and self._may_be_copied(name)})

    def report_partitions(self) -> None:
        """The others, once for all groups. Topics that were not asked for may be ordinary ones."""
        for is_untried in (False, True):
            reasons = {
                partition: self._logs.why_not(partition)
                for partition in self._others
                if (partition in self._logs.unanswered) is is_untried
            }
            is_partial = is_untried or self._options.topics is not None
            self._report.leave_out_partitions(reasons, is_partial=is_partial, is_untried=is_untried)

    def _at_target(self, rows: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, Committed]:
        topics, prefix = self._options.topics, self._options.prefix
        return {
            TopicPartition(prefix + topic, partition): committed
            for (topic, partition), committed in rows.items()
            if topics is None or re.fullmatch(topics, topic)
        }

    def _may_be_copied(self, name: str) -> bool:
        group = self._there.get(name)
        if group is None:
            return True
        if group.protocol_type not in _OF_CONSUMERS:
            self._report.leave_out(name, _of_type(group, "target"))
            return False
        if group.state not in _INACTIVE:
            self._report.leave_out(name, _active(f" ({group.state})"))
            return False
        return True

    async def _copy(self, wanted: Mapping[str, Mapping[TopicPartition, Committed]]) -> None:
        """The target's offsets are read again before each attempt: a group may have moved on."""
        deadline = trio.current_time() + self._options.seconds
        while wanted:
            there, failed = await self._target.committed(list(wanted))
            decisions = {name: self._decided(wanted[name], there[name]) for name in wanted if name in there}
            codes, refused = await self._commit(wanted, decisions)
            failed = {**failed, **refused}
            for name in sorted(decisions.keys() - refused.keys()):
                self._report.group(name, decisions[name], codes.get(name, {}))
            again = [name for name, failure in failed.items() if failure.is_passing]
            if trio.current_time() >= deadline:
                again = []
            for name in sorted(failed.keys() - set(again)):
                why = _active() if failed[name].why == HAS_MEMBERS else f"target: {failed[name].why}"
                self._report.leave_out(name, why, is_untried=failed[name].is_passing)
            wanted = {name: wanted[name] for name in again}
            if wanted:
                await trio.sleep(self._options.pause_seconds)

    def _decided(
        self, wanted: Mapping[TopicPartition, Committed], there: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, Decision]:
        found = dict[TopicPartition, Decision]()
        for partition, committed in wanted.items():
            former = there.get(partition)
            found[partition] = decide(
                committed.offset,
                None if former is None else former.offset,
                self._logs.ends[partition],
                allow_backwards=self._options.allow_backwards,
            )
        return found

    async def _commit(
        self,
        wanted: Mapping[str, Mapping[TopicPartition, Committed]],
        decisions: Mapping[str, Mapping[TopicPartition, Decision]],
    ) -> tuple[dict[str, dict[TopicPartition, int]], dict[str, Failure]]:
        """What is to be copied, with the metadata of the source."""
        offsets = {
            name: {
                partition: Committed(row.offset, wanted[name][partition].metadata)
                for partition, row in rows.items()
                if row.verdict is Verdict.COPY
            }
            for name, rows in decisions.items()
        }
        offsets = {name: rows for name, rows in offsets.items() if rows}
        return ({}, {}) if self._options.dry_run else await self._target.commit(offsets)


@contextmanager
def _reachable(brokers: Brokers) -> Iterator[None]:
    try:
        yield
    except NoAnswer as error:
        raise OperatorError.of(*unreachable(brokers.cluster.settings.bootstrap, error)) from None


def _active(state: str = "") -> str:
    return f"it has members at the target{state}"


def _of_type(group: ListedGroup, where: str) -> str:
    return f'it is no group of consumers at the {where} (its protocol type is "{group.protocol_type}")'
