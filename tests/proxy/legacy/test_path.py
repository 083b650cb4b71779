"""A legacy listener between an old client and a new broker: what is translated, what passes, what is reported."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.composer import compose
from shoal.protocol.schema.decomposer import decompose
from shoal.protocol.schema.headers import read_request_header, response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.proxy.config.security import Mechanism, NamedCredentials, Secret
from shoal.proxy.legacy.path import LegacyPath
from shoal.proxy.statistics import CloseCause
from tests.support.rig import BrokerSide, FakeBroker, Peer, Rig, api_key, correlation_id, request, response, rig, until

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from shoal.proxy.listener.listener import Listener
    from tests.support.rig import Answer

pytestmark = pytest.mark.usefixtures("lane")

Answers = Mapping[int, Callable[[int, dict[str, Any]], bytes | dict[str, Any]]]
"""API -> (version, values of the request) -> the answer's body, or its values."""

KAFKA_4_3 = {0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 18: (0, 4)}


def broker(answers: Answers) -> Answer:
    """A broker that reads requests by the tables, and refuses what Kafka 4 brokers refuse."""

    async def answer(side: BrokerSide, frame: bytes) -> None:
        header = read_request_header(frame)
        key, version = header.api_key, header.api_version
        oldest, newest = KAFKA_4_3.get(key, (0, 99))
        assert oldest <= version <= newest, f"{API[key].name} v{version}"
        table = MESSAGES.get(f"{API[key].name}Request")
        values = decompose(table, version, frame, header.body, len(frame)) if table else {}
        said = answers[key](version, values)
        if isinstance(said, dict):
            said = compose(MESSAGES[f"{API[key].name}Response"], version, said)
        await side.send(response(header.correlation_id, bytes(version >= API[key].flexible_from and key != 18) + said))

    return answer


def legacy(answers: Answers, *, path: Callable[[Listener], Any] = LegacyPath) -> AbstractAsyncContextManager[Rig]:
    return rig(broker(answers), path=path)


def asked(key: int, version: int, number: int, values: Any, client_id: bytes = b"old") -> bytes:
    tags = bytes(version >= API[key].flexible_from)
    return request(
        key, version, number, tags + compose(MESSAGES[f"{API[key].name}Request"], version, values), client_id
    )


async def told(client: Peer, key: int, version: int, number: int) -> dict[str, Any]:
    frame = await client.frame()
    assert correlation_id(b"0000" + frame) == number
    return decompose(
        MESSAGES[f"{API[key].name}Response"], version, frame, response_body(frame, key, version), len(frame)
    )


OFFSETS = {"GroupId": "g", "Topics": [{"Name": "t", "PartitionIndexes": [0, 1]}]}


def offset_fetch(error_code: int = 0) -> Answers:
    def answer(version: int, values: dict[str, Any]) -> dict[str, Any]:
        assert version == 2
        assert values == OFFSETS
        of = [
            {"PartitionIndex": 0, "CommittedOffset": 7, "Metadata": "m"},
            {"PartitionIndex": 1, "CommittedOffset": -1, "Metadata": ""},
        ]
        return {"Topics": [] if error_code else [{"Name": "t", "Partitions": of}], "ErrorCode": error_code}

    return {ApiKey.OFFSET_FETCH: answer, ApiKey.HEARTBEAT: lambda *_: b"\0\0"}


async def test_an_old_question_is_asked_in_newer_words() -> None:
    async with legacy(offset_fetch()) as r:
        client = await r.client()
        await client.send(asked(9, 0, 41, OFFSETS, b"somebody"))
        (topic,) = (await told(client, 9, 0, 41))["Topics"]
        assert [(one["CommittedOffset"], one["Metadata"], one["ErrorCode"]) for one in topic["Partitions"]] == [
            (7, "m", 0),
            (-1, "", 3),
        ]
        assert read_request_header(r.broker.received[0]).client_id == "somebody"


async def test_more_than_one_question_may_be_needed() -> None:
    ends = {-1: 90, -2: 10, 5000: -1}

    def answer(version: int, values: dict[str, Any]) -> dict[str, Any]:
        (topic,) = values["Topics"]
        of = [
            {"PartitionIndex": one["PartitionIndex"], "Offset": ends[one["Timestamp"]]} for one in topic["Partitions"]
        ]
        return {"Topics": [{"Name": topic["Name"], "Partitions": of}]}

    async with legacy({ApiKey.LIST_OFFSETS: answer}) as r:
        client = await r.client()
        of = {"PartitionIndex": 3, "Timestamp": 5000, "MaxNumOffsets": 2}
        await client.send(asked(2, 0, 1, {"ReplicaId": -1, "Topics": [{"Name": "t", "Partitions": [of]}]}))
        (topic,) = (await told(client, 2, 0, 1))["Topics"]
        assert topic["Partitions"] == [{"PartitionIndex": 3, "ErrorCode": 0, "OldStyleOffsets": [90, 10]}]
        assert [api_key(frame) for frame in r.broker.received] == [2, 2, 2]


async def test_answers_keep_the_order_of_the_questions() -> None:
    async with legacy(offset_fetch()) as r:
        client = await r.client()
        await client.send(request(12, 0, 1) + asked(9, 1, 2, OFFSETS) + request(12, 0, 3) + asked(9, 0, 4, OFFSETS))
        for number, version in ((1, None), (2, 1), (3, None), (4, 0)):
            if version is None:
                assert correlation_id(b"0000" + await client.frame()) == number
            else:
                assert (await told(client, 9, version, number))["Topics"]


async def test_an_error_of_the_group_reaches_every_partition() -> None:
    async with legacy(offset_fetch(14)) as r:
        client = await r.client()
        await client.send(asked(9, 1, 1, OFFSETS))
        (topic,) = (await told(client, 9, 1, 1))["Topics"]
        assert [one["ErrorCode"] for one in topic["Partitions"]] == [14, 14]


async def test_a_client_is_told_what_it_has_shown_to_know() -> None:
    """GROUP_AUTHORIZATION_FAILED was added in 0.9, like heartbeats; OffsetFetch v1 in 0.8.2."""
    async with legacy(offset_fetch(30)) as r:
        client = await r.client()
        for number, expected in ((1, -1), (3, 30)):
            await client.send(asked(9, 1, number, OFFSETS))
            (topic,) = (await told(client, 9, 1, number))["Topics"]
            assert [one["ErrorCode"] for one in topic["Partitions"]] == [expected] * 2
            await client.send(request(12, 0, number + 1))
            await client.frame()


@pytest.mark.parametrize("reachable", [True, False])
@pytest.mark.parametrize("version", [0, 1])
async def test_offsets_of_zookeeper_are_with_any_broker(version: int, reachable: bool) -> None:
    """Clients of ZooKeeper's offsets do not look for a coordinator: Shoal does. Those of v1 do."""
    coordinator = FakeBroker(broker(offset_fetch()))
    found: Answers = {
        ApiKey.FIND_COORDINATOR: lambda *_: {"Host": "127.0.0.1", "Port": coordinator.port if reachable else 1}
    }
    async with trio.open_nursery() as nursery:
        await nursery.start(coordinator.run)
        async with legacy({**offset_fetch(16), **found}) as r:
            client = await r.client()
            await client.send(asked(9, version, 1, OFFSETS, b"somebody"))
            (topic,) = (await told(client, 9, version, 1))["Topics"]
            is_found = reachable and version == 0
            offsets = [(one["CommittedOffset"], one["ErrorCode"]) for one in topic["Partitions"]]
            assert offsets == ([(7, 0), (-1, 3)] if is_found else [(-1, 16)] * 2)
            assert [read_request_header(frame).client_id for frame in coordinator.received] == ["somebody"] * is_found
        nursery.cancel_scope.cancel()


async def test_a_coordinator_is_asked_with_the_credentials_of_the_client(tmp_path: Path) -> None:
    """Not with those of [cluster.sasl], which may read more."""
    password = tmp_path / "password"
    password.write_text("a word")
    password.chmod(0o600)
    mine = NamedCredentials(name="mine", mechanism=Mechanism.PLAIN, username="alice", password=Secret(file=password))
    names = []

    def authenticated(_: int, values: dict[str, Any]) -> dict[str, Any]:
        names.append(bytes(values["AuthBytes"]))
        return {}

    login: Answers = {
        ApiKey.API_VERSIONS: lambda *_: {"ApiKeys": [{"ApiKey": one, "MaxVersion": 1} for one in (17, 36)]},
        ApiKey.SASL_HANDSHAKE: lambda *_: {"Mechanisms": ["PLAIN"]},
        ApiKey.SASL_AUTHENTICATE: authenticated,
    }
    coordinator = FakeBroker(broker({**offset_fetch(), **login}))
    found: Answers = {ApiKey.FIND_COORDINATOR: lambda *_: {"Host": "127.0.0.1", "Port": coordinator.port}}
    async with trio.open_nursery() as nursery:
        await nursery.start(coordinator.run)
        answers = broker({**offset_fetch(16), **found, **login})
        async with rig(answers, path=LegacyPath, credentials=[mine], principals={"*": "mine"}) as r:
            client = await r.client()
            await client.send(asked(9, 0, 1, OFFSETS))
            (topic,) = (await told(client, 9, 0, 1))["Topics"]
            assert topic["Partitions"][0]["CommittedOffset"] == 7
        nursery.cancel_scope.cancel()
    assert names == [b"\0alice\0a word"] * 2


async def test_a_coordinator_that_is_still_coming() -> None:
    coming: Answers = {ApiKey.FIND_COORDINATOR: lambda *_: {"ErrorCode": 15}}
    async with legacy({**offset_fetch(16), **coming}) as r:
        client = await r.client()
        await client.send(asked(9, 0, 1, OFFSETS))
        (topic,) = (await told(client, 9, 0, 1))["Topics"]
        assert [one["ErrorCode"] for one in topic["Partitions"]] == [16, 16]


@pytest.mark.parametrize(("version", "code", "expected"), [(0, 81, -1), (1, 27, 27), (5, 81, 81)])
async def test_answers_that_pass_have_codes_that_the_client_knows(version: int, code: int, expected: int) -> None:
    body = (b"" if version < 2 else bytes(4)) + struct.pack(">h", code) + b"the rest"
    async with legacy({ApiKey.JOIN_GROUP: lambda *_: body}) as r:
        client = await r.client()
        await client.send(request(11, version, 1))
        frame = await client.frame()
        assert frame == response(1, body[:-10] + struct.pack(">h", expected) + b"the rest")


async def test_addresses_are_still_ours() -> None:
    def answer(version: int, values: dict[str, Any]) -> dict[str, Any]:
        return {
            "Brokers": [{"NodeId": 1, "Host": "kafka.example", "Port": 9092}],
            "Topics": [{"Name": "t", "ErrorCode": 72}, {"Name": "u", "ErrorCode": 5}],
        }

    async with legacy({ApiKey.METADATA: answer}) as r:
        client = await r.client()
        await client.send(asked(3, 0, 1, {"Topics": []}))
        said = await told(client, 3, 0, 1)
        assert [one["ErrorCode"] for one in said["Topics"]] == [5, 5]
        (one,) = said["Brokers"]
        assert (one["Host"], one["Port"]) == ("127.0.0.1", r.listener.ports.bound[1].port)


@pytest.mark.parametrize("version", [0, 3])
async def test_old_versions_are_offered(version: int) -> None:
    def answer(version: int, values: dict[str, Any]) -> dict[str, Any]:
        return {
            "ApiKeys": [{"ApiKey": k, "MinVersion": low, "MaxVersion": high} for k, (low, high) in KAFKA_4_3.items()]
        }

    async with legacy({ApiKey.API_VERSIONS: answer}) as r:
        client = await r.client()
        await client.send(
            asked(18, version, 1, {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"} if version else {})
        )
        said = await told(client, 18, version, 1)
        ranges = {one["ApiKey"]: (one["MinVersion"], one["MaxVersion"]) for one in said["ApiKeys"]}
        assert ranges == {**KAFKA_4_3, 1: (0, 18), 2: (0, 11), 8: (0, 10), 9: (0, 10)}


async def test_new_versions_pass_as_they_are() -> None:
    async with rig(path=LegacyPath) as r:
        client = await r.client()
        for key, version in ((1, 4), (0, 3), (2, 1), (8, 2), (8, 9), (9, 8), (12, 1), (19, 2)):
            body = b"\xff\xff\x00\x01" if key == 0 else bytes(20)
            await client.send(request(key, version, 9, body))
            await until(lambda: bool(r.broker.received))
            assert r.broker.received.pop() == request(key, version, 9, body)
            if key != 2 and (key, version) != (8, 2):  # with answers that are parsed
                assert await client.frame() == response(9, request(key, version, 9, body)[12:])
            else:
                client = await r.client()


@pytest.mark.parametrize("key", [2, 8, 9, 19, 20, 32])
async def test_damage_ends_the_connection_of_who_sent_it(key: int) -> None:
    async with legacy({}) as r:
        client = await r.client()
        await client.send(request(key, 0, 1, b"\0\1g\x7f\xff\xff\xff"))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
        assert not r.broker.received


async def test_damage_of_the_broker_is_its_own() -> None:
    async with legacy({ApiKey.OFFSET_FETCH: lambda *_: b"\0\0\0\5"}) as r:
        client = await r.client()
        await client.send(asked(9, 1, 1, OFFSETS))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}


async def test_a_legacy_client_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "legacy client" in record.getMessage()]

    with caplog.at_level("INFO", logger="shoal.legacy"):
        async with legacy(offset_fetch()) as r:
            for _ in range(2):
                client = await r.client()
                await client.send(asked(9, 1, 1, OFFSETS) + request(12, 0, 2))
                await client.frame()
                await client.frame()
            modern = await r.client()
            await modern.send(request(12, 0, 2, client_id=b"new"))
            await modern.frame()
            path = r.listener.path
            assert isinstance(path, LegacyPath)
            path.tick(float("inf"))
            (line,) = lines()
            assert "'old' at 127.0.0.1 uses the protocol of Kafka 0.9" in line
            assert "OffsetFetch v1 are translated" in line
            await client.send(asked(9, 2, 5, OFFSETS))
            await client.frame()
            path.tick(float("inf"))
        assert ["0.9" in line for line in lines()] == [True, False]
        assert "Kafka 0.10.2" in lines()[1]
