"""Single admin calls; see `calls.py`."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.brokers.proxy.rig.frames import Body

    from .comparison import Side

NOWHERE = 424_242  # a nonexistent producer id, broker or session
NO_TOPIC = uuid.UUID(int=NOWHERE)
SOME_TIME = timedelta(seconds=10)
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
ANY_ACL: Body = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


def _create_topics(side: Side) -> Sequence[Body]:
    def topic(name: str, **fields: object) -> Body:
        return {"name": name, "num_partitions": 2, "replication_factor": 1, **fields}

    configs = [{"name": "retention.ms", "value": "1000"}]
    return (
        {"topics": [topic("eq-validated", configs=configs)], "timeout": SOME_TIME, "validate_only": True},
        {"topics": [topic(side.shared.name), topic("bad name!"), topic("eq-many", replication_factor=9)]},
        {"topics": [topic("eq-odd", configs=[{"name": "no.such.config", "value": "1"}])], "validate_only": True},
    )


def _delete_topics(side: Side) -> Sequence[Body]:
    by_name, by_id = {"name": side.missing, "topic_id": None}, {"name": None, "topic_id": NO_TOPIC}
    return tuple({"topics": [topic], "topic_names": [side.missing], "timeout": SOME_TIME} for topic in (by_name, by_id))


def _acl(side: Side) -> Body:
    return {
        "resource_type": TOPIC_RESOURCE, "resource_name": side.fresh("acl"), "resource_pattern_type": 3,
        "principal": "User:somebody", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip


def _create_acls(side: Side) -> Sequence[Body]:
    return ({"creations": [_acl(side)]}, {"creations": [{**_acl(side), "principal": "nonsense"}]})


def _describe_acls(_: Side) -> Sequence[Body]:
    return (ANY_ACL, {**ANY_ACL, "principal_filter": "User:nobody"})


def _delete_acls(side: Side) -> Sequence[Body]:
    return ({"filters": [{**ANY_ACL, "resource_name_filter": f"eq-{side.tag}-acl-1", "principal_filter": "User:x"}]},)


def _describe_configs(side: Side) -> Sequence[Body]:
    def of(kind: int, name: str, keys: Sequence[str] | None = None) -> Body:
        return {"resource_type": kind, "resource_name": name, "configuration_keys": keys}

    topic, broker = of(TOPIC_RESOURCE, side.shared.name), of(BROKER_RESOURCE, "1")
    return (
        {"resources": [topic, broker], "include_synonyms": True, "include_documentation": True},
        {"resources": [of(TOPIC_RESOURCE, side.missing), of(BROKER_RESOURCE, "1", ["log.dirs"])]},
    )


def _alter_configs(side: Side) -> Sequence[Body]:
    def of(name: str, value: str | None) -> Body:
        config = {"name": "retention.ms", "value": value, "config_operation": 0}
        return {"resources": [{"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": [config]}]}

    return (of(side.own.name, "86400001"), of(side.own.name, "?"), {**of(side.missing, "1"), "validate_only": True})


def _alter_replica_log_dirs(side: Side) -> Sequence[Body]:
    return ({"dirs": [{"path": "/no/such/directory", "topics": [side.own.partitions(0)]}]},)


def _describe_log_dirs(side: Side) -> Sequence[Body]:
    return ({"topics": [side.own.partitions(0)]}, {"topics": [{"topic": side.missing, "partitions": [0]}]})


def _create_partitions(side: Side) -> Sequence[Body]:
    def of(name: str, count: int) -> Body:
        return {"topics": [{"name": name, "count": count, "assignments": None}], "timeout": SOME_TIME}

    return ({**of(side.own.name, 9), "validate_only": True}, of(side.own.name, 1), of(side.missing, 2))


def _create_delegation_token(_: Side) -> Sequence[Body]:
    return ({"max_lifetime": SOME_TIME, "renewers": [{"principal_type": "User", "principal_name": "x"}]},)


def _of_delegation_token(_: Side) -> Sequence[Body]:
    """Renew, expire and describe an invalid token; refused anyway without authentication."""
    owners = [{"principal_type": "User", "principal_name": "nobody"}]
    return ({"hmac": b"none", "renew_period": SOME_TIME, "expiry_time_period": SOME_TIME, "owners": owners},)


def _delete_groups(side: Side) -> Sequence[Body]:
    return tuple({"groups_names": [name]} for name in (side.other_group, side.missing))


def _elect_leaders(side: Side) -> Sequence[Body]:
    return (
        {"topic_partitions": [side.shared.partitions(0, 1)], "timeout": SOME_TIME},
        {"topic_partitions": [{"topic": side.missing, "partitions": [0]}], "election_type": 1, "timeout": SOME_TIME},
    )


def _alter_partition_reassignments(side: Side) -> Sequence[Body]:
    cancel = {"partition_index": 0, "replicas": None}
    wrong = {"partition_index": 0, "replicas": [NOWHERE]}
    return ({"topics": [side.own.partitions(cancel)]}, {"topics": [side.own.partitions(wrong)]})


def _list_partition_reassignments(side: Side) -> Sequence[Body]:
    return ({"topics": [side.own.partitions(0, key="partition_indexes")]},)


def _offset_delete(side: Side) -> Sequence[Body]:
    topics = [side.shared.partitions({"partition_index": 0})]
    return ({"group_id": side.group, "topics": topics}, {"group_id": side.missing, "topics": topics})


def _describe_client_quotas(side: Side) -> Sequence[Body]:
    name = f"eq-{side.tag}-user"
    return ({"components": [{"entity_type": "user", "match_type": 0, "match": name}], "strict": True},)


def _alter_client_quotas(side: Side) -> Sequence[Body]:
    entity = [{"entity_type": "user", "entity_name": f"eq-{side.tag}-user"}]

    def of(key: str) -> Body:
        return {"entries": [{"entity": entity, "ops": [{"key": key, "value": 1e9, "remove": False}]}]}

    return (of("producer_byte_rate"), {**of("nonsense"), "validate_only": True})


def _describe_user_scram_credentials(_: Side) -> Sequence[Body]:
    return ({"users": [{"name": "alice"}, {"name": "nobody"}]},)


def _alter_user_scram_credentials(side: Side) -> Sequence[Body]:
    user = {"name": f"eq-{side.tag}-scram", "mechanism": 1}
    secret = {"iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    # Not deleted again: a 4.3.0 broker would then refuse all users of the mechanism.
    unknown = {**user, "name": side.missing}
    return ({"upsertions": [{**user, **secret}]}, {"deletions": [unknown]}, {"upsertions": [{**user, "iterations": 1}]})


def _describe_quorum(_: Side) -> Sequence[Body]:
    metadata_log = {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
    return ({"topics": [metadata_log]}, {"topics": [{**metadata_log, "topic_name": "other"}]})


def _update_features(_: Side) -> Sequence[Body]:
    update = {"feature": "no.such.feature", "max_version_level": 1, "upgrade_type": 1, "allow_downgrade": False}
    return ({"feature_updates": [update], "validate_only": True},)


def _describe_cluster(_: Side) -> Sequence[Body]:
    return (
        {"endpoint_type": 1, "include_cluster_authorized_operations": True, "include_fenced_brokers": True},
        {"endpoint_type": 2},
    )


def _describe_producers(side: Side) -> Sequence[Body]:
    return ({"topics": [side.own.partitions(0, 1, key="partition_indexes")]},)


def _unregister_broker(_: Side) -> Sequence[Body]:
    return ({"broker_id": NOWHERE},)


def _describe_transactions(side: Side) -> Sequence[Body]:
    return ({"transactional_ids": [side.missing]},)


def _list_transactions(_: Side) -> Sequence[Body]:
    return ({"state_filters": ["Ongoing", "Unheard"], "producer_id_filters": [NOWHERE], "duration_filter": 3_600_000},)


def _list_config_resources(_: Side) -> Sequence[Body]:
    return ({"resource_types": [BROKER_RESOURCE, 16]},)


def _describe_topic_partitions(side: Side) -> Sequence[Body]:
    topics = [{"name": side.shared.name}, {"name": side.missing}]
    cursor = {"topic_name": side.shared.name, "partition_index": 1}
    return ({"topics": topics, "response_partition_limit": 1}, {"topics": topics, "cursor": cursor})


def _raft_voter(_: Side) -> Sequence[Body]:
    listeners = [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1}]
    return ({"voter_id": NOWHERE, "timeout": SOME_TIME, "listeners": listeners},)


ADMIN_CALLS: Mapping[str, Callable[[Side], Sequence[Body]]] = {
    "create_topics": _create_topics,
    "delete_topics": _delete_topics,
    "describe_acls": _describe_acls,
    "create_acls": _create_acls,
    "delete_acls": _delete_acls,
    "describe_configs": _describe_configs,
    "alter_configs": _alter_configs,
    "alter_replica_log_dirs": _alter_replica_log_dirs,
    "describe_log_dirs": _describe_log_dirs,
    "create_partitions": _create_partitions,
    "create_delegation_token": _create_delegation_token,
    "renew_delegation_token": _of_delegation_token,
    "expire_delegation_token": _of_delegation_token,
    "describe_delegation_token": _of_delegation_token,
    "delete_groups": _delete_groups,
    "elect_leaders": _elect_leaders,
    "incremental_alter_configs": _alter_configs,
    "alter_partition_reassignments": _alter_partition_reassignments,
    "list_partition_reassignments": _list_partition_reassignments,
    "offset_delete": _offset_delete,
    "describe_client_quotas": _describe_client_quotas,
    "alter_client_quotas": _alter_client_quotas,
    "describe_user_scram_credentials": _describe_user_scram_credentials,
    "alter_user_scram_credentials": _alter_user_scram_credentials,
    "describe_quorum": _describe_quorum,
    "update_features": _update_features,
    "describe_cluster": _describe_cluster,
    "describe_producers": _describe_producers,
    "unregister_broker": _unregister_broker,
    "describe_transactions": _describe_transactions,
    "list_transactions": _list_transactions,
    "list_config_resources": _list_config_resources,
    "describe_topic_partitions": _describe_topic_partitions,
    "add_raft_voter": _raft_voter,
    "remove_raft_voter": _raft_voter,
}
