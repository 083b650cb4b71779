"""Single calls: the request bodies for every advertised version of an API, besides the empty body.

Each API has at least one body that a broker refuses, and one that it carries out if a single call suffices; the rest is
in `flows.py`. Names with the side's tag keep the two sides apart.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.brokers.proxy.rig.batches import batch, corrupted

from .admin_calls import ADMIN_CALLS, NOWHERE, SOME_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.brokers.proxy.rig.frames import Body

    from .comparison import Side

# The empty body asks for nothing comparable: acks=0 has no answer, the sizes of all logs differ, and a broker never
# answers AddPartitionsToTxn v4+ without transactions.
NO_EMPTY_BODY = frozenset({"produce", "describe_log_dirs", "add_partitions_to_txn"})


def calls(side: Side, api: str) -> Sequence[Body]:
    """The bodies for one version of `api`. KeyError if the tables lack the API."""
    empty: tuple[Body, ...] = () if api in NO_EMPTY_BODY else ({},)
    return (*empty, *_CALLS[api](side))


def _produce(side: Side) -> Sequence[Body]:
    good = batch([b"one", b"two"])

    def to(topic: Mapping[str, object], partition: int, records: bytes, acks: int = -1) -> Body:
        data = {"index": partition, "records": records}
        return {"acks": acks, "timeout": SOME_TIME, "topic_data": [{**topic, "partition_data": [data]}]}

    own, missing = side.own.named, {"name": side.missing, "topic_id": None}
    return (
        to(own, 0, good),
        to(own, 0, good, acks=1),
        to(own, 1, good),  # led by another broker: KIP-951 names it
        to(own, 0, corrupted(good)),
        to(own, 0, good + good),  # refused: two batches
        to(missing, 0, good),
        {"acks": 7, "timeout": SOME_TIME, "topic_data": []},
    )


def _fetch(side: Side) -> Sequence[Body]:
    def of(partition: int, offset: int, *, limit: int = 1 << 20, isolation: int = 0) -> Body:
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": limit}
        return {
            "max_bytes": 1 << 20,
            "isolation_level": isolation,
            "topics": [side.shared.partitions(asked)],
        }

    unknown = {"topic": side.missing, "topic_id": None, "partitions": [{"partition": 0, "partition_max_bytes": 100}]}
    return (
        of(0, 0),
        of(0, 0, isolation=1),
        of(0, 2, limit=100),
        of(0, NOWHERE),
        of(1, 0),  # led by another broker: KIP-951 names it
        {"max_bytes": 1 << 20, "topics": [unknown]},
        {"session_id": NOWHERE, "session_epoch": 5, "max_bytes": 1 << 20, "topics": []},
    )


def _list_offsets(side: Side) -> Sequence[Body]:
    def of(timestamp: int, partition: int = 0) -> Body:
        asked = {"partition_index": partition, "timestamp": timestamp}
        return {"replica_id": -1, "timeout": SOME_TIME, "topics": [side.shared.partitions(asked)]}

    return (*(of(timestamp) for timestamp in (-1, -2, -3, -4, -5, -6, 0, 1 << 60)), of(-1, partition=1))


def _metadata(side: Side) -> Sequence[Body]:
    asked = [{"name": side.shared.name, "topic_id": None}, {"name": side.missing, "topic_id": None}]
    return (
        {"topics": []},
        {"topics": asked, "allow_auto_topic_creation": False, "include_topic_authorized_operations": True,
         "include_cluster_authorized_operations": True},
    )  # fmt: skip


def _offset_commit(side: Side) -> Sequence[Body]:
    offsets = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "note"}
    simple: Body = {
        "group_id": side.group, "member_id": "", "generation_id_or_member_epoch": -1,
        "topics": [side.shared.partitions(offsets)],
    }  # fmt: skip
    return (simple, {**simple, "member_id": "nobody", "generation_id_or_member_epoch": 4})


def _offset_fetch(side: Side) -> Sequence[Body]:
    asked = side.shared.partitions(0, key="partition_indexes")
    group = {"group_id": side.group, "topics": [asked]}
    return ({**group, "groups": [group]}, {**group, "groups": [{**group, "topics": None}], "require_stable": True})


def _find_coordinator(side: Side) -> Sequence[Body]:
    keys = (side.group, side.other_group)
    share_key = f"{side.missing}:{side.shared.topic_id}:0"
    return (
        *({"key": key, "key_type": 0, "coordinator_keys": [key]} for key in keys),
        {"key": side.transactional_id, "key_type": 1, "coordinator_keys": [side.transactional_id]},
        {"key": share_key, "key_type": 2, "coordinator_keys": [share_key]},
        {"key": "x", "key_type": 99, "coordinator_keys": ["x", *keys]},
        {"key": keys[0], "key_type": 0, "coordinator_keys": list(keys)},
    )


def _join_group(side: Side) -> Sequence[Body]:
    protocols = [{"name": "range", "metadata": b"m"}]
    return (
        {"group_id": side.other_group, "session_timeout": timedelta(0), "protocol_type": "consumer",
         "protocols": protocols},
        {"group_id": side.other_group, "session_timeout": SOME_TIME, "rebalance_timeout": SOME_TIME,
         "member_id": "nobody", "protocol_type": "consumer", "protocols": protocols, "reason": "test"},
    )  # fmt: skip


def _member_of(side: Side) -> Sequence[Body]:
    """Heartbeat, LeaveGroup and SyncGroup of a nonexistent member."""
    nobody = {"member_id": "nobody", "group_instance_id": None}
    return ({"group_id": side.group, "generation_id": 1, **nobody, "members": [nobody]},)


def _groups(side: Side) -> Sequence[Body]:
    one_each = ([side.group], [side.missing])  # answers to several are in the order of a hash map
    return tuple({"groups": names, "group_ids": names, "include_authorized_operations": True} for names in one_each)


def _list_groups(_: Side) -> Sequence[Body]:
    return ({"states_filter": ["Empty"], "types_filter": ["classic"]}, {"states_filter": ["Unheard"]})


def _api_versions(_: Side) -> Sequence[Body]:
    return (
        {"client_software_name": "apache-kafka-java", "client_software_version": "4.3.0"},
        {"client_software_name": "not a name!", "client_software_version": "?"},
    )


def _delete_records(side: Side) -> Sequence[Body]:
    return tuple(
        {"topics": [side.own.partitions({"partition_index": partition, "offset": offset})], "timeout": SOME_TIME}
        for partition, offset in ((0, 1), (0, NOWHERE), (1, 1))
    )


def _init_producer_id(side: Side) -> Sequence[Body]:
    return (
        {"transactional_id": side.transactional_id, "transaction_timeout": SOME_TIME},
        {"transactional_id": side.transactional_id, "transaction_timeout": timedelta(days=20)},
        {"transactional_id": "", "transaction_timeout": SOME_TIME},
    )


def _offset_for_leader_epoch(side: Side) -> Sequence[Body]:
    asked = [{"partition": partition, "leader_epoch": epoch} for partition, epoch in ((0, 0), (0, 90), (1, 0))]
    return ({"topics": [side.shared.partitions(*asked)]},)


def _add_partitions_to_txn(side: Side) -> Sequence[Body]:
    who = {"transactional_id": side.transactional_id, "producer_id": NOWHERE, "producer_epoch": 0}
    topics = [side.own.partitions(0)]
    old = {f"v3_and_below_{name}": value for name, value in {**who, "topics": topics}.items()}
    return ({**old, "transactions": [{**who, "verify_only": False, "topics": topics}]},)


def _of_transaction(side: Side) -> Sequence[Body]:
    """AddOffsetsToTxn, EndTxn and TxnOffsetCommit of a nonexistent producer id."""
    offsets = {"partition_index": 0, "committed_offset": 3, "committed_metadata": None}
    return (
        {"transactional_id": side.transactional_id, "producer_id": NOWHERE, "producer_epoch": 0,
         "group_id": side.group, "committed": True, "topics": [side.own.partitions(offsets)]},
    )  # fmt: skip


def _write_txn_markers(side: Side) -> Sequence[Body]:
    unknown = {"name": side.missing, "partition_indexes": [0]}
    marker = {"producer_id": NOWHERE, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    return (
        {"markers": [{**marker, "topics": [unknown]}]},
        {"markers": [{**marker, "topics": [side.own.partitions(0, key="partition_indexes")]}]},
    )


def _sasl_handshake(_: Side) -> Sequence[Body]:
    return ({"mechanism": "PLAIN"},)


def _sasl_authenticate(side: Side) -> Sequence[Body]:
    return ({"auth_bytes": side.token},)


def _consumer_group_heartbeat(side: Side) -> Sequence[Body]:
    return ({"group_id": side.group, "member_id": "nobody", "member_epoch": 3, "rebalance_timeout": SOME_TIME},)


def _share_group_heartbeat(side: Side) -> Sequence[Body]:
    return ({"group_id": side.missing, "member_id": "nobody", "member_epoch": 3},)


def _share_fetch(side: Side) -> Sequence[Body]:
    batches = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    asked: list[Body] = [{"partition_index": partition, "acknowledgement_batches": []} for partition in (0, 1)]
    who = {"group_id": side.missing, "member_id": "b0JhZFNlc3Npb25JZEFBQQ", "max_bytes": 1 << 20, "max_records": 10}
    return (
        {**who, "share_session_epoch": NOWHERE, "topics": [side.shared.partitions(*asked)]},
        {**who, "share_session_epoch": 0, "topics": [
            side.shared.partitions({"partition_index": 0, "acknowledgement_batches": [batches]})]},
    )  # fmt: skip


def _share_acknowledge(side: Side) -> Sequence[Body]:
    batches = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    asked = {"partition_index": 0, "acknowledgement_batches": [batches]}
    who = {"group_id": side.missing, "member_id": "b0JhZFNlc3Npb25JZEFBQQ"}
    return tuple(
        {**who, "share_session_epoch": epoch, "topics": [side.shared.partitions(asked)]} for epoch in (0, NOWHERE)
    )


def _share_group_state(side: Side) -> Sequence[Body]:
    """Initialize, read, write, delete and summarise the state of a share group without members."""
    partition = {"partition": 0, "state_epoch": 0, "leader_epoch": 0, "start_offset": 0}
    return ({"group_id": "eq-memberless", "topics": [side.shared.partitions(partition)]},)


def _streams_group_heartbeat(side: Side) -> Sequence[Body]:
    return ({"group_id": side.group, "member_id": "nobody", "member_epoch": 3, "rebalance_timeout": SOME_TIME},)


def _share_group_offsets(side: Side) -> Sequence[Body]:
    """Describe, alter and delete the offsets of a share group without members."""
    partition = {"partition_index": 0, "start_offset": 0}
    groups = [{"group_id": side.share_group, "topics": [side.shared.partitions(0)]}]
    return ({"group_id": side.share_group, "groups": groups, "topics": [side.shared.partitions(partition)]},)


_CALLS: Mapping[str, Callable[[Side], Sequence[Body]]] = {
    **ADMIN_CALLS,
    "produce": _produce,
    "fetch": _fetch,
    "list_offsets": _list_offsets,
    "metadata": _metadata,
    "offset_commit": _offset_commit,
    "offset_fetch": _offset_fetch,
    "find_coordinator": _find_coordinator,
    "join_group": _join_group,
    "heartbeat": _member_of,
    "leave_group": _member_of,
    "sync_group": _member_of,
    "describe_groups": _groups,
    "list_groups": _list_groups,
    "sasl_handshake": _sasl_handshake,
    "api_versions": _api_versions,
    "delete_records": _delete_records,
    "init_producer_id": _init_producer_id,
    "offset_for_leader_epoch": _offset_for_leader_epoch,
    "add_partitions_to_txn": _add_partitions_to_txn,
    "add_offsets_to_txn": _of_transaction,
    "end_txn": _of_transaction,
    "write_txn_markers": _write_txn_markers,
    "txn_offset_commit": _of_transaction,
    "sasl_authenticate": _sasl_authenticate,
    "consumer_group_heartbeat": _consumer_group_heartbeat,
    "consumer_group_describe": _groups,
    "share_group_heartbeat": _share_group_heartbeat,
    "share_group_describe": _groups,
    "share_fetch": _share_fetch,
    "share_acknowledge": _share_acknowledge,
    "initialize_share_group_state": _share_group_state,
    "read_share_group_state": _share_group_state,
    "write_share_group_state": _share_group_state,
    "delete_share_group_state": _share_group_state,
    "read_share_group_state_summary": _share_group_state,
    "streams_group_heartbeat": _streams_group_heartbeat,
    "streams_group_describe": _groups,
    "describe_share_group_offsets": _share_group_offsets,
    "alter_share_group_offsets": _share_group_offsets,
    "delete_share_group_offsets": _share_group_offsets,
}
