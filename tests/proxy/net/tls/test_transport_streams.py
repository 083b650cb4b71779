"""The TLS transport against OpenSSL alone, over a wire that takes and gives bytes as Hypothesis wants."""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.proxy.net.tls.transport import TlsTransport
from tests.support.tls import client_context, key_update, server_context

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    Operation = tuple[str, int]

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
PATTERN = bytes(range(251)) * 4000
MOST = 400_000


class Wire:
    """A socket's kernel: `room` bytes can be sent, `arrived` can be received."""

    def __init__(self) -> None:
        self.room = 0
        self.sent = bytearray()
        self.arrived = bytearray()

    def fileno(self) -> int:
        return -1

    def getsockopt(self) -> None: ...

    def send(self, data: bytes | memoryview) -> int:
        if not self.room:
            raise BlockingIOError
        taken = min(self.room, len(data))
        self.room -= taken
        self.sent += data[:taken]
        return taken

    def sendmsg(self, buffers: Sequence[bytes]) -> int:
        return self.send(b"".join(buffers))

    def recv_into(self, view: memoryview) -> int:
        if not self.arrived:
            raise BlockingIOError
        size = min(len(view), len(self.arrived))
        view[:size] = self.arrived[:size]
        del self.arrived[:size]
        return size


class Peer:
    """OpenSSL, with all that it has sent and received; `travels` has not arrived yet."""

    def __init__(self, version: ssl.TLSVersion, *, is_server: bool) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = server_context(version) if is_server else client_context(version)
        name = None if is_server else "localhost"
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=is_server, server_hostname=name)
        self.travels = bytearray()
        self.received = bytearray()

    def read(self) -> None:
        try:
            while data := self.tls.read(65_536):
                self.received += data
        except ssl.SSLWantReadError:
            self.travels += self.outgoing.read()


def connected(version: ssl.TLSVersion, *, ours_is_server: bool) -> tuple[TlsTransport, Wire, Peer]:
    peer, own, wire = Peer(version, is_server=not ours_is_server), Peer(version, is_server=ours_is_server), Wire()
    waiting = [own, peer]
    while waiting:
        for side, other in ((own, peer), (peer, own)):
            if side in waiting:
                try:
                    side.tls.do_handshake()
                    waiting.remove(side)
                except ssl.SSLWantReadError:
                    pass
                other.incoming.write(side.outgoing.read())
    sock: socket.socket = wire  # type: ignore[assignment]
    return TlsTransport(sock, own.tls, own.incoming, own.outgoing), wire, peer


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["send", "peer sends", "take", "arrive", "read"]), st.integers(1, 90_000)),
        st.tuples(st.sampled_from(["peer updates its key", "our key is updated"]), st.just(0)),
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.parametrize("ours_is_server", [False, True])
@settings(max_examples=80, deadline=None)
@given(operations=OPERATIONS, version=st.sampled_from([V12, V13]), pieces=st.integers(1, 4))
def test_both_streams_are_whole(
    ours_is_server: bool, operations: list[Operation], version: ssl.TLSVersion, pieces: int
) -> None:
    transport, wire, peer = connected(version, ours_is_server=ours_is_server)
    due, expected, peer_sent, got = b"", b"", b"", bytearray()
    buffer = memoryview(bytearray(MOST))

    def send() -> None:
        nonlocal due
        step = -(-len(due) // pieces)
        buffers = [due[at : at + step] for at in range(0, len(due), step)]
        with suppress(BlockingIOError):
            due = due[transport.sendmsg(buffers) if pieces > 1 else transport.send(due) :]

    def read(room: int) -> bool:
        try:
            got.extend(buffer[: transport.recv_into(buffer[:room])])
        except BlockingIOError:
            return False
        return True

    for operation, size in operations:
        match operation:
            case "send" if not due:
                due = PATTERN[len(expected) % 251 :][:size]
                expected += due
                send()
            case "peer sends":
                data = PATTERN[len(peer_sent) % 241 :][:size]
                peer_sent += data
                peer.tls.write(data)
                peer.travels += peer.outgoing.read()
            case "take":
                wire.room += size
                if due:
                    send()
            case "arrive":
                wire.arrived += peer.travels[:size]
                del peer.travels[:size]
            case "read":
                read(size)
            case "peer updates its key" if version is V13:
                key_update(peer.tls)
                peer.travels += peer.outgoing.read()
            case "our key is updated" if version is V13 and not due:
                key_update(transport.tls)
                transport._send_control()
        peer.incoming.write(wire.sent)
        wire.sent.clear()
        peer.read()
    wire.room = 10 * MOST * len(operations)
    while due:
        send()
    wire.arrived += peer.travels
    while transport.buffered() or wire.arrived:
        read(MOST)
    if transport._unsent:  # the answer to a key update waits for the next bytes
        transport.send(b"")
    peer.incoming.write(wire.sent)
    peer.read()
    assert bytes(peer.received) == expected
    assert bytes(got) == peer_sent
