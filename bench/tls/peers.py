"""The proxies: one process each, with a listener per placement. The report says why a proxy is left out.

The far side is a real broker with a plaintext and a TLS listener, in a process of its own. Its CPU time is not counted,
so it need not be cheap, and its answers arrive as they do in production: in TLS records of up to 16 KiB, one by one.
"""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.peers import Peer, find_haproxy, listening, write
from bench.report import DIRECT, HAPROXY, SHOAL
from bench.tls import configs
from bench.tls.configs import BrokerAddresses, Listener
from bench.tls.kroxylicious import argv, kroxylicious_jars
from bench.tls.placements import KeyType, Placement
from shoal.scenarios.kafka.errors import HarnessError, SetupError
from shoal.scenarios.kafka.java.jars import BUILD
from shoal.scenarios.kafka.ports import LOOPBACK, free_port_block
from shoal.scenarios.kafka.process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from bench.tls.materials import Materials

__all__ = ["KAFKA_PROXY", "KROXYLICIOUS", "STARTERS", "Proxy", "Scene", "direct", "start"]

KROXYLICIOUS, KAFKA_PROXY = "Kroxylicious", "kafka-proxy"
_REASON = 300  # characters
_GO_PROGRAM = BUILD / "go" / "kafka-proxy"  # by scripts/setup


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """`peers`: by placement. `rsa`: TLS to clients, with an RSA key."""

    peers: Mapping[Placement, Peer]
    rsa: Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What every proxy gets."""

    work: Path
    broker: BrokerAddresses
    materials: Materials

    def peer(self, name: str, listener: Listener, process: Process | None) -> Peer:
        tls = self.materials.client() if listener.placement.to_clients else None
        return Peer(name=f"{name}, {listener.name}", address=listener.address, process=process, tls=tls)


def direct(scene: Scene) -> Mapping[Placement, Peer]:
    """The broker itself."""
    plain = Peer(name=DIRECT, address=scene.broker.plain)
    tls = Peer(name=f"{DIRECT}, TLS", address=scene.broker.tls, tls=scene.materials.client())
    return {Placement.PLAIN: plain, Placement.BOTH: tls}


async def start(way: str, stack: AsyncExitStack, scene: Scene) -> Proxy | str:
    """The running proxy, or why there is none, in one line."""
    try:
        return await stack.enter_async_context(STARTERS[way](scene))
    except HarnessError as error:
        return " ".join(str(error).split())[:_REASON]


@asynccontextmanager
async def _haproxy(scene: Scene) -> AsyncIterator[Proxy]:
    program, listeners = await find_haproxy(), _listeners()
    config = write(scene.work / "haproxy.cfg", configs.haproxy(listeners, scene.broker, scene.materials))
    async with _running(HAPROXY, [program, "-db", "-f", str(config)], listeners, scene) as proxy:
        yield proxy


@asynccontextmanager
async def _shoal(scene: Scene) -> AsyncIterator[Proxy]:
    listeners = _listeners()
    config = write(scene.work / "shoal.toml", configs.shoal(listeners, scene.broker, scene.materials))
    async with _running(SHOAL, [sys.executable, "-m", "shoal", "run", "-c", str(config)], listeners, scene) as proxy:
        yield proxy


@asynccontextmanager
async def _kroxylicious(scene: Scene) -> AsyncIterator[Proxy]:
    lib, listeners = await kroxylicious_jars(), _listeners()
    config = write(scene.work / "kroxylicious.yaml", configs.kroxylicious(listeners, scene.broker, scene.materials))
    async with _running(KROXYLICIOUS, argv(lib, config), listeners, scene) as proxy:
        yield proxy


@asynccontextmanager
async def _kafka_proxy(scene: Scene) -> AsyncIterator[Proxy]:
    """A process per listener."""
    if not _GO_PROGRAM.is_file():
        raise SetupError(f"{_GO_PROGRAM} is missing: scripts/setup could not install it")
    async with AsyncExitStack() as stack:
        peers = []
        for listener in _listeners():
            arguments = configs.kafka_proxy(listener, scene.broker, scene.materials)
            log = scene.work / f"{KAFKA_PROXY}-{listener.name}.log"
            process = Process([str(_GO_PROGRAM), *arguments], log=log, name=KAFKA_PROXY)
            await stack.enter_async_context(listening(process, listener.address))
            peers.append((listener, process))
        yield _proxy(KAFKA_PROXY, peers, scene)


def _listeners() -> list[Listener]:
    wanted = [(placement, KeyType.ECDSA) for placement in Placement] + [(Placement.CLIENTS, KeyType.RSA)]
    return [_listener(placement, key_type) for placement, key_type in wanted]


def _listener(placement: Placement, key_type: KeyType) -> Listener:
    port = free_port_block(2)
    return Listener(placement=placement, key_type=key_type, address=(LOOPBACK, port), node_port=port + 1)


@asynccontextmanager
async def _running(name: str, argv: list[str], listeners: list[Listener], scene: Scene) -> AsyncIterator[Proxy]:
    process = Process(argv, log=scene.work / f"{name.lower()}.log", name=name)
    async with listening(process, *(listener.address for listener in listeners)):
        yield _proxy(name, [(listener, process) for listener in listeners], scene)


def _proxy(name: str, parts: Sequence[tuple[Listener, Process]], scene: Scene) -> Proxy:
    peers = {
        listener.placement: scene.peer(name, listener, process)
        for listener, process in parts
        if listener.key_type is KeyType.ECDSA
    }
    (rsa,) = (scene.peer(name, *part) for part in parts if part[0].key_type is KeyType.RSA)
    return Proxy(peers=peers, rsa=rsa)


STARTERS: Mapping[str, Callable[[Scene], AbstractAsyncContextManager[Proxy]]] = {
    HAPROXY: _haproxy,
    SHOAL: _shoal,
    KROXYLICIOUS: _kroxylicious,
    KAFKA_PROXY: _kafka_proxy,
}
