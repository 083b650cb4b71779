"""The file that keeps the sequence map of an unwrap listener over a restart (protocol/shallow/sequence_slots.py).

    4096 bytes   what the file is, and the boot of the machine in which it was written, or that it was closed in order
    slots

It is mapped to memory: what is written is in the file at once as far as this machine is concerned, so a killed Shoal finds all of
it again, and nothing is ever waited for. Not so when the machine itself stops: then some pages are older than others, and what
is too old could let a batch pass with a number that means another one. So a file that was neither closed in order nor written
since this boot begins anew.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
from pathlib import Path

from shoal.protocol.shallow.mirror_producers import DEFAULT_SLOTS
from shoal.protocol.shallow.sequence_slots import SLOT_SIZE
from shoal.proxy.operator_error import OperatorError

__all__ = ["ProducersFile"]

log = logging.getLogger("shoal.unwrap")

_HEAD = 4096
_SIZE = DEFAULT_SLOTS * SLOT_SIZE
_MODE = 0o644
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MAGIC = b"shoal producers 1\n"
_CLOSED = b"closed in order\n"


class ProducersFile:
    """`slots` is the memory; without a path, or where the file cannot be had, it lasts as long as the process."""

    def __init__(self, listener: str, path: Path | None, *, boot: Path = _BOOT) -> None:
        self.slots = memoryview(bytearray(_SIZE))
        self._descriptor: int | None = None
        self._map: mmap.mmap | None = None
        if path is None:
            return
        try:
            self._open(path, _MAGIC + _this_boot(boot))
        except OSError as error:
            self.close()
            if isinstance(error, BlockingIOError):
                what = f"{path} is in use by another process: has it ended? Or give each a state-dir of its own"
                raise OperatorError.of(f"listener {listener!r}", what) from None
            log.warning(
                "listener %r: cannot use %s (%s): a restart makes transactional mirrors abort", listener, path, error
            )

    def _open(self, path: Path, head: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        known = os.pread(self._descriptor, _HEAD, 0).rstrip(b"\0")
        if known not in (head, _MAGIC + _CLOSED) or os.fstat(self._descriptor).st_size != _HEAD + _SIZE:
            os.ftruncate(self._descriptor, 0)
            os.ftruncate(self._descriptor, _HEAD + _SIZE)  # holes: only what is used takes room
        self._map = mmap.mmap(self._descriptor, _HEAD + _SIZE)
        self._write_head(head)
        self.slots = memoryview(self._map)[_HEAD:]

    def _write_head(self, head: bytes) -> None:
        assert self._map is not None
        self._map[:_HEAD] = head.ljust(_HEAD, b"\0")
        self._map.flush()

    def close(self) -> None:
        """Let another process have the file, on this machine or on another. What is still written goes nowhere else."""
        if self._map is not None:
            self._map.flush()
            self._write_head(_MAGIC + _CLOSED)
            self._map = None
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # the map has a descriptor of its own
            os.close(self._descriptor)
            self._descriptor = None


def _this_boot(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # not Linux
        return f"a boot that nobody knows, of process {os.getpid()}\n".encode()
