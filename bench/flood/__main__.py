"""`make flood`: 50 working clients while thousands of hostile connections a second arrive."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from confluent_kafka import Consumer, TopicPartition

from bench.command import benchmark
from bench.proxies.materials import Materials
from bench.proxies.peer import listening, write
from bench.proxies.placements import KeyType
from shoal.scenarios.kafka.broker import ClusterSpec, running_cluster
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, VERSIONS
from shoal.scenarios.kafka.ports import LOOPBACK, free_ports
from shoal.scenarios.kafka.process import Process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.scenarios.progress import Progress

TOPIC = "flood"
PARTITIONS = 8
_LISTENER = """
[[listener]]
name = "{name}"
cluster = "c"
listen = "127.0.0.1:{port}"
ports = {{ 1 = {node_port} }}
[listener.access]
connections-per-address = 200
new-connections-per-second = 20
"""
_TLS = '[listener.tls]\ncertificate = "{certificate}"\n'
_LIMITS = "[limits]\nlogin-timeout = 5\n[log]\nreport-every = 5\n"
_TICKS = os.sysconf("SC_CLK_TCK")


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench.flood", description=__doc__)
    arguments.add_argument("--kafka", default=DEFAULT_VERSION, choices=VERSIONS)
    arguments.add_argument("--seconds", type=float, default=60, help="duration of each phase (default 60)")
    arguments.add_argument("--rate", type=float, default=10_000, help="hostile connections a second (default 10000)")
    arguments.add_argument("--out", type=Path, default=BUILD / "flood", help="directory for report.json and logs")
    return arguments


class _Watch:
    """CPU and memory of Shoal during one phase."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._cpu()
        self.most_kib = 0

    def _cpu(self) -> float:
        words = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / _TICKS

    async def run(self) -> None:
        while True:
            self._look()
            await trio.sleep(0.2)

    def _look(self) -> None:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self._pid}/status").read_text())
        self.most_kib = max(self.most_kib, int(found[1]) if found else 0)

    def report(self) -> dict[str, float]:
        return {"cpu_s": round(self._cpu() - self._before, 2), "rss_mib": round(self.most_kib / 1024, 1)}


async def _output(argv: list[str], **more: Any) -> dict[str, Any]:
    done = await trio.run_process(argv, capture_stdout=True, **more)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class _Flood:
    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        work.mkdir(parents=True)
        self._seconds: float = options.seconds
        self._rate: float = options.rate
        self._materials = Materials.make(work / "certificates")
        self._work = work
        self._ports = free_ports(5)  # plaintext, its broker, TLS, its broker, the sink
        self._attack = _compiled("attack", work)
        self._tls_attack = _compiled("tls_attack", work, "-lssl", "-lcrypto")

    @asynccontextmanager
    async def shoal(self, bootstrap: str) -> AsyncIterator[int]:
        plain, plain_node, tls, tls_node, _ = self._ports
        certificate = self._materials.servers[KeyType.ECDSA]
        text = f'[[cluster]]\nname = "c"\nbootstrap = "{bootstrap}"\n'
        text += _LISTENER.format(name="plain", port=plain, node_port=plain_node)
        text += _LISTENER.format(name="tls", port=tls, node_port=tls_node) + _TLS.format(certificate=certificate)
        config = write(self._work / "shoal.toml", text + _LIMITS)
        argv = [sys.executable, "-m", "shoal", "run", "-c", str(config)]
        process = Process(argv, log=self._work / "shoal.log", name="shoal")
        async with listening(process, (LOOPBACK, plain), (LOOPBACK, tls)):
            yield process.pid

    async def phase(self, name: str, pid: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        watch = _Watch(pid)
        plain, _, tls, _, sink = self._ports
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            async with trio.open_nursery() as running:
                running.start_soon(self._clients, name, found)
                if name == "dropping port":
                    words = ["sink", f"{self._seconds + 2}", f"{sink}"]
                    running.start_soon(self._run, "sink", found, self._attack, *words)
                    await trio.sleep(0.5)
                    running.start_soon(self._flood, found, [sink])
                elif name == "flood":
                    running.start_soon(self._flood, found, [plain, tls])
                    words = [f"{self._seconds - 1}", f"{tls}"]
                    running.start_soon(self._run, "tls_attacker", found, self._tls_attack, *words)
            nursery.cancel_scope.cancel()
        found["shoal"] = watch.report()
        return found

    async def _clients(self, name: str, found: dict[str, Any]) -> None:
        plain, _, tls, _, _ = self._ports
        addresses = [f"{LOOPBACK}:{plain}", f"{LOOPBACK}:{tls}", str(self._materials.ca)]
        argv = [sys.executable, "-m", "bench.flood.clients", TOPIC, name, *addresses, f"{self._seconds}"]
        found["clients"] = await _output(argv)

    async def _flood(self, found: dict[str, Any], ports: list[int]) -> None:
        words = ["flood", f"{self._seconds - 1}", f"{self._rate}", *map(str, ports)]
        await self._run("attacker", found, self._attack, *words)

    async def _run(self, name: str, found: dict[str, Any], *argv: str) -> None:
        found[name] = await _output(["nice", "-n", "5", *argv])


def _compiled(name: str, work: Path, *libraries: str) -> str:
    """-> the program."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("the attackers need a C compiler and OpenSSL's headers: install gcc and libssl-dev")
    program = str(work / name)
    source = str(Path(__file__).with_name(f"{name}.c"))
    subprocess.run([compiler, "-O2", "-o", program, source, *libraries], check=True)
    return program


def _stored(bootstrap: str) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "flood", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    values, ended = [], set[int]()
    while len(ended) < PARTITIONS:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is not None:
                ended.add(message.partition() or 0)
            else:
                values.append((message.value() or b"").decode())
    consumer.close()
    return values


async def measure(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    work: Path = options.out / "work"
    shutil.rmtree(work, ignore_errors=True)
    flood, phases = _Flood(options, work), dict[str, Any]()
    progress.say(f"starting a broker (Kafka {options.kafka}) and Shoal; logs are in {work}")
    async with running_cluster(work / "kafka", ClusterSpec(version=options.kafka, heap="512m")) as cluster:
        await Topics(cluster.bootstrap).create(TOPIC, PARTITIONS)
        async with flood.shoal(cluster.bootstrap) as pid:
            for name in ("quiet", "dropping port", "flood", "quiet again"):
                progress.say(f"{name}: {options.seconds:g} s")
                phases[name] = await flood.phase(name, pid)
        stored = await trio.to_thread.run_sync(partial(_stored, cluster.bootstrap))
    sent = [value for phase in phases.values() for value in phase["clients"].pop("acknowledged")]
    causes = re.findall(r"total (\w+): .*?connections ended: (.*)", (work / "shoal.log").read_text())
    return {
        "phases": phases,
        "records": {
            "acknowledged": len(sent),
            "stored": len(stored),
            "lost": len(set(sent) - set(stored)),
            "doubled": len(stored) - len(set(stored)),
        },
        "ended": dict(causes),
    }


def as_tables(report: dict[str, Any]) -> str:
    lines = [
        "phase          p50 ms  p99 ms  p99 plain  p99 TLS  failed  Shoal CPU s  Shoal MiB  hostile/s  their CPU s"
    ]
    for name, phase in report["phases"].items():
        clients, shoal, attacker = phase["clients"], phase["shoal"], phase.get("attacker")
        rate = f"{attacker['offered'] / attacker['seconds']:9,.0f}  {attacker['cpu_s']:14}" if attacker else ""
        lines.append(
            f"{name:13} {clients['all']['p50_ms']:7} {clients['all']['p99_ms']:7} {clients['plaintext']['p99_ms']:10} "
            f"{clients['tls']['p99_ms']:8} {clients['failed']:7} {shoal['cpu_s']:12} {shoal['rss_mib']:10}  {rate}"
        )
    lines.append(f"TLS attacker: {report['phases']['flood']['tls_attacker']}")
    lines.append(f"records: {report['records']}")
    lines += [f"{name}: {ended}" for name, ended in report["ended"].items()]
    return "\n".join(lines)


def main() -> int:
    remark = "The attacker runs at nice 5 on the same cores; 'dropping port': against a program that only resets."
    return benchmark(parser().parse_args(), measure, as_tables, remark)


if __name__ == "__main__":
    sys.exit(main())
