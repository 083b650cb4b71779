"""Connections whose sessions at the broker end, in front of a broker that forgives nothing.

It closes a connection that sends an ordinary request without a session, after its end, or within a login. Time passes
only where a test says so: a busy machine makes no session end early.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from shoal.protocol.sasl.answers import answer_authenticate, answer_handshake, read_authenticate
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.config.security import Mechanism, SaslSettings, Secret
from shoal.proxy.config.settings import Limits
from shoal.proxy.connection.keep_alive import KeepAlive
from shoal.proxy.connection.routes import Route, table
from shoal.proxy.listener.plain import PlainPath
from shoal.proxy.net.broker_client import open_client
from shoal.proxy.net.upstream import UpstreamRefused
from shoal.proxy.statistics import CloseCause
from tests.support.rig import api_key, correlation_id, request, response, rig, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.listener.listener import Listener
    from tests.support.rig import BrokerSide

SESSION_MS = 300
FOREVER = 0
ANY, HANDLED = 99, ApiKey.HEARTBEAT  # the first is no key of Kafka


def seconds_pass(seconds: float) -> None:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.jump(seconds)


@dataclass
class StrictBroker:
    """`sessions`: lifetimes in milliseconds of the logins of one connection, in turn; None: refused."""

    sessions: Sequence[int | None] = (SESSION_MS, FOREVER)
    pause: float = 0.0  # seconds that each request takes
    logins: dict[object, int] = field(default_factory=dict)
    ends: dict[object, float] = field(default_factory=dict)
    within_login: set[object] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)

    async def answer(self, side: BrokerSide, frame: bytes) -> None:
        key = api_key(frame)
        self.keys.append(key)
        if key == ApiKey.API_VERSIONS and side not in self.ends:
            apis = struct.pack(">hhhhhh", ApiKey.SASL_HANDSHAKE, 0, 1, ApiKey.SASL_AUTHENTICATE, 0, 2)
            return await side.send(response(correlation_id(frame), struct.pack(">hi", 0, 2) + apis))
        if key == ApiKey.SASL_HANDSHAKE:
            self.within_login.add(side)
            return await side.send(answer_handshake(read_request_header(frame), ErrorCode.NONE, ("PLAIN",)))
        if key == ApiKey.SASL_AUTHENTICATE:
            return await self._authenticate(side, frame)
        if side in self.within_login or trio.current_time() > self.ends.get(side, 0.0):
            self.wrong.append(f"API {key} {'within a login' if side in self.within_login else 'without a session'}")
            return await side.leave()
        seconds_pass(self.pause)
        await side.send(response(correlation_id(frame), frame[12:]))

    async def _authenticate(self, side: BrokerSide, frame: bytes) -> None:
        header = read_request_header(frame)
        number = self.logins.get(side, 0)
        self.logins[side] = number + 1
        lifetime = self.sessions[min(number, len(self.sessions) - 1)]
        self.within_login.discard(side)
        if lifetime is None or read_authenticate(frame, header) != b"\0shoal\0a word":
            failed = ErrorCode.SASL_AUTHENTICATION_FAILED
            return await side.send(answer_authenticate(header, error=failed, why="no longer"))
        self.ends[side] = trio.current_time() + (lifetime / 1000 if lifetime else 1e9)
        await side.send(answer_authenticate(header, lifetime_ms=lifetime))


@pytest.fixture
def sasl(tmp_path: Path) -> SaslSettings:
    (tmp_path / "word").write_text("a word\n")
    (tmp_path / "word").chmod(0o600)
    return SaslSettings(mechanism=Mechanism.PLAIN, username="shoal", password=Secret(file=tmp_path / "word"))


async def test_pipelined_requests_wait_for_the_login_and_none_is_lost(
    sasl: SaslSettings, mock_clock: MockClock
) -> None:
    broker = StrictBroker(pause=0.001)
    async with rig(broker.answer, login=sasl) as r:
        client = await r.client()
        count, answered = 0, 0
        deadline = trio.current_time() + 2 * SESSION_MS / 1000
        while trio.current_time() < deadline:
            burst = [request(ANY, 0, count + n, b"%d" % (count + n)) for n in range(20)]
            count += len(burst)
            await client.send(b"".join(burst))
            while answered < count:
                frame = await client.frame()
                assert frame[4:] == struct.pack(">i", answered) + b"\0\4test%d" % answered
                answered += 1
        assert not broker.wrong
        assert list(broker.logins.values()) == [2]


async def test_an_idle_connection_logs_in_before_its_next_request(sasl: SaslSettings, mock_clock: MockClock) -> None:
    broker = StrictBroker()
    async with rig(broker.answer, login=sasl) as r:
        client = await r.client()
        for number in range(2):
            await client.send(request(ANY, 0, number))
            await client.frame()
            seconds_pass(1.3 * SESSION_MS / 1000)
        assert not broker.wrong
        assert list(broker.logins.values()) == [2]


class HandledPath(PlainPath):
    """Its handler asks the broker for the client's request, several times."""

    def __init__(self, listener: Listener) -> None:
        self.routes = table({HANDLED: Route(handle=self._handle)})

    async def _handle(self, connection: Connection, frame: bytearray, header: Any) -> None:
        for _ in range(4):
            answer = await connection.broker.ask([request(ANY, 0, 7, b"x")])
            seconds_pass(0.4 * SESSION_MS / 1000)
        answer[4:8] = struct.pack(">i", header.correlation_id)
        await connection.reply([bytes(answer)])


async def test_a_handler_that_takes_longer_than_a_session(sasl: SaslSettings, mock_clock: MockClock) -> None:
    broker = StrictBroker()
    async with rig(broker.answer, login=sasl, path=HandledPath) as r:
        client = await r.client()
        await client.send(request(HANDLED, 0, 5))
        assert correlation_id(b"\0\0\0\0" + await client.frame()) == 5
        assert not broker.wrong
        assert list(broker.logins.values()) == [2]


async def test_a_keep_alive_and_a_login_do_not_meet(sasl: SaslSettings, mock_clock: MockClock) -> None:
    """A connection that only a keep-alive uses logs in instead; the client's next request waits for it."""
    broker = StrictBroker()
    async with rig(broker.answer, login=sasl) as r:
        client = await r.client()
        await client.send(request(ANY, 0, 1))
        await client.frame()
        await until(lambda: r.connection.is_between_requests)
        keep_alive = KeepAlive(r.connection, quiet=0.0)
        keep_alive.tick(trio.current_time())
        seconds_pass(SESSION_MS / 1000)
        keep_alive.tick(trio.current_time())
        await client.send(request(ANY, 0, 2))
        assert correlation_id(b"\0\0\0\0" + await client.frame()) == 2
        assert not broker.wrong
        assert list(broker.logins.values()) == [2]


async def test_a_login_that_fails_ends_the_connection(
    sasl: SaslSettings, caplog: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    broker = StrictBroker((SESSION_MS, None))
    async with rig(broker.answer, login=sasl) as r:
        client = await r.client()
        await client.send(request(ANY, 0, 1))
        await client.frame()
        seconds_pass(SESSION_MS / 1000)
        await client.send(request(ANY, 0, 2))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_LOGIN: 1}
    assert "the session has ended, and Shoal cannot log in again: the broker does not let the user in" in caplog.text
    assert "no longer" in caplog.text


async def test_shoal_s_own_connections_log_in_again(sasl: SaslSettings, mock_clock: MockClock) -> None:
    broker = StrictBroker((SESSION_MS, FOREVER))
    async with rig(broker.answer, login=sasl) as r:
        with open_client(r.listener.cluster.upstream, [r.broker.address]) as client:
            for _ in range(3):
                await client.exchange(request(ANY, 0, 1))
                seconds_pass(0.6 * SESSION_MS / 1000)
        assert not broker.wrong
        assert list(broker.logins.values()) == [2]


async def test_a_refused_user_is_not_tried_by_every_connection(
    sasl: SaslSettings, tmp_path: Path, mock_clock: MockClock
) -> None:
    broker = StrictBroker((None,))
    async with rig(broker.answer, login=sasl, limits=Limits(connect_timeout=5)) as r:
        upstream = r.listener.cluster.upstream

        async def fails() -> None:
            with pytest.raises(UpstreamRefused, match=r"cannot log in at the broker: .*: no longer: check sasl\.user"):
                await upstream.connect([r.broker.address])

        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(fails)
        assert sum(broker.logins.values()) == 1
        broker.sessions = (FOREVER,)
        await fails()
        (tmp_path / "word").write_text("another word")
        await fails()
        assert sum(broker.logins.values()) == 2, "a new password is tried at once"
        seconds_pass(1.05)
        (tmp_path / "word").write_text("a word")
        (await upstream.connect([r.broker.address])).transport.close()


async def test_a_client_that_logs_in_itself_is_refused(sasl: SaslSettings, mock_clock: MockClock) -> None:
    broker = StrictBroker((FOREVER,))
    async with rig(broker.answer, login=sasl) as r:
        client = await r.client()
        await client.send(request(ApiKey.SASL_HANDSHAKE, 1, 1, b"\0\5PLAIN"))
        assert await client.frame() == struct.pack(">iihi", 10, 1, ErrorCode.ILLEGAL_SASL_STATE, 0)
        await client.send(request(ApiKey.SASL_AUTHENTICATE, 0, 2, b"\0\0\0\4\0a\0b"))
        assert b"must use security.protocol without SASL" in await client.frame()
        assert list(broker.logins.values()) == [1]
        assert broker.keys.count(ApiKey.SASL_HANDSHAKE) == 1
