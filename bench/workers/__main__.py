"""`make bench-workers`: requests per second of Shoal with one and with several workers, and HAProxy beside it.

The load is a C program that is clients and broker in one thread (`stage.c`): small Produce requests, one under way for
each connection, and answers at once. It costs a small part of what Shoal does, so Shoal is the bottleneck as long as
there are cores; the table shows what the load costs, and what the cores are worth without it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from bench.command import benchmark, warn_if_busy
from bench.proxies.start import find_haproxy
from shoal.scenarios.kafka.java.jars import BUILD
from shoal.scenarios.kafka.ports import free_port_block
from shoal.scenarios.kafka.process import Process, until
from tests.support.admin import get_json
from tests.support.shoal_process import ShoalProcess, listening_ports, write_toml

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from shoal.scenarios.progress import Progress

_TICKS = os.sysconf("SC_CLK_TCK")
_HAPROXY = """
global
  nbthread {threads}
defaults
  mode tcp
  timeout connect 5s
  timeout client 1m
  timeout server 1m
listen kafka
  bind 127.0.0.1:{port}
  server broker 127.0.0.1:{broker}
"""


class Proxy(NamedTuple):
    name: str
    workers: int


class Run(NamedTuple):
    requests: float  # per second
    cpu_us: float  # of the proxy, per request
    load_us: float  # of the load, per request
    spread: list[int]  # connections of each worker
    slowest_ms: float


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers (default 1 2)")
    arguments.add_argument("--clients", type=int, default=32, help="connections (default 32)")
    arguments.add_argument("--seconds", type=float, default=4.0, help="of each run (default 4)")
    arguments.add_argument("--rounds", type=int, default=3, help="interleaved rounds; medians are printed (default 3)")
    arguments.add_argument("--request-bytes", type=int, default=300)
    arguments.add_argument("--answer-bytes", type=int, default=60)
    arguments.add_argument("--in-flight", type=int, default=1, help="requests of each connection (default 1)")
    arguments.add_argument("--haproxy", action="store_true", help="HAProxy with as many threads, too")
    arguments.add_argument("--out", type=Path, default=BUILD / "workers", help="directory for report.json and logs")
    return arguments


async def measure(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    warn_if_busy(progress)
    work: Path = options.out / "work"
    program = _compiled(work)
    proxies = [Proxy("shoal", workers) for workers in options.workers]
    if options.haproxy:
        proxies += [Proxy("haproxy", workers) for workers in options.workers]
    runs: dict[Proxy, list[Run]] = {proxy: [] for proxy in proxies}
    for number in range(options.rounds):
        for proxy in proxies:
            progress.say(f"round {number + 1}: {proxy.name} with {proxy.workers}")
            runs[proxy].append(await _run(options, work, program, proxy))
    return {
        "cores": len(os.sched_getaffinity(0)),
        "options": {name: str(value) for name, value in vars(options).items()},
        "runs": [{"proxy": proxy.name, "workers": proxy.workers, "runs": [x._asdict() for x in found]}
                 for proxy, found in runs.items()],
    }  # fmt: skip


def _compiled(work: Path) -> Path:
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    program, source = work / "stage", Path(__file__).with_name("stage.c")
    subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
    return program


async def _run(options: argparse.Namespace, work: Path, program: Path, proxy: Proxy) -> Run:
    first = free_port_block(6)
    broker, port, admin = first, first + 1, first + 2
    words = [broker, port, options.clients, options.seconds, options.request_bytes, options.answer_bytes]
    words.append(options.in_flight)
    stage = await trio.lowlevel.open_process(
        [str(program), *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert stage.stdin is not None
    assert stage.stdout is not None
    lines = _Lines(stage.stdout)
    assert await lines.line() == "ready"
    start = _shoal if proxy.name == "shoal" else _haproxy
    async with start(work, proxy.workers, broker, port, admin) as pids:
        await stage.stdin.send_all(b"\n")
        assert await lines.line() == "measuring", "the load has failed"
        before = sum(map(_cpu, pids))
        with trio.move_on_after(options.seconds / 2):
            await trio.sleep_forever()
        rows = (await get_json(admin, "/status")).get("workers", []) if proxy.name == "shoal" else []
        found = json.loads(await lines.line())
        cpu = sum(map(_cpu, pids)) - before
    await stage.wait()
    return Run(
        requests=found["requests"] / found["seconds"],
        cpu_us=cpu / found["requests"] * 1e6,
        load_us=found["cpu_s"] / found["requests"] * 1e6,
        spread=[row["connections"] for row in rows],
        slowest_ms=found["slowest_s"] * 1e3,
    )


class _Lines:
    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._data = b""

    async def line(self) -> str:
        while b"\n" not in self._data:
            more = await self._stream.receive_some()
            if not more:
                raise RuntimeError("the load has ended: see its message above")
            self._data += more
        line, _, self._data = self._data.partition(b"\n")
        return line.decode()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@asynccontextmanager
async def _shoal(work: Path, workers: int, broker: int, port: int, admin: int) -> AsyncIterator[list[int]]:
    document = {
        "workers": workers,
        "cluster": [{"name": "c", "bootstrap": f"127.0.0.1:{broker}"}],
        "listener": [{"name": "l", "cluster": "c", "listen": f"127.0.0.1:{port}", "ports": f"{port + 2}-{port + 3}"}],
        "admin": {"listen": f"127.0.0.1:{admin}"},
    }
    toml = write_toml(work / f"shoal-{workers}.toml", document)
    shoal = ShoalProcess(["run", "-c", str(toml)], work=work, ports=[port, admin])
    await shoal.start()
    try:
        rows = (await get_json(admin, "/status")).get("workers", [])
        yield [shoal.pid, *(row["pid"] for row in rows)]
    finally:
        await shoal.stop()


@asynccontextmanager
async def _haproxy(work: Path, threads: int, broker: int, port: int, admin: int) -> AsyncIterator[list[int]]:
    config = work / f"haproxy-{threads}.cfg"
    config.write_text(_HAPROXY.format(threads=threads, port=port, broker=broker))
    process = Process([await find_haproxy(), "-db", "-f", str(config)], log=work / "haproxy.log", name="haproxy")
    try:
        await until(lambda: port in listening_ports(process.pid), within=20, what="haproxy to listen", process=process)
        yield [process.pid]
    finally:
        process.kill()


def as_tables(report: dict[str, Any]) -> str:
    lines = ["proxy     workers  requests/s   CPU/request   load's   requests per CPU second  connections  slowest"]
    base: dict[str, float] = {}
    for row in report["runs"]:
        runs = [Run(**found) for found in row["runs"]]
        rate, cpu = (statistics.median(getattr(run, name) for run in runs) for name in ("requests", "cpu_us"))
        load, slowest = (statistics.median(getattr(run, name) for run in runs) for name in ("load_us", "slowest_ms"))
        ratio = rate / base.setdefault(row["proxy"], rate)
        spread = "/".join(map(str, runs[0].spread))
        lines.append(
            f"{row['proxy']:<10}{row['workers']:>7}{rate:>9,.0f} {ratio:.2f}{cpu:>11.1f} us{load:>7.1f} us"
            f"{1e6 / cpu:>22,.0f}{spread:>15}{slowest:>8.1f} ms"
        )
    lines.append(f"{report['cores']} cores, shared by proxy and load")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(benchmark(parser().parse_args(), measure, as_tables, __doc__.partition("\n")[0] if __doc__ else ""))
