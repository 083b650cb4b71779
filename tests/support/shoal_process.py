"""Shoal as operators run it: a process of its own, started with a file or with flags, watched through /proc.

    async with running_shoal(ShoalProcess(["run", "-c", str(config)], work=tmp_path, ports=[port])) as shoal: ...

The process counts as started when it listens on all of `ports`, by the kernel's tables, without a connection.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.scenarios.kafka.ports import free_port_block as free_port_block
from shoal.scenarios.kafka.process import Process, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence

START_WITHIN = 120.0  # on a machine that runs other tests as well, and stands still at times
STOP_WITHIN = 60.0
_ESTABLISHED, _LISTEN = "01", "0A"  # include/net/tcp_states.h


class ShoalProcess:
    """One command line that may be started again and again; its log file is appended to."""

    def __init__(
        self, argv: Sequence[str], *, work: Path, ports: Sequence[int], env: Mapping[str, str] | None = None
    ) -> None:
        self.argv = [sys.executable, "-m", "shoal", *argv]
        self.log = work / "shoal.log"
        self.ports = tuple(ports)
        self._env = dict(env or {})
        self._process: Process | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    async def start(self) -> None:
        """Returns once it listens. Raises NotReady with the end of its log."""
        assert not self.running
        self._process = Process(self.argv, log=self.log, name="shoal", env=self._env)
        wanted = set(self.ports)
        await until(
            lambda: wanted <= listening_ports(self.pid),
            within=START_WITHIN,
            what=f"shoal to listen on {sorted(wanted)}",
            process=self._process,
        )

    def begin_takeover(self) -> Process:
        """Start another one with --takeover; -> the one before."""
        before = self.process
        self._process = Process([*self.argv, "--takeover"], log=self.log, name="shoal", env=self._env)
        return before

    async def take_over(self) -> None:
        """Start another one with --takeover; returns when the one before has ended by itself."""
        before = self.begin_takeover()
        await until(
            lambda: not before.running, within=STOP_WITHIN, what="the Shoal before to end", process=self._process
        )
        assert before.exit_code == 0, before.tail()
        await until(
            lambda: "has ended" in self.output() or '"predecessor-ended"' in self.output(),
            within=STOP_WITHIN,
            what="shoal to notice it",
            process=self._process,
        )

    async def refuse_to_start(self) -> str:
        """Its output when it does not start but exits with code 2 (the operator's error)."""
        process = self._process = Process(self.argv, log=self.log, name="shoal", env=self._env)
        await until(lambda: not process.running, within=START_WITHIN, what="shoal to refuse to start")
        assert process.exit_code == 2, process.tail()
        return process.output()

    async def stop(self, *, exit_code: int = 0) -> None:
        """SIGTERM; it must end by itself, with `exit_code` and without a traceback in its log."""
        ended = await self.process.stop(STOP_WITHIN)
        assert ended, f"shoal did not end after SIGTERM\n{self.process.tail()}"
        assert self.process.exit_code == exit_code, self.process.tail()
        assert "Traceback" not in self.output(), self.process.tail()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def output(self) -> str:
        """The log since the last start."""
        return self.process.output()

    def json_lines(self) -> list[dict[str, Any]]:
        """The JSON lines since the last start."""
        return json_lines(self.output())

    async def until_logged(self, text: str, *, within: float = 10.0) -> None:
        await self.process.until_printed(text, within=within)

    def resident_mib(self) -> float:
        return _status_kib(self.pid, "VmRSS") / 1024

    def peak_mib(self) -> float:
        return _status_kib(self.pid, "VmHWM") / 1024

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def connections(self) -> int:
        """TCP sockets that do not listen: two for each client that Shoal has connected to a broker."""
        return sum(row.state != _LISTEN for row in _tcp_sockets(self.pid))


def json_lines(text: str) -> list[dict[str, Any]]:
    """The JSON among whole lines of a log; the last line may be half written."""
    whole, _, _ = text.rpartition("\n")
    return [json.loads(line) for line in whole.splitlines() if line.startswith('{"')]


@asynccontextmanager
async def running_shoal(shoal: ShoalProcess) -> AsyncIterator[ShoalProcess]:
    """Runs during a block, then stopped by SIGTERM unless the block has already ended it."""
    await shoal.start()
    try:
        yield shoal
    except BaseException:
        print(shoal.process.tail())
        shoal.kill()
        raise
    if shoal.running:
        await shoal.stop()


def write_toml(path: Path, document: Mapping[str, object]) -> Path:
    """Write a configuration: mappings are tables, lists of mappings arrays of tables; below that, inline tables."""
    plain = [f"{key} = {_inline(value)}" for key, value in document.items() if not _is_table(value)]
    tables = [
        line
        for key, value in document.items()
        if _is_table(value)
        for table in (value if isinstance(value, list) else [value])
        for line in (f"[[{key}]]" if isinstance(value, list) else f"[{key}]", *_lines(table))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*plain, *tables]) + "\n")
    return path


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _lines(table: Any) -> list[str]:
    return [f"{key} = {_inline(value)}" for key, value in table.items()]


def _inline(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {_inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return json.dumps(value)


def listening_ports(pid: int) -> set[int]:
    """TCP ports on which a process listens; empty when it has ended."""
    try:
        return {row.port for row in _tcp_sockets(pid) if row.state == _LISTEN}
    except FileNotFoundError:
        return set()


def connected_at(pid: int, ports: Collection[int]) -> int:
    """How many connections a process has accepted on `ports`; 0 when it has ended."""
    try:
        return sum(row.port in ports and row.state != _LISTEN for row in _tcp_sockets(pid))
    except FileNotFoundError:
        return 0


def connected_to(ports: Collection[int]) -> set[str]:
    """The inode numbers of all sockets on this machine, of any process, that are connected to one of `ports`."""
    wanted = set(ports)
    return {row.inode for row in _tcp_table("self") if row.remote_port in wanted and row.state == _ESTABLISHED}


class _TcpRow(NamedTuple):
    """A line of /proc/net/tcp, proc(5)."""

    port: int
    remote_port: int
    state: str
    inode: str


def _tcp_table(pid: int | str) -> Iterator[_TcpRow]:
    """All TCP sockets of the machine. Raises FileNotFoundError when the process has ended."""
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, local, remote, state, _, _, _, _, _, inode, *_ = line.split()
            yield _TcpRow(_port(local), _port(remote), state, inode)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _tcp_sockets(pid: int) -> list[_TcpRow]:
    """Those of one process. Raises FileNotFoundError when it has ended."""
    own = socket_inodes(pid)
    return [row for row in _tcp_table(pid) if row.inode in own]


def socket_inodes(pid: int) -> set[str]:
    """The inode numbers of a process's sockets. Raises FileNotFoundError when it has ended."""
    inodes = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(entry.path)
        except FileNotFoundError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    return inodes


def _status_kib(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
