"""Resident memory of running processes, per phase of a run.

Writing 5 to /proc/<pid>/clear_refs (proc(5)) resets the peak (VmHWM) to the current value.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["anonymous_mib", "parse_memory_mib", "peak_mib", "reset_peak", "resident_mib"]

_KIB_PER_MIB = 1024


def resident_mib(pid: int) -> float:
    """Current resident memory. Raises FileNotFoundError or ProcessLookupError when there is no such process."""
    return _memory(pid)["VmRSS"]


def peak_mib(pid: int) -> float:
    """The peak since the start or since `reset_peak`. Raises as `resident_mib` does."""
    return _memory(pid)["VmHWM"]


def anonymous_mib(pid: int) -> float:
    """Current memory that is backed by no file (RssAnon). Raises as `resident_mib` does."""
    return _memory(pid)["RssAnon"]


def reset_peak(pid: int) -> bool:
    """True when the kernel allowed it; otherwise the peak remains that of the whole life of the process."""
    with suppress(OSError):
        (Path("/proc") / str(pid) / "clear_refs").write_text("5")
        return True
    return False


def _memory(pid: int) -> dict[str, float]:
    sizes = parse_memory_mib((Path("/proc") / str(pid) / "status").read_text())
    if "VmRSS" not in sizes:
        raise ProcessLookupError(f"process {pid} has ended")
    return sizes


def parse_memory_mib(status: str) -> dict[str, float]:
    """The `Vm...: n kB` and `Rss...: n kB` lines of /proc/<pid>/status; a zombie has none."""
    lines = (line.split() for line in status.splitlines() if line.startswith(("Vm", "Rss")))
    return {name.rstrip(":"): int(kib) / _KIB_PER_MIB for name, kib, *_ in lines}
