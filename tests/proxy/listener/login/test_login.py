"""Clients that log in at a listener, before a scripted broker."""

from __future__ import annotations

import random
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from shoal.protocol.sasl.client import TOKEN_ROUNDS, Credentials, tokens
from shoal.protocol.sasl.server import MOST_TOKEN_BYTES
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.composer import compose
from shoal.protocol.schema.decomposer import decompose
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.proxy.config.security import AccessSettings, ListenerSasl, Mechanism, NamedCredentials, Secret
from shoal.proxy.config.settings import CaptureSettings, Limits, RawCaptureSettings
from shoal.proxy.statistics import CloseCause
from tests.support.rig import BrokerSide, Peer, Rig, api_key, correlation_id, request, response, rig, until
from tests.support.secrets import PASSWORDS, users_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("lane")

METADATA = 3
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
FAILED = 58


async def broker(side: BrokerSide, frame: bytes) -> None:
    """Knows ApiVersions v0-v3; echoes the rest."""
    if api_key(frame) != ApiKey.API_VERSIONS:
        return await side.send(response(correlation_id(frame), frame[12:]))
    version = struct.unpack_from(">h", frame, 6)[0]
    keys = [{"ApiKey": key, "MinVersion": 0, "MaxVersion": 90} for key in (0, 3, 17, 18, 36)]
    body = compose(MESSAGES["ApiVersionsResponse"], version, {"ApiKeys": keys})
    await side.send(response(correlation_id(frame), body))


@asynccontextmanager
async def login_rig(tmp_path: Path, *, mechanisms: tuple[Any, ...] = ALL, **options: Any) -> AsyncIterator[Rig]:
    session_seconds = options.pop("session_seconds", None)
    sasl = ListenerSasl(mechanisms=mechanisms, users=users_file(tmp_path / "users"), session_seconds=session_seconds)
    limits = options.pop("limits", Limits(close_seconds=0.1))
    async with rig(options.pop("answer", broker), sasl=sasl, limits=limits, **options) as r:
        yield r


class Client:
    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._number = 0

    async def ask(self, name: str, version: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        key = ApiKey[name]
        self._number += 1
        await self.peer.send(request_frame(key, version, self._number, "test", values))
        frame = await self.peer.frame()
        assert struct.unpack_from(">i", frame, 4) == (self._number,)
        start = response_body(frame, key, version)
        return decompose(MESSAGES[f"{API[key].name}Response"], version, frame, start, len(frame))

    async def handshake(self, mechanism: str, version: int = 1) -> Mapping[str, Any]:
        return await self.ask("SASL_HANDSHAKE", version, {"Mechanism": mechanism})

    async def log_in(
        self, mechanism: str = "SCRAM-SHA-256", name: str = "alice", word: str | None = None, version: int = 2
    ) -> Mapping[str, Any]:
        """The last answer."""
        assert (await self.handshake(mechanism))["ErrorCode"] == 0
        credentials = Credentials(
            mechanism=mechanism, username=name, password=PASSWORDS.get(name, "") if word is None else word
        )
        exchange = tokens(credentials, "client-nonce")
        token = next(exchange)
        while True:
            answer = await self.ask("SASL_AUTHENTICATE", version, {"AuthBytes": token})
            if answer["ErrorCode"]:
                return answer
            try:
                token = exchange.send(answer["AuthBytes"])
            except StopIteration:
                return answer


async def passes(r: Rig, client: Client) -> bool:
    frame = request(METADATA + 200, 0, 77, b"anything")
    await client.peer.send(frame)
    return await client.peer.frame() == response(77, frame[12:])


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize("version", [0, 2])
async def test_a_client_logs_in_and_then_reaches_the_broker(tmp_path: Path, mechanism: str, version: int) -> None:
    async with login_rig(tmp_path) as r:
        client = Client(await r.client())
        await until(lambda: [connection.principal for connection in r.listener.connections] == [None])
        assert (await client.log_in(mechanism, version=version))["ErrorCode"] == 0
        assert await passes(r, client)
        assert r.connection.principal == "alice"
        assert len(r.broker.sides) == 1
        assert [api_key(frame) for frame in r.broker.received] == [METADATA + 200]


@pytest.mark.parametrize("mechanism", ALL)
async def test_refused_clients_get_the_same_words_and_never_reach_the_broker(tmp_path: Path, mechanism: str) -> None:
    async with login_rig(tmp_path) as r:
        answers = []
        for name, word in (("alice", "wrong"), ("nobody", "a-secret-word")):
            client = Client(await r.client())
            answers.append(await client.log_in(mechanism, name, word))
            assert await client.peer.at_end()
        assert answers[0] == answers[1]
        assert answers[0]["ErrorCode"] == FAILED
        assert answers[0]["ErrorMessage"] == "Authentication failed: the credentials are invalid"
        assert await r.closed(2) == {CloseCause.LOGIN_FAILED: 2}
        assert not r.broker.sides


@pytest.mark.parametrize("mechanism", ALL)
async def test_tokens_without_a_header_after_handshake_v0(tmp_path: Path, mechanism: str) -> None:
    async with login_rig(tmp_path) as r:
        client = Client(await r.client())
        assert (await client.handshake(mechanism, version=0))["ErrorCode"] == 0
        exchange = tokens(Credentials(mechanism=mechanism, username="bob", password="another-word"), "nonce")
        token = next(exchange)
        for _ in range(TOKEN_ROUNDS[mechanism]):
            await client.peer.send(struct.pack(">i", len(token)) + token)
            answer = (await client.peer.frame())[4:]
            with suppress(StopIteration):
                token = exchange.send(answer)
        assert await passes(r, client)
        assert r.connection.principal == "bob"


async def test_a_wrong_token_without_a_header_gets_no_answer(tmp_path: Path) -> None:
    async with login_rig(tmp_path) as r:
        client = Client(await r.client())
        await client.handshake("PLAIN", version=0)
        await client.peer.send(struct.pack(">i", 12) + b"\0alice\0wrong")
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.LOGIN_FAILED: 1}


@pytest.mark.parametrize("version", [0, 3])
async def test_versions_are_those_that_the_client_will_get(tmp_path: Path, version: int) -> None:
    async with login_rig(tmp_path) as r:
        client = Client(await r.client())
        versions = {"ClientSoftwareName": "x", "ClientSoftwareVersion": "1"}
        before = await client.ask("API_VERSIONS", version, versions)
        again = await Client(await r.client()).ask("API_VERSIONS", version, versions)
        assert len(r.broker.received) == 1  # strangers are answered from what is known
        await client.log_in()
        after = await client.ask("API_VERSIONS", version, versions)
        assert before == again == after
        newest = {one["ApiKey"]: one["MaxVersion"] for one in before["ApiKeys"]}
        assert newest[ApiKey.SASL_AUTHENTICATE] == 2
        assert newest[ApiKey.SASL_HANDSHAKE] == 1


async def test_versions_that_nobody_knows(tmp_path: Path) -> None:
    async with login_rig(tmp_path) as r:
        client = Client(await r.client())
        await client.peer.send(request(ApiKey.API_VERSIONS, 99, 5, b"\0"))
        frame = await client.peer.frame()
        assert struct.unpack_from(">ih", frame, 4) == (5, 35)
        assert not r.broker.sides


async def test_another_request_before_the_login_ends_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with login_rig(tmp_path) as r:
        client = Client(await r.client())
        await client.peer.send(request(METADATA, 1, 5))
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
        assert not r.broker.sides
    assert "Metadata before the client has logged in: set its security.protocol to SASL_PLAINTEXT" in caplog.text


async def test_frames_before_the_login_have_a_smaller_limit(tmp_path: Path) -> None:
    async with login_rig(tmp_path, limits=Limits(login_frame_bytes=1000, close_seconds=0.1)) as r:
        client = Client(await r.client())
        await client.peer.send(struct.pack(">ihh", 1001, ApiKey.SASL_AUTHENTICATE, 0))
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}


async def test_a_stranger_holds_less_than_a_frame_of_others(tmp_path: Path) -> None:
    async with login_rig(tmp_path, limits=Limits(close_seconds=0.1)) as r:
        client = Client(await r.client())
        await client.peer.send(struct.pack(">ihh", MOST_TOKEN_BYTES + 8192, ApiKey.SASL_AUTHENTICATE, 0))
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}


async def test_a_login_takes_a_bounded_number_of_requests(tmp_path: Path) -> None:
    async with login_rig(tmp_path) as r:
        client = Client(await r.client())
        for number in range(16):
            await client.peer.send(request(ApiKey.API_VERSIONS, 0, number))
            await client.peer.frame()
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.LOGIN_FAILED: 1}


async def test_strange_requests_are_the_client_s_fault(tmp_path: Path) -> None:
    rng = random.Random(1)
    async with login_rig(tmp_path) as r:
        for number in range(60):
            peer = await r.client()
            with suppress(trio.BrokenResourceError):
                if number % 3:
                    await peer.send(request(ApiKey.SASL_HANDSHAKE, number % 2, 1, b"\0\5PLAIN"))
                key = rng.choice((ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE, 999))
                await peer.send(request(key, rng.randrange(-2, 6), 2, rng.randbytes(rng.randrange(12))))
                await peer.stream.send_eof()
                while await peer.stream.receive_some():
                    pass
        closed = await r.closed(60)
        assert closed.keys() <= {
            CloseCause.CLIENT_PROTOCOL,
            CloseCause.CLIENT_CLOSED,
            CloseCause.CLIENT_LOST,
            CloseCause.LOGIN_FAILED,
        }
        assert all(api_key(frame) == ApiKey.API_VERSIONS for frame in r.broker.received)


async def test_an_unknown_mechanism(tmp_path: Path) -> None:
    async with login_rig(tmp_path, mechanisms=("PLAIN",)) as r:
        client = Client(await r.client())
        assert await client.handshake("SCRAM-SHA-256") == {"ErrorCode": 33, "Mechanisms": ["PLAIN"]}
        assert await client.peer.at_end()


async def test_a_token_without_a_handshake(tmp_path: Path) -> None:
    async with login_rig(tmp_path) as r:
        client = Client(await r.client())
        assert (await client.ask("SASL_AUTHENTICATE", 1, {"AuthBytes": b"\0a\0b"}))["ErrorCode"] == 34
        assert await client.peer.at_end()


async def test_no_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with login_rig(tmp_path) as r:
        for mechanism in ALL:
            client = Client(await r.client())
            await client.log_in(mechanism, "alice", "wrong-but-secret")
            await client.peer.at_end()
    assert "did not log in (client id test, mechanism PLAIN, user alice)" in caplog.text
    assert "secret" not in caplog.text


# -- again -------------------------------------------------------------------------------------------------------------


async def test_a_session_is_extended_by_a_new_login(tmp_path: Path) -> None:
    async with login_rig(tmp_path, session_seconds=1000.0) as r:
        client = Client(await r.client())
        first = await client.log_in()
        assert 900_000 < first["SessionLifetimeMs"] <= 1_000_000
        assert await passes(r, client)
        before = r.connection.session
        await trio.sleep(0.01)
        second = await client.log_in("PLAIN")
        assert second["ErrorCode"] == 0
        assert before is not None
        assert r.connection.session is not None
        assert r.connection.session.ends_at > before.ends_at
        assert await passes(r, client)
        assert {api_key(frame) for frame in r.broker.received} == {METADATA + 200}


async def test_a_new_login_may_not_change_the_principal(tmp_path: Path) -> None:
    async with login_rig(tmp_path) as r:
        client = Client(await r.client())
        await client.log_in()
        answer = await client.log_in("PLAIN", "bob")
        assert answer["ErrorCode"] == FAILED
        assert "another principal than before" in answer["ErrorMessage"]
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.LOGIN_FAILED: 1}


async def test_requests_glued_to_a_refused_login_do_not_pass_as_the_user_before(tmp_path: Path) -> None:
    """Neither does another attempt: each needs a new connection."""
    async with login_rig(tmp_path) as r:
        client = Client(await r.client())
        await client.log_in()
        assert await passes(r, client)
        assert (await client.handshake("PLAIN"))["ErrorCode"] == 0
        wrong = request_frame(ApiKey.SASL_AUTHENTICATE, 1, 9, "test", {"AuthBytes": b"\0bob\0another-word"})
        again = request_frame(ApiKey.SASL_HANDSHAKE, 1, 10, "test", {"Mechanism": "PLAIN"})
        await client.peer.send(wrong + request(METADATA + 200, 0, 11) + again)
        assert await r.closed() == {CloseCause.LOGIN_FAILED: 1}
        assert [correlation_id(frame) for frame in r.broker.received] == [77]


async def test_versions_that_no_api_has_are_no_way_around_an_ended_session(tmp_path: Path) -> None:
    async with login_rig(tmp_path, session_seconds=5.0, check_seconds=1000.0) as r:
        client = Client(await r.client())
        await client.log_in()
        assert await passes(r, client)
        for connection in r.listener.connections:
            assert connection.session is not None
            connection.check_progress(connection.session.ends_at + 0.1)
        await client.peer.send(request(METADATA, -1, 5))
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.SESSION_EXPIRED: 1}
        assert len(r.broker.received) == 1


async def test_an_expired_session_ends_at_the_next_request(tmp_path: Path) -> None:
    async with login_rig(tmp_path, session_seconds=5.0, check_seconds=0.01) as r:
        client, late = Client(await r.client()), Client(await r.client())
        await client.log_in()
        await late.log_in()
        assert await passes(r, client)
        for connection in r.listener.connections:
            assert connection.session is not None
            connection.check_progress(connection.session.ends_at + 0.1)
        await late.log_in()  # late, and still in time
        assert await passes(r, late)
        await client.peer.send(request(METADATA, 1, 5))
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.SESSION_EXPIRED: 1}


async def test_a_late_login_does_not_hide_the_client_id(tmp_path: Path) -> None:
    access = AccessSettings(client_ids=("good-.*",))
    async with login_rig(tmp_path, session_seconds=5.0, check_seconds=0.01, access=access) as r:
        client = Client(await r.client())
        await client.log_in()
        await until(lambda: r.connection.connected)
        assert r.connection.session is not None
        r.connection.check_progress(r.connection.session.ends_at + 0.1)
        await client.log_in()
        await client.peer.send(request(METADATA, 1, 5, client_id=b"bad"))
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.CLIENT_ID_REFUSED: 1}
        assert not r.broker.received


# -- the end of a session, while answers are due -----------------------------------------------------------------------


class SlowBroker:
    """Answers ordinary requests only after `release`."""

    def __init__(self) -> None:
        self.release = trio.Event()

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        if api_key(frame) != ApiKey.API_VERSIONS:
            await self.release.wait()
        await broker(side, frame)


@asynccontextmanager
async def asked_twice(
    tmp_path: Path, *, by: str = "SCRAM-SHA-256", **options: Any
) -> AsyncIterator[tuple[Rig, Client, SlowBroker]]:
    """alice has logged in, and two of her requests are at the broker."""
    slow = SlowBroker()
    async with login_rig(tmp_path, answer=slow.answer, **options) as r:
        client = Client(await r.client())
        await client.log_in(by)
        for number in (1, 2):
            await client.peer.send(request(METADATA + 200, 0, number, b"asked"))
        await until(lambda: len(r.broker.received) == 1 and len(r.connection.in_flight) == 2)
        yield r, client, slow


async def gets_both_answers(client: Client) -> None:
    for number in (1, 2):
        frame = await client.peer.frame()
        assert (correlation_id(frame[:4] + frame), frame[-5:]) == (number, b"asked")


async def test_a_session_that_expires_leaves_no_answer_behind(tmp_path: Path) -> None:
    """The broker, too, reads no request before it has answered the one before."""
    async with asked_twice(tmp_path, session_seconds=5.0) as (r, client, slow):
        assert r.connection.session is not None
        r.connection.check_progress(r.connection.session.ends_at + 0.1)
        await client.peer.send(request(METADATA + 200, 0, 3) + request(METADATA + 200, 0, 4, bytes(100_000)))
        await until(lambda: r.connection.cause is CloseCause.SESSION_EXPIRED)
        slow.release.set()
        await gets_both_answers(client)
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.SESSION_EXPIRED: 1}
        assert len(r.broker.received) == 2


async def test_the_end_of_a_session_does_not_wait_for_ever(tmp_path: Path) -> None:
    limits = Limits(drain_seconds=0.05, close_seconds=0.1)
    async with asked_twice(tmp_path, session_seconds=5.0, limits=limits) as (r, client, _):
        assert r.connection.session is not None
        r.connection.check_progress(r.connection.session.ends_at + 0.1)
        await client.peer.send(request(METADATA + 200, 0, 3))
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.SESSION_EXPIRED: 1}


async def test_a_refused_new_login_leaves_no_answer_behind(tmp_path: Path) -> None:
    async with asked_twice(tmp_path) as (r, client, slow):
        await client.peer.send(request_frame(ApiKey.SASL_HANDSHAKE, 1, 3, "test", {"Mechanism": "NONE"}))
        await until(lambda: r.connection.handling)
        slow.release.set()
        await gets_both_answers(client)
        assert struct.unpack_from(">ih", await client.peer.frame(), 4) == (3, 33)
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.LOGIN_FAILED: 1}


# -- users that are removed, or get a new password ---------------------------------------------------------------------


async def test_a_removed_user_s_connections_end_and_those_of_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with login_rig(tmp_path) as r:
        alice, again, bob = [Client(await r.client()) for _ in range(3)]
        await alice.log_in()
        await again.log_in("PLAIN")
        await bob.log_in(name="bob")
        assert await passes(r, alice)
        assert await passes(r, bob)
        users_file(tmp_path / "users", {"bob": PASSWORDS["bob"]})
        reread(r)
        assert await alice.peer.at_end()
        assert await again.peer.at_end()
        assert await r.closed(2) == {CloseCause.USER_CHANGED: 2}
        reread(r)
        assert await passes(r, bob)
        assert (await Client(await r.client()).log_in())["ErrorCode"] == FAILED
    said = "listener 'test': ended 2 connections of users that are removed or have a new password: alice"
    assert [record.getMessage() for record in caplog.records if "ended" in record.getMessage()] == [said]


@pytest.mark.parametrize("mechanism", ALL)
async def test_a_new_password_ends_connections_when_their_answers_are_there(tmp_path: Path, mechanism: str) -> None:
    async with asked_twice(tmp_path, by=mechanism) as (r, client, slow):
        users_file(tmp_path / "users", {**PASSWORDS, "alice": "a-new-word"})
        reread(r)
        assert r.connection.cause is CloseCause.USER_CHANGED
        await client.peer.send(request(METADATA + 200, 0, 3))
        slow.release.set()
        await gets_both_answers(client)
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.USER_CHANGED: 1}
        assert len(r.broker.received) == 2
        assert (await Client(await r.client()).log_in(mechanism, word="a-new-word"))["ErrorCode"] == 0


async def test_a_removed_user_that_takes_no_answers_is_cut_off(tmp_path: Path) -> None:
    async with asked_twice(tmp_path, limits=Limits(drain_seconds=0.05, close_seconds=0.1)) as (r, client, _):
        users_file(tmp_path / "users", {"bob": PASSWORDS["bob"]})
        reread(r)
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.USER_CHANGED: 1}


def reread(r: Rig) -> None:
    assert r.listener.login is not None
    users = r.listener.login._users
    assert users is not None
    users._check_at = 0.0
    r.listener.tick(0.0)


# -- credentials at the broker -----------------------------------------------------------------------------------------


def credentials(name: str, path: Path) -> NamedCredentials:
    path.write_text("a word")
    path.chmod(0o600)
    return NamedCredentials(name=name, mechanism=Mechanism.PLAIN, username=name, password=Secret(file=path))


async def test_a_principal_without_credentials_is_told_so(tmp_path: Path) -> None:
    async with login_rig(tmp_path, principals={"bob": "b"}, credentials=[credentials("b", tmp_path / "b")]) as r:
        client = Client(await r.client())
        answer = await client.log_in()
        assert answer["ErrorCode"] == FAILED
        assert answer["ErrorMessage"] == "no credentials are mapped to the principal 'alice' ([listener.principals])"
        assert await client.peer.at_end()
        assert not r.broker.sides


async def test_a_principal_that_is_not_let_in(tmp_path: Path) -> None:
    async with login_rig(tmp_path, access=AccessSettings(principals=("bob",))) as r:
        client = Client(await r.client())
        answer = await client.log_in()
        assert answer["ErrorMessage"] == "the principal 'alice' may not use this listener (access.principals)"
        assert await client.peer.at_end()
        assert await r.closed() == {CloseCause.PRINCIPAL_REFUSED: 1}
        assert (await Client(await r.client()).log_in(name="bob"))["ErrorCode"] == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
async def test_passwords_on_the_network_are_worth_a_warning(
    tmp_path: Path, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with login_rig(tmp_path, host=host):
        pass
    assert ("passwords of PLAIN can be read on the network" in caplog.text) == (host == "0.0.0.0")


# -- captures ----------------------------------------------------------------------------------------------------------


async def test_no_capture_has_a_password_or_a_proof(tmp_path: Path) -> None:
    for name in ("raw", "index"):
        (tmp_path / name).mkdir()
    raw = RawCaptureSettings(directory=tmp_path / "raw")
    index = CaptureSettings(directory=tmp_path / "index")
    async with login_rig(tmp_path, raw_capture=raw, capture=index) as r:
        for mechanism in ALL:
            client = Client(await r.client())
            await client.log_in(mechanism)
            assert await passes(r, client)
            assert (await client.log_in(mechanism))["ErrorCode"] == 0  # again
            wrong = Client(await r.client())
            await wrong.log_in(mechanism, "alice", "wrong-word")
            assert await wrong.peer.at_end()
        client = Client(await r.client())
        await client.handshake("PLAIN", version=0)
        await client.peer.send(struct.pack(">i", 20) + b"\0alice\0a-secret-word")
        assert (await client.peer.frame())[4:] == b""
        assert await passes(r, client)
    written = {
        name: b"".join(file.read_bytes() for file in (tmp_path / name).rglob("*") if file.is_file())
        for name in ("raw", "index")
    }
    assert b"withheld" in written["raw"]
    for content in written.values():
        assert content
        for secret in (b"a-secret-word", b"wrong-word", b",p=", b"client-nonce"):
            assert secret not in content
