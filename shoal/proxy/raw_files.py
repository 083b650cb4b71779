"""Raw capture files on disk: rolled by size, and the oldest of the directory removed above a cap. Used by the capture's thread only."""

from __future__ import annotations

import fcntl
import logging
import time
from typing import TYPE_CHECKING, BinaryIO, Final

from shoal.protocol.capture.pcapng import CapturedFrame, Encoder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shoal.proxy.settings import RawCaptureSettings

__all__ = ["RawFiles"]

log = logging.getLogger("shoal.capture")

_RETRY_SECONDS: Final = 10.0
"""After an error of the disk: until then everything is dropped."""
_BUFFER: Final = 256 * 1024


class RawFiles:
    """`lost` counts frames that could not be written, `written` those that were; nothing raises."""

    def __init__(self, settings: RawCaptureSettings, proxy: str) -> None:
        self.written = self.lost = self.bytes = self.number = 0
        self._settings = settings
        self._proxy = proxy
        self._about: dict[int, str] = {}  # of open connections: what their first packet says
        self._file: BinaryIO | None = None
        self._size = 0
        self._encoder = Encoder(proxy)
        self._not_before = 0.0

    def opened(self, connection: int, about: str) -> None:
        self._about[connection] = about

    def closed(self, time_ns: int, connection: int) -> None:
        self._about.pop(connection, None)
        if self._file is not None and (data := self._encoder.closed(time_ns, connection)):
            self._append(data)

    def write(self, frames: Sequence[CapturedFrame]) -> None:
        for frame in frames:
            if self._is_open() and self._append(self._encoded(frame)):
                self.written += 1
            else:
                self.lost += 1

    def flush(self) -> None:
        if self._file is not None:
            try:
                self._file.flush()
            except OSError as error:
                self._failed(error)

    def close(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._failed(error)
            self._file = None

    def _encoded(self, frame: CapturedFrame) -> bytes:
        if self._encoder.knows(frame.connection):
            return self._encoder.frame(frame)
        about = self._about.get(frame.connection, "")
        start = self._encoder.opened(frame.time_ns, frame.connection, frame.node, about)
        return start + self._encoder.frame(frame)

    def _append(self, data: bytes) -> bool:
        assert self._file is not None
        try:
            self._file.write(data)
        except OSError as error:
            self._failed(error)
            return False
        self._size += len(data)
        self.bytes += len(data)
        if self._size >= self._settings.max_file_bytes:
            self.close()
        return True

    def _is_open(self) -> bool:
        if self._file is None and time.monotonic() >= self._not_before:
            try:
                self._open_next()
            except OSError as error:
                self._failed(error)
        return self._file is not None

    def _open_next(self) -> None:
        self._make_room()
        path = self._settings.directory / f"shoal-{self._proxy}-{self.number + 1:08d}.pcapng"
        file = path.open("xb", _BUFFER)
        self.number += 1
        fcntl.flock(file, fcntl.LOCK_EX)  # while it is open: so others see that it is not done
        self._file, self._size, self._encoder = file, 0, Encoder(self._proxy)

    def _make_room(self) -> None:
        """The cap holds for the files of all processes, and for the one that begins now."""
        files = sorted((_age_and_size(path), path) for path in self._settings.directory.glob("shoal-*.pcapng"))
        excess = sum(size for (_, size), _ in files) + self._settings.max_file_bytes - self._settings.max_bytes
        for (_, size), path in files:
            if excess > 0 and _removed(path):
                excess -= size

    def _failed(self, error: OSError) -> None:
        log.error("raw capture: %s: nothing is captured for %g s", error, _RETRY_SECONDS)
        self._not_before = time.monotonic() + _RETRY_SECONDS
        self._file = None


def _age_and_size(path: Path) -> tuple[float, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0.0, 0
    return found.st_mtime, found.st_size


def _removed(path: Path) -> bool:
    """Unless somebody writes it."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except (BlockingIOError, FileNotFoundError):
        return False
    return True
