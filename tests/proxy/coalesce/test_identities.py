"""Which clients share a lane: those that are the same principal at the broker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from kio.schema.errors import ErrorCode

from shoal.protocol.sasl.answers import answer_authenticate, answer_handshake, read_authenticate
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.composer import compose
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.wire.error_codes import ErrorCode as Code
from shoal.proxy.coalesce.path import CoalescePath
from shoal.proxy.config.settings import Mode
from tests.support.coalesce_rig import KafkaLike, batch, coalesce_rig
from tests.support.rig import BrokerSide, api_key, correlation_id, response
from tests.support.secrets import password_login

if TYPE_CHECKING:
    from tests.support.shallow.rig import Producer

pytestmark = pytest.mark.usefixtures("lane")

NONE = ErrorCode.none


@dataclass
class SecuredBroker:
    """Knows who has logged in on each connection. `kafka` answers the rest."""

    kafka: KafkaLike = field(default_factory=KafkaLike)
    users: dict[BrokerSide, str] = field(default_factory=dict)

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        key = api_key(frame)
        if key == ApiKey.API_VERSIONS:
            keys = [{"ApiKey": key, "MinVersion": 0, "MaxVersion": 2} for key in (17, 18, 36)]
            body = compose(MESSAGES["ApiVersionsResponse"], 0, {"ApiKeys": keys})
            return await side.send(response(correlation_id(frame), body))
        if key == ApiKey.SASL_HANDSHAKE:
            return await side.send(answer_handshake(read_request_header(frame), Code.NONE, ("PLAIN",)))
        if key == ApiKey.SASL_AUTHENTICATE:
            header = read_request_header(frame)
            self.users[side] = read_authenticate(frame, header).split(b"\0")[1].decode()
            return await side.send(answer_authenticate(header))
        return await self.kafka.answer(side, frame)

    def producers(self) -> list[str]:
        """Who has sent each produce request."""
        return [self.users[side] for side in self.kafka.sides]


async def produce(client: Producer, value: str) -> int:
    """-> its offset."""
    await client.send_only({0: batch(value)})
    ((error, offset),) = (await client.answers()).values()
    assert error is NONE
    return offset


async def test_after_a_reload_with_another_user_new_clients_are_not_joined_with_former_ones() -> None:
    broker = SecuredBroker()
    async with coalesce_rig(answer=broker.answer, login=password_login("former", "a word")) as r:
        old = await r.producer()
        assert await produce(old, "a") == 0
        settings = r.server.settings
        cluster = replace(settings.clusters[0], sasl=password_login("present", "a word"))
        await r.server.reconfigure(lambda: replace(settings, clusters=(cluster,)), lambda _: {Mode.PLAIN: CoalescePath})
        new = await r.producer()
        assert await produce(new, "b") == 1
        assert await produce(old, "c") == 2
        assert broker.producers() == ["former", "present", "former"]
        assert r.path.tally.taken == 3
