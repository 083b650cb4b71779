"""The file that keeps the sequence map of an unwrap listener over a restart (protocol/shallow/sequence_slots.py).

It is mapped to memory: what is written is in the file at once as far as the kernel is concerned, so a killed Shoal finds all of
it again, and nothing is ever waited for. Not so after a power cut; the map is then too old, and says so by itself.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
from typing import TYPE_CHECKING

from shoal.protocol.shallow.mirror_producers import DEFAULT_SLOTS
from shoal.protocol.shallow.sequence_slots import SLOT_SIZE
from shoal.proxy.operator_error import OperatorError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ProducersFile"]

log = logging.getLogger("shoal.unwrap")

_SIZE = DEFAULT_SLOTS * SLOT_SIZE
_MODE = 0o644


class ProducersFile:
    """`slots` is the memory; without a path, or where the file cannot be had, it lasts as long as the process."""

    def __init__(self, listener: str, path: Path | None) -> None:
        self.slots = memoryview(bytearray(_SIZE))
        self._descriptor: int | None = None
        if path is None:
            return
        try:
            self._open(path)
        except OSError as error:
            self.close()
            if isinstance(error, BlockingIOError):
                what = f"{path} is in use by another process: has it ended? Or give each a state-dir of its own"
                raise OperatorError.of(f"listener {listener!r}", what) from None
            log.warning(
                "listener %r: cannot use %s (%s): a restart makes transactional mirrors abort", listener, path, error
            )

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(self._descriptor).st_size != _SIZE:
            os.ftruncate(self._descriptor, 0)
            os.ftruncate(self._descriptor, _SIZE)  # holes: only what is used takes room
        self.slots = memoryview(mmap.mmap(self._descriptor, _SIZE))

    def close(self) -> None:
        """Let another process have the file. What is still written goes nowhere else."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # the map has a descriptor of its own
            os.close(self._descriptor)
            self._descriptor = None
