"""Two Shoals behind one name, as two pods of a Deployment behind a Service: one dies, and the clients go on."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest
import trio

from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.ports import free_port_block
from tests.brokers.proxy.rig.data import read
from tests.brokers.proxy.rig.feeder import Feeder
from tests.support.shoal_process import ShoalProcess, running_shoal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.support.kafka.clusters import Pair

NAME, PODS = "127.0.0.5", ("127.0.0.3", "127.0.0.4")  # the Service, and the two Shoals
LISTENERS = ("plain", "coalesce", "legacy")
OLD = {"api.version.request": False, "broker.version.fallback": "0.10.0", "max.in.flight": 1}
CLIENTS: Mapping[str, Mapping[str, object]] = {
    "plain": {},
    "coalesce": {},
    "legacy": {**OLD, "enable.idempotence": False, "acks": "all"},
}
TOML = """
[[listener]]
name = "{name}"
cluster = "kafka"
listen = "{pod}:{port}"
ports = {{ 1 = {broker} }}
advertise = "{service}"
"""


async def forward(source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope) -> None:
    try:
        async for data in source:
            await sink.send_all(data)
        await sink.send_eof()
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        scope.cancel()


async def serve(port: int, turns: count[int], client: trio.SocketStream) -> None:
    """As kube-proxy: connections go to the pods in turn, and to the other one if one does not accept."""
    first = next(turns)
    async with client:
        for pod in (PODS[first % 2], PODS[(first + 1) % 2]):
            try:
                server = await trio.open_tcp_stream(pod, port)
            except OSError:
                continue
            async with server, trio.open_nursery() as nursery:
                nursery.start_soon(forward, client, server, nursery.cancel_scope)
                nursery.start_soon(forward, server, client, nursery.cancel_scope)
            return


async def balance(ports: Sequence[int]) -> None:
    turns = count()
    async with trio.open_nursery() as nursery:
        for port in ports:
            await nursery.start(partial(trio.serve_tcp, partial(serve, port, turns), port, host=NAME))


def pod(address: str, ports: Mapping[str, int], pair: Pair, work: Path) -> ShoalProcess:
    work.mkdir()
    text = f'[[cluster]]\nname = "kafka"\nbootstrap = "{pair.target.bootstrap}"\n'
    for name, port in ports.items():
        text += TOML.format(name=name, pod=address, port=port, broker=port + 1, service=NAME)
        text += "" if name == "plain" else f"{name} = true\n"
    (work / "shoal.toml").write_text(text)
    return ShoalProcess(["run", "-c", str(work / "shoal.toml")], work=work, ports=list(ports.values()))


@pytest.mark.slow
async def test_one_of_two_dies_under_load_and_nothing_is_lost(pair: Pair, tmp_path: Path) -> None:
    first = free_port_block(6)
    ports = {name: first + 2 * number for number, name in enumerate(LISTENERS)}
    topics = Topics(pair.target.bootstrap)
    for name in LISTENERS:
        await topics.create(f"two-{name}", 3)
    left, right = (pod(address, ports, pair, tmp_path / address) for address in PODS)
    async with running_shoal(left), running_shoal(right), trio.open_nursery() as nursery:
        nursery.start_soon(balance, range(first, first + 6))
        feeders = {
            name: Feeder(f"{NAME}:{port}", f"two-{name}", partitions=3, others=CLIENTS[name])
            for name, port in ports.items()
        }

        async def more(records: int) -> None:
            for feeder in feeders.values():
                await trio.to_thread.run_sync(feeder.wait_for, feeder.acknowledged + records)

        for feeder in feeders.values():
            feeder.__enter__()
        try:
            await more(500)
            assert left.connections() > 0
            assert right.connections() > 0
            for dying in (left, right):  # each goes once; the other has all clients meanwhile
                dying.kill()
                await more(500)
                await dying.start()
                await more(500)
            for feeder in feeders.values():
                await trio.to_thread.run_sync(feeder.finish)
            for name, feeder in feeders.items():
                reader = partial(read, f"{NAME}:{ports[name]}", f"two-{name}", partitions=3, **OLD_READER.get(name, {}))
                found = await trio.to_thread.run_sync(reader)
                if name == "legacy":  # no idempotence: what was in flight may be there twice
                    found = {number: list(dict.fromkeys(records)) for number, records in found.items()}
                assert found == feeder.sent
        finally:
            for feeder in feeders.values():
                feeder._stopping.set()
        nursery.cancel_scope.cancel()


OLD_READER = {"legacy": {"api_version_request": False, "broker_version_fallback": "0.10.0"}}
