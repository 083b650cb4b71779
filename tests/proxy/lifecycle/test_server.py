"""Starting, ports, restarts, draining, and that nothing leaks."""

from __future__ import annotations

import errno
import os
import signal
import socket
from dataclasses import replace
from importlib.metadata import requires
from typing import TYPE_CHECKING

import kio.schema.metadata.v10.response as metadata_v10
import pytest
import trio
import trio.testing

from shoal.protocol.schema.api import ApiKey
from shoal.proxy.cluster.ports import NoPort
from shoal.proxy.cluster.ports_file import write_state
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import Address, ClusterSettings, Limits, ListenerSettings, PortMap, PortRange, Settings
from shoal.proxy.lifecycle.serve import serve
from shoal.proxy.lifecycle.server import Server
from shoal.proxy.net.trio_internals import TrioInternals, explain
from shoal.proxy.statistics import CloseCause
from tests.proxy.listener.test_plain import metadata
from tests.support.kio_messages import response_frame
from tests.support.processes import without_descriptors
from tests.support.rig import (
    BrokerSide,
    FakeBroker,
    Peer,
    api_key,
    correlation_id,
    echo,
    free_range,
    request,
    response,
    rig,
    silent,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


NOBODY = Address("127.0.0.1", 1)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port in use by another program."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def settings(listener: ListenerSettings, bootstrap: Address = NOBODY) -> Settings:
    return Settings(clusters=(ClusterSettings(name="c", bootstrap=(bootstrap,)),), listeners=(listener,))


def test_a_taken_bootstrap_port_is_told_clearly(taken: int) -> None:
    with pytest.raises(
        OperatorError, match=rf"listener 'source': cannot listen on 127.0.0.1:{taken}: Address already in use"
    ):
        Server(settings(ListenerSettings(name="source", cluster="c", port=taken)))


def test_a_taken_port_of_a_map_is_told_clearly(taken: int) -> None:
    nodes = PortMap(ports={5: taken})
    with pytest.raises(
        OperatorError, match=rf"cannot listen on 127.0.0.1:{taken} of broker 5: .* choose another with ports"
    ):
        Server(settings(ListenerSettings(name="source", cluster="c", port=0, nodes=nodes)))


def test_an_unknown_host_is_told_clearly() -> None:
    with pytest.raises(OperatorError, match=r"host 'no\.such\.host\.invalid'"):
        Server(settings(ListenerSettings(name="source", cluster="c", host="no.such.host.invalid")))


def test_a_damaged_state_file_is_told_clearly(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("{")
    nodes = PortRange(first=1, last=2, state_file=tmp_path / "state")
    with pytest.raises(OperatorError, match=r"listener 'source': .* is not a state file"):
        Server(settings(ListenerSettings(name="source", cluster="c", port=0, nodes=nodes)))


async def test_a_taken_port_of_a_range_is_skipped(taken: int) -> None:
    nodes = PortRange(first=taken, last=taken + 20)
    async with rig(nodes=nodes) as r:
        host, port = r.listener.advertise(Address("b1", 9092), 1, "127.0.0.1")
        assert host == "127.0.0.1"
        assert taken < port <= taken + 20
        assert r.server.statistics().listeners[0].ports == {1: port}


async def test_at_the_limit_of_open_files_a_port_of_a_range_is_not_given_up() -> None:
    nodes = free_range(2)
    async with rig(nodes=nodes) as r:
        for _ in range(3):
            with without_descriptors(0), pytest.raises(NoPort, match=r"port \d+ of broker 1: Too many open files"):
                r.listener.advertise(Address("b1", 9092), 1, "127.0.0.1")
        assert r.listener.advertise(Address("b1", 9092), 1, "127.0.0.1") == ("127.0.0.1", nodes.first)


async def test_after_a_restart_a_brokers_port_is_open_before_anybody_asks(tmp_path: Path) -> None:
    broker = FakeBroker()
    nodes = replace(free_range(), state_file=tmp_path / "state")
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        async with rig(nodes=nodes) as before:
            _, port = before.listener.advertise(broker.address, 7, "127.0.0.1")
        async with rig(nodes=nodes) as after:
            client = await after.client(port)
            await client.send(request(300, 0, 1, b"again"))
            assert (await client.frame()).endswith(b"again")
            assert len(broker.received) == 1
            assert after.listener.advertise(broker.address, 7, "127.0.0.1")[1] == port
        nursery.cancel_scope.cancel()


async def test_a_remembered_port_that_was_taken_meanwhile_is_replaced(taken: int, tmp_path: Path) -> None:
    write_state(tmp_path / "state", "test", {7: (taken, Address("b7", 9092))})
    nodes = PortRange(first=taken, last=taken + 20, state_file=tmp_path / "state")
    async with rig(nodes=nodes) as r:
        assert r.listener.advertise(Address("b7", 9092), 7, "127.0.0.1")[1] != taken


async def test_brokers_are_asked_for_at_start() -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        known = metadata((4, "b4", 9092), response=metadata_v10)
        await broker.send(response_frame(known, correlation_id(frame)))

    broker = FakeBroker(answer)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        server = Server(settings(ListenerSettings(name="l", cluster="c", port=0, nodes=free_range()), broker.address))
        await nursery.start(server.run)
        listener = server.listeners["l"]
        await until(lambda: 4 in listener.ports.bound)
        assert server.clusters["c"].brokers == {4: Address("b4", 9092)}
        assert server.clusters["c"].cluster_id == "the cluster"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("cluster_tells", [True, False])
async def test_a_mapped_port_leads_to_its_broker_as_soon_as_that_is_known(cluster_tells: bool) -> None:
    """Otherwise (if the cluster requires SASL, say) to any broker, until a client's metadata names the right one."""
    second = FakeBroker()
    port = free_range(1).first

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        own = correlation_id(frame) == 0
        if own and not cluster_tells:
            await broker.stream.aclose()
        elif api_key(frame) == ApiKey.METADATA:
            entity = metadata((2, *second.address), response=metadata_v10)
            await broker.send(response_frame(entity, correlation_id(frame)))
        else:
            await echo(broker, frame)

    async with trio.open_nursery() as nursery:
        await nursery.start(second.run)
        async with rig(answer, nodes=PortMap(ports={2: port})) as r:
            client = await r.client(port)
            await client.send(request(300, 0, 1, b"who?"))
            await client.frame()
            assert len(second.received) == cluster_tells
            if not cluster_tells:
                await client.send(request(ApiKey.METADATA, 10, 2))
                await client.frame()
                assert await client.at_end()
                await client.stream.aclose()
                again = await r.client(port)
                await again.send(request(300, 0, 3, b"and now?"))
                assert (await again.frame()).endswith(b"and now?")
                assert len(second.received) == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("host", "advertised", "seen"), [("0.0.0.0", None, "127.0.0.1"), ("127.0.0.1", "proxy.example", "proxy.example")]
)
async def test_the_advertised_host(host: str, advertised: str | None, seen: str) -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response_frame(metadata((4, "b4", 9092)), correlation_id(frame)))

    broker = FakeBroker(answer)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        listener = ListenerSettings(
            name="l", cluster="c", host=host, advertised_host=advertised, port=0, nodes=free_range()
        )
        server = Server(settings(listener, broker.address), learn=False)
        await nursery.start(server.run)
        async with await trio.open_tcp_stream("127.0.0.1", server.listeners["l"].port) as stream:
            client = Peer(stream)
            await client.send(request(3, 12, 5))
            assert seen.encode() in await client.frame()
        nursery.cancel_scope.cancel()


async def test_a_trio_without_the_names_of_the_fast_lane_serves_and_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trio._core._run.GLOBAL_RUN_CONTEXT.runner, "runq", None)
    assert TrioInternals.find() is None
    monkeypatch.undo()
    monkeypatch.setattr(TrioInternals, "find", lambda: None)
    async with rig(echo) as r:
        client = await r.client()
        await client.send(request(300, 0, 7, b"served"))
        assert (await client.frame()).endswith(b"served")
        await client.stream.aclose()
        (line,) = [line for line in caplog.records if "has changed inside" in line.getMessage()]
        admitted = next(found for found in requires("shoal") or () if found.startswith("trio"))
        assert f"this trio ({trio.__version__}) has changed inside" in explain()
        assert explain().endswith(f"pip install '{admitted}'")
        assert line.levelname == "WARNING"


async def test_drain_answers_what_was_asked_and_nothing_more() -> None:
    go_on = trio.Event()

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await go_on.wait()
        await echo(broker, frame)

    async with rig(answer) as r:
        idle, silent_client, busy = await r.client(), await r.client(), await r.client()
        await idle.send(request(300, 0, 1)[:3])
        await busy.send(request(300, 0, 1, b"one") + request(300, 0, 2, b"two"))
        await until(lambda: len(r.broker.received) == 1 and len(r.listener.connections) == 3)
        await idle.send(request(300, 0, 1)[3:])
        await until(lambda: len(r.broker.received) == 2)
        r.server.drain()
        assert await silent_client.at_end()
        await silent_client.stream.aclose()
        await until(lambda: r.listener.ports.bound[None].sock.fileno() == -1)
        with pytest.raises(OSError, match="connect"):
            await r.client()
        await busy.send(request(300, 0, 3, b"too late"))
        go_on.set()
        assert (await busy.frame()).endswith(b"one")
        assert (await busy.frame()).endswith(b"two")
        assert await busy.at_end()
        await idle.frame()
        assert await idle.at_end()
        await busy.stream.aclose()
        await idle.stream.aclose()
        assert await r.closed(3) == {CloseCause.DRAINED: 3}
        assert len(r.broker.received) == 3


async def test_a_broker_that_is_learned_while_it_drains_gets_a_port_that_refuses_clients() -> None:
    """In each step of the drain: its ports' tasks end meanwhile."""
    nodes = free_range(20)
    async with rig(silent, nodes=nodes) as r:
        client = await r.client()
        await client.send(request(300, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        r.server.drain()
        for node_id in range(20):
            await trio.lowlevel.checkpoint()
            _, port = r.listener.ports.advertise(Address("b", 9092), node_id, "127.0.0.1")
            with pytest.raises(OSError, match="connect"):
                await r.client(port)


async def test_drain_waits_for_a_request_that_has_begun() -> None:
    async with rig() as r:
        client = await r.client()
        frame = request(300, 0, 1, bytes(1000))
        await client.send(frame[:500])
        await until(lambda: bool(r.listener.connections) and r.connection.connected and r.connection.requests.mid_frame)
        r.server.drain()
        await trio.testing.wait_all_tasks_blocked(0.01)
        await client.send(frame[500:])
        assert await client.frame() == response(1, frame[12:])
        assert await client.at_end()


async def test_drain_has_a_deadline(autojump_clock: trio.testing.MockClock) -> None:
    autojump_clock.autojump_threshold = 0.02
    async with rig(silent, limits=Limits(drain_seconds=10)) as r:
        client = await r.client()
        await client.send(request(300, 0, 1))
        await until(lambda: len(r.broker.received) == 1)
        started = trio.current_time()
        r.server.drain()
        assert await client.at_end()
        assert trio.current_time() - started == pytest.approx(10, abs=1.5)
        assert await r.closed() == {CloseCause.SHUTDOWN: 1}


async def test_the_first_signal_drains_and_the_second_one_ends() -> None:
    broker = FakeBroker(silent)
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        configured = settings(ListenerSettings(name="l", cluster="c", port=0, nodes=free_range()), broker.address)
        ended = trio.Event()
        made: list[Server] = []

        async def run(*, task_status: trio.TaskStatus[Server]) -> None:
            await serve(configured, task_status=task_status)
            ended.set()

        made.append(await nursery.start(run))
        async with await trio.open_tcp_stream("127.0.0.1", made[0].listeners["l"].port) as stream:
            await Peer(stream).send(request(300, 0, 1))
            await until(lambda: any(correlation_id(frame) == 1 for frame in broker.received))
            os.kill(os.getpid(), signal.SIGTERM)
            await until(lambda: made[0].listeners["l"].ports.bound[None].sock.fileno() == -1)
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert not ended.is_set()
            os.kill(os.getpid(), signal.SIGTERM)
            with trio.fail_after(5):
                await ended.wait()
        nursery.cancel_scope.cancel()


async def test_running_out_of_descriptors_delays_connections_and_loses_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = [errno.EMFILE, errno.ECONNABORTED]

    class Failing:
        def __init__(self, sock: socket.socket) -> None:
            self._sock = sock

        def fileno(self) -> int:
            return self._sock.fileno()

        def getsockname(self) -> tuple[str, int]:
            name: tuple[str, int] = self._sock.getsockname()
            return name

        def close(self) -> None:
            self._sock.close()

        def _accept(self) -> tuple[int, object]:
            if failures:
                number = failures.pop(0)
                raise OSError(number, os.strerror(number))
            accepted: tuple[int, object] = self._sock._accept()  # type: ignore[attr-defined]
            return accepted

    async with rig() as r:
        bound_port = r.listener.ports.bound[None]
        bound_port.sock = Failing(bound_port.sock)  # type: ignore[assignment]
        first, second = await r.client(), await r.client()
        for client in (first, second):
            await client.send(request(300, 0, 1, b"in"))
            assert (await client.frame()).endswith(b"in")
    assert not failures
    assert "Too many open files: raise the limit of open files" in caplog.text
