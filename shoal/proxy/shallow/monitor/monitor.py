"""The mirrors of one wrapping listener: clock, log, questions to the source, state file (rules: protocol).

Nothing here changes what a mirror gets, unless `on-gap = "stop"`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.shallow.monitor.mirrors import MAX_PARTITIONS, Copied, MirrorGap, Mirrors, mirror_name
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.config.settings import OnGap
from shoal.proxy.events.logs import LogThrottle, event
from shoal.proxy.shallow.files.mirrored import MirroredFile, MirroredState
from shoal.proxy.shallow.leaders import Leaders
from shoal.proxy.shallow.monitor.gaps import Gaps
from shoal.proxy.shallow.monitor.statistics import MirrorStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Set

    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.shallow.interlock.flow import Flow
    from shoal.protocol.shallow.monitor.partition import PartitionCopy
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.listener.listener import Listener

__all__ = ["MirrorMonitor", "MirrorMonitors"]

log = logging.getLogger("shoal.mirror")

_OBSERVE_SECONDS = 2.0  # an end that no answer to the mirror has reported for this long is asked for
_SAVE_SECONDS = 2.0
_SAVED_PER_SECOND = 2000  # partitions: a file of 20,000 is 2 MB, and written every 10 s
_LEARN_SECONDS = 30.0  # and topic ids are learnt at least this often: old clients do not ask for them
_ROUND_SECONDS = 4.0  # for all questions of one round
_SHOWN = 20  # partitions of each mirror in /status
_QUIET_SECONDS = 300.0  # between two lines about a source that does not answer


class MirrorMonitor:
    """One for each wrapping listener. `covered`: client ids of live consumers, and what their requests cover that were
    answered since a time.
    """

    def __init__(self, listener: Listener) -> None:
        self.mirrors = Mirrors()
        self._listener = listener
        self._cluster = listener.cluster
        self._source = Leaders(listener.cluster)
        self.gaps = Gaps(listener)
        file = listener.settings.mirrored_file
        self._file = None if file is None else MirroredFile(listener.name, file, listener.state_failed)
        self._of_cluster: str | None = None
        self._is_saving = self._has_ended = False
        self._saved_at = trio.current_time()
        self._saved: MirroredState | None = None
        self._restore()
        listener.cluster.when_identified.append(self._identified)
        self._warned = set[tuple[str, TopicPartition]]()
        self._suspects = set[tuple[str, TopicPartition]]()
        self._throttle = LogThrottle()
        self._is_asking = False
        self._asked_at = float("-inf")
        self._was_full = False
        self.producers = 0  # connections to the paired listener
        self.when_truncated: list[Callable[[str, Set[TopicPartition]], None]] = []  # called with the cluster, too
        self.covered: Callable[[float], Iterable[tuple[str, Iterable[TopicPartition]]]] = lambda since: ()

    # -- fetch side --------------------------------------------------------------------------------------------------

    def connected(self, connection: Connection, flow: Flow) -> None:
        self.mirrors.connected(mirror_name(flow.client_id), flow.token)
        if connection.session is not None:
            self._source.use(connection.session.credentials)

    def ask(self, flow: Flow, partition: TopicPartition, offset: int, now: float) -> None:
        self._identify(partition.topic)
        self.mirrors.ask(mirror_name(flow.client_id), flow.token, partition, offset, now, elsewhere=self._elsewhere)

    def requested(self, flow: Flow, *, read_committed: bool) -> None:
        mirror = mirror_name(flow.client_id)
        self.mirrors.requested(mirror, read_committed=read_committed, is_proven=flow.is_proven)

    def is_stopped(self, flow: Flow, partition: TopicPartition) -> bool:
        return self.gaps.is_stopped(mirror_name(flow.client_id), partition)

    def asked(self, flow: Flow, partition: TopicPartition, offset: int) -> PartitionCopy | None:
        return self.mirrors.asked(mirror_name(flow.client_id), flow.token, partition, offset)

    def copied(self, flow: Flow, partition: TopicPartition) -> PartitionCopy | None:
        """Whatever this consumer asks for."""
        return self.mirrors.get(mirror_name(flow.client_id), partition)

    def answered(
        self, flow: Flow, partition: TopicPartition, copy: PartitionCopy, ends: tuple[int, int], now: float
    ) -> None:
        gaps = copy.answer(*ends, now)
        if gaps:
            self._report(MirrorGap(mirror_name(flow.client_id), partition, gap) for gap in gaps)

    def _identify(self, topic: str) -> None:
        topic_id = self._cluster.topic_id(topic)
        if topic_id is not None:
            self._report(self.mirrors.identify(topic, topic_id))

    # -- produce side ------------------------------------------------------------------------------------------------

    def appended(self, key: EnvelopeKey, target: str) -> None:
        if self.is_source(key.cluster):
            self.mirrors.appended(key, target, trio.current_time())

    def is_source(self, cluster: str) -> bool:
        """As the key of an envelope has it: the id, or the name while the id was unknown."""
        return cluster in (self._cluster.cluster_id, self._cluster.name)

    def source_of(self, cluster: str, topic: str) -> tuple[str, bytes | None]:
        """-> the cluster's id, and the topic's."""
        return self._cluster.cluster_id or cluster, self._cluster.topic_id(topic)

    def arrived(self, target: TopicPartition, records: int, crc: int) -> None:
        self.mirrors.arrived(target, records, crc, trio.current_time())

    # -- regularly ---------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if not self._listener.may_spawn:
            return
        for client_id, partitions in self.covered(now - _OBSERVE_SECONDS):
            self.mirrors.watched(mirror_name(client_id), partitions, now)
        if self.producers:
            self.mirrors.settle(now)
        gone = self.mirrors.forget(now, elsewhere=self._elsewhere)
        self._warned -= gone
        self._suspects -= gone
        if self.mirrors.left_out and not self._was_full:
            self._was_full = True
            what = f"listener {self._listener.name!r}: lag and gaps of at most {MAX_PARTITIONS} partitions are followed"
            values = event(what, listener=self._listener.name, partitions=MAX_PARTITIONS)
            log.warning("mirror-partitions-left-out", extra=values)
        self.gaps.tick()
        pause = max(_SAVE_SECONDS, len(self.mirrors) / _SAVED_PER_SECOND)
        if self._file is not None and not self._is_saving and now - self._saved_at >= pause:
            self._saved_at, state = now, self._state(is_exact=False)
            if state != self._saved:
                self._is_saving, self._saved = True, state
                self._listener.spawn(partial(self._save, self._file, state))
        due = self.mirrors.unobserved(now - _OBSERVE_SECONDS)
        is_time = len(self.mirrors) > 0 and now - self._asked_at >= _LEARN_SECONDS
        if (due or is_time) and not self._is_asking and not self._source.must_log_in:
            self._is_asking, self._asked_at = True, now
            self._listener.spawn(partial(self._ask_source, due))

    @property
    def _elsewhere(self) -> bool:
        return self._listener.settings.shallow.on_gap is OnGap.REPORT_RUNNING

    async def _ask_source(self, due: list[tuple[str, TopicPartition, PartitionCopy]]) -> None:
        """Never raises."""
        try:
            with trio.move_on_after(_ROUND_SECONDS) as scope:
                await self._learn_topics()
                for read_committed in (False, True):
                    ours = [copy for copy in due if self._reads_committed(copy[0], copy[1]) is read_committed]
                    if ours:
                        await self._ask_ends(ours, read_committed=read_committed)
            if scope.cancelled_caught:
                raise NoAnswer(f"no answer within {_ROUND_SECONDS:g} s")
        except NoAnswer as error:
            if self._throttle.is_news("source", _QUIET_SECONDS):
                name = self._cluster.name
                what = f"cluster {name!r} does not say where its partitions end: {error}. The lag of mirrors is unknown"
                log.warning("mirror-lag-unknown", extra=event(what, cluster=name, error=str(error)))
        finally:
            self._is_asking = False

    def _reads_committed(self, mirror: str, partition: TopicPartition) -> bool:
        """Records behind an open transaction are not lost, though a mirror that reads committed ones since its restart
        was given some: of what seems to be lost, the end of the log is asked for.
        """
        return self.mirrors.reads_committed(mirror) and (mirror, partition) not in self._suspects

    async def _learn_topics(self) -> None:
        topics = {partition.topic for _, partition, _ in self.mirrors}
        missing = await self._source.learn(topics)
        if missing is None:
            return
        for topic in topics - missing:
            self._identify(topic)
        for _, partition, copy in self.mirrors:
            if partition.topic in missing:
                copy.lose_sight()

    async def _ask_ends(self, due: list[tuple[str, TopicPartition, PartitionCopy]], *, read_committed: bool) -> None:
        given = [copy.given for _, _, copy in due]
        asked_at = trio.current_time()
        found = await self._source.ends({partition for _, partition, _ in due}, read_committed=read_committed)
        now = trio.current_time()
        truncated = set[TopicPartition]()
        for (mirror, partition, copy), before in zip(due, given, strict=True):
            ends = found.get(partition)
            if ends is None or self.mirrors.get(mirror, partition) is not copy:
                continue
            if before > ends.end and not self._is_sure(mirror, partition):
                continue
            self._suspects.discard((mirror, partition))
            gap = copy.observe(ends.start, ends.end, given=before, asked_at=asked_at, now=now)
            if gap is not None:
                self._report([MirrorGap(mirror, partition, gap)])
                truncated.add(partition)
            self._warn_of_loss(mirror, partition, copy, now)
        for report in self.when_truncated if truncated else ():
            report(self._cluster.cluster_id or self._cluster.name, truncated)

    def _is_sure(self, mirror: str, partition: TopicPartition) -> bool:
        """A log that ends too early may be that of another topic of this name: its id must be known first."""
        key = mirror, partition
        if key in self._suspects:
            self._suspects.discard(key)
            return True
        self._suspects.add(key)
        self._source.ask_again()
        return False

    def _warn_of_loss(self, mirror: str, partition: TopicPartition, copy: PartitionCopy, now: float) -> None:
        """Once, until the mirror passes over it."""
        lost, key = copy.lost_so_far, (mirror, partition)
        if lost is not None and key not in self._warned and not self.mirrors.is_running(mirror, now):
            self._warned.add(key)
            self.gaps.warn_of_loss(MirrorGap(mirror, partition, lost))

    # -- state -------------------------------------------------------------------------------------------------------

    def _restore(self) -> None:
        """Raises OperatorError."""
        state = None if self._file is None else self._file.load()
        if state is not None:
            self._of_cluster = state.cluster
            self.mirrors.restore(state.positions, trio.current_time(), is_exact=state.is_exact)

    def _identified(self, cluster_id: str) -> None:
        """What is known of another cluster does not apply."""
        if self._of_cluster not in (None, cluster_id):
            if self._file is not None:
                self._file.discard(f"of cluster {self._of_cluster}, and this is {cluster_id}")
            self.mirrors = Mirrors()
        self._of_cluster = cluster_id

    def _state(self, *, is_exact: bool) -> MirroredState:
        return MirroredState(self._of_cluster, is_exact, self.mirrors.positions())

    async def _save(self, file: MirroredFile, state: MirroredState) -> None:
        try:
            await trio.to_thread.run_sync(file.save, state)
        finally:
            self._is_saving = False

    # -- results -----------------------------------------------------------------------------------------------------

    def _report(self, found: Iterable[MirrorGap]) -> None:
        if gaps := list(found):
            self._warned -= {(gap.mirror, gap.partition) for gap in gaps}
            self.gaps.report(gaps)

    def statistics(self) -> MirrorStatistics:
        return MirrorStatistics(
            copied=self.mirrors.copied(trio.current_time()),
            gaps=dict(self.gaps.counts),
            stopped=len(self.gaps.stopped),
            left_out=self.mirrors.left_out,
        )

    def status(self) -> list[dict[str, object]]:
        """Each mirror, with the partitions that are furthest behind."""
        mirrors: dict[str, list[Copied]] = {}
        for copied in self.mirrors.copied(trio.current_time()):
            mirrors.setdefault(copied.mirror, []).append(copied)
        return [_status(mirror, found) for mirror, found in mirrors.items()]

    def end(self) -> None:
        self._source.close()
        if self._has_ended:
            return
        self._has_ended = True
        self._listener.cluster.when_identified.remove(self._identified)
        if self._file is not None:
            self._file.save(self._state(is_exact=True))


def _status(mirror: str, found: list[Copied]) -> dict[str, object]:
    known = [(copied, copied.lag) for copied in found if copied.lag is not None]
    worst = sorted(known, key=lambda pair: (-pair[1].seconds, -pair[1].records))[:_SHOWN]
    return {
        "mirror": mirror,
        "partitions": len(found),
        "unknown": len(found) - len(known),
        "lag_records": sum(lag.records for _, lag in known),
        "lag_bytes": round(sum(lag.size for _, lag in known)),
        "lag_seconds": round(max((lag.seconds for _, lag in known), default=0.0), 1),
        "furthest_behind": [
            {
                "topic": copied.partition.topic,
                "partition": copied.partition.partition,
                "mirrored": copied.mirrored,
                "records": lag.records,
                "bytes": round(lag.size),
                "seconds": round(lag.seconds, 1),
            }
            for copied, lag in worst
        ],
    }


class MirrorMonitors:
    """The monitors of the wrapping listeners paired with one unwrapping listener."""

    def __init__(self) -> None:
        self._all: list[MirrorMonitor] = []
        self._producers = 0  # open connections
        self.when_truncated: list[Callable[[str, Set[TopicPartition]], None]] = []

    def __iter__(self) -> Iterator[MirrorMonitor]:
        return iter(self._all)

    def join(self, monitor: MirrorMonitor) -> None:
        self._all.append(monitor)
        monitor.producers, monitor.when_truncated = self._producers, self.when_truncated

    def leave(self, monitor: MirrorMonitor) -> None:
        self._all.remove(monitor)

    def producer_opened(self) -> None:
        self._producers += 1
        for monitor in self._all:
            monitor.producers += 1

    def producer_closed(self) -> None:
        self._producers -= 1
        for monitor in self._all:
            monitor.producers -= 1

    def source_of(self, cluster: str, topic: str) -> tuple[str, bytes | None]:
        """The id of an envelope's source cluster, and that of its topic if a wrapping listener knows it."""
        for monitor in self._all:
            if monitor.is_source(cluster):
                return monitor.source_of(cluster, topic)
        return cluster, None

    def appended(self, key: EnvelopeKey, target: str) -> None:
        """An envelope of a listener's mirror says nothing about those of others, even if they read the same."""
        makers = [monitor for monitor in self._all if monitor.mirrors.knows(key.flow)]
        for monitor in makers or self._all:
            monitor.appended(key, target)

    def arrived(self, target: TopicPartition, records: int, crc: int) -> None:
        for monitor in self._all:
            monitor.arrived(target, records, crc)
