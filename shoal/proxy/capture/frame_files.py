"""Raw capture files: rolled by size; above a total size the oldest files are deleted. Used by the capture's thread
only.

Frames are buffered until a write pays, and count as written when they are in the file. A failed write is removed from
the file: the file ends with a complete block, and the next one describes all connections again. A full disk costs
frames, one log line, and occasional retries.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from shoal.protocol.capture.frames.pcapng import CapturedFrame, Encoder
from shoal.proxy.capture.locked_files import create_locked, make_room
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shoal.proxy.config.settings import RawCaptureSettings

__all__ = ["RawFiles"]

log = logging.getLogger("shoal.capture")

_RETRY_SECONDS: Final = 10.0
"""Retry interval after a disk error; frames are dropped until then."""
_BUFFER: Final = 256 * 1024


class RawFiles:
    """`lost` counts frames that could not be written, `written` and `bytes` those in files. Nothing raises."""

    def __init__(self, settings: RawCaptureSettings, proxy: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.written = self.lost = self.bytes = self.number = 0
        self._settings = settings
        self._proxy = proxy
        self._clock = clock  # seconds
        self._about: dict[int, str] = {}  # first packets of open connections
        self._path = settings.directory
        self._fd: int | None = None
        self._size = 0  # of the open file
        self._waiting: list[bytes] = []  # what comes behind that,
        self._waiting_bytes = 0
        self._waiting_frames = 0  # and of how many frames it is
        self._encoder = Encoder(proxy)
        self._not_before = 0.0
        self._failing = False

    def opened(self, connection: int, about: str) -> None:
        self._about[connection] = about

    def closed(self, time_ns: int, connection: int) -> None:
        self._about.pop(connection, None)
        if self._fd is not None and (data := self._encoder.closed(time_ns, connection)):
            self._append(data, frames=0)

    def write(self, frames: Sequence[CapturedFrame]) -> None:
        for frame in frames:
            if self._is_open():
                self._append(self._encoded(frame), frames=1)
            else:
                self.lost += 1

    def flush(self) -> None:
        """Write the buffered frames, or count them as lost."""
        if self._fd is None or not self._waiting:
            return
        data, frames = memoryview(b"".join(self._waiting)), self._waiting_frames
        self._forget_waiting()
        try:
            rest = data
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self.lost += frames
            self._failed(error)
            return
        self._size += len(data)
        self.bytes += len(data)
        self.written += frames
        if self._failing:
            self._failing = False
            directory = str(self._settings.directory)
            text = f"raw capture: written again, to {directory} ({self.lost} frames are missing)"
            log.info("raw-capture-written-again", extra=event(text, directory=directory, lost=self.lost))

    def close(self) -> None:
        self.flush()
        try:
            self._release()
        except OSError as error:
            self._failed(error)

    def _release(self) -> None:
        """Raises OSError, and never closes the same number again: it may be a client's connection by then."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _encoded(self, frame: CapturedFrame) -> bytes:
        if self._encoder.knows(frame.connection):
            return self._encoder.frame(frame)
        about = self._about.get(frame.connection, "")
        start = self._encoder.opened(frame.time_ns, frame.connection, frame.node, about)
        return start + self._encoder.frame(frame)

    def _append(self, data: bytes, *, frames: int) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._waiting_frames += frames
        if self._size + self._waiting_bytes >= self._settings.max_file_bytes:
            self.close()
        elif self._waiting_bytes >= _BUFFER:
            self.flush()

    def _forget_waiting(self) -> None:
        self._waiting, self._waiting_bytes, self._waiting_frames = [], 0, 0

    def _is_open(self) -> bool:
        if self._fd is None and self._clock() >= self._not_before:
            try:
                self._open_next()
            except OSError as error:
                self._failed(error)
        return self._fd is not None

    def _open_next(self) -> None:
        settings = self._settings
        make_room(settings.directory, "shoal-*.pcapng", wanted=settings.max_file_bytes, limit=settings.max_bytes)
        self._path = settings.directory / f"shoal-{self._proxy}-{self.number + 1:08d}.pcapng"
        self._fd = create_locked(self._path)
        self.number += 1
        self._size, self._encoder = 0, Encoder(self._proxy)

    def _failed(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            directory, why = str(self._settings.directory), error.strerror or str(error)
            text = (
                f"raw capture: cannot write to {directory}: {why}: frames are lost until it can "
                "(capture.raw.directory): make room"
            )
            log.error("raw-capture-not-written", extra=event(text, directory=directory, error=why))
        self._not_before = self._clock() + _RETRY_SECONDS
        if self._fd is not None:
            self._cut()
            with suppress(OSError):
                self._release()

    def _cut(self) -> None:
        """Truncate to the last complete write; delete a file without any."""
        assert self._fd is not None
        with suppress(OSError):
            os.ftruncate(self._fd, self._size)
            if not self._size:
                self._path.unlink()
                self.number -= 1
