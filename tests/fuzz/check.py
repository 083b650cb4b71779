"""One input against the invariant of `tests.fuzz`."""

import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import process_time
from types import FrameType

from shoal.protocol.wire.errors import RemoteProtocolError
from tests.fuzz.target import Target

__all__ = ["CPU_LIMIT_S", "MAX_INPUT", "MEMORY_LIMIT", "BrokenInvariant", "check", "limit_memory", "peak_memory"]

MAX_INPUT = 64 * 1024  # bytes
CPU_LIMIT_S = 2.0  # thousands of times more than any input needs, for a loaded machine
MEMORY_LIMIT = 256 * 1024 * 1024  # bytes above the memory of the process before


class BrokenInvariant(AssertionError):
    """A decoder took too long."""


def check(target: Target, data: bytes, *, cpu_limit: float = CPU_LIMIT_S) -> float:
    """-> CPU seconds for `data`. Any exception is a finding."""
    before = process_time()
    message = f"{target.name}: more than {cpu_limit:g} s for {len(data)} bytes"
    with _cpu_limit(cpu_limit, message), suppress(RemoteProtocolError):
        target.run(data)
    return process_time() - before


@contextmanager
def _cpu_limit(seconds: float, message: str) -> Iterator[None]:
    def too_long(_signal: int, _frame: FrameType | None) -> None:
        raise BrokenInvariant(message)

    previous = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def limit_memory() -> None:
    """From now on an allocation beyond MEMORY_LIMIT (and zstd's untouched window of 128 MiB) fails: MemoryError."""
    size = _status("VmSize") + MEMORY_LIMIT + (128 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))


def peak_memory() -> int:
    """Peak memory of this process, in bytes."""
    return _status("VmHWM")


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024
