"""Reads records and committed offsets of a cluster, with Shoal's own credentials for it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.messages.fetch import OWN_VERSION, read_fetch_response
from shoal.protocol.records.aborted import AbortedTransactions
from shoal.protocol.records.batch import HEADER_SIZE, open_batch, read_batch_header
from shoal.protocol.records.recordset import split
from shoal.protocol.shallow.translate.align import Seen, mark
from shoal.protocol.wire.error_codes import error_name
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.cli.asking.cluster_groups import ClusterGroups
from shoal.proxy.cluster.brokers import NoAnswer
from shoal.proxy.cluster.cluster import Cluster, NotLearned
from shoal.proxy.shallow.leaders import Leaders

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from shoal.protocol.messages.fetch import FetchedPartition
    from shoal.proxy.config.settings import ClusterSettings, Limits
    from shoal.proxy.shallow.leaders import Ends

    Fetch = Callable[[int, int], Awaitable[tuple[bytes, FetchedPartition]]]

__all__ = ["MAX_RECORDS", "Cannot", "ClusterReader", "Window"]

MAX_RECORDS = 1_000_000
"""Records of one gap, on each side: 130 MB, and about 10 s. A mirror copies far less raw before it is proven."""
_FETCH_BYTES = 1024 * 1024
_BACK = 8  # the base of the number of offsets that are read backwards
_MAX_BATCH_BYTES = 64 * 1024 * 1024  # decompressed
_CLIENT_ID = "shoal-translate"
_GROUP_SECONDS, _PAUSE_SECONDS = 10.0, 0.5  # while a coordinator is being elected


class Cannot(Exception):
    """The message says why."""


class Window(NamedTuple):
    """All records from `first` up to `end`; `first` is not below the first offset of the log. `has_append_times`: some
    have the time at which this cluster has appended them (LogAppendTime).
    """

    first: int
    end: int
    records: list[Seen]
    has_append_times: bool


class ClusterReader:
    """Close it. Raises OperatorError."""

    def __init__(self, settings: ClusterSettings, limits: Limits) -> None:
        self.name = settings.name
        self._cluster = Cluster(settings, limits)
        self._brokers = Leaders(self._cluster, client_id=_CLIENT_ID)

    def close(self) -> None:
        self._brokers.close()

    async def cluster_id(self) -> str | None:
        """Raises Cannot."""
        if self._cluster.cluster_id is None:
            try:
                await self._cluster.ask_metadata()
            except NotLearned as error:
                raise self._cannot(error) from error
        return self._cluster.cluster_id

    @property
    def identity(self) -> str:
        """Its id, once that is known; else its name."""
        return self._cluster.cluster_id or self.name

    async def read(
        self,
        partition: TopicPartition,
        first: int,
        end: int | None,
        *,
        with_times: bool = True,
        with_aborts: bool = False,
    ) -> Window:
        """`end` None: what the log has now. Without times, records of different ones may be equal. `with_aborts`: says
        what was aborted. Raises Cannot.
        """
        try:
            await self._learn(partition.topic)
            ends = await self._brokers.ends([partition], read_committed=False)
            leader = self._brokers.leader(partition)
            if partition not in ends or leader is None:
                raise Cannot(f"cluster {self.name!r} has no leader for {partition.topic}-{partition.partition}")
            start, log_end = ends[partition]
            first, end = max(first, start), log_end if end is None else min(end, log_end)
            stable = first  # behind it are open transactions
            if with_aborts and partition in (committed := await self._brokers.ends([partition], read_committed=True)):
                stable = max(first, min(end, committed[partition].end))
            found, has_append_times = list[Seen](), False
            for at, until, read_committed in ((first, stable, True), (stable, end, False)):
                fetch = partial(self._brokers.fetch, leader, partition, read_committed=read_committed)
                more, have_append_times = await self._records(fetch, partition, at, until, with_times=with_times)
                found += more
                has_append_times |= have_append_times
            return Window(first, end, found, has_append_times)
        except (NoAnswer, RemoteProtocolError) as error:
            raise self._cannot(error) from error

    async def _learn(self, topic: str) -> None:
        self._brokers.ask_again()
        missing = await self._brokers.learn([topic])
        if missing:
            raise Cannot(f"cluster {self.name!r} has no topic {topic}")

    async def _records(
        self, fetch: Fetch, partition: TopicPartition, at: int, end: int, *, with_times: bool
    ) -> tuple[list[Seen], bool]:
        found, has_append_times = list[Seen](), False
        name = f"{partition.topic}-{partition.partition}"
        while at < end:
            frame, answer = await fetch(at, _FETCH_BYTES)
            if answer.error_code:
                raise Cannot(f"cluster {self.name!r} answers {error_name(answer.error_code)} for {name}")
            following, transactions = at, _aborted_in(frame)
            for batch in split(frame, answer.start, answer.end).spans:
                if batch.magic < 2:
                    raise Cannot(f"{name} has records of an old format")
                header, records = open_batch(frame, batch.start, batch.end, limit=_MAX_BATCH_BYTES)
                following = max(following, header.last_offset + 1)
                payload = memoryview(frame)[batch.start + HEADER_SIZE : batch.end]
                is_aborted = transactions.includes(header, payload)
                has_append_times |= header.is_log_append_time and not header.is_control
                for record in records:
                    offset = header.base_offset + record.offset_delta
                    if at <= offset < end:
                        time = header.timestamp(record) if with_times else 0
                        found.append(Seen(offset, b"" if header.is_control else mark(time, record), is_aborted))
            if len(found) > MAX_RECORDS:
                raise Cannot(f"more than {MAX_RECORDS:,} records of {name} would have to be read")
            if following == at:  # a new leader may be behind
                raise Cannot(f"cluster {self.name!r} has nothing of {name} at offset {at} (yet)")
            at = following
        return found, has_append_times

    async def given_below(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """What a consumer of committed records has passed without a record directly before its offset, because its
        transaction was aborted -> where that begins; else the offset. Without partitions that cannot be read.
        """
        found = dict[TopicPartition, int]()
        with suppress(NoAnswer):
            self._brokers.ask_again()
            await self._brokers.learn({partition.topic for partition in offsets})
            for partition, ends in (await self._brokers.ends(offsets, read_committed=True)).items():
                found |= await self._given_in(partition, offsets[partition], ends)
        return found

    async def _given_in(self, partition: TopicPartition, offset: int, ends: Ends) -> dict[TopicPartition, int]:
        leader = self._brokers.leader(partition)
        if not ends.start < offset <= ends.end:
            return {partition: offset}
        with suppress(NoAnswer, RemoteProtocolError, Cannot):
            if leader is not None:
                return {partition: await self._given_below(leader, partition, offset, ends)}
        return {}

    async def _given_below(self, leader: int, partition: TopicPartition, offset: int, ends: Ends) -> int:
        """It reads backwards, in steps that grow, up to a committed record."""
        found = end = offset
        for step in count():
            first = max(offset - _BACK**step, ends.start)
            size = _FETCH_BYTES if step else 1  # one batch, which is enough in most cases
            is_given, aborted = await self._last_aborted(leader, partition, first, end, size)
            found = found if aborted is None else aborted
            if is_given or first == ends.start:
                break
            end = first
        return found

    async def _last_aborted(
        self, leader: int, partition: TopicPartition, at: int, end: int, max_bytes: int
    ) -> tuple[bool, int | None]:
        """-> whether there is a committed record in this range; the first aborted one behind the last of them."""
        is_given, aborted = False, None
        while at < end:
            frame, answer = await self._brokers.fetch(leader, partition, at, max_bytes, read_committed=True)
            if answer.error_code:
                name = f"{partition.topic}-{partition.partition}"
                raise Cannot(f"cluster {self.name!r} answers {error_name(answer.error_code)} for {name}")
            following, transactions = at, _aborted_in(frame)
            for batch in split(frame, answer.start, answer.end).spans:
                if batch.magic < 2:
                    return True, None
                header = read_batch_header(frame, batch.start, batch.end)
                is_aborted = transactions.includes(header, memoryview(frame)[batch.start + HEADER_SIZE : batch.end])
                following = max(following, header.last_offset + 1)
                if header.base_offset >= end or header.is_control or not header.record_count:
                    continue
                if not is_aborted:
                    is_given, aborted = True, None
                elif aborted is None:
                    aborted = max(header.base_offset, at)
            if following == at:
                break
            at = following
        return is_given, aborted

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        """The group's offsets. Raises Cannot."""
        groups = ClusterGroups(self.name, self._brokers, seconds=_GROUP_SECONDS, pause_seconds=_PAUSE_SECONDS)
        found, failed = await groups.committed([group])
        if group in failed:
            raise Cannot(f"cluster {self.name!r}: the offsets of group {group}: {failed[group].why}")
        return {partition: committed.offset for partition, committed in found[group].items()}

    def _cannot(self, error: Exception) -> Cannot:
        return Cannot(f"cluster {self.name!r}: {error}")


def _aborted_in(frame: bytes) -> AbortedTransactions:
    listed = read_fetch_response(frame, OWN_VERSION).aborted
    return AbortedTransactions([(transaction.producer_id, transaction.first_offset) for transaction in listed])
