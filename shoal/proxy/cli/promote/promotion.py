"""The steps of a promotion, and what it reports."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from shoal.command_line import listed
from shoal.protocol.mirror_topics.probe import State
from shoal.protocol.mirror_topics.promotion import encode_promotion, read_promotion
from shoal.protocol.wire.error_codes import ErrorCode, error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.cli.asking.survey import NO_LEADER, ORDINARY, brokers_of, by_reason, said, shown, survey
from shoal.proxy.cli.probe import unreachable
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.config.problems import OperatorError, Problem
from shoal.proxy.config.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shoal.protocol.wire.types import TopicPartition
    from shoal.proxy.cli.asking.survey import Survey
    from shoal.proxy.cluster.brokers import Brokers
    from shoal.proxy.config.settings import ClusterSettings, Limits

__all__ = ["QUIET_SECONDS", "SECONDS", "Options", "Outcome", "Refused", "promote_topics"]

SECONDS = 60.0
QUIET_SECONDS = 5.0  # a mirror with traffic appends many times in it
_PAUSE_SECONDS = 0.5  # between two surveys
_ANSWER_SECONDS = 10.0
_CLIENT_ID = "shoal-promote"
_NO_TOPIC_ID = bytes(16)
_NOT_ALLOWED = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_UNKNOWN = "it is not known whether they are promoted: run shoal promote again"


class Refused(OperatorError):
    """The topics must not be promoted now, and nothing is changed. Exit code 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`seconds`: for all answers before the change, and again for the confirmation."""

    force: bool = False
    dry_run: bool = False
    seconds: float = SECONDS
    quiet_seconds: float = QUIET_SECONDS
    pause_seconds: float = _PAUSE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`is_confirmed`: by all leaders."""

    lines: tuple[str, ...]
    is_confirmed: bool = True


async def promote_topics(settings: ClusterSettings, limits: Limits, names: Sequence[str], options: Options) -> Outcome:
    """Raises Refused, OperatorError."""
    patience = min(options.seconds, _ANSWER_SECONDS)
    with closing(brokers_of(settings, limits, client_id=_CLIENT_ID, patience=patience)) as brokers:
        return await _Promotion(brokers, names, options).run()


class _Promotion:
    def __init__(self, brokers: Brokers, names: Sequence[str], options: Options) -> None:
        self._brokers = brokers
        self._names = names
        self._options = options
        self._promoted: dict[TopicPartition, int] = {}  # by the answer of which broker
        self._ends: dict[TopicPartition, int] = {}  # the last ones before the promotion

    async def run(self) -> Outcome:
        found = await self._settled()
        if found.having(State.MIRROR) and not self._options.force:
            found = await self._quiet(found)
        topics = {partition.topic: found.topics.topics[partition.topic] for partition in found.having(State.MIRROR)}
        already = [self._line(name, "promoted already on") for name in self._names if name not in topics]
        if not topics:
            return Outcome(lines=tuple(already))
        await self._alter({name: topic.topic_id for name, topic in topics.items()})
        if self._options.dry_run:
            return Outcome(
                lines=(*already, *(f"{name}: can be promoted; {self._end_offsets(name)}" for name in topics))
            )
        missing = await self._confirm(list(topics), found)
        late = {partition.topic for partition in missing}
        lines = [self._line(name, "promoted on") for name in topics if name not in late]
        return Outcome(lines=(*already, *lines, *self._late_lines(missing)), is_confirmed=not missing)

    # -- before the change

    async def _settled(self) -> Survey:
        """A survey in which every leader has answered, once leader changes are over. Raises Refused, OperatorError."""
        deadline = trio.current_time() + self._options.seconds
        while True:
            try:
                found = await survey(self._brokers, self._names)
            except NoAnswer as error:
                raise OperatorError.of(*unreachable(self._brokers.cluster.settings.bootstrap, error)) from None
            self._raise_for(found)
            self._note(found)
            waiting = {**found.said(State.PASSING), **found.unanswered}
            if not waiting:
                return found
            if trio.current_time() >= deadline:
                raise OperatorError(self._problems(found, waiting))
            await trio.sleep(self._options.pause_seconds)

    def _raise_for(self, found: Survey) -> None:
        """For what does not change by itself."""
        if problems := (*self._wrong_topics(found), *self._problems(found, found.said(State.REFUSED))):
            raise OperatorError(problems)
        if problems := self._problems(found, dict.fromkeys(found.having(State.ORDINARY), ORDINARY)):
            raise Refused(problems)

    def _wrong_topics(self, found: Survey) -> Iterator[Problem]:
        with_partitions = {topic for topic, _ in found.topics.leaders}
        for name in self._names:
            topic = found.topics.topics.get(name)
            if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                yield Problem(name, "the cluster has no such topic; nothing is changed")
            elif topic.error_code or name not in with_partitions:
                yield Problem(name, f"its metadata: {error_name(topic.error_code)}; nothing is changed")
            elif topic.topic_id == _NO_TOPIC_ID:
                yield Problem(name, "has no topic id in this cluster; nothing is changed")
        leaderless = [partition for partition, why in found.unanswered.items() if why is NO_LEADER]
        if leaderless:
            yield Problem(shown(leaderless), f"{NO_LEADER} now: nothing is changed")

    def _problems(self, found: Survey, reasons: Mapping[TopicPartition, str]) -> tuple[Problem, ...]:
        """One for each leader and reason."""
        named = {partition: said(self._brokers, found, partition, why) for partition, why in reasons.items()}
        return tuple(
            Problem(shown(partitions), f"{why}; nothing is changed") for why, partitions in by_reason(named).items()
        )

    async def _quiet(self, before: Survey) -> Survey:
        """The survey after some seconds. Raises Refused if a mirror has appended anything meanwhile."""
        await trio.sleep(self._options.quiet_seconds)
        found = await self._settled()
        starts, ends = before.ends(), found.ends()
        problems = [
            Problem(
                shown([partition]),
                f"the mirror still writes: the end offset grew from {starts[partition]} to {end}; nothing is changed: "
                "stop the mirror first, or --force",
            )
            for partition, end in ends.items()
            if end > starts.get(partition, end)
        ]
        if problems:
            raise Refused(tuple(problems))
        return found

    # -- the change

    async def _alter(self, topic_ids: Mapping[str, bytes]) -> None:
        request = encode_promotion(self._brokers.client_id, topic_ids, validate_only=self._options.dry_run)
        where = listed(topic_ids)
        try:
            error_code, message = read_promotion(await self._brokers.exchange(None, request))
        except (NoAnswer, RemoteProtocolError) as error:
            raise OperatorError.of(where, f"{_UNKNOWN} ({error})") from None
        if error_code == ErrorCode.REQUEST_TIMED_OUT:
            raise OperatorError.of(where, f"{_UNKNOWN} ({error_name(error_code)})")
        if error_code:
            hint = "; the login needs ALTER_CONFIGS on the cluster" if error_code in _NOT_ALLOWED else ""
            raise OperatorError.of(where, f"{error_name(error_code)}: {message}{hint}; nothing is changed")

    # -- after the change

    async def _confirm(self, names: Sequence[str], before: Survey) -> dict[TopicPartition, str]:
        """-> the partitions of which no leader has confirmed in time, and why."""
        wanted = {partition for partition in before.topics.leaders if partition.topic in names}
        deadline = trio.current_time() + self._options.seconds
        while True:
            try:
                found = await survey(self._brokers, names, self._promoted)
            except NoAnswer as error:
                missing = dict.fromkeys(sorted(wanted - self._promoted.keys()), f"no metadata: {error}")
            else:
                self._note(found)
                reasons = {**dict.fromkeys(wanted, "not in the metadata"), **found.said(*State), **found.unanswered}
                left = sorted(wanted - self._promoted.keys())
                missing = {partition: said(self._brokers, found, partition, reasons[partition]) for partition in left}
            if not missing or trio.current_time() >= deadline:
                return missing
            await trio.sleep(self._options.pause_seconds)

    def _note(self, found: Survey) -> None:
        self._ends |= found.ends()
        self._promoted |= {partition: found.topics.leaders[partition] for partition in found.having(State.PROMOTED)}

    # -- words

    def _line(self, name: str, what: str) -> str:
        leaders = [leader for (topic, _), leader in self._promoted.items() if topic == name]
        size = f"{counted(len(set(leaders)), 'broker')}, {counted(len(leaders), 'partition')}"
        ends = self._end_offsets(name)
        return f"{name}: {what} {size}" + (f"; {ends}" if ends else "")

    def _end_offsets(self, name: str) -> str:
        ends = [f"{partition}:{end}" for (topic, partition), end in sorted(self._ends.items()) if topic == name]
        return f"end offsets {' '.join(ends)}" if ends else ""

    def _late_lines(self, missing: Mapping[TopicPartition, str]) -> Iterator[str]:
        for name in dict.fromkeys(topic for topic, _ in missing):
            reasons = by_reason({partition: why for partition, why in missing.items() if partition.topic == name})
            yield f"{name}: its key is set, but not confirmed by all brokers within {self._options.seconds:g} s:"
            for why, partitions in reasons.items():
                yield f"  {shown(partitions)}: {why}"
            yield "  shoal promote again asks the brokers again"
