"""The optional raw capture: whole frames as clients sent and received them, in pcapng files (docs/capture.md).

    client's socket ──► FrameTap: frames ──► queue (bounded bytes) ──► thread: FrameFilter ──► RawFiles
         event loop                                                        filters, cuts credentials, encodes, writes

Traffic never waits: if the queue is full, a frame is lost and counted. Answers are those that the client got (rewritten
addresses, envelopes), so a capture shows the client's view, and can be replayed to Shoal.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final, Self

from shoal.protocol.capture.frames.frame_filter import FrameFilter, FrameSelection
from shoal.protocol.capture.frames.pcapng import CapturedFrame, Sender
from shoal.proxy.capture.frame_files import RawFiles
from shoal.proxy.capture.frame_tap import FrameTap, Tap, TappedClient
from shoal.proxy.capture.index import require_directory
from shoal.proxy.events.logs import event
from shoal.proxy.statistics import RawStatistics

if TYPE_CHECKING:
    from types import TracebackType

    from shoal.proxy.config.settings import RawCaptureSettings
    from shoal.proxy.net.transport import SocketTransport

__all__ = ["FrameCapture"]

log = logging.getLogger("shoal.capture")

_OVERHEAD: Final = 512
"""Memory overhead of a frame, in bytes."""
_CLOSE_SECONDS: Final = 10.0
_FLUSH_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    connection: int
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Closed:
    time_ns: int
    connection: int


class FrameCapture:
    """A context manager: the thread runs inside. `tap` may be called only inside."""

    def __init__(self, settings: RawCaptureSettings, proxy: str, frame_limit: int) -> None:
        """Raises OperatorError."""
        require_directory(settings, "capture.raw.directory")
        self._settings = settings
        self._proxy = proxy
        self._frame_limit = frame_limit
        self._queue: SimpleQueue[CapturedFrame | _Opened | _Closed | None] = SimpleQueue()
        self._taken = 0  # bytes, by the event loop
        self._done = 0  # bytes, by the thread
        self._lost = 0
        self._files = RawFiles(settings, proxy)
        wanted = FrameSelection(topics=settings.topics, clients=settings.clients, apis=settings.apis)
        self._picker = FrameFilter(wanted)
        self._thread = Thread(target=self._run, name="raw capture", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        directory = str(self._settings.directory)
        text = f"raw capture: frames, with the records in them, are written to {directory}"
        log.warning("raw-capture-on", extra=event(text, directory=directory))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.put(None)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            text = f"raw capture: the disk did not take the rest within {_CLOSE_SECONDS:g} s"
            log.error("raw-capture-unfinished", extra=event(text, seconds=_CLOSE_SECONDS))
        counts = self.statistics()
        values = {"frames": counts.written, "bytes": counts.bytes, "lost": counts.lost}
        log.info("raw-capture-ended", extra=event(f"raw capture: {counts}", **values))

    def statistics(self) -> RawStatistics:
        files = self._files
        return RawStatistics(written=files.written, lost=self._lost + files.lost, bytes=files.bytes)

    def tap(self, client: SocketTransport, number: int, node: int | None, about: str) -> SocketTransport:
        """Returns the replacement of the transport. `node`: the client's broker; `about`: for the capture's readers.

        Without room for its beginning, the connection is not captured.
        """
        if not self._has_room(_OVERHEAD):
            self._lost += 1
            return client
        node_id = -1 if node is None else node
        self._queue.put(_Opened(connection=number, about=about))
        return TappedClient(
            client, Tap(partial(self._half, number, node_id), time.time_ns, partial(self._gone, number))
        )

    def _half(self, number: int, node: int, sender: Sender) -> FrameTap:
        template = CapturedFrame(0, self._proxy, number, sender, b"", None, node)
        return FrameTap(template, self._frame_limit, self._claim, self._put)

    def _gone(self, number: int, begun: list[int]) -> None:
        self._taken -= sum(size + _OVERHEAD for size in begun)
        self._queue.put(_Closed(time_ns=time.time_ns(), connection=number))

    def _claim(self, size: int) -> bool:
        cost = size + _OVERHEAD
        if self._taken - self._done + cost > self._settings.queue_bytes:
            return False
        self._taken += cost
        return True

    def _put(self, captured: CapturedFrame) -> bool:
        """False: no room even for the headers of lost frames."""
        if captured.withheld is not None:
            self._lost += 1
            if not self._has_room(len(captured.frame) - 4 + _OVERHEAD):
                return False
        self._queue.put(captured)
        return True

    def _has_room(self, cost: int) -> bool:
        """As much again as for whole frames."""
        if self._taken - self._done + cost > 2 * self._settings.queue_bytes:
            return False
        self._taken += cost
        return True

    # -- in the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (taken := self._next()) is not None:
                self._handle(taken)
        except Exception:
            log.exception("raw-capture-stopped", extra=event("raw capture: stopped by an error in Shoal"))
        finally:
            self._files.close()

    def _next(self) -> CapturedFrame | _Opened | _Closed | None:
        try:
            return self._queue.get(timeout=_FLUSH_SECONDS)
        except Empty:
            self._files.flush()
            return self._queue.get()

    def _handle(self, event: CapturedFrame | _Opened | _Closed) -> None:
        match event:
            case CapturedFrame():
                self._files.write(self._picker.take(event))
                self._done += len(event.frame) - 4 + _OVERHEAD
            case _Opened():
                self._files.opened(event.connection, event.about)
                self._done += _OVERHEAD
            case _Closed():
                self._files.write(self._picker.closed(self._proxy, event.connection))
                self._files.closed(event.time_ns, event.connection)
