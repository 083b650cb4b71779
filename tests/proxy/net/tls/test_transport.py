"""The TLS transport over real sockets: what counts as sent, what waits inside OpenSSL, and how connections end."""

from __future__ import annotations

import errno
import select
import socket
import ssl
from contextlib import contextmanager
from functools import partial
from itertools import chain, cycle, islice, repeat
from typing import TYPE_CHECKING

import pytest
import trio
import trio.lowlevel
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.proxy.net.fast_lane import FastLane, Watch, until
from shoal.proxy.net.tls.handshake import HandshakeFailed, Sessions, accept_tls, connect_tls, note_asked_name
from shoal.proxy.net.transport import PeerLost, PeerRefused, SendSide, buffered_by, make_reset, says_something
from tests.support.rig import DEADLINE
from tests.support.tls import client_context, key_update, server_context

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.net.tls.transport import TlsTransport

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
BOTH = pytest.mark.parametrize("version", [V12, V13])
PATTERN = bytes(range(251)) * 4000


async def shake_hands(
    ours: socket.socket,
    theirs: socket.socket,
    *,
    version: ssl.TLSVersion = V13,
    sessions: Sessions | None = None,
    contexts: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
) -> tuple[TlsTransport, TlsTransport]:
    """-> server, client."""
    server, client = contexts or (server_context(version), client_context(version))
    ends: dict[str, TlsTransport] = {}
    for sock in (ours, theirs):
        sock.setblocking(False)

    async def accept() -> None:
        ends["server"] = await accept_tls(ours, server)

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            ends["client"] = await connect_tls(theirs, client, "localhost", "peer", sessions or Sessions())
    return ends["server"], ends["client"]


async def pair(version: ssl.TLSVersion = V13, sessions: Sessions | None = None) -> tuple[TlsTransport, TlsTransport]:
    return await shake_hands(*socket.socketpair(), version=version, sessions=sessions)


async def tcp_pair() -> tuple[TlsTransport, TlsTransport]:
    """Its ends can be reset."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is not sent yet is lost in a reset
    return await shake_hands(ours, theirs)


@contextmanager
def closing(*ends: TlsTransport) -> Iterator[None]:
    try:
        yield
    finally:
        for end in ends:
            end.close()


def is_readable(end: TlsTransport) -> bool:
    return bool(select.select([end.fileno()], [], [], 0)[0])


def receive(end: TlsTransport, size: int) -> bytes | None:
    """None: it would have to wait."""
    buffer = memoryview(bytearray(size))
    try:
        return bytes(buffer[: end.recv_into(buffer)])
    except BlockingIOError:
        return None


def drain(end: TlsTransport, size: int = 65_536) -> bytes:
    """Everything that can be had without waiting for the peer, with a wait only where epoll would report something."""
    got = b""
    while end.buffered() or is_readable(end):
        piece = receive(end, size)
        if piece == b"":
            break
        got += piece or b""
    return got


# -- both directions ---------------------------------------------------------------------------------------------------

CHUNKS = st.lists(st.lists(st.integers(1, 70_000), min_size=1, max_size=4), min_size=1, max_size=6)
SIZES = st.lists(st.sampled_from([7, 100, 1000, 16_383, 16_384, 16_385, 50_000, 600_000]), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(chunks=CHUNKS, sizes=SIZES, version=st.sampled_from([V12, V13]), sndbuf=st.sampled_from([4096, 65_536]))
def test_bytes_arrive_in_order_whatever_the_pieces(
    chunks: list[list[int]], sizes: list[int], version: ssl.TLSVersion, sndbuf: int
) -> None:
    """The reader looks only when epoll or `buffered` reports something: so nothing is left inside OpenSSL."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
        server, client = await shake_hands(ours, theirs, version=version)
        with closing(server, client):
            for source, sink in ((server, client), (client, server)):
                expected, got, rounds, reads = b"", b"", 0, cycle(sizes)
                for chunk in chunks:
                    buffers = [PATTERN[size % 97 : size % 97 + size] for size in chunk]
                    left = b"".join(buffers)
                    expected += left
                    gathered: list[bytes] | None = buffers
                    while left:
                        try:
                            sent = source.sendmsg(gathered) if gathered else source.send(left)
                            left, gathered = left[sent:], None
                        except BlockingIOError:
                            pass
                        if left:
                            while sink.buffered() or is_readable(sink):
                                got += receive(sink, next(reads)) or b""
                                rounds += 1
                while sink.buffered() or is_readable(sink):
                    got += receive(sink, next(reads)) or b""
                assert got == expected

    trio.run(main)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(1, 40_000), min_size=1, max_size=30), read=st.sampled_from([100, 20_000, 600_000]))
def test_the_wire_may_split_records_anywhere(cuts: list[int], read: int) -> None:
    async def main() -> None:
        (ours, near), (far, theirs) = socket.socketpair(), socket.socketpair()
        near.setblocking(False)
        far.setblocking(False)

        async def carry(source: socket.socket, sink: socket.socket) -> None:
            sizes = chain(islice(cycle(cuts), 1000), repeat(40_000))  # single bytes to the end take 100,000 turns
            while True:
                await trio.lowlevel.wait_readable(source)
                data = source.recv(next(sizes))
                if not data:
                    return
                sink.send(data)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(carry, near, far)
            nursery.start_soon(carry, far, near)
            server, client = await shake_hands(ours, theirs)
            with closing(server, client):
                assert server.send(PATTERN[:50_000]) == 50_000
                got = b""
                with trio.fail_after(DEADLINE):
                    while len(got) < 50_000:
                        if not client.buffered():
                            await trio.lowlevel.wait_readable(client.fileno())
                        got += receive(client, read) or b""
                assert got == PATTERN[:50_000]
            nursery.cancel_scope.cancel()
        near.close()
        far.close()

    trio.run(main)


async def test_small_buffers_become_one_record() -> None:
    server, client = await pair()
    with closing(server, client):
        received = receive(client, 100)  # the session tickets
        assert received is None
        server.sendmsg([b"a", b"b" * 10, b"", b"c"])
        on_the_wire = client._sock.recv(65_536, socket.MSG_PEEK)
        assert on_the_wire[:3] == b"\x17\x03\x03"
        assert len(on_the_wire) == 5 + int.from_bytes(on_the_wire[3:5], "big")
        assert drain(client) == b"a" + b"b" * 10 + b"c"


# -- what waits inside OpenSSL -----------------------------------------------------------------------------------------


@BOTH
async def test_what_no_epoll_reports_is_buffered(version: ssl.TLSVersion) -> None:
    server, client = await pair(version)
    with closing(server, client):
        drain(client)
        assert not client.buffered()
        server.send(PATTERN[:10_000])
        assert receive(client, 10) == PATTERN[:10]
        assert client.buffered()
        assert not is_readable(client)
        assert drain(client, 7) == PATTERN[10:10_000]
        assert not client.buffered()
        assert receive(client, 10) is None


async def test_bytes_behind_the_handshake_are_buffered() -> None:
    """A client may send its first request together with its last bytes of the handshake."""
    ours, theirs = socket.socketpair()
    server_end: list[TlsTransport] = []
    ours.setblocking(False)
    theirs.setblocking(False)

    async def accept() -> None:
        server_end.append(await accept_tls(ours, server_context()))

    async with trio.open_nursery() as nursery:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        nursery.start_soon(accept)
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        theirs.send(outgoing.read())
        await trio.lowlevel.wait_readable(theirs)
        incoming.write(theirs.recv(65_536))
        tls.do_handshake()
        tls.write(b"the first request")
        theirs.send(outgoing.read())
    (server,) = server_end
    with closing(server):
        assert not is_readable(server)
        assert server.buffered()
        assert receive(server, 100) == b"the first request"
    theirs.close()


@pytest.mark.parametrize("lane", [False, True])
async def test_a_step_sees_buffered_bytes_without_new_ones(lane: bool) -> None:
    server, client = await pair()
    got = b""

    def step() -> bool:
        nonlocal got
        got += receive(client, 5) or b""
        return len(got) < 100

    with closing(server, client), trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            with FastLane.open() if lane else _no_lane():
                watch = Watch(client.fileno(), buffered_by(client))
                nursery.start_soon(partial(until, watch, step))
                await trio.testing.wait_all_tasks_blocked(0.001)
                server.send(PATTERN[:60])
                await trio.testing.wait_all_tasks_blocked(0.001)
                assert got == PATTERN[:60]
                server.send(PATTERN[60:103])
                await trio.testing.wait_all_tasks_blocked(0.001)
                assert got == PATTERN[:100]
                await until(watch, lambda: bool(step() or True) and len(got) < 103)  # the rest is there already
                assert got == PATTERN[:103]
                watch.close()


@contextmanager
def _no_lane() -> Iterator[None]:
    yield


async def test_looking_ahead_takes_nothing() -> None:
    server, client = await pair()
    with closing(server, client), trio.fail_after(DEADLINE):
        server.send(b"hello")
        assert await says_something(client)
        assert await says_something(client)
        assert client.buffered()
        assert drain(client) == b"hello"


# -- what counts as sent -----------------------------------------------------------------------------------------------


async def test_unsent_ciphertext_counts_when_it_is_sent() -> None:
    server, client = await pair()
    with closing(server, client):
        sent = 0
        while True:
            try:
                sent += server.send(PATTERN[:300_000])
            except BlockingIOError:
                break
        got = len(drain(client))
        with pytest.raises(AssertionError, match="must be sent again"):
            server.send(b"other, and fewer, bytes")
        assert got <= sent + 32 * 1024


async def test_a_send_side_goes_on_with_what_the_kernel_did_not_take() -> None:
    server, client = await pair()
    got = b""
    with closing(server, client), trio.fail_after(DEADLINE):
        out = SendSide(server)
        rest = out.gather_now([PATTERN, PATTERN[:1000], PATTERN])
        assert rest
        async with trio.open_nursery() as nursery:
            nursery.start_soon(out.send_all, [rest])
            while len(got) < 2 * len(PATTERN) + 1000:
                await trio.lowlevel.wait_readable(client.fileno())
                got += drain(client)
        assert got == PATTERN + PATTERN[:1000] + PATTERN
        assert out.sent == len(got)


async def test_a_large_send_is_few_system_calls_and_counts_whole_pieces() -> None:
    server, client = await pair()
    with closing(server, client):
        drain(client)
        calls: list[int] = []
        sock, room = server._sock, 200_000

        class Kernel:
            """It takes so many bytes."""

            def sendmsg(self, parts: list[bytes]) -> int:
                nonlocal room
                calls.append(len(parts))
                taken = min(room, sum(map(len, parts)))
                room -= taken
                if not taken:
                    raise BlockingIOError
                return taken

            def send(self, data: bytes) -> int:
                return self.sendmsg([data])

        server._sock = Kernel()  # type: ignore[assignment]
        assert server.send(PATTERN[:300_000]) == 6 * 32 * 1024
        assert calls == [4, 4]
        with pytest.raises(BlockingIOError):
            server.send(PATTERN[6 * 32 * 1024 : 300_000])
        room = 200_000
        assert server.send(PATTERN[6 * 32 * 1024 : 300_000]) == 300_000 - 6 * 32 * 1024
        assert calls == [4, 4, 1, 1, 2]
        server._sock = sock


# -- the end -----------------------------------------------------------------------------------------------------------


@BOTH
async def test_a_half_close_ends_one_direction(version: ssl.TLSVersion) -> None:
    server, client = await pair(version)
    with closing(server, client):
        client.send(b"the last request")
        client.shutdown(socket.SHUT_WR)
        assert drain(server) == b"the last request"
        assert receive(server, 10) == receive(server, 10) == b""
        server.send(b"its answer")
        assert drain(client) == b"its answer"


@BOTH
async def test_an_end_without_close_notify_is_an_end(version: ssl.TLSVersion) -> None:
    server, client = await pair(version)
    with closing(server, client):
        client.send(b"the last request")
        client._sock.shutdown(socket.SHUT_WR)
        assert drain(server) == b"the last request"
        assert receive(server, 10) == b""
        assert not await says_something(server)


async def test_an_end_in_the_middle_of_a_record_is_an_end() -> None:
    server, client = await pair()
    with closing(server, client):
        client._sock.send(b"\x17\x03\x03\x10\x00half")
        client._sock.shutdown(socket.SHUT_WR)
        assert receive(server, 10) is None
        assert receive(server, 10) == b""


async def test_close_notify_without_a_fin_is_an_end() -> None:
    server, client = await pair()
    with closing(server, client):
        client.send(b"x")
        client._say_goodbye()
        assert receive(server, 10) == b"x"
        assert server.buffered()
        assert receive(server, 10) == b""
        assert server.buffered()


async def test_a_half_close_keeps_what_is_yet_to_be_read() -> None:
    """OpenSSL would refuse to read on."""
    server, client = await pair()
    with closing(server, client):
        server.send(PATTERN[:30_000])
        assert receive(client, 10) == PATTERN[:10]
        client.shutdown(socket.SHUT_WR)
        assert drain(client) == PATTERN[10:30_000]


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x17\x03\x03\x00\x20" + bytes(32)])
async def test_garbage_is_an_error_and_the_peer_learns_it(garbage: bytes) -> None:
    server, client = await pair()
    with closing(server, client):
        client._sock.send(garbage)
        with pytest.raises(ssl.SSLError):
            receive(server, 100)
        with pytest.raises(ssl.SSLError, match="ALERT"):
            drain(client)


async def test_what_came_before_an_error_is_delivered_first() -> None:
    server, client = await pair()
    with closing(server, client):
        drain(client)
        client.tls.write(PATTERN[:10_000])
        client._sock.send(client._outgoing.read() + b"\x17\x03\x03\x00\x20" + bytes(32))
        assert receive(server, 65_536) == PATTERN[:10_000]
        assert server.buffered()
        for _ in range(2):
            with pytest.raises(ssl.SSLError):
                receive(server, 100)


async def test_a_reset_right_behind_bytes_is_a_reset() -> None:
    """The kernel reports it once; later reads are an end."""

    server, client = await pair()
    drain(client)
    for _ in range(4):
        server.tls.write(PATTERN[:65_536])
    wire = memoryview(server._outgoing.read())
    sock, is_lost = client._sock, False

    class Reset:
        def __getattr__(self, name: str) -> object:
            return getattr(sock, name)

        def recv_into(self, buffer: memoryview) -> int:
            nonlocal wire, is_lost
            if is_lost:
                return 0
            if len(wire) < len(buffer):
                is_lost = True
                raise ConnectionResetError(errno.ECONNRESET, "reset")
            buffer[:], wire = wire[: len(buffer)], wire[len(buffer) :]
            return len(buffer)

    with closing(server, client):
        client._sock = Reset()  # type: ignore[assignment]
        assert receive(client, 512 * 1024)
        with pytest.raises(ConnectionResetError):
            receive(client, 10)
        client._sock = sock


async def test_a_reset_is_a_reset() -> None:
    server, client = await tcp_pair()
    drain(client)
    make_reset(client)
    client.close()
    with pytest.raises(ConnectionResetError):
        receive(server, 10)
    with pytest.raises(PeerLost) as lost:
        SendSide(server).send_now(b"x")
    assert lost.value.is_reset
    server.close()


@pytest.mark.parametrize("buffers", [[b"x"], [b"x" * 50_000], [b"x" * 20_000, b"y" * 20_000]], ids=["1", "2", "3"])
async def test_a_reset_right_behind_an_alert_does_not_hide_it(buffers: list[bytes]) -> None:
    """With TLS 1.3 a broker refuses after our handshake: it closes with our first request unread."""
    server, client = await tcp_pair()
    drain(client)
    client.explain = lambda error: f"words for {error.reason}"
    server._sock.send(b"\x15\x03\x03\0\2\2\x30")  # in plain text, which is an alert, too
    make_reset(server)
    server.close()
    with pytest.raises(PeerRefused, match="words for"):
        client.sendmsg(buffers) if len(buffers) > 1 else client.send(buffers[0])
    with pytest.raises(PeerRefused, match="words for"):
        receive(client, 10)
    client.close()


async def test_a_reset_behind_an_answer_does_not_hide_it() -> None:
    server, client = await tcp_pair()
    drain(client)
    client.explain = lambda error: f"words for {error.reason}"
    server.send(b"an answer")
    make_reset(server)
    server.close()
    with pytest.raises(ConnectionResetError):
        client.send(b"x")
    assert drain(client, 3) == b"an answer"
    client.close()


async def test_a_peer_that_demands_messages_and_reads_none_is_refused() -> None:
    """Each attempt to renegotiate is answered with an alert."""
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    server, client = await shake_hands(ours, theirs, version=V12)

    def demand() -> None:
        for _ in range(10_000):
            server._outgoing.write(bytes(31))  # as an alert has
            server._send_control()

    with closing(server, client), pytest.raises(PeerRefused, match="does not read them"):
        demand()


async def test_keys_may_be_updated_between_data() -> None:
    server, client = await pair()
    with closing(server, client):
        drain(client)
        for number in range(50):
            key_update(client.tls)
            client._send_control()
            client.send(b"%d" % number)
            assert drain(server) == b"%d" % number
            server.send(b"answer")
            assert drain(client) == b"answer"


async def test_many_key_updates_at_once_are_refused_behind_earlier_data() -> None:
    server, client = await pair()
    with closing(server, client):
        drain(client)
        client.send(b"data")
        for _ in range(20):
            key_update(client.tls)
        client._send_control()
        assert receive(server, 100) == b"data"
        assert server.buffered()
        with pytest.raises(PeerRefused, match="and no data"):
            receive(server, 100)


async def test_an_alert_is_also_why_nothing_can_be_sent() -> None:
    """With TLS 1.3 a server refuses after the client's handshake; OpenSSL then tells a sender only "closed"."""
    context = server_context(V13)
    context.verify_mode = ssl.CERT_REQUIRED
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    ours.setblocking(False)
    with trio.fail_after(DEADLINE), ours:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_refused, ours, context)
            client = await connect_tls(theirs, client_context(V13), "localhost", "peer", Sessions())
    client.explain = lambda error: f"it said {error.reason}"
    with closing(client):
        for use in (partial(receive, client, 1), partial(client.send, b"x")):
            with pytest.raises(PeerRefused, match="it said TLSV13_ALERT_CERTIFICATE_REQUIRED"):
                use()


async def _refused(sock: socket.socket, context: ssl.SSLContext) -> None:
    with pytest.raises(HandshakeFailed):
        await accept_tls(sock, context)


# -- sessions ----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("closed", [False, True])
async def test_the_next_connection_resumes_the_session(version: ssl.TLSVersion, closed: bool) -> None:
    sessions, contexts = Sessions(), (server_context(version), client_context(version))
    first = await shake_hands(*socket.socketpair(), sessions=sessions, contexts=contexts)
    first[0].send(b"x")
    assert drain(first[1]) == b"x"
    if closed:
        with closing(*first):
            pass
    second = await shake_hands(*socket.socketpair(), sessions=sessions, contexts=contexts)
    with closing(*first, *second):
        assert not first[1].tls.session_reused
        assert second[0].tls.session_reused
        assert second[1].tls.session_reused
    reloaded = await shake_hands(
        *socket.socketpair(), sessions=sessions, contexts=(contexts[0], client_context(version))
    )
    with closing(*reloaded):
        assert not reloaded[1].tls.session_reused


# -- handshakes --------------------------------------------------------------------------------------------------------


async def test_a_failed_handshake_has_its_cause_and_the_first_bytes() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.send(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(HandshakeFailed) as failed:
        await accept_tls(ours, server_context())
    assert failed.value.received == b"GET / HTTP/1.1\r\n\r\n"
    assert isinstance(failed.value.cause, ssl.SSLError)
    theirs.close()
    ours.close()


async def test_a_name_that_is_not_ascii_is_refused_without_words_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    outgoing = ssl.MemoryBIO()
    tls = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    context = server_context()
    note_asked_name(context)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.send(outgoing.read().replace(b"localhost", b"local\x80ost"))
        with pytest.raises(HandshakeFailed, match="callback failed"):
            await accept_tls(ours, context)
    assert capfd.readouterr() == ("", "")


async def test_a_handshake_that_is_cancelled_leaves_the_socket_to_its_owner() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with trio.move_on_after(0.01) as scope:
        await accept_tls(ours, server_context())
    assert scope.cancelled_caught
    assert ours.fileno() >= 0
    theirs.close()
    ours.close()
