"""The index: rows of the taps on their way to a file. Traffic never waits for it.

    sockets ── bytes ──> Backlog ──> taps ── rows, names ──> here ── flush_seconds, FLUSH_BYTES ──> IndexFiles

Waiting rows are bounded (MAX_WAITING_BYTES). Further rows, and rows that cannot be written, are dropped and counted: in
the file's next STATE block, once in the log, and in each traffic summary.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from shoal.protocol.capture.index.blocks import (
    LONGEST_NAME,
    MAX_PAYLOAD,
    BlockType,
    encode_block,
    encode_names,
    encode_object,
)
from shoal.protocol.capture.index.columns import ROW_SIZE
from shoal.protocol.capture.index.names import MAX_NAMES, MAX_NAMES_SIZE, Names
from shoal.protocol.capture.index.tap import Tap
from shoal.protocol.records.key_sample import KeySampler
from shoal.proxy.capture.backlog import Backlog
from shoal.proxy.capture.index_files import IndexFiles
from shoal.proxy.capture.tapped import TappedTransport
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.settings import MIB
from shoal.proxy.events.logs import REPEAT_SECONDS, LogThrottle, event
from shoal.proxy.statistics import CaptureStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.protocol.capture.index.rows import ConnectionInfo
    from shoal.proxy.config.settings import CaptureSettings, RawCaptureSettings
    from shoal.proxy.net.transport import Transport

__all__ = ["Capture", "require_directory"]

log = logging.getLogger("shoal.capture")

FLUSH_BYTES = 256 * 1024
"""Up to 5,000 rows per second, `flush_seconds` ends first. A flush takes some 0.3 ms, most of it to wake a thread."""
MAX_WAITING_BYTES = 32 * MIB  # of rows: a disk stall of half a second at 400,000 rows per second
_BLOCK_ROWS = MIB // ROW_SIZE
_BLOCK_NAMES = MAX_PAYLOAD // LONGEST_NAME  # so that a block has room for any names
_STATE_SECONDS = 5.0


def require_directory(settings: CaptureSettings | RawCaptureSettings, where: str = "capture.directory") -> None:
    """Raises OperatorError."""
    what = None
    if not settings.directory.is_dir():
        what = "is not a directory: create it, or remove this setting to disable the capture"
    elif not os.access(settings.directory, os.W_OK | os.X_OK):
        what = "cannot be written to: change its owner or its rights"
    if what is not None:
        raise OperatorError.of(where, f"{settings.directory} {what}")


class Capture:
    """A Sink for the taps. `run` must run; call `close` after the last connection."""

    def __init__(
        self,
        settings: CaptureSettings,
        tags: Mapping[str, str],
        topic_name: Callable[[str, bytes], str | None],
        *,
        most_waiting: int = MAX_WAITING_BYTES,
        most_names: int = MAX_NAMES,
        most_names_size: int = MAX_NAMES_SIZE,
    ) -> None:
        require_directory(settings)
        self.settings = settings
        self._throttle = LogThrottle()
        self._names = Names(topic_name, most=most_names, most_size=most_names_size)
        self.number, self.topic, self.knows = self._names.number, self._names.topic, self._names.knows
        self.epoch = self._names.epoch
        self._files = IndexFiles(settings, tags)
        self.use_tags = self._files.use_tags
        every = settings.has_keys_sample
        self._sampler = KeySampler(every, random.randrange(1 << 32)) if every else None
        self._rows: list[bytes] = []
        self._waiting = 0  # bytes,
        self._most_waiting = most_waiting  # of so many
        self._in_file = 0  # rows of the open file
        self._rolls_at = 0.0
        self._state_at = 0.0
        self._told = (0, 0)
        self._failing = False
        self._ended = False  # by an error of Shoal
        self._wake = trio.Event()
        self._backlog = Backlog()
        self._taps: dict[Tap, TappedTransport] = {}
        self._unread = 0  # of closed taps
        self.written = self.dropped = self.bytes = 0

    @property
    def proxy(self) -> str:
        """Id of this process, in the names of its files."""
        return self._files.proxy

    # -- for the taps ----------------------------------------------------------------------------------------------

    def tap(self, upstream: Transport, place: ConnectionInfo) -> tuple[Tap, Transport]:
        """For a new connection to a broker. Returns the transport to use from now on."""
        tap = Tap(place, self, self._sampler)
        self._taps[tap] = transport = TappedTransport(upstream, tap, self, self._backlog)
        return tap, transport

    def broken(self, tap: Tap) -> None:
        """Log the current exception: an error in Shoal that did not affect the traffic."""
        error = sys.exception()
        if isinstance(error, Exception) and self._throttle.is_new_error(error, REPEAT_SECONDS):
            log.exception("index-lost-connection", extra=event("the index no longer sees one connection"))
        self._unread += 1
        self.ended(tap)

    def ended(self, tap: Tap) -> None:
        self._taps.pop(tap, None)
        self._unread += tap.unread

    def add(self, rows: bytes) -> None:
        waiting = self._waiting + len(rows)
        if waiting > self._most_waiting or self._ended:
            self.drop(len(rows) // ROW_SIZE)
            return
        self._rows.append(rows)
        self._waiting = waiting
        if waiting >= FLUSH_BYTES:
            self._wake.set()

    def drop(self, rows: int) -> None:
        self.dropped += rows

    # -- to the file -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs until cancelled; `close` then writes the rest."""
        due = trio.current_time()
        while True:
            with trio.move_on_at(due):
                await self._wake.wait()
            self._wake = trio.Event()
            while self._backlog.settle_some():
                await trio.lowlevel.checkpoint()
            if self._waiting >= FLUSH_BYTES or trio.current_time() >= due:
                due = trio.current_time() + self.settings.flush_seconds
                if self._rows or self._due(time.monotonic()):
                    await self._flush_safely()

    async def _flush_safely(self) -> None:
        rows = self._waiting // ROW_SIZE
        try:
            await self.flush()
        except Exception:  # an error in the index must not end the traffic
            log.exception("index-stopped", extra=event("the index stops: an error in Shoal"))
            self._ended = True
            self.drop(rows)

    def _due(self, now: float) -> bool:
        """True if the open file must be rolled, or record dropped rows."""
        return self._in_file > 0 and (now >= self._rolls_at or (now >= self._state_at and self._told != self._state()))

    def _state(self) -> tuple[int, int]:
        return self._in_file, self.dropped

    async def flush(self) -> None:
        """Write the waiting rows."""
        self._backlog.settle()
        rows, names, blocks, ends = self._take(time.monotonic())
        try:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._write, blocks, ends)
        except OSError as error:
            self._failed(rows, names, ends, error)
        else:
            self._done(rows, blocks)

    def _take(self, now: float, *, last: bool = False) -> tuple[int, dict[int, str], list[bytes], bool]:
        """Returns the number of rows, name blocks, row blocks, and whether they end the file."""
        pieces, self._rows = self._rows, []
        size, self._waiting = self._waiting, 0
        if not self._files.is_there:
            with suppress(OSError):
                self._files.close()
            self._names.repeated()
            self._in_file = 0
        names = self._names.take_new()
        if not self._in_file:
            self._rolls_at = now + self.settings.roll_seconds
        blocks = [*_name_blocks(names), *_row_blocks(b"".join(pieces))]
        self._in_file += size // ROW_SIZE
        grown = self._files.size + sum(map(len, blocks))
        ends = last or self._names.is_full or grown >= self.settings.max_file_bytes or now >= self._rolls_at
        if ends or (now >= self._state_at and self._told != self._state()):
            self._state_at, self._told = now + _STATE_SECONDS, self._state()
            blocks.append(_state_block(*self._told, closed=ends))
        if ends:
            self._names.renewed()
            self.epoch = self._names.epoch
            self._in_file = 0
        return size // ROW_SIZE, names, blocks, ends

    def _write(self, blocks: list[bytes], ends: bool) -> None:
        try:
            self._files.append(b"".join(blocks))
        finally:
            if ends:  # also if it failed: the names have new numbers from now on
                self._files.close()

    def _done(self, rows: int, blocks: list[bytes]) -> None:
        self.written += rows
        self.bytes += sum(map(len, blocks))
        if self._failing:
            self._failing = False
            directory = str(self.settings.directory)
            text = f"the index is written again, to {directory} ({self.dropped} rows are missing)"
            log.info("index-written-again", extra=event(text, directory=directory, dropped=self.dropped))

    def _failed(self, rows: int, names: dict[int, str], ends: bool, error: OSError) -> None:
        self.drop(rows)
        if not ends:
            self._in_file -= rows
            self._names.put_back(names)
        if not self._failing:
            self._failing = True
            directory, why = str(self.settings.directory), error.strerror or str(error)
            text = (
                f"the index cannot be written to {directory}: {why}: rows are dropped until it can (capture.directory)"
            )
            log.error("index-not-written", extra=event(text, directory=directory, error=why))

    def close(self) -> None:
        """Write the rest and the file's end. Blocks briefly, at shutdown."""
        self._backlog.settle()
        if self._ended or not (self._rows or self._in_file):
            return
        rows, names, blocks, _ = self._take(time.monotonic(), last=True)
        try:
            self._write(blocks, True)
        except OSError as error:
            self._failed(rows, names, True, error)
        else:
            self._done(rows, blocks)

    def statistics(self) -> CaptureStatistics:
        self._backlog.settle()
        unread = self._unread + sum(tap.unread for tap in self._taps)
        return CaptureStatistics(written=self.written, dropped=self.dropped, bytes=self.bytes, unread=unread)


def _name_blocks(names: dict[int, str]) -> list[bytes]:
    items = list(names.items())
    return [encode_names(dict(items[at : at + _BLOCK_NAMES])) for at in range(0, len(items), _BLOCK_NAMES)]


def _row_blocks(rows: bytes) -> list[bytes]:
    size = _BLOCK_ROWS * ROW_SIZE
    return [encode_block(BlockType.ROWS, rows[at : at + size]) for at in range(0, len(rows), size)]


def _state_block(written: int, dropped: int, *, closed: bool) -> bytes:
    return encode_object(BlockType.STATE, {"written": written, "dropped": dropped, "closed": closed})
