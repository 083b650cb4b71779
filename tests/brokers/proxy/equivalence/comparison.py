"""The same calls, in lockstep, to a broker and to Shoal's listener of that broker; the answers must be equal.

Equal means: the same bytes except addresses and what differs between any two calls (`VARYING`). For that, kio decodes
both answers, and must encode them to the same bytes, so nothing in an answer escapes the comparison. A flow is a
generator that yields requests and is sent its own side's decoded answers, to use what the broker returned.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from time import monotonic
from types import MappingProxyType
from typing import NamedTuple

from kio.serial.errors import OutOfBoundValue

from tests.brokers.proxy.rig.batches import without_identity
from tests.brokers.proxy.rig.frames import Body, Closed, Entity, Wire, dotted_names, encode, request, response

Address = tuple[str, int]
NOTHING: Body = MappingProxyType({})
PLAIN, SASL = "plain", "sasl"
COORDINATOR_LOAD_IN_PROGRESS = 14
ANSWER_IN_TIME = 20.0  # seconds for an `until` to become true
LEADER_NODE = 1  # every call goes to this broker unless stated otherwise

# Differs between any two calls, even to the same broker.
ALWAYS_VARYING = frozenset({"throttle_time"})
VARYING: Mapping[str, frozenset[str]] = {
    # A random live broker in every answer (KRaftMetadataCache.getRandomAliveBrokerId): a client's request is forwarded.
    "metadata": frozenset({"controller_id"}),
    "describe_cluster": frozenset({"controller_id"}),
    # The end offset of the metadata log, which keeps growing.
    "api_versions": frozenset({"finalized_features_epoch"}),
    "describe_quorum": frozenset(
        {"high_watermark", "log_end_offset", "last_fetch_timestamp", "last_caught_up_timestamp"}
    ),
    # New in every call.
    "init_producer_id": frozenset({"producer_id"}),
    "end_txn": frozenset({"producer_id"}),
    # The coordinator's epoch is that of the log chosen by the hash of the transactional id: brokers were killed before.
    "describe_producers": frozenset({"producer_id", "last_timestamp", "coordinator_epoch"}),
    "describe_transactions": frozenset({"producer_id", "transaction_start_time"}),
    "list_transactions": frozenset({"producer_id"}),
    "fetch": frozenset({"session_id", "producer_id"}),
    "create_topics": frozenset({"topic_id"}),
    "join_group": frozenset({"member_id", "leader"}),
    "leave_group": frozenset({"member_id"}),
    "describe_groups": frozenset({"member_id"}),
    "consumer_group_heartbeat": frozenset({"member_id"}),
    "consumer_group_describe": frozenset({"member_id"}),
    "create_delegation_token": frozenset({"issue_timestamp", "expiry_timestamp", "max_timestamp", "token_id", "hmac"}),
    "describe_delegation_token": frozenset(
        {"issue_timestamp", "expiry_timestamp", "max_timestamp", "token_id", "hmac"}
    ),
    "renew_delegation_token": frozenset({"expiry_timestamp"}),
    "expire_delegation_token": frozenset({"expiry_timestamp"}),
    # Properties of the disk, not of the broker.
    "describe_log_dirs": frozenset({"total_bytes", "usable_bytes"}),
}
# Lists in the order of the broker's hash table of producer ids, which differ between the sides.
UNORDERED = frozenset({"active_producers"})
# kio keeps these timestamps as datetimes of whole seconds, so a round trip changes them.
NOT_REVERSIBLE = frozenset(
    {"create_delegation_token", "renew_delegation_token", "expire_delegation_token", "describe_transactions"}
)
# The broker's configuration contains its addresses as plain values.
MAY_NAME_BROKERS = frozenset({"describe_configs"})


class Ask(NamedTuple):
    """One request. With `until` it is repeated until its answer matches, and only that answer is compared."""

    api: str
    version: int
    body: Body = NOTHING
    node: int = LEADER_NODE
    listener: str = PLAIN
    until: Callable[[Entity], bool] | None = None
    answered: bool = True


@dataclass(kw_only=True)
class Side:
    """One of the two paths to the brokers: `tag` is part of every name created over it."""

    tag: str
    reach: Mapping[tuple[str, int], Address]  # (listener, node id) -> where this side connects
    named: Mapping[Address, int]  # the addresses allowed in answers -> node id
    shared: Topic
    own: Topic
    topic_ids: set[object]  # of topics made for one side only
    group: str
    other_group: str
    consumer_group: str
    share_group: str
    streams_group: str
    transactional_id: str
    token: bytes  # of SASL PLAIN
    missing: str = "eq-missing"
    _count: int = 0
    _wires: dict[tuple[str, int], Wire] = field(default_factory=dict)

    def fresh(self, kind: str) -> str:
        """An unused name; the same on both sides, except for the tag."""
        self._count += 1
        return f"eq-{self.tag}-{kind}-{self._count}"

    def ask(self, ask: Ask, seen: set[str]) -> bytes | Closed:
        frame = request(ask.api, ask.version, ask.body, seen=seen)
        place = (ask.listener, ask.node)
        wire = self._wires.get(place) or Wire(*self.reach[place])
        self._wires[place] = wire
        if not ask.answered:
            wire.send(frame)
            return b""
        answer = wire.ask(frame)
        if isinstance(answer, Closed):
            self._wires.pop(place).close()
        return answer

    def hang_up(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()


class Topic(NamedTuple):
    name: str
    topic_id: object  # uuid.UUID

    @property
    def named(self) -> dict[str, object]:
        """This topic in a body, by name or id as the version requires."""
        return {"name": self.name, "topic": self.name, "topic_name": self.name, "topic_id": self.topic_id}

    def partitions(self, *partitions: object, key: str = "partitions") -> dict[str, object]:
        return {**self.named, key: list(partitions)}


Flow = Generator[Ask, Entity, None]


@dataclass(kw_only=True)
class Comparison:
    """Runs flows on both sides; keeps what was compared, and every body field that some version used."""

    direct: Side
    shoal: Side
    compared: set[tuple[str, int]] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    differences: list[str] = field(default_factory=list)

    def run(self, flow: Callable[[Side], Flow]) -> None:
        """Both generators must send the same requests; stops at the first difference."""
        left, right = flow(self.direct), flow(self.shoal)
        left_answer: Entity = None
        right_answer: Entity = None
        while True:
            left_ask, right_ask = _next(left, left_answer), _next(right, right_answer)
            if left_ask is None or right_ask is None:
                assert left_ask is right_ask, "one side asked for more than the other"
                return
            left_frame, left_answer = self._exchange(self.direct, left_ask)
            right_frame, right_answer = self._exchange(self.shoal, right_ask)
            self.compared.add((left_ask.api, left_ask.version))
            self.written |= dotted_names(left_ask.body, left_ask.api)
            difference = self._difference(left_ask, left_frame, right_frame)
            if difference:
                self.differences.append(difference)
                return

    def _exchange(self, side: Side, ask: Ask) -> tuple[bytes | Closed, Entity]:
        deadline = monotonic() + ANSWER_IN_TIME
        while True:
            frame = side.ask(ask, self.seen)
            if isinstance(frame, Closed) or not ask.answered:
                return frame, None
            answer = _decoded(ask, frame)
            if _is_final(ask, answer):
                return frame, answer
            assert monotonic() < deadline, f"{ask} on side {side.tag}: still {answer}"

    def _difference(self, ask: Ask, direct: bytes | Closed, shoal: bytes | Closed) -> str:
        what = f"{ask.api} v{ask.version} {dict(ask.body)}"
        if isinstance(direct, Closed) or isinstance(shoal, Closed):
            return "" if direct == shoal else f"{what}\n  direct: {direct!r}\n  shoal:  {shoal!r}"
        if not ask.answered:
            return ""
        if ask.api not in MAY_NAME_BROKERS and (leak := self._leak(shoal)):
            return f"{what}\n  names a broker's own address {leak}: {shoal!r}"
        if direct == shoal:
            return ""
        left, right = self.normalised(self.direct, ask, direct), self.normalised(self.shoal, ask, shoal)
        return "" if left == right else f"{what}\n  direct: {left}\n  shoal:  {right}"

    def _leak(self, frame: bytes) -> str:
        own = {host for host, _ in self.direct.named} - {host for host, _ in self.shoal.named}
        return next((host for host in own if host.encode() in frame), "")

    @staticmethod
    def normalised(side: Side, ask: Ask, frame: bytes) -> Entity:
        entity = response(ask.api, ask.version, frame)
        if ask.api not in NOT_REVERSIBLE:
            assert frame.endswith(encode(entity)), f"kio does not give back the bytes of {ask.api} v{ask.version}"
        return _normalise(entity, side, VARYING.get(ask.api, frozenset()) | ALWAYS_VARYING)

    def useless_fields(self) -> set[str]:
        """Names in bodies that no version of any API has, such as a misspelt field, which would test nothing."""
        return _last_parts(self.written) - _last_parts(self.seen)


def _last_parts(dotted: set[str]) -> set[str]:
    return {name.rpartition(".")[2] for name in dotted}


def _decoded(ask: Ask, frame: bytes) -> Entity | None:
    """None if kio cannot express the answer, such as a timestamp of -1: it must then be equal byte for byte."""
    try:
        return response(ask.api, ask.version, frame)
    except OutOfBoundValue:
        return None


def _is_final(ask: Ask, answer: Entity | None) -> bool:
    if getattr(answer, "error_code", 0) == COORDINATOR_LOAD_IN_PROGRESS:  # briefly, at a new coordinator
        return False
    return ask.until is None or ask.until(answer)


def _next(flow: Flow, answer: Entity) -> Ask | None:
    try:
        return flow.send(answer)
    except StopIteration:
        return None


def _normalise(value: Entity, side: Side, varying: frozenset[str]) -> Entity:
    if isinstance(value, str):
        return re.sub(r"eq-[ds]-([a-z]+)[0-9]*", r"eq-*-\1", value)
    if isinstance(value, tuple):
        return tuple(_normalise(item, side, varying) for item in value)
    if isinstance(value, uuid.UUID) and value in side.topic_ids:
        return "a topic of one side"
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {name: _normalise(item, side, varying) for name, item in _items(value)}
    if isinstance(records := changed.get("records"), bytes):
        changed["records"] = without_identity(records)
    changed |= dict.fromkeys(varying & changed.keys(), "*")
    changed |= {name: tuple(sorted(changed[name], key=repr)) for name in UNORDERED & changed.keys()}
    node = changed.get("node_id", changed.get("broker_id"))
    if "host" in changed:
        changed |= _node_instead(value, node, side)
    if "listeners" in changed and node is not None:
        changed["listeners"] = tuple(replace(one, **_node_instead(one, node, side)) for one in changed["listeners"])
    return replace(value, **changed)


def _items(entity: Entity) -> Iterator[tuple[str, Entity]]:
    return ((each.name, getattr(entity, each.name)) for each in fields(entity))


def _node_instead(endpoint: Entity, node: object, side: Side) -> dict[str, object]:
    """Host and port replaced by the node id, if they are this side's address of that node."""
    if node is not None and side.named.get((endpoint.host, endpoint.port)) == node:
        return {"host": "node", "port": node}
    return {}
