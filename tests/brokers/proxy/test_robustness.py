"""Foreign protocols, slow and unresponsive clients, many connections, and SIGTERM, with real brokers."""

from __future__ import annotations

import socket
import ssl
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.process import until
from tests.brokers.proxy.rig.data import Record, new_topic, produce, read
from tests.brokers.proxy.rig.feeder import Feeder
from tests.brokers.proxy.rig.frames import CORRELATION_ID, Closed, Wire, request, response
from tests.support.shoal_process import running_shoal

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.equivalence.comparison import Address
    from tests.brokers.proxy.rig.data import Contents
    from tests.brokers.proxy.rig.stand import Stand

    NewStand = Callable[..., Stand]

pytestmark = pytest.mark.kafka
MIB = 1 << 20
in_thread = trio.to_thread.run_sync


def _at_end(sock: socket.socket) -> bool:
    """Whether the peer closes the connection in time, sending nothing."""
    sock.settimeout(20)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def _works(address: Address) -> bool:
    with Wire(*address) as wire:
        frame = wire.ask(request("metadata", 12, {"topics": []}))
    return not isinstance(frame, Closed) and bool(response("metadata", 12, frame).brokers)


async def test_a_tls_hello_is_told_and_closed(new_stand: NewStand) -> None:
    stand = new_stand()
    async with running_shoal(stand.shoal):
        context = ssl.create_default_context()
        with (
            socket.create_connection(stand.broker(1)) as plain,
            pytest.raises((ssl.SSLError, ConnectionError, OSError)),
        ):
            await in_thread(partial(context.wrap_socket, plain, server_hostname="localhost"))
        await stand.shoal.until_logged("a TLS hello on a plaintext port")
        assert _works(stand.broker(1))


async def test_http_is_told_and_closed(new_stand: NewStand) -> None:
    stand = new_stand()
    async with running_shoal(stand.shoal):
        with socket.create_connection(stand.broker(1)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await in_thread(_at_end, client)
        await stand.shoal.until_logged("the peer speaks HTTP: this is a Kafka port")
        assert _works(stand.broker(1))


async def test_a_frame_that_is_never_finished_is_abandoned(new_stand: NewStand) -> None:
    stand = new_stand(limits={"frame-timeout": 1.0})
    async with running_shoal(stand.shoal):
        frame = request("metadata", 12, {"topics": []})
        with socket.create_connection(stand.broker(1)) as client:
            client.sendall(frame[:-1])
            assert await in_thread(_at_end, client)
        await stand.shoal.until_logged("frame never finished")
        assert _works(stand.broker(1))


def test_a_frame_that_comes_byte_by_byte_is_answered(stand: Stand) -> None:
    with socket.create_connection(stand.broker(1)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.settimeout(20)
        for byte in request("metadata", 12, {"topics": []}):
            client.send(bytes([byte]))
        assert client.recv(8)[4:] == CORRELATION_ID.to_bytes(4)


async def test_a_client_that_does_not_read_costs_no_memory(brokers: Cluster, new_stand: NewStand) -> None:
    """Ten clients request 40 MB each and read nothing: Shoal stops reading from the brokers."""
    topic, stand = new_topic(brokers, [[1]]), new_stand()
    sent = await in_thread(_fill, brokers.bootstrap, topic)
    async with running_shoal(stand.shoal):
        assert _works(stand.broker(1))
        before = stand.shoal.resident_mib()
        deaf = [socket.create_connection(stand.broker(1)) for _ in range(10)]
        wanted = {"topic": topic, "partitions": [{"partition": 0, "partition_max_bytes": 8 * MIB}]}
        fetch = request("fetch", 12, {"max_bytes": 8 * MIB, "min_bytes": 1, "topics": [wanted]})
        for client in deaf:
            client.sendall(fetch * 5)
        for client in deaf:
            assert len(client.recv(4096, socket.MSG_PEEK)) > 0
        assert await in_thread(partial(read, stand.bootstrap, topic)) == sent  # others are served meanwhile
        grown = stand.shoal.peak_mib() - before
        for client in deaf:
            client.close()
        assert grown < 48, f"{grown:.0f} MiB more for 400 MiB that are not read"


def _fill(bootstrap: str, topic: str) -> Contents:
    return produce(bootstrap, topic, [Record(None, number.to_bytes(4) * 200_000) for number in range(50)])


async def test_500_connections_leave_nothing_behind(new_stand: NewStand) -> None:
    stand = new_stand()
    async with running_shoal(stand.shoal):
        assert _works(stand.broker(1))
        await until(lambda: stand.shoal.connections() == 0, within=10, what="the first connection to end")
        before, resident = stand.shoal.descriptors(), stand.shoal.resident_mib()
        await in_thread(_open_and_close, stand, 500)
        await until(lambda: stand.shoal.connections() == 0, within=30, what="all connections to end")
        assert stand.shoal.descriptors() == before
        assert stand.shoal.resident_mib() - resident < 24
        assert _works(stand.broker(1))


def _open_and_close(stand: Stand, count: int) -> None:
    """All open at once: a third after a request, a third within a request, a third silent."""
    frame = request("metadata", 12, {"topics": []})
    wires = []
    for number in range(count):
        wire = Wire(*stand.broker(number % 3 + 1))
        wires.append(wire)
        if number % 3 == 0:
            assert not isinstance(wire.ask(frame), Closed)
        elif number % 3 == 1:
            wire.send(frame[:-1])
    for wire in wires:
        wire.close()


async def test_sigterm_drains_and_loses_nothing_that_was_acknowledged(brokers: Cluster, new_stand: NewStand) -> None:
    topic, stand = new_topic(brokers, [[1, 2], [2, 3], [3, 1]]), new_stand(limits={"drain-seconds": 30.0})
    await stand.shoal.start()
    with Feeder(stand.bootstrap, topic, partitions=3) as feeder:
        await in_thread(feeder.wait_for, 1000)
        started = monotonic()
        await stand.shoal.stop()  # exit code 0, no traceback
        assert monotonic() - started < 30.0, "it waited for more than the answers that were due"
        acknowledged = {number: list(records) for number, records in feeder.delivered.items()}
        stored = await in_thread(partial(read, brokers.bootstrap, topic, partitions=3))
        for number, records in acknowledged.items():
            assert stored[number][: len(records)] == records, "acknowledged, but not in the topic"
        async with running_shoal(stand.shoal):  # the producer continues
            await in_thread(feeder.wait_for, feeder.acknowledged + 500)
            feeder.finish()
            assert await in_thread(partial(read, brokers.bootstrap, topic, partitions=3)) == feeder.sent


async def test_a_kill_loses_nothing_that_was_acknowledged(brokers: Cluster, new_stand: NewStand) -> None:
    topic, stand = new_topic(brokers, [[1, 2], [2, 3], [3, 1]]), new_stand()
    await stand.shoal.start()
    with Feeder(stand.bootstrap, topic, partitions=3) as feeder:
        await in_thread(feeder.wait_for, 1000)
        stand.shoal.kill()
        async with running_shoal(stand.shoal):
            await in_thread(feeder.wait_for, feeder.acknowledged + 500)
            feeder.finish()
            assert await in_thread(partial(read, brokers.bootstrap, topic, partitions=3)) == feeder.sent
