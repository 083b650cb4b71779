"""Brokers in memory that keep consumer groups, beside mirror topics."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from shoal.protocol.messages.list_offsets import EARLIEST
from shoal.protocol.records.batch import read_batch_header
from shoal.protocol.records.recordset import split
from shoal.protocol.schema.api import ApiKey
from tests.support.mirror_topics import MirrorBrokers, Partition

__all__ = ["Group", "GroupBrokers", "Offsets"]

Offsets = dict[Partition, tuple[int, str | None]]  # with metadata

NO_TIME: Any = timedelta(0)
HAS_MEMBERS = ErrorCode.unknown_member_id


@dataclass
class Group:
    """`refused`: answers to commits by partition. `joins_late`: after it was listed."""

    offsets: Offsets = field(default_factory=dict)
    state: str = "Empty"
    protocol_type: str = "consumer"
    coordinator: int = 1
    refused: dict[Partition, ErrorCode] = field(default_factory=dict)
    joins_late: bool = False


@dataclass
class GroupBrokers(MirrorBrokers):
    """`errors`: the next answers of an API, before those that are right. A group is made by its first commit.
    `over_quota`: first answers to Fetch, without a partition, as to a client over its quota; then those of a leader
    that is behind, unless there is a record set in `logs`. `aborted`: producer ids and first offsets.
    """

    groups: dict[str, Group] = field(default_factory=dict)
    watermarks: dict[Partition, int] = field(default_factory=dict)  # other ends than those of probes
    errors: defaultdict[ApiKey, list[ErrorCode]] = field(default_factory=lambda: defaultdict(list))
    commits: list[tuple[str, Offsets]] = field(default_factory=list)
    asked: list[ApiKey] = field(default_factory=list)
    over_quota: int = 0
    logs: dict[Partition, bytes] = field(default_factory=dict)
    aborted: dict[Partition, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    fetched: list[int] = field(default_factory=list)  # offsets

    def _other(self, key: int, node_id: int, request: Any, make: Any) -> Any:
        answers = {
            ApiKey.LIST_GROUPS: self._list,
            ApiKey.FIND_COORDINATOR: self._find,
            ApiKey.OFFSET_FETCH: self._fetch,
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.LIST_OFFSETS: self._ends,
            ApiKey.FETCH: self._read,
        }
        self.asked.append(ApiKey(key))
        error = self.errors[ApiKey(key)].pop(0) if self.errors[ApiKey(key)] else ErrorCode.none
        return answers[ApiKey(key)](node_id, request, make, error)

    def _list(self, node_id: int, request: Any, make: Any, error: ErrorCode) -> Any:
        assert request.states_filter == ()
        ours = [
            (name, group) for name, group in self.groups.items() if group.coordinator == node_id and not error.value
        ]
        rows = [
            make("ListedGroup", group_id=name, protocol_type=group.protocol_type, group_state=group.state)
            for name, group in ours
        ]
        return make("ListGroupsResponse", throttle_time=NO_TIME, error_code=error, groups=tuple(rows))

    def _find(self, node_id: int, request: Any, make: Any, error: ErrorCode) -> Any:
        assert request.key_type == 0
        rows: list[Any] = []
        for name in request.coordinator_keys:
            coordinator = self.groups[name].coordinator if name in self.groups else 1
            port = self.brokers[coordinator].address.port
            where: dict[str, Any] = {"node_id": coordinator, "host": "127.0.0.1", "port": port}
            rows.append(make("Coordinator", key=name, error_code=error, error_message=None, **where))
        return make("FindCoordinatorResponse", throttle_time=NO_TIME, coordinators=tuple(rows))

    def _fetch(self, node_id: int, request: Any, make: Any, error: ErrorCode) -> Any:
        assert not request.require_stable
        rows = [self._fetched(node_id, asked, make, error) for asked in request.groups]
        return make("OffsetFetchResponse", throttle_time=NO_TIME, groups=tuple(rows))

    def _fetched(self, node_id: int, asked: Any, make: Any, error: ErrorCode) -> Any:
        assert asked.topics is None
        group = self.groups.get(asked.group_id, Group())
        if group.coordinator != node_id:
            error = ErrorCode.not_coordinator
        topics: defaultdict[str, list[Any]] = defaultdict(list)
        for (topic, index), (offset, metadata) in group.offsets.items() if error is ErrorCode.none else ():
            fields: dict[str, Any] = {"committed_offset": offset, "committed_leader_epoch": 4, "metadata": metadata}
            row = make("OffsetFetchResponsePartitions", partition_index=index, error_code=error, **fields)
            topics[topic].append(row)
        found = [
            make("OffsetFetchResponseTopics", name=topic, partitions=tuple(rows)) for topic, rows in topics.items()
        ]
        return make("OffsetFetchResponseGroup", group_id=asked.group_id, topics=tuple(found), error_code=error)

    def _commit(self, node_id: int, request: Any, make: Any, error: ErrorCode) -> Any:
        assert (request.generation_id_or_member_epoch, request.member_id, request.group_instance_id) == (-1, "", None)
        group = self.groups.setdefault(request.group_id, Group(protocol_type=""))
        if group.coordinator != node_id:
            error = ErrorCode.not_coordinator
        elif group.joins_late:
            error = HAS_MEMBERS
        taken: Offsets = {}
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                assert row.committed_leader_epoch == -1
                partition = topic.name, row.partition_index
                code = error if error is not ErrorCode.none else group.refused.get(partition, ErrorCode.none)
                if code is ErrorCode.none:
                    taken[partition] = row.committed_offset, row.committed_metadata
                fields: dict[str, Any] = {"partition_index": row.partition_index, "error_code": code}
                rows.append(make("OffsetCommitResponsePartition", **fields))
            topics.append(make("OffsetCommitResponseTopic", name=topic.name, partitions=tuple(rows)))
        if taken:
            self.commits.append((request.group_id, taken))
            group.offsets |= taken
        return make("OffsetCommitResponse", throttle_time=NO_TIME, topics=tuple(topics))

    def _read(self, node_id: int, request: Any, make: Any, error: ErrorCode) -> Any:
        topics = []
        for topic in request.topics if self.asked.count(ApiKey.FETCH) > self.over_quota else ():
            fields: dict[str, Any] = {"error_code": error, "high_watermark": 0, "last_stable_offset": 0}
            fields |= {"log_start_offset": 0}
            rows = []
            for row in topic.partitions:
                partition = topic.topic, row.partition
                found: dict[str, Any] = {"partition_index": row.partition, "records": self._from(partition, row)}
                listed = self.aborted.get(partition, ()) if request.isolation_level else ()
                aborted = [
                    make("AbortedTransaction", producer_id=one, first_offset=first)
                    for one, first in listed
                    if not self._has_ended(partition, one, first, row.fetch_offset)
                ]
                rows.append(make("PartitionData", aborted_transactions=tuple(aborted), **found, **fields))
            topics.append(make("FetchableTopicResponse", topic=topic.topic, partitions=tuple(rows)))
        none: dict[str, Any] = {"error_code": ErrorCode.none, "session_id": 0}
        return make("FetchResponse", throttle_time=NO_TIME, responses=tuple(topics), **none)

    def _has_ended(self, partition: Partition, producer_id: int, first: int, before: int) -> bool:
        log = self.logs.get(partition, b"")
        headers = [read_batch_header(log, batch.start, batch.end) for batch in split(log, 0, len(log)).spans]
        return any(
            header.is_control and header.producer_id == producer_id and first < header.base_offset < before
            for header in headers
        )

    def _from(self, partition: Partition, asked: Any) -> bytes:
        """Whole batches from the one with the offset on, at least one."""
        self.fetched.append(asked.fetch_offset)
        log, taken = self.logs.get(partition, b""), b""
        for batch in split(log, 0, len(log)).spans:
            header = read_batch_header(log, batch.start, batch.end)
            if header.last_offset >= asked.fetch_offset and (not taken or len(taken) < asked.partition_max_bytes):
                taken += log[batch.start : batch.end]
        return taken

    def _ends(self, node_id: int, request: Any, make: Any, error: ErrorCode) -> Any:
        assert request.replica_id == -1
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                partition = topic.name, row.partition_index
                assert self.leaders[partition] == node_id
                end = self.watermarks.get(partition, self.ends[partition]) if error is ErrorCode.none else -1
                end = min(end, 0) if row.timestamp == EARLIEST else end
                fields: dict[str, Any] = {"partition_index": row.partition_index, "error_code": error, "offset": end}
                rows.append(make("ListOffsetsPartitionResponse", **fields))
            topics.append(make("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(rows)))
        return make("ListOffsetsResponse", throttle_time=NO_TIME, topics=tuple(topics))
