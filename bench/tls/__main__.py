"""`make bench-tls`: CPU, latency, handshakes and memory of proxies with TLS to clients, to brokers and both."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench import runs
from bench.command import benchmark
from bench.overhead.connections import connections, idle_peaks
from bench.proxies.configs import BrokerAddresses
from bench.proxies.materials import Materials
from bench.proxies.names import DIRECT, PROXIES
from bench.proxies.placements import CIPHER, KeyType, Placement
from bench.proxies.start import Proxy, Scene, direct, start
from bench.runs import Workload
from bench.stage import PARTITIONS, TINY, Stage
from bench.tls import openssl
from bench.tls.profile import profile
from bench.tls.report import (
    FETCH,
    FULL,
    FULL_RSA,
    OPENSSL,
    PLAINTEXT,
    PRODUCE,
    RECORDS,
    RESUMED,
    SMALL,
    Figures,
    as_json,
    as_tables,
)
from bench.tls.runs import check_cipher, session_of
from shoal.scenarios import memory
from shoal.scenarios.kafka.broker import Cluster, ClusterSpec, running_cluster
from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS
from shoal.scenarios.kafka.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from ssl import SSLSession

    from bench.load import Volume
    from bench.proxies.peer import Peer
    from shoal.scenarios.progress import Progress

IDLE_CONNECTIONS = 1_000
PARTS = ("memory", "forwarding", "connections", "latency", "shares", "openssl")
PIPELINED = 4
WARM_UP_S = 0.5  # of each path and workload: Java compiles what is hot
LONE = ("Fetch", "Produce")
TLS_LISTENER = "TLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The order of the runs: the proxies take turns, so noise on the machine affects all of them."""

    stage: Stage
    scene: Scene
    direct: Mapping[Placement, Peer]
    proxies: Mapping[str, Proxy]
    progress: Progress
    rounds: int
    seconds: float  # of one forwarding run
    connecting: float  # seconds of one run of new connections
    requests: int  # of one kind in one round
    figures: Figures = field(default_factory=Figures)

    def run(self, parts: Collection[str]) -> Figures:
        """Raises RuntimeError if a proxy did not do its work, OSError if it hung up or hangs."""
        steps = {
            "memory": self._idle,
            "forwarding": self._forward,
            "connections": self._connect,
            "latency": self._latency,
            "shares": self._shares,
            "openssl": self._openssl,
        }
        for part in (part for part in PARTS if part in parts):
            steps[part]()
        return self.figures

    def _paths(self) -> list[tuple[str, Placement, Peer]]:
        ways = {DIRECT: self.direct} | {way: proxy.peers for way, proxy in self.proxies.items()}
        return [(way, placement, peer) for way, peers in ways.items() for placement, peer in peers.items()]

    def _idle(self) -> None:
        for way, proxy in self.proxies.items():
            peer = proxy.peers[Placement.BOTH]
            self.progress.update(f"memory: {way}, {IDLE_CONNECTIONS:,} idle connections")
            memory.reset_peak(peer.pid)
            peaks = idle_peaks(peer, 1, IDLE_CONNECTIONS)
            named = f"{IDLE_CONNECTIONS:,} idle connections, both"
            self.figures.idle_mib[way] = {
                "one connection": round(peaks[1], 1),
                named: round(peaks[IDLE_CONNECTIONS], 1),
            }

    def _forward(self) -> None:
        paths = self._paths()
        for _, _, peer in paths:
            for work in self._workloads(peer):
                runs.run(work, WARM_UP_S)
        for turn in range(self.rounds):
            for number, name in enumerate((FETCH, PRODUCE, SMALL)):
                for way, placement, peer in paths:
                    found = runs.run(self._workloads(peer)[number], self.seconds)
                    self.figures.forwarding[name][way][placement].append(found)
                    cost = "" if found.cpu_s_per_gib is None else f", {found.cpu_s_per_gib:.2f} CPU-s/GiB"
                    where = f"round {turn + 1} of {self.rounds}: {name}, {peer.name}"
                    self.progress.update(f"{where}: {found.gib_per_s:.2f} GiB/s{cost}")

    def _workloads(self, peer: Peer) -> list[Workload]:
        stage = self.stage
        fetch = Workload(name=FETCH, way=peer.name, peer=peer, frames=stage.fetches(), in_flight=1, counted=_received)
        produce = replace(
            fetch,
            name=PRODUCE,
            frames=stage.produces(),
            in_flight=PIPELINED,
            counted=_sent,
            end_offset=partial(stage.end_offsets, stage.produced),
            records=PARTITIONS,
        )
        return [fetch, produce, replace(produce, name=SMALL, frames=stage.tiny_produces(), records=TINY)]

    def _connect(self) -> None:
        for turn in range(self.rounds):
            for way, proxy in self.proxies.items():
                clients = proxy.peers[Placement.CLIENTS]
                session = session_of(clients)
                kinds: dict[str, tuple[Peer, SSLSession | None]] = {
                    PLAINTEXT: (proxy.peers[Placement.PLAIN], None),
                    FULL: (clients, None),
                    FULL_RSA: (proxy.rsa, None),
                }
                if session is None:
                    self.figures.left_out[f"{way}, resumed handshakes"] = "it gives no session tickets"
                else:
                    kinds[RESUMED] = (clients, session)
                for kind, (peer, resumed) in kinds.items():
                    found = connections(peer, self.connecting, resumed)
                    self.figures.connections[way][kind].append(found)
                    where = f"round {turn + 1} of {self.rounds}: {kind} connections, {way}"
                    self.progress.update(f"{where}: {found.cpu_us:.0f} CPU microseconds each")

    def _latency(self) -> None:
        frames = {kind: frame for kind, frame in self.stage.small_requests().items() if kind in LONE}
        with ExitStack() as stack:
            wires = {(way, placement): stack.enter_context(peer.connect()) for way, placement, peer in self._paths()}
            for wire in wires.values():
                runs.introduce(wire)
            for turn in range(self.rounds):
                for kind, frame in frames.items():
                    self.progress.update(f"round {turn + 1} of {self.rounds}: a lone {kind}")
                    for (way, placement), wire in wires.items():
                        self.figures.lone[way][kind][placement].append(runs.lone(wire, frame, self.requests))

    def _shares(self) -> None:
        for way, proxy in self.proxies.items():
            peer = proxy.peers[Placement.BOTH]
            self.progress.update(f"shares of libraries: {way}")
            busy = partial(runs.run, self._workloads(peer)[0], self.seconds)
            try:
                shares = profile(peer.pid, busy, self.scene.work / f"perf-{way}.data")
            except SetupError as error:
                self.figures.left_out["shares of libraries"] = str(error)
                return
            self.figures.libraries[way] = shares

    def _openssl(self) -> None:
        self.progress.update("OpenSSL alone")
        self.figures.openssl[OPENSSL] = openssl.cipher()
        self.figures.openssl[RECORDS] = openssl.records(self.scene.materials)


def _received(volume: Volume) -> int:
    return volume.received


def _sent(volume: Volume) -> int:
    return volume.sent


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench.tls", description=__doc__)
    arguments.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS)
    arguments.add_argument("--rounds", type=int, default=3, help="interleaved rounds; medians are printed (default 3)")
    arguments.add_argument("--seconds", type=float, default=1, help="duration of each forwarding run (default 1)")
    arguments.add_argument(
        "--connecting", type=float, default=1, help="duration of each run of new connections (default 1)"
    )
    arguments.add_argument(
        "--requests", type=int, default=400, help="single requests of each kind and round (default 400)"
    )
    arguments.add_argument(
        "--ways", nargs="+", default=PROXIES, choices=PROXIES, metavar="WAY", help=", ".join(PROXIES)
    )
    arguments.add_argument("--only", nargs="+", default=PARTS, choices=PARTS, metavar="PART", help=", ".join(PARTS))
    arguments.add_argument("--out", type=Path, default=BUILD / "bench-tls", help="directory for report.json and logs")
    return arguments


async def measure(options: argparse.Namespace, progress: Progress) -> dict[str, object]:
    work: Path = options.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    materials = Materials.make(work / "materials")
    async with AsyncExitStack() as stack:
        progress.say(f"starting a broker (Kafka {options.kafka}) and the proxies; logs are in {work}")
        cluster = await stack.enter_async_context(running_cluster(work / "kafka", spec(options.kafka, materials)))
        scene = Scene(work=work, broker=addresses(cluster), materials=materials)
        stage = await Stage.build(scene.broker.plain, topic_ids=False)  # Kroxylicious knows no Produce by topic id
        proxies, left_out = {}, {}
        for way in options.ways:
            started = await start(way, stack, scene)
            if isinstance(started, Proxy):
                proxies[way] = started
                check_cipher(started.peers[Placement.CLIENTS])
            else:
                left_out[way] = started
                progress.say(f"without {way}: {started}")
        schedule = Schedule(
            stage=stage,
            scene=scene,
            direct=direct(scene),
            proxies=proxies,
            progress=progress,
            rounds=options.rounds,
            seconds=options.seconds,
            connecting=options.connecting,
            requests=options.requests,
            figures=Figures(left_out=left_out),
        )
        figures = schedule.run(options.only)
        about = {"kafka": options.kafka, "rounds": options.rounds, "cores": os.cpu_count(), "cipher": CIPHER}
        return as_json(figures, **about)


def spec(kafka: str, materials: Materials) -> ClusterSpec:
    protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", TLS_LISTENER: "SSL"}
    properties = {
        "log.retention.check.interval.ms": "1000",  # repeated produce runs must not fill the disk
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(materials.servers[KeyType.ECDSA]),
        "ssl.cipher.suites": CIPHER,
        "ssl.enabled.protocols": "TLSv1.3",
    }
    listeners = {TLS_LISTENER: LOOPBACK}
    return ClusterSpec(version=kafka, properties=properties, relayed_as=listeners, heap="1g", quick=False)


def addresses(cluster: Cluster) -> BrokerAddresses:
    ports = cluster.nodes[1].settings.ports
    return BrokerAddresses(plain=(LOOPBACK, ports.plaintext), tls=(LOOPBACK, ports.relayed[TLS_LISTENER]))


def main() -> int:
    options = parser().parse_args()
    return benchmark(options, measure, as_tables, f"Medians of {options.rounds} interleaved rounds.")


if __name__ == "__main__":
    sys.exit(main())
