"""A proxy: one process with a listener per placement. The report says why a proxy is left out.

The far side is a real broker with a plaintext and a TLS listener, in a process of its own. Its CPU time is not counted,
so it need not be cheap, and its answers arrive as they do in production: in TLS records of up to 16 KiB, one by one.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from subprocess import DEVNULL
from typing import TYPE_CHECKING

import trio

from bench.proxies import configs
from bench.proxies.configs import MAXCONN, BrokerAddresses, Listener
from bench.proxies.kroxylicious import argv, kroxylicious_jars
from bench.proxies.names import DIRECT, HAPROXY, KAFKA_PROXY, KROXYLICIOUS, SHOAL
from bench.proxies.peer import Peer, listening, write
from bench.proxies.placements import KeyType, Placement
from shoal.scenarios.kafka.errors import HarnessError, SetupError
from shoal.scenarios.kafka.java.jars import BUILD
from shoal.scenarios.kafka.ports import LOOPBACK, free_port_block
from shoal.scenarios.kafka.process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from bench.proxies.materials import Materials

__all__ = ["PLAINTEXT", "STARTERS", "Proxy", "Scene", "direct", "find_haproxy", "start"]

_REASON = 300  # characters
_GO_PROGRAM = BUILD / "go" / "kafka-proxy"  # by scripts/setup


EVERYWHERE = (*((placement, KeyType.ECDSA) for placement in Placement), (Placement.CLIENTS, KeyType.RSA))
PLAINTEXT = ((Placement.PLAIN, KeyType.ECDSA),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    by_listener: Mapping[tuple[Placement, KeyType], Peer]

    @property
    def peers(self) -> Mapping[Placement, Peer]:
        return {placement: peer for (placement, key), peer in self.by_listener.items() if key is KeyType.ECDSA}

    @property
    def rsa(self) -> Peer:
        """TLS to clients, with an RSA key. Raises KeyError if the scene has no such listener."""
        return self.by_listener[Placement.CLIENTS, KeyType.RSA]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What every proxy gets."""

    work: Path
    broker: BrokerAddresses
    materials: Materials
    wanted: Sequence[tuple[Placement, KeyType]] = EVERYWHERE
    maxconn: int = MAXCONN

    def listeners(self) -> list[Listener]:
        return [_listener(placement, key_type) for placement, key_type in self.wanted]

    def peer(self, name: str, listener: Listener, process: Process | None) -> Peer:
        tls = self.materials.client() if listener.placement.to_clients else None
        return Peer(name=f"{name}, {listener.name}", address=listener.address, process=process, tls=tls)


def direct(scene: Scene) -> Mapping[Placement, Peer]:
    """The broker itself."""
    plain = Peer(name=DIRECT, address=scene.broker.plain)
    tls = Peer(name=f"{DIRECT}, TLS", address=scene.broker.address(Placement.BOTH), tls=scene.materials.client())
    return {Placement.PLAIN: plain, Placement.BOTH: tls}


async def find_haproxy() -> str:
    """The program; installed with apt if missing and we are root. Raises SetupError."""
    if not _installed_haproxy() and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "--no-install-recommends", "haproxy"]
        await trio.run_process(install, stdout=DEVNULL, stderr=DEVNULL, check=False)
    if found := _installed_haproxy():
        return found
    raise SetupError("haproxy not found. On Debian: apt-get install haproxy (the benchmark starts its own instance)")


def _installed_haproxy() -> str | None:
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")


async def start(way: str, stack: AsyncExitStack, scene: Scene) -> Proxy | str:
    """The running proxy, or why there is none, in one line."""
    try:
        return await stack.enter_async_context(STARTERS[way](scene))
    except HarnessError as error:
        return " ".join(str(error).split())[:_REASON]


@asynccontextmanager
async def _haproxy(scene: Scene) -> AsyncIterator[Proxy]:
    program, listeners = await find_haproxy(), scene.listeners()
    config = write(scene.work / "haproxy.cfg", configs.haproxy(listeners, scene.broker, scene.materials, scene.maxconn))
    async with _running(HAPROXY, [program, "-db", "-f", str(config)], listeners, scene) as proxy:
        yield proxy


@asynccontextmanager
async def _shoal(scene: Scene) -> AsyncIterator[Proxy]:
    listeners = scene.listeners()
    config = write(scene.work / "shoal.toml", configs.shoal(listeners, scene.broker, scene.materials))
    async with _running(SHOAL, [sys.executable, "-m", "shoal", "run", "-c", str(config)], listeners, scene) as proxy:
        yield proxy


@asynccontextmanager
async def _kroxylicious(scene: Scene) -> AsyncIterator[Proxy]:
    lib, listeners = await kroxylicious_jars(), scene.listeners()
    config = write(scene.work / "kroxylicious.yaml", configs.kroxylicious(listeners, scene.broker, scene.materials))
    async with _running(KROXYLICIOUS, argv(lib, config), listeners, scene) as proxy:
        yield proxy


@asynccontextmanager
async def _kafka_proxy(scene: Scene) -> AsyncIterator[Proxy]:
    """A process per listener."""
    if not _GO_PROGRAM.is_file():
        raise SetupError(
            f"Go's module proxy has no {KAFKA_PROXY}, or there is no Go. To add it by hand, put the program of a "
            f"release of grepplabs/kafka-proxy at build/{_GO_PROGRAM.relative_to(BUILD)}"
        )
    async with AsyncExitStack() as stack:
        peers = []
        for listener in scene.listeners():
            arguments = configs.kafka_proxy(listener, scene.broker, scene.materials)
            log = scene.work / f"{KAFKA_PROXY}-{listener.name}.log"
            process = Process([str(_GO_PROGRAM), *arguments], log=log, name=KAFKA_PROXY)
            await stack.enter_async_context(listening(process, listener.address))
            peers.append((listener, process))
        yield _proxy(KAFKA_PROXY, peers, scene)


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
        (listener.placement, listener.key_type): scene.peer(name, listener, process) for listener, process in parts
    }
    return Proxy(by_listener=peers)


STARTERS: Mapping[str, Callable[[Scene], AbstractAsyncContextManager[Proxy]]] = {
    HAPROXY: _haproxy,
    SHOAL: _shoal,
    KROXYLICIOUS: _kroxylicious,
    KAFKA_PROXY: _kafka_proxy,
}
