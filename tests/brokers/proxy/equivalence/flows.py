"""Calls that depend on earlier ones: groups, transactions, topics, fetch sessions, SASL, tokens.

Each flow runs once for every `age`, with each API in the version `age` above the broker's oldest, or in the newest: so
all versions of all APIs of the flow are used.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from tests.brokers.proxy.rig.batches import batch

from .comparison import SASL, Ask, Flow, Side

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.brokers.proxy.rig.frames import Body, Entity

SOME_TIME = timedelta(seconds=10)
CONCURRENT_TRANSACTIONS = 51
NO_ERROR = 0
GROUP_RESOURCE = 32
SUBSCRIPTION = (
    b"\0\0" + (1).to_bytes(4) + b"\0\1t" + b"\xff" * 4
)  # ConsumerProtocolSubscription v0: topic "t", no user data
MEMBER = "AAAAAAAAQACAAAAAAAAAAQ"  # a UUID as Kafka writes it: 22 characters of base64


class Versions:
    """The version of each API at one age."""

    def __init__(self, offered: Mapping[str, tuple[int, int]], age: int) -> None:
        self._offered = offered
        self._age = age

    def __call__(self, api: str, *, at_most: int | None = None, at_least: int = 0) -> int:
        oldest, newest = self._offered[api]
        newest = newest if at_most is None else min(newest, at_most)
        return min(newest, max(oldest, at_least) + self._age)


class Script(NamedTuple):
    ages: int
    flow: Callable[[Side, Versions], Flow]


def group(side: Side, version: Versions) -> Flow:
    """One member of a classic group: joins, is assigned, commits, is described, leaves."""
    who: dict[str, object] = {"group_id": side.other_group, "member_id": "", "protocol_type": "consumer"}
    protocols = [{"name": "range", "metadata": SUBSCRIPTION}]
    join = {"session_timeout": SOME_TIME, "rebalance_timeout": SOME_TIME, "protocols": protocols}
    joined = yield Ask("join_group", version("join_group"), {**who, **join})
    who["member_id"] = joined.member_id
    if joined.error_code != NO_ERROR:  # MEMBER_ID_REQUIRED, KIP-394
        joined = yield Ask("join_group", version("join_group"), {**who, **join})
    who |= {"generation_id": joined.generation_id, "generation_id_or_member_epoch": joined.generation_id}
    mine = {"member_id": joined.member_id, "assignment": b"what I get"}
    yield Ask("sync_group", version("sync_group"), {**who, "protocol_name": "range", "assignments": [mine]})
    yield Ask("heartbeat", version("heartbeat"), who)
    offsets = {"partition_index": 0, "committed_offset": 2, "committed_metadata": None}
    yield Ask("offset_commit", version("offset_commit"), {**who, "topics": [side.shared.partitions(offsets)]})
    wanted = {"group_id": side.other_group, "topics": [side.shared.partitions(0, key="partition_indexes")]}
    yield Ask("offset_fetch", version("offset_fetch"), {**wanted, "groups": [wanted]})
    yield Ask("describe_groups", version("describe_groups"), {"groups": [side.other_group]})
    yield Ask("leave_group", version("leave_group"), {**who, "members": [{"member_id": joined.member_id}]})


def transaction(side: Side, version: Versions) -> Flow:
    """Committed at even ages, aborted at odd ones; partitions are added by the client."""
    yield from _transaction(side, version, newest_produce=11, newest_end=4)


def transaction_v2(side: Side, version: Versions) -> Flow:
    """KIP-890, part 2: Produce v12 adds the partition by itself, EndTxn v5 raises the epoch."""
    yield from _transaction(side, version, newest_produce=None, newest_end=None)


def _transaction(side: Side, version: Versions, *, newest_produce: int | None, newest_end: int | None) -> Flow:
    is_v2 = newest_end is None
    begin = {"transactional_id": side.transactional_id, "transaction_timeout": SOME_TIME}
    producer = yield Ask("init_producer_id", version("init_producer_id"), begin, until=_settled)
    who = {"transactional_id": side.transactional_id, "producer_id": producer.producer_id,
           "producer_epoch": producer.producer_epoch, "group_id": side.group}  # fmt: skip
    if not is_v2:
        yield from _add_partitions(side, version, who)
    records = batch(
        [b"in", b"a", b"transaction"],
        producer_id=producer.producer_id, epoch=producer.producer_epoch, sequence=0, transactional=True,
    )  # fmt: skip
    data = {**side.own.named, "partition_data": [{"index": 0, "records": records}]}
    body = {"transactional_id": side.transactional_id, "acks": -1, "timeout": SOME_TIME, "topic_data": [data]}
    produced = yield Ask(
        "produce", version("produce", at_most=newest_produce, at_least=12 if is_v2 else 3), body, until=_settled_produce
    )
    yield Ask("describe_transactions", 0, {"transactional_ids": [side.transactional_id]})
    if not is_v2:
        yield Ask("add_offsets_to_txn", version("add_offsets_to_txn"), who)
    offsets = {"partition_index": 0, "committed_offset": 4, "committed_metadata": None}
    commit = {**who, "topics": [side.shared.partitions(offsets)]}
    yield Ask("txn_offset_commit", version("txn_offset_commit", at_least=5 if is_v2 else 0,
                                           at_most=None if is_v2 else 4), commit)  # fmt: skip
    yield Ask("list_transactions", version("list_transactions"), {"state_filters": ["Ongoing"]})
    yield Ask("describe_producers", 0, {"topics": [side.own.partitions(0, key="partition_indexes")]})
    end = version("end_txn", at_most=newest_end, at_least=5 if is_v2 else 0)
    yield Ask("end_txn", end, {**who, "committed": end % 2 == 0}, until=_settled)
    yield from _read_committed(side, version, past=produced.responses[0].partition_responses[0].base_offset + 3)


def _settled(answer: Entity) -> bool:
    return bool(answer.error_code != CONCURRENT_TRANSACTIONS)


def _settled_produce(answer: Entity) -> bool:
    return bool(answer.responses[0].partition_responses[0].error_code != CONCURRENT_TRANSACTIONS)


def _settled_partitions(answer: Entity) -> bool:
    results = getattr(answer, "results_by_topic_v3_and_below", ())
    return all(
        one.partition_error_code != CONCURRENT_TRANSACTIONS for topic in results for one in topic.results_by_partition
    )


def _add_partitions(side: Side, version: Versions, who: Body) -> Flow:
    body = {f"v3_and_below_{name}": who[name] for name in ("transactional_id", "producer_id", "producer_epoch")}
    body["v3_and_below_topics"] = [side.own.partitions(0)]
    added = version("add_partitions_to_txn", at_most=3)
    yield Ask("add_partitions_to_txn", added, body, until=_settled_partitions)


def _read_committed(side: Side, version: Versions, *, past: int) -> Flow:
    """The readable records, once the last stable offset is past the transaction's marker."""
    latest = {"partition_index": 0, "timestamp": -1}
    body = {"replica_id": -1, "isolation_level": 1, "timeout": SOME_TIME, "topics": [side.own.partitions(latest)]}
    yield Ask("list_offsets", version("list_offsets", at_least=2), body,
              until=lambda answer: answer.topics[0].partitions[0].offset > past)  # fmt: skip
    wanted = {"partition": 0, "fetch_offset": past - 3, "partition_max_bytes": 1 << 20}
    fetch = {"max_bytes": 1 << 20, "isolation_level": 1, "topics": [side.own.partitions(wanted)]}
    yield Ask("fetch", version("fetch"), fetch)


def topic(side: Side, version: Versions) -> Flow:
    """A topic is created, configured, enlarged and deleted."""
    name = side.fresh("topic")
    placed = {"partition_index": 0, "broker_ids": [1]}
    wanted = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": [placed]}
    yield Ask("create_topics", version("create_topics"), {"topics": [wanted], "timeout": SOME_TIME})
    look = {"topics": [{"name": name, "topic_id": None}], "allow_auto_topic_creation": False}
    found = yield Ask(
        "metadata", version("metadata", at_least=10), look, until=lambda answer: _has_leaders(side, answer, 1)
    )
    more = {"name": name, "count": 2, "assignments": [{"broker_ids": [1]}]}
    yield Ask("create_partitions", version("create_partitions"), {"topics": [more], "timeout": SOME_TIME})
    yield Ask("metadata", version("metadata", at_least=10), look, until=lambda answer: _has_leaders(side, answer, 2))
    by_id = {"name": None, "topic_id": found.topics[0].topic_id}
    gone = {"topic_names": [name], "topics": [by_id], "timeout": SOME_TIME}
    yield Ask("delete_topics", version("delete_topics"), gone)
    yield Ask("metadata", version("metadata"), look, until=lambda answer: answer.topics[0].error_code != NO_ERROR)


def _has_leaders(side: Side, metadata: Entity, count: int) -> bool:
    (found,) = metadata.topics
    side.topic_ids.add(found.topic_id)
    return bool(
        found.error_code == NO_ERROR and sum(partition.leader_id > 0 for partition in found.partitions) == count
    )


def fetch_session(side: Side, version: Versions) -> Flow:
    """KIP-227: a full fetch, an incremental one with new records, one that forgets, and the end of the session."""
    fetch = version("fetch", at_least=7)
    limits = {"max_bytes": 1 << 20, "session_epoch": 0, "max_wait": timedelta(0)}
    latest = {"partition_index": 0, "timestamp": -1}
    body = {"replica_id": -1, "timeout": SOME_TIME, "topics": [side.own.partitions(latest)]}
    end = yield Ask("list_offsets", version("list_offsets"), body)
    offset = end.topics[0].partitions[0].offset
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    opened = yield Ask("fetch", fetch, {**limits, "topics": [side.own.partitions(wanted)]})
    session = {**limits, "session_id": opened.session_id}
    data = {**side.own.named, "partition_data": [{"index": 0, "records": batch([b"news"])}]}
    yield Ask("produce", version("produce", at_least=3), {"acks": -1, "timeout": SOME_TIME, "topic_data": [data]})
    yield Ask("fetch", fetch, {**session, "session_epoch": 1})
    yield Ask("fetch", fetch, {**session, "session_epoch": 2, "forgotten_topics_data": [side.own.partitions(0)]})
    yield Ask("fetch", fetch, {**session, "session_epoch": 7})  # not the next epoch: an error
    yield Ask("fetch", fetch, {**session, "session_epoch": -1})


def without_answer(side: Side, version: Versions) -> Flow:
    """acks=0: no answer, and the next answer belongs to the next request."""
    latest = {"partition_index": 0, "timestamp": -1}
    body = {"replica_id": -1, "timeout": SOME_TIME, "topics": [side.own.partitions(latest)]}
    before = yield Ask("list_offsets", version("list_offsets"), body)
    end = before.topics[0].partitions[0].offset
    data = {**side.own.named, "partition_data": [{"index": 0, "records": batch([b"fire", b"forget"])}]}
    yield Ask("produce", version("produce", at_least=3), {"acks": 0, "topic_data": [data]}, answered=False)
    yield Ask("list_offsets", version("list_offsets"), body,
              until=lambda answer: answer.topics[0].partitions[0].offset == end + 2)  # fmt: skip


def consumer_group(side: Side, version: Versions) -> Flow:
    """KIP-848: the broker assigns."""
    beat = version("consumer_group_heartbeat")
    who = {"group_id": side.consumer_group, "member_id": "" if beat == 0 else MEMBER, "rebalance_timeout": SOME_TIME}
    wish = {"subscribed_topic_names": [side.shared.name], "topic_partitions": []}
    joined = yield Ask("consumer_group_heartbeat", beat, {**who, **wish, "member_epoch": 0})
    who["member_id"] = joined.member_id
    yield Ask("consumer_group_describe", version("consumer_group_describe"), {"group_ids": [side.consumer_group]})
    yield Ask("consumer_group_heartbeat", beat, {**who, "member_epoch": -1})


def share_group(side: Side, version: Versions) -> Flow:
    """KIP-932: records are acquired and acknowledged; the partition of another broker is refused with its address."""
    earliest = {"name": "share.auto.offset.reset", "value": "earliest", "config_operation": 0}
    config = {"resource_type": GROUP_RESOURCE, "resource_name": side.share_group, "configs": [earliest]}
    yield Ask("incremental_alter_configs", 1, {"resources": [config]})
    who = {"group_id": side.share_group, "member_id": MEMBER}
    beat = version("share_group_heartbeat")
    yield Ask("share_group_heartbeat", beat, {**who, "member_epoch": 0, "subscribed_topic_names": [side.shared.name]},
              until=lambda answer: bool(answer.assignment and answer.assignment.topic_partitions))  # fmt: skip
    limits = {
        "max_bytes": 1 << 20,
        "max_wait": timedelta(milliseconds=500),
        "min_bytes": 1,
        "max_records": 10,
        "batch_size": 10,
    }
    partitions = side.shared.partitions({"partition_index": 0}, {"partition_index": 1})
    fetch, acknowledge = version("share_fetch"), version("share_acknowledge")
    yield Ask(
        "share_fetch", fetch, {**who, **limits, "share_session_epoch": 0, "topics": [partitions]}, until=_acquired
    )
    accept = {"first_offset": 0, "last_offset": 1, "acknowledge_types": [1]}
    elsewhere = {"partition_index": 1, "acknowledgement_batches": [accept]}
    done = side.shared.partitions({"partition_index": 0, "acknowledgement_batches": [accept]}, elsewhere)
    yield Ask("share_acknowledge", acknowledge, {**who, "share_session_epoch": 1, "topics": [done]})
    yield Ask("share_group_describe", version("share_group_describe"), {"group_ids": [side.share_group]})
    yield Ask("share_acknowledge", acknowledge, {**who, "share_session_epoch": -1})
    yield Ask("share_group_heartbeat", beat, {**who, "member_epoch": -1})
    offsets = {"group_id": side.share_group, "topics": [side.shared.partitions(0)]}
    yield Ask("describe_share_group_offsets", version("describe_share_group_offsets"), {"groups": [offsets]})
    reset = side.shared.partitions({"partition_index": 0, "start_offset": 0})
    yield Ask("alter_share_group_offsets", 0, {"group_id": side.share_group, "topics": [reset]})
    yield Ask("delete_share_group_offsets", 0, {"group_id": side.share_group, "topics": [side.shared.named]})


def _acquired(answer: Entity) -> bool:
    return any(partition.acquired_records for found in answer.responses for partition in found.partitions)


def streams_group(side: Side, version: Versions) -> Flow:
    """KIP-1071. The application's endpoint is not a broker address and is not rewritten."""
    tasks: Body = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    topology = {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": [side.shared.name]}]}
    who = {"group_id": side.streams_group, "member_id": MEMBER, "rebalance_timeout": SOME_TIME}
    mine = {"process_id": "process", "user_endpoint": {"host": "app.example", "port": 8080}, "client_tags": []}
    beat = version("streams_group_heartbeat")
    yield Ask("streams_group_heartbeat", beat, {**who, **tasks, **mine, "member_epoch": 0, "topology": topology})
    yield Ask("streams_group_describe", version("streams_group_describe"), {"group_ids": [side.streams_group]})
    yield Ask("streams_group_heartbeat", beat, {**who, "member_epoch": -1})


def sasl(side: Side, version: Versions) -> Flow:
    """A wrong password, rejected by the broker, then the right one."""
    authenticate = version("sasl_authenticate")
    for token in (side.token + b" is wrong", side.token):
        yield Ask("sasl_handshake", 1, {"mechanism": "PLAIN"}, listener=SASL)
        yield Ask("sasl_authenticate", authenticate, {"auth_bytes": token}, listener=SASL)
        side.hang_up()
    yield Ask("sasl_handshake", 1, {"mechanism": "NONE"}, listener=SASL)
    side.hang_up()


def delegation_token(side: Side, version: Versions) -> Flow:
    yield Ask("sasl_handshake", 1, {"mechanism": "PLAIN"}, listener=SASL)
    yield Ask("sasl_authenticate", 2, {"auth_bytes": side.token}, listener=SASL)
    create, describe = version("create_delegation_token"), version("describe_delegation_token")
    token = yield Ask("create_delegation_token", create, {"max_lifetime": SOME_TIME}, listener=SASL)
    mine = {"owners": [{"principal_type": "User", "principal_name": token.principal_name}]}
    yield Ask("describe_delegation_token", describe, mine, listener=SASL, until=lambda answer: len(answer.tokens) == 1)
    for api in ("renew_delegation_token", "expire_delegation_token"):
        body = {"hmac": token.hmac, "renew_period": SOME_TIME, "expiry_time_period": timedelta(milliseconds=-1)}
        yield Ask(api, version(api), body, listener=SASL, until=_token_was_found)
    yield Ask("describe_delegation_token", describe, mine, listener=SASL, until=lambda answer: not answer.tokens)


def _token_was_found(answer: Entity | None) -> bool:
    """The controller that applies the change learns of a new token slightly later than the broker that lists it."""
    return answer is not None and bool(answer.error_code == NO_ERROR)


SCRIPTS: Mapping[str, Script] = {
    "group": Script(10, group),
    "transaction": Script(9, transaction),
    "transaction_v2": Script(2, transaction_v2),
    "topic": Script(6, topic),
    "fetch_session": Script(12, fetch_session),
    "without_answer": Script(11, without_answer),
    "consumer_group": Script(2, consumer_group),
    "share_group": Script(2, share_group),
    "streams_group": Script(1, streams_group),
    "sasl": Script(3, sasl),
    "delegation_token": Script(3, delegation_token),
}
