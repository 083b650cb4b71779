import mmap
import os

import pytest

from shoal.scenarios.memory import parse_memory_mib, peak_mib, reset_peak, resident_mib

STATUS = (
    "Name:\tpython3 (x)\nVmPeak:\t   20480 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1536 kB\nRssAnon:\t     512 "
    "kB\nThreads:\t3\n"
)
_BLOCK = 64 * 1024 * 1024


def test_memory_is_read_in_mib() -> None:
    assert parse_memory_mib(STATUS) == {"VmPeak": 20.0, "VmHWM": 2.0, "VmRSS": 1.5, "RssAnon": 0.5}


def test_the_peak_is_that_since_the_reset() -> None:
    pid = os.getpid()
    with mmap.mmap(-1, _BLOCK) as held:  # not bytes: the allocator may serve those from memory that stays resident
        held.write(b"x" * _BLOCK)
    before = peak_mib(pid)
    if not reset_peak(pid):
        pytest.skip("this kernel does not let the peak be reset")
    assert peak_mib(pid) < before
    assert peak_mib(pid) >= resident_mib(pid) - 1


def test_a_process_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="No such"):
        resident_mib(1 << 30)
