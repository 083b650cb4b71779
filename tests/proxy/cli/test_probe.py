"""`shoal probe` against brokers on real sockets: reports, exit codes, authentication, cleaning up."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import trio
from kio.schema.errors import ErrorCode

from shoal.protocol.multibatch.proof import Proof, Result
from shoal.protocol.schema.api import ApiKey
from shoal.proxy.cli.probe import EXIT_CODES, BrokerReport, ClusterReport, probe_cluster, to_json, to_text
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address, ClusterSettings, Limits
from tests.support.multibatch.broker import BatchBroker, Habits
from tests.support.multibatch.brokers import Behind
from tests.support.rig import FakeBroker, api_key, correlation_id, response
from tests.support.secrets import password_login
from tests.support.tls import server_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.proxy.config.security import SaslSettings
    from tests.support.rig import BrokerSide


ALICE = password_login("alice", "right")


@dataclass
class Cluster:
    behind: Behind
    fake: FakeBroker

    async def probe(self, sasl: SaslSettings | None = None, **options: Any) -> ClusterReport:
        settings = ClusterSettings(name="brokers", bootstrap=(self.fake.address,), sasl=sasl)
        return await probe_cluster(settings, Limits(), **{"topic": None, "seconds": 20.0, **options})

    async def proof(self, **options: Any) -> Proof:
        (broker,) = (await self.probe(**options)).brokers
        return broker.proof


@dataclass
class Guarded(Behind):
    """Admits clients with the right PLAIN token."""

    tokens: list[bytes] = field(default_factory=list)

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        if api_key(frame) == ApiKey.SASL_HANDSHAKE:
            plain = frame.endswith(b"\0\5PLAIN")
            error = b"\0\0" if plain else b"\0\x21"
            return await side.send(response(correlation_id(frame), error + b"\0\0\0\1\0\5PLAIN"))
        if api_key(frame) == ApiKey.SASL_AUTHENTICATE:
            self.tokens.append(frame)
            right = b"\0alice\0right" in frame
            if right:
                self.authenticated.add(side)
            text = b"\1" if right else b"\6wrong"
            body = b"\0" + (b"\0\0" if right else b"\0\x3a") + text + b"\1" + bytes(8) + b"\0"
            return await side.send(response(correlation_id(frame), body))
        return await super().answer(side, frame)


@asynccontextmanager
async def cluster(behind: Behind | None = None, **habits: Any) -> AsyncIterator[Cluster]:
    behind = behind or Behind(BatchBroker(Habits(**habits)))
    fake = FakeBroker(behind.answer)
    async with trio.open_nursery() as nursery:
        await nursery.start(fake.run)
        behind.broker.address = fake.address
        yield Cluster(behind, fake)
        nursery.cancel_scope.cancel()


async def test_a_cluster_of_two_brokers_is_proven() -> None:
    async with cluster(node_ids=(1, 2)) as here:
        report = await here.probe()
        assert report.result is Result.PROVEN
        assert [broker.node_id for broker in report.brokers] == [1, 2]
        assert here.behind.broker.topics == {}
        assert len(here.behind.broker.deleted) == 2
        assert to_text(report).startswith("cluster a-cluster: 2 brokers\n\n  broker 1  127.0.0.1:")
        assert "PROVEN   sets of 2, 5, 64 batches were stored and read back" in to_text(report)
        told = json.loads(to_json(report))
        assert (told["cluster_id"], told["result"]) == ("a-cluster", "proven")
        assert [set(one) for one in told["brokers"]] == [
            {"node_id", "address", "result", "why", "remedy", "left_behind"}
        ] * 2


@pytest.mark.parametrize(
    ("habits", "result", "code"),
    [
        ({}, Result.PROVEN, 0),
        ({"refuses": ErrorCode.invalid_record}, Result.REFUSED, 1),
        ({"closes": True}, Result.REFUSED, 1),
        ({"keeps": 1}, Result.UNSAFE, 4),
        ({"create_error": ErrorCode.topic_authorization_failed}, Result.UNKNOWN, 5),
    ],
)
async def test_results_have_exit_codes(habits: dict[str, Any], result: Result, code: int) -> None:
    async with cluster(**habits) as here:
        report = await here.probe()
        assert report.result is result
        assert EXIT_CODES[report.result] == code
        assert here.behind.broker.topics == {}, "a scratch topic is deleted, over another connection if need be"
        assert not report.brokers[0].proof.left_behind


async def test_a_topic_that_is_named_is_used() -> None:
    async with cluster(create_error=ErrorCode.topic_authorization_failed) as here:
        here.behind.broker.with_topic("shoal-probe")
        assert (await here.proof(topic="shoal-probe")).proven


async def test_a_broker_that_wants_sasl_is_told() -> None:
    async with cluster(Guarded(sasl=True)) as here:
        report = await here.probe()
        assert report.result is Result.UNKNOWN
        assert report.brokers[0].node_id is None
        assert "remedy: the port may require TLS (--tls) or a login (--sasl-mechanism)" in to_text(report)


async def test_a_tls_port_that_only_closes_is_told() -> None:
    """Most that are not Java's."""
    fake = FakeBroker(tls=server_context())
    async with trio.open_nursery() as nursery:
        await nursery.start(fake.run)
        settings = ClusterSettings(name="brokers", bootstrap=(fake.address,))
        text = to_text(await probe_cluster(settings, Limits(), topic=None, seconds=20))
        assert "UNKNOWN  the broker uses TLS: it closes plaintext connections" in text
        assert "remedy: --tls-ca FILE" in text
        nursery.cancel_scope.cancel()


async def test_with_credentials_it_logs_in_on_every_connection() -> None:
    guarded = Guarded(sasl=True)
    async with cluster(guarded) as here:
        assert (await here.proof(sasl=ALICE)).proven
        assert len(guarded.tokens) == 2


async def test_a_wrong_password_is_the_broker_s_own_words() -> None:
    async with cluster(Guarded(sasl=True)) as here:
        with pytest.raises(OperatorError) as raised:
            await here.probe(sasl=password_login("alice", "wrong"))
        assert "error 58 (SASL_AUTHENTICATION_FAILED): wrong" in str(raised.value)


async def test_another_mechanism_is_told_with_what_there_is() -> None:
    async with cluster(Guarded(sasl=True)) as here:
        with pytest.raises(OperatorError) as raised:
            await here.probe(sasl=password_login("alice", "right", "SCRAM-SHA-256"))
        assert "does not take SASL SCRAM-SHA-256 here: error 33 (UNSUPPORTED_SASL_MECHANISM)" in str(raised.value)
        assert "it offers PLAIN" in str(raised.value)


async def test_a_broker_that_says_nothing_is_given_up() -> None:
    async with cluster(mute_on=frozenset({ApiKey.CREATE_TOPICS})) as here:
        proof = await here.proof(seconds=1)
        assert proof.result is Result.UNKNOWN
        assert proof.why == "no answer to CreateTopics within 1 s"


async def test_answers_that_are_none_end_the_probe() -> None:
    async def http(side: BrokerSide, frame: bytes) -> None:
        await side.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    fake = FakeBroker(http)
    async with trio.open_nursery() as nursery:
        await nursery.start(fake.run)
        settings = ClusterSettings(name="brokers", bootstrap=(fake.address,))
        report = await probe_cluster(settings, Limits(), topic=None, seconds=20)
        assert report.result is Result.UNKNOWN
        nursery.cancel_scope.cancel()


async def test_nobody_there_is_an_operator_s_error() -> None:
    settings = ClusterSettings(name="brokers", bootstrap=(Address("127.0.0.1", 1),))
    with pytest.raises(OperatorError, match="cannot reach the broker"):
        await probe_cluster(settings, Limits(), topic=None, seconds=5)


def test_words_of_a_broker_are_escaped_for_the_terminal() -> None:
    proof = Proof(result=Result.UNKNOWN, why="\x1b[2J\r\u202eowned")
    text = to_text(
        ClusterReport(cluster_id="c", brokers=(BrokerReport(node_id=1, address=Address("h", 1), proof=proof),))
    )
    assert "UNKNOWN  \\x1b[2J\\r\\u202eowned\n" in text


@pytest.mark.parametrize("worst", Result)
def test_a_cluster_is_as_good_as_its_worst_broker(worst: Result) -> None:
    order = [Result.PROVEN, Result.REFUSED, Result.UNKNOWN, Result.UNSAFE]
    brokers = tuple(
        BrokerReport(node_id=number, address=Address("h", 1), proof=Proof(result=result, why="-"))
        for number, result in enumerate(order[: order.index(worst) + 1])
    )
    assert ClusterReport(cluster_id="c", brokers=brokers).result is worst
