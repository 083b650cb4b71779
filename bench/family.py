"""CPU time of a process and of all that it starts.

    family_cpu_s(pid)                            while it runs
    python -m bench.family OUT.json PROGRAM ...  of a program from start to end, in a file

A running process counts itself and the ended children that it has waited for, so the sum over the living ones has also
those that ended in between; only a process whose parent ended first is lost. The command adopts these, too, and waits
for all of them (PR_SET_CHILD_SUBREAPER): Java outlives the Python program that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["family_cpu_s"]

_TICKS = os.sysconf("SC_CLK_TCK")
_SUBREAPER = 36  # prctl(2)


def family_cpu_s(root: int) -> float:
    """User and system time so far; take the difference of two calls."""
    processes = dict(filter(None, map(_read, Path("/proc").glob("[0-9]*/stat"))))
    family, count = {root}, 0
    while len(family) > count:
        count = len(family)
        family |= {pid for pid, (parent, _) in processes.items() if parent in family}
    return sum(processes[pid][1] for pid in family if pid in processes) / _TICKS


def _read(stat: Path) -> tuple[int, tuple[int, int]] | None:
    """proc(5): pid, (parent, ticks); None if it has just ended."""
    try:
        pid, _, rest = stat.read_text().partition(" ")
    except OSError:
        return None
    fields = rest.rpartition(")")[2].split()
    return int(pid), (int(fields[1]), sum(map(int, fields[11:15])))


def _run(argv: list[str]) -> dict[str, Any]:
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    started = time.monotonic()
    code = subprocess.run(argv, check=False).returncode
    seconds = time.monotonic() - started
    try:
        while True:
            os.wait()
    except ChildProcessError:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"exit_code": code, "seconds": round(seconds, 2), "cpu_s": round(used.ru_utime + used.ru_stime, 2)}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(_run(sys.argv[2:])) + "\n")
