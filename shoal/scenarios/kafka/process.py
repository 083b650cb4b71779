"""Child processes with a log file: start, wait for output, measure, end.

A child gets SIGKILL from the kernel when the thread that started it ends (PR_SET_PDEATHSIG through util-linux'
setpriv), so no child survives a killed test run. Start children on the main thread. Each has its own process group, so
that Ctrl-C reaches only the parent, which ends them in order.

These are plain `subprocess` children, not trio's, because a test session keeps them across many `trio.run`s.
"""

import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from .errors import NotReady

POLL_S = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")
_TAIL_LINES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    cpu_s: float
    """User and system CPU seconds of all threads since the process started."""
    peak_mib: float
    """Peak resident memory (VmHWM)."""

    def since(self, earlier: "Usage") -> "Usage":
        """CPU seconds since `earlier`; the peak is that of the whole life, the only one that the kernel reports."""
        return Usage(cpu_s=self.cpu_s - earlier.cpu_s, peak_mib=self.peak_mib)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(cpu_s=self.cpu_s + other.cpu_s, peak_mib=self.peak_mib + other.peak_mib)


def usage(pid: int) -> Usage:
    """Usage of a running process. Raises ProcessLookupError if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError as error:
        raise ProcessLookupError(f"no process {pid}") from error
    fields = stat.rpartition(")")[2].split()  # proc(5): field 3 (state) is the first after the name; utime 14, stime 15
    peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), None)
    if peak is None:
        raise ProcessLookupError(f"process {pid} has ended")
    return Usage(cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS, peak_mib=int(peak) / 1024)


async def until(
    happened: Callable[[], bool | Awaitable[bool]],
    *,
    within: float,
    what: str,
    process: "Process | None" = None,
    poll_s: float = POLL_S,
) -> None:
    """Poll until `happened()`, which may be async. Raises NotReady at the deadline, or as soon as `process` ends."""
    deadline = trio.current_time() + within
    while not (await answer if isinstance(answer := happened(), Awaitable) else answer):
        if process is not None and not process.running:
            raise NotReady(f"{what}: {process.name} ended with {process.exit_code}\n{process.tail()}")
        if trio.current_time() >= deadline:
            raise NotReady(f"waited {within:g} s for {what}\n{process.tail() if process else ''}")
        await trio.sleep(poll_s)


async def together(*calls: Callable[[], Awaitable[object]]) -> None:
    """Run all concurrently. If some fail, raise only the first error (the others mostly repeat it), after all ended."""
    try:
        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(call)
    except BaseExceptionGroup as group:
        first = group.exceptions[0]
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


class Process:
    """A running child. Its output is appended to `log`, so that a restart keeps the earlier output."""

    def __init__(self, argv: Sequence[str], *, log: Path, name: str, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else {**os.environ, **env},
                process_group=0,
            )

    def __repr__(self) -> str:
        return f"<Process {self.name} pid={self.pid} exit={self.exit_code}>"

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def usage(self) -> Usage:
        """Raises ProcessLookupError when it has ended."""
        return usage(self.pid)

    def output(self) -> str:
        """Output since this start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """The path of the log, and the end of the output."""
        return "\n".join([f"--- {self.log}", *self.output().splitlines()[-lines:]])

    async def until_printed(self, text: str, *, within: float, times: int = 1) -> None:
        """Raises NotReady when `text` was not printed `times` times before the deadline."""
        await until(
            lambda: self.output().count(text) >= times,
            within=within,
            what=f"{self.name} to print {text!r}",
            process=self,
            poll_s=0.05,
        )

    def kill(self) -> None:
        """SIGKILL."""
        self._child.kill()
        self._child.wait()

    async def stop(self, within: float = 30) -> bool:
        """SIGTERM, then SIGKILL after `within` seconds. True if it ended on SIGTERM. Never leaves it running."""
        with trio.CancelScope(shield=True):
            self._child.send_signal(signal.SIGTERM)
            try:
                await until(lambda: not self.running, within=within, what=f"{self.name} to stop")
            except NotReady:
                self.kill()
                return False
        return True
