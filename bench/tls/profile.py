"""The share of each library in a proxy's CPU time, by perf(1). Without perf there is none.

Only user space is sampled, which needs no privileges; the kernel's share is that of system time.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shoal.scenarios.kafka.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["KERNEL", "parse_report", "profile"]

KERNEL = "kernel"
_PER_SECOND = 997
_START_S = 0.5  # until perf has attached
_NAMES = {"[JIT]": "compiled Java"}
_LINE = re.compile(r"\s*([\d.]+)%\s+(\S+)")
_UTIME, _STIME = 11, 12  # of /proc/<pid>/stat, counted from the process's state


class _Times(NamedTuple):
    user: int
    system: int


def profile(pid: int, busy: Callable[[], object], data: Path) -> dict[str, float]:
    """Shares by library while `busy` runs. Raises SetupError without perf, or where it may not sample."""
    perf = shutil.which("perf")
    if perf is None:
        raise SetupError("perf not found. On Debian: apt-get install linux-perf")
    record = [perf, "record", "-e", "cpu-clock:u", "-F", str(_PER_SECOND), "-p", str(pid), "-o", str(data)]
    recorder = subprocess.Popen(record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(_START_S)
        before = _times(pid)
        busy()
        after = _times(pid)
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait()
    report = [perf, "report", "-i", str(data), "--sort", "dso", "--stdio"]
    libraries = parse_report(subprocess.run(report, capture_output=True, text=True, check=False).stdout)
    if not libraries:
        raise SetupError("perf took no samples: may it? See kernel.perf_event_paranoid")
    user, system = after.user - before.user, after.system - before.system
    in_kernel = system / (user + system) if user + system else 0.0
    return {KERNEL: in_kernel} | {name: share * (1 - in_kernel) for name, share in libraries.items()}


def parse_report(text: str) -> Mapping[str, float]:
    """Shares by library, of `perf report --sort dso --stdio`, most first."""
    found: dict[str, float] = defaultdict(float)
    for line in text.splitlines():
        if match := _LINE.match(line):
            found[_NAMES.get(match[2], match[2])] += float(match[1])
    total = sum(found.values())
    return {name: percent / total for name, percent in sorted(found.items(), key=itemgetter(1), reverse=True)}


def _times(pid: int) -> _Times:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return _Times(int(fields[_UTIME]), int(fields[_STIME]))
