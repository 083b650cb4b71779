"""Delegation tokens: refused where Shoal logs in at the brokers, and a matter of the broker where clients do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.decomposer import decompose
from shoal.protocol.schema.headers import response_body, write_request_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.config.security import Mechanism, NamedCredentials, SaslSettings, Secret
from shoal.proxy.statistics import CloseCause
from tests.proxy.net.auth.test_sessions import StrictBroker
from tests.support.rig import BrokerSide, Rig, api_key, correlation_id, request, response, rig
from tests.support.tls import authority, cluster_tls

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("lane")

REFUSED = {
    ApiKey.CREATE_DELEGATION_TOKEN: "CreateDelegationTokenResponse",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "DescribeDelegationTokenResponse",
}


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def asked(r: Rig, key: ApiKey, version: int) -> Mapping[str, Any]:
    client = await r.client()
    await client.send(framed(write_request_header(key, version, 7, "test") + bytes(20)))
    frame = await client.frame()
    start = response_body(frame, key, version)
    return decompose(MESSAGES[REFUSED[key]], version, frame, start, len(frame))


def of_shoal(path: Path) -> SaslSettings:
    path.write_text("a word")
    path.chmod(0o600)
    return SaslSettings(mechanism=Mechanism.PLAIN, username="shoal", password=Secret(file=path))


@pytest.mark.parametrize("key", REFUSED)
@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_a_client_gets_no_token_of_shoal_s_principal(
    tmp_path: Path, key: ApiKey, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = StrictBroker(sessions=(0,))
    async with rig(broker.answer, login=of_shoal(tmp_path / "password")) as r:
        answer = await asked(r, key, version)
        assert answer["ErrorCode"] == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert not answer.get("Hmac")
        assert not answer.get("Tokens")
        assert key not in broker.keys
    assert "a delegation token would act at the brokers as Shoal's principal" in caplog.text


async def test_a_version_that_shoal_does_not_know_does_not_pass(tmp_path: Path) -> None:
    broker = StrictBroker(sessions=(0,))
    async with rig(broker.answer, login=of_shoal(tmp_path / "password")) as r:
        client = await r.client()
        await client.send(request(ApiKey.CREATE_DELEGATION_TOKEN, 4, 7))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
        assert ApiKey.CREATE_DELEGATION_TOKEN not in broker.keys


@pytest.mark.parametrize("key", REFUSED)
async def test_mapped_principals_get_none_either(tmp_path: Path, key: ApiKey) -> None:
    sasl = of_shoal(tmp_path / "password")
    named = NamedCredentials(name="a", mechanism=sasl.mechanism, username="shoal", password=sasl.password)
    broker = StrictBroker(sessions=(0,))
    async with rig(broker.answer, principals={"*": "a"}, credentials=[named]) as r:
        assert (await asked(r, key, 3))["ErrorCode"] == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert key not in broker.keys


@pytest.mark.parametrize("key", [*REFUSED, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN])
async def test_requests_of_clients_that_log_in_at_the_broker_pass(key: ApiKey) -> None:
    async with rig() as r:
        client = await r.client()
        frame = request(key, 3, 7, b"whatever")
        await client.send(frame)
        assert await client.frame() == response(7, frame[12:])


@pytest.mark.parametrize("logs_in", [True, False])
async def test_behind_shoal_s_certificate_only_a_client_that_logs_in_itself_gets_one(logs_in: bool) -> None:
    """The broker takes the certificate for a principal only on a port without SASL."""
    own = authority().client("shoal")

    async def broker(side: BrokerSide, frame: bytes) -> None:
        error = int(not logs_in).to_bytes(2, "big")
        is_login = api_key(frame) == ApiKey.SASL_HANDSHAKE
        await side.send(response(correlation_id(frame), error + bytes(4) if is_login else frame[12:]))

    async with rig(broker, to_broker=cluster_tls(certificate=own.certificate, key=own.key)) as r:
        client = await r.client()
        await client.send(request(ApiKey.SASL_HANDSHAKE, 1, 1, b"\0\5PLAIN"))
        await client.frame()
        body = write_request_header(ApiKey.CREATE_DELEGATION_TOKEN, 3, 7, "test") + bytes(20)
        await client.send(framed(body))
        answer = await client.frame()
        assert (answer[8:] == body[8:]) is logs_in
        assert (api_key(r.broker.received[-1]) == ApiKey.CREATE_DELEGATION_TOKEN) is logs_in
