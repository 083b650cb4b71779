"""New clients: which are let in, what a load balancer's header changes, and what a client may do before its login."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest
import trio
import trio.lowlevel

from shoal.protocol.sasl.answers import answer_authenticate, answer_handshake
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import read_request_header
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.config.security import AccessSettings
from shoal.proxy.config.settings import Limits
from shoal.proxy.statistics import CloseCause
from tests.support.rig import TLS, BrokerSide, Peer, Tls, api_key, echo, request, response, rig, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.rig import Rig

pytestmark = pytest.mark.usefixtures("lane")

UNKNOWN_KEY = 300
LOCALHOST = (ip_network("127.0.0.0/8"),)
V2 = bytes.fromhex("0d0a0d0a000d0a515549540a")
V2_FROM = V2 + b"\x21\x11\x00\x0c" + bytes((192, 0, 2, 7, 127, 0, 0, 1)) + struct.pack(">HH", 51000, 9092)
MAPPED = bytes.fromhex("00000000000000000000ffffc0000207") + bytes(15) + b"\1"
V2_MAPPED = V2 + b"\x21\x21\x00\x24" + MAPPED + struct.pack(">HH", 51000, 9092)
V2_LOCAL = V2 + b"\x20\x00\x00\x00"


async def is_closed(client: Peer) -> bool:
    with suppress(OSError, trio.BrokenResourceError):
        return await client.at_end()
    return True


async def refused(r: Rig) -> None:
    """Before a TLS handshake, too."""
    with suppress(OSError):  # reset before the client knows that it is connected
        async with await trio.open_tcp_stream("127.0.0.1", r.listener.port) as stream:
            assert await is_closed(Peer(stream))


async def served(client: Peer, number: int = 1) -> None:
    sent = request(UNKNOWN_KEY, 0, number, b"body")
    await client.send(sent)
    assert await client.frame() == response(number, sent[12:])


# -- admission ---------------------------------------------------------------------------------------------------------


async def test_an_address_that_is_not_allowed_reaches_no_broker() -> None:
    async with rig(access=AccessSettings(addresses=(ip_network("10.0.0.0/8"),))) as r:
        await refused(r)
        assert await r.closed() == {CloseCause.ADDRESS_REFUSED: 1}
        assert not r.broker.sides


async def test_connections_of_one_address_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(access=AccessSettings(connections_per_address=2)) as r:
        clients = [await r.client() for _ in range(2)]
        for client in clients:
            await served(client)
        for _ in range(5):
            await refused(r)
        assert await r.closed(5) == {CloseCause.ADDRESS_FULL: 5}
        await clients[0].leave()
        await r.closed(6)
        await served(await r.client())
    assert caplog.text.count("(access.connections-per-address = 2)") == 1


@pytest.mark.parametrize("tls", [TLS, Tls.BOTH])
async def test_new_connections_per_second_are_limited(tls: Tls) -> None:
    async with rig(access=AccessSettings(new_connections_per_second=0.001), tls=tls) as r:
        await served(await r.client())
        await refused(r)
        assert await r.closed() == {CloseCause.TOO_FAST: 1}


@pytest.mark.parametrize("tls", [TLS, Tls.BOTH])
async def test_refused_clients_are_reset_and_admitted_ones_get_all_bytes(tls: Tls) -> None:
    async with rig(access=AccessSettings(connections_per_address=1), tls=tls) as r:
        client = await r.client()
        await served(client)
        linger = r.connection.client.transport.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
        assert struct.unpack("ii", linger) == (0, 0)
        with socket.create_connection(("127.0.0.1", r.listener.port)) as sock:
            sock.setblocking(False)
            await trio.lowlevel.wait_readable(sock)
            with pytest.raises(ConnectionResetError):
                sock.recv(1)


@pytest.mark.parametrize("tls", [TLS, Tls.BOTH])
async def test_both_sockets_of_a_connection_have_keepalive_and_send_at_once(tls: Tls) -> None:
    """Also the one to a broker whose address is remembered."""
    expected = {
        (socket.IPPROTO_TCP, socket.TCP_NODELAY): 1,
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 71,
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 12,
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
    }
    async with rig(limits=Limits(keepalive_idle=71, keepalive_interval=12, keepalive_count=3), tls=tls) as r:
        for _ in range(2):
            await served(await r.client())
        assert len(r.listener.connections) == 2
        for connection in r.listener.connections:
            for transport in (connection.client.transport, connection.upstream.transport):
                assert {option: transport.getsockopt(*option) for option in expected} == expected


async def test_a_client_gets_in_behind_many_refused_ones() -> None:
    async with rig(access=AccessSettings(connections_per_address=1), tls=Tls(0)) as r:
        await served(await r.client())
        many = [socket.socket() for _ in range(200)]
        for sock in many:
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", r.listener.port))
        stream = await trio.open_tcp_stream("127.0.0.1", r.listener.port, local_address="127.0.0.2")
        async with stream:
            await served(Peer(stream))
        assert await r.closed(200) == {CloseCause.ADDRESS_FULL: 200}
        for sock in many:
            sock.close()


# -- PROXY protocol ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        V2_FROM,
        V2_MAPPED,
        b"PROXY TCP4 192.0.2.7 127.0.0.1 51000 9092\r\n",
        b"PROXY TCP6 ::ffff:192.0.2.7 ::1 51000 9092\r\n",
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
async def test_the_address_of_the_header_is_the_client_s(header: bytes, step: int) -> None:
    async with rig(proxy_protocol=LOCALHOST) as r:
        client = await r.client()
        for at in range(0, len(header), step):
            await client.send(header[at : at + step])
            await trio.lowlevel.checkpoint()
        await served(client)
        assert str(r.connection.peer) == "192.0.2.7:51000"
        assert r.connection.client.balancer is not None


async def test_a_client_has_the_same_address_on_a_port_of_both_families() -> None:
    async with rig(host="::", access=AccessSettings(addresses=LOCALHOST)) as r:
        await served(await r.client())
        assert r.connection.peer.host == "127.0.0.1"
        assert r.connection.client.local_host == "127.0.0.1"


async def test_a_header_and_the_first_request_may_arrive_together() -> None:
    async with rig(proxy_protocol=LOCALHOST) as r:
        client = await r.client()
        sent = request(UNKNOWN_KEY, 0, 1)
        await client.send(V2_FROM + sent)
        assert await client.frame() == response(1, sent[12:])
        assert r.connection.peer.host == "192.0.2.7"


async def test_a_health_check_of_the_load_balancer_is_a_client_of_its_own_address() -> None:
    async with rig(proxy_protocol=LOCALHOST, access=AccessSettings(addresses=(ip_network("192.0.2.0/24"),))) as r:
        client = await r.client()
        await client.send(V2_LOCAL)
        await served(client)
        assert r.connection.peer.host == "127.0.0.1"


async def test_a_load_balancer_that_sends_no_header_is_refused_in_clear_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with rig(proxy_protocol=LOCALHOST) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        assert await is_closed(client)
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
        assert not r.broker.sides
    assert "no PROXY protocol header (first bytes 00 00 00" in caplog.text
    assert "send-proxy-v2" in caplog.text


async def test_a_header_from_another_address_is_refused_in_clear_words(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(proxy_protocol=(ip_network("10.0.0.0/8"),)) as r:
        client = await r.client()
        await client.send(V2_FROM)
        assert await is_closed(client)
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
    assert "add its address to the listener's proxy-protocol" in caplog.text


async def test_a_header_that_does_not_end_is_given_up() -> None:
    async with rig(proxy_protocol=LOCALHOST, limits=Limits(login_timeout=0.05)) as r:
        client = await r.client()
        await client.send(V2_FROM[:20])
        assert await is_closed(client)
        assert await r.closed() == {CloseCause.LOGIN_TIMEOUT: 1}


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (V2_FROM[:20], "connection of 127.0.0.1 ended: no login in time: no PROXY protocol header within"),
        (V2_FROM, "connection of 192.0.2.7 ended: no login in time: no TLS handshake within"),
    ],
)
async def test_what_is_missing_before_a_handshake_and_of_whom_is_logged(
    sent: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    limits = Limits(login_timeout=0.3)
    async with rig(proxy_protocol=LOCALHOST, limits=limits, tls=Tls.TO_CLIENTS) as r:
        async with await trio.open_tcp_stream("127.0.0.1", r.listener.port) as stream:
            await stream.send_all(sent)
            assert await is_closed(Peer(stream))
        assert await r.closed() == {CloseCause.LOGIN_TIMEOUT: 1}
    assert words in caplog.text


async def test_a_handshake_that_fails_behind_a_load_balancer_is_the_client_s(caplog: pytest.LogCaptureFixture) -> None:
    async with rig(proxy_protocol=LOCALHOST, tls=Tls.TO_CLIENTS) as r:
        async with await trio.open_tcp_stream("127.0.0.1", r.listener.port) as stream:
            await stream.send_all(V2_FROM + request(UNKNOWN_KEY, 0, 1))
            assert await is_closed(Peer(stream))
        assert await r.closed() == {CloseCause.HANDSHAKE_FAILED: 1}
    assert "connection of 192.0.2.7 ended: TLS handshake failed" in caplog.text


async def test_the_address_of_the_header_is_checked_and_counted() -> None:
    access = AccessSettings(addresses=(ip_network("192.0.2.0/24"),), connections_per_address=1)
    async with rig(proxy_protocol=LOCALHOST, access=access) as r:
        first = await r.client()
        await first.send(V2_FROM)
        await served(first)
        second, third = await r.client(), await r.client()
        await second.send(V2_FROM)
        assert await is_closed(second)
        await third.send(b"PROXY TCP4 10.0.0.1 127.0.0.1 51000 9092\r\n")
        assert await is_closed(third)
        assert await r.closed(2) == {CloseCause.ADDRESS_FULL: 1, CloseCause.ADDRESS_REFUSED: 1}


async def test_a_drain_ends_greetings() -> None:
    async with rig(proxy_protocol=LOCALHOST) as r:
        client = await r.client()
        await until(lambda: r.listener.tally.opened == 1)
        r.server.drain()
        assert await is_closed(client)
        assert await r.closed() == {CloseCause.DRAINED: 1}


@pytest.mark.parametrize("tls", [Tls(0), Tls.TO_CLIENTS])
async def test_a_drain_in_the_midst_of_a_greeting_is_no_reset(tls: Tls) -> None:
    """The client's bytes are not read yet: a plain close would be a reset, and clients show that as an error."""
    async with rig(proxy_protocol=() if tls else LOCALHOST, tls=tls) as r:
        with socket.create_connection(("127.0.0.1", r.listener.port), timeout=60) as client:
            await until(lambda: r.listener.tally.opened == 1)
            client.sendall(b"\x16\x03\x01\x02\x00" if tls else V2_FROM)
            r.server.drain()
            assert await trio.to_thread.run_sync(client.recv, 100) == b""
        assert await r.closed() == {CloseCause.DRAINED: 1}


async def test_a_reload_before_the_first_step_of_a_greeting_shuts_out_its_client() -> None:
    async with rig(proxy_protocol=LOCALHOST, tls=Tls(0)) as r:
        listener = r.listener
        with socket.create_server(("127.0.0.1", 0)) as accepting:
            stream = await trio.open_tcp_stream(*accepting.getsockname())
            listener.reception.welcome(listener.ports.bound[None], accepting.accept()[0].detach(), "127.0.0.1")
        access = AccessSettings(addresses=(ip_network("10.0.0.0/8"),))
        listener.reception.use(replace(listener.settings, access=access), listener.limits, listener.tls)
        async with stream:
            client = Peer(stream)
            await client.send(V2_LOCAL)
            assert await is_closed(client)
        assert await r.closed() == {CloseCause.DRAINED: 1}


# -- before a login at the broker --------------------------------------------------------------------------------------


def secured(refuses: bool = False, mechanism_rounds: int = 1) -> Callable[[BrokerSide, bytes], Awaitable[None]]:
    """A broker that closes the connection of a client without login at its first ordinary request."""
    rounds: dict[int, int] = {}

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        header = read_request_header(frame)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            await broker.send(answer_handshake(header, ErrorCode.NONE, ["PLAIN", "SCRAM-SHA-256"]))
        elif header.api_key == ApiKey.SASL_AUTHENTICATE:
            error = ErrorCode.SASL_AUTHENTICATION_FAILED if refuses else ErrorCode.NONE
            rounds[id(broker)] = rounds.get(id(broker), 0) + 1
            await broker.send(answer_authenticate(header, error=error))
        elif header.api_key == ApiKey.API_VERSIONS:
            await broker.send(response(header.correlation_id, struct.pack(">hi", 0, 0)))
        elif rounds.get(id(broker), 0) >= mechanism_rounds and not refuses:
            await echo(broker, frame)
        else:
            await broker.stream.aclose()

    return answer


def sasl(key: int, version: int, number: int, content: str | bytes) -> bytes:
    if isinstance(content, str):
        body = struct.pack(">h", len(content)) + content.encode()
    else:
        body = struct.pack(">i", len(content)) + content
    return request(key, version, number, body)


HANDSHAKE, AUTHENTICATE = int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)
LARGE = request(UNKNOWN_KEY, 0, 3, bytes(5000))
SMALL_FRAMES = Limits(login_frame_bytes=1000)


async def log_in(client: Peer, mechanism: str = "PLAIN", rounds: int = 1) -> None:
    await client.send(sasl(HANDSHAKE, 1, 1, mechanism))
    await client.frame()
    for _ in range(rounds):
        await client.send(sasl(AUTHENTICATE, 0, 2, b"token"))
        await client.frame()


async def test_frames_of_a_client_that_has_yet_to_log_in_are_small() -> None:
    async with rig(secured(), limits=SMALL_FRAMES) as r:
        r.listener.cluster.note_login(is_demanded=True)
        stranger = await r.client()
        await stranger.send(LARGE[:100])
        assert await is_closed(stranger)
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}


@pytest.mark.parametrize(("mechanism", "rounds"), [("PLAIN", 1), ("SCRAM-SHA-256", 2), ("GSSAPI", 1)])
async def test_after_its_login_a_client_may_send_large_frames(mechanism: str, rounds: int) -> None:
    async with rig(secured(mechanism_rounds=rounds), limits=SMALL_FRAMES) as r:
        r.listener.cluster.note_login(is_demanded=True)
        client = await r.client()
        await log_in(client, mechanism, rounds)
        assert not r.connection.guest.is_stranger
        await client.send(LARGE)
        assert await client.frame() == response(3, LARGE[12:])


async def test_one_round_of_scram_is_no_login() -> None:
    async with rig(secured(), limits=SMALL_FRAMES) as r:
        r.listener.cluster.note_login(is_demanded=True)
        client = await r.client()
        await log_in(client, "SCRAM-SHA-256", 1)
        assert r.connection.guest.is_stranger
        await client.send(LARGE)
        assert await is_closed(client)


async def test_a_refused_login_is_no_login() -> None:
    async with rig(secured(refuses=True), limits=SMALL_FRAMES) as r:
        r.listener.cluster.note_login(is_demanded=True)
        client = await r.client()
        await log_in(client)
        assert r.connection.guest.is_stranger


async def test_a_login_that_passes_shows_that_the_cluster_demands_one() -> None:
    async with rig(secured(), limits=SMALL_FRAMES) as r:
        await log_in(await r.client())
        assert r.listener.cluster.demands_login
        assert (await r.client()) is not None
        await until(lambda: len(r.listener.connections) == 2)
        assert sum(connection.guest.is_stranger for connection in r.listener.connections) == 1


async def test_without_a_login_the_first_request_may_be_large() -> None:
    async with rig(limits=SMALL_FRAMES) as r:
        client = await r.client()
        await client.send(LARGE)
        assert await client.frame() == response(3, LARGE[12:])


async def test_a_broker_that_answers_without_a_login_demands_none() -> None:
    """After a wrong guess."""
    async with rig(limits=Limits(login_timeout=1000, login_frame_bytes=1000), check_seconds=0.02) as r:
        r.listener.cluster.note_login(is_demanded=True)
        client = await r.client()
        await served(client)
        await until(lambda: not r.connection.guest.is_stranger)
        assert not r.listener.cluster.demands_login
        await client.send(LARGE)
        assert await client.frame() == response(3, LARGE[12:])


@pytest.mark.usefixtures("clock")
async def test_a_wrong_guess_costs_no_other_client_its_connection() -> None:
    async with rig(limits=Limits(login_timeout=0.3), check_seconds=0.02) as r:
        r.listener.cluster.note_login(is_demanded=True)
        silent = await r.client()
        await served(await r.client())
        await trio.sleep(0.5)
        await served(silent)


@pytest.mark.parametrize("first", [b"", b"\x00", request(int(ApiKey.API_VERSIONS), 0, 1)])
async def test_a_client_that_does_not_log_in_in_time_is_closed(first: bytes) -> None:
    limits = Limits(login_timeout=0.05)
    async with rig(secured(), limits=limits, check_seconds=0.02) as r:
        r.listener.cluster.note_login(is_demanded=True)
        client = await r.client()
        await client.send(first)
        await is_closed(client)
        assert await r.closed() == {CloseCause.LOGIN_TIMEOUT: 1}


async def test_without_a_login_a_silent_client_may_stay() -> None:
    async with rig(limits=Limits(login_timeout=0.05), check_seconds=0.02) as r:
        client = await r.client()
        await trio.sleep(0.2)
        await served(client)


async def test_clients_without_a_login_are_limited_and_the_others_are_not() -> None:
    async with rig(secured(), limits=Limits(unauthenticated_per_address=2)) as r:
        r.listener.cluster.note_login(is_demanded=True)
        for _ in range(5):
            await log_in(await r.client())
        strangers = [await r.client() for _ in range(2)]
        await until(lambda: len(r.listener.connections) == 7)
        await refused(r)
        assert await r.closed() == {CloseCause.ADDRESS_UNAUTHENTICATED: 1}
        await log_in(strangers[0])
        await log_in(await r.client())


async def test_tokens_after_an_old_handshake_are_a_login() -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        if len(frame) > 12 and api_key(frame) == HANDSHAKE:
            await broker.send(answer_handshake(read_request_header(frame), ErrorCode.NONE, ["PLAIN"]))
        elif frame[4:] == b"token":
            await broker.send(struct.pack(">i", 0))
        else:
            await echo(broker, frame)

    async with rig(answer, limits=SMALL_FRAMES) as r:
        r.listener.cluster.note_login(is_demanded=True)
        client = await r.client()
        await client.send(sasl(HANDSHAKE, 0, 1, "PLAIN"))
        await client.frame()
        await client.send(struct.pack(">i", 5) + b"token")
        await client.frame()
        assert not r.connection.guest.is_stranger
        await client.send(LARGE)
        assert await client.frame() == response(3, LARGE[12:])


# -- access by client id -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [UNKNOWN_KEY, int(ApiKey.PRODUCE), int(ApiKey.API_VERSIONS)])
async def test_a_client_id_that_is_not_allowed_reaches_no_broker(key: int, caplog: pytest.LogCaptureFixture) -> None:
    async with rig(access=AccessSettings(client_ids=("good-.*",))) as r:
        client = await r.client()
        await client.send(request(key, 0, 1, b"x" * 50, client_id=b"not-good-1"))
        assert await is_closed(client)
        assert await r.closed() == {CloseCause.CLIENT_ID_REFUSED: 1}
        assert r.broker.received == []
    assert "('not-good-1'): client id not allowed (access.client-ids)" in caplog.text


@pytest.mark.parametrize("step", [1, 1000])
async def test_a_client_id_that_is_allowed_is_served(step: int) -> None:
    async with rig(access=AccessSettings(client_ids=("x", "good-.*"))) as r:
        client = await r.client()
        sent = [request(UNKNOWN_KEY, 0, number, bytes(100_000), client_id=b"good-1") for number in range(3)]
        head = sent[0][:40]
        for at in range(0, len(head), step):
            await client.send(head[at : at + step])
            await trio.lowlevel.checkpoint()
        await client.send(sent[0][40:] + sent[1] + sent[2])
        for number, frame in enumerate(sent):
            assert await client.frame() == response(number, frame[12:])
        assert r.broker.received == sent


async def test_a_request_without_a_client_id_matches_only_an_empty_expression() -> None:
    nameless = struct.pack(">ihhi", 8, 7, 0, 1)  # ControlledShutdown v0
    for expressions, causes in ((("a+",), {CloseCause.CLIENT_ID_REFUSED: 1}), (("a*",), {CloseCause.CLIENT_CLOSED: 1})):
        async with rig(access=AccessSettings(client_ids=expressions)) as r:
            client = await r.client()
            await client.send(nameless)
            if "a*" in expressions:
                await client.frame()
                await client.leave()
            assert await r.closed() == causes


async def test_a_client_without_a_name_is_not_among_the_principals() -> None:
    async with rig(access=AccessSettings(principals=("alice",)), limits=Limits(close_seconds=0.1)) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        assert await is_closed(client)
        assert await r.closed() == {CloseCause.PRINCIPAL_REFUSED: 1}
        assert not r.broker.sides
