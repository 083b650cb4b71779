"""The index files of this process, and the size limit of all index files in the directory.

All functions block, and run in a thread. A failed write leaves the file unchanged.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.protocol.capture.index.blocks import BlockType, encode_object
from shoal.protocol.capture.index.columns import ROW_SIZE, VERSION
from shoal.proxy.capture.locked_files import create_locked, make_room
from shoal.proxy.config.identity import host_name, shoal_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shoal.proxy.config.settings import CaptureSettings

__all__ = ["SUFFIX", "IndexFiles"]

SUFFIX = ".kxb"


class IndexFiles:
    def __init__(self, settings: CaptureSettings, tags: Mapping[str, str]) -> None:
        self._settings = settings
        self.use_tags(tags)
        self.proxy = secrets.token_hex(4)
        self.number = 0
        self.size = 0  # of the open file
        self._fd = -1
        self._started_ns = time.time_ns()

    def use_tags(self, tags: Mapping[str, str]) -> None:
        """For the files that begin from now on."""
        self._tags = dict(tags)

    @property
    def is_there(self) -> bool:
        """True if a file is open and still in the directory."""
        with suppress(OSError):  # of a network file system that is gone
            return self._fd >= 0 and os.fstat(self._fd).st_nlink > 0
        return False

    def open(self) -> None:
        """The next file. Raises OSError."""
        settings = self._settings
        make_room(settings.directory, f"shoal-*{SUFFIX}", wanted=settings.max_file_bytes, limit=settings.max_bytes)
        self.number += 1
        path = settings.directory / f"shoal-{self.proxy}-{self.number:08d}{SUFFIX}"
        fd = self._fd = create_locked(path)
        self.size = 0
        try:
            self._write(encode_object(BlockType.START, self._start()))
        except OSError:
            self._fd = -1
            os.close(fd)
            with suppress(OSError):
                path.unlink()
            raise

    def _start(self) -> dict[str, object]:
        return {
            "version": VERSION,
            "row_size": ROW_SIZE,
            "proxy": self.proxy,
            "host": host_name(),
            "shoal": shoal_version(),
            "pid": os.getpid(),
            "started_ns": self._started_ns,
            "number": self.number,
            "tags": self._tags,
        }

    def append(self, blocks: bytes) -> None:
        """Write everything, or nothing and raise OSError."""
        if self._fd < 0:
            self.open()
        self._write(blocks)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, self.size)
            raise
        self.size += len(data)

    def close(self) -> None:
        """Raises OSError, and never closes the same number again: it may be a client's connection by then."""
        fd, self._fd, self.size = self._fd, -1, 0
        if fd >= 0:
            os.close(fd)
