"""What the supervisor and a worker tell each other: two Unix sockets, of which each end is in one of the two.

    orders      both ways, without waiting: a frame is a length and a pickled `Message`. An order that wants an answer
                has a number, which is the answer's, too
    questions   the worker asks for a socket or a port, and blocks until the answer is there (`asking`, `answering`)

Both processes are of one program, and no other process has these sockets: so pickled values may be trusted.
"""

from __future__ import annotations

import pickle
import struct
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Link", "LinkLost", "Message", "Word"]

_SIZE: Final = struct.Struct("!I")
_MOST_BYTES: Final = 256 * 1024 * 1024  # 10,000 clients or 100,000 partitions of mirrors are below a tenth of it
_MOST_WAITING: Final = 1000  # messages to a worker that does not read: it is blocked


class Word(StrEnum):
    # of the supervisor
    START = "start"  # Settings: serve
    LEARN = "learn"  # (listener, node id, port, address): of a broker
    USE = "use"  # Settings of a reload -> findings, if they cannot be used
    REREAD = "reread"  # files that have the same name and another content
    PAGE = "page"  # its path -> status code and JSON
    COUNTERS = "counters"  # -> Snapshot
    WAIT = "wait"  # name of the signal: serve until the clients have gone, then drain
    DRAIN = "drain"
    # of a worker
    LOADED = "loaded"  # the program is there
    SERVING = "serving"  # all listeners accept
    DRAINING = "draining"
    FAILED = "failed"  # Problems of the settings
    BROKER = "broker"  # (listener, node id, port, address): another address than before
    CLUSTER = "cluster"  # (name of the cluster, its id)
    RELEASED = "released"  # the files of its mirrors are closed
    ENDED = "ended"  # the last Snapshot
    ANSWER = "answer"


class Message(NamedTuple):
    word: Word
    value: Any = None
    number: int = 0


class LinkLost(Exception):
    """The other process has ended, or reads nothing."""


class Link:
    """One end of the orders. `run` must run."""

    def __init__(self, stream: trio.abc.Stream, *, most: float = _MOST_WAITING) -> None:
        self._stream = stream
        self._all_sent = trio.Event()
        self._outgoing, self._queue = trio.open_memory_channel[Message](most)

    def put(self, word: Word, value: object = None, number: int = 0) -> None:
        """Without waiting. Raises LinkLost."""
        try:
            self._outgoing.send_nowait(Message(word, value, number))
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LinkLost from error

    def try_to_put(self, word: Word, value: object = None, number: int = 0) -> None:
        """To a process that may have ended."""
        with suppress(LinkLost):
            self.put(word, value, number)

    async def run(self, heard: Callable[[Message], None]) -> None:
        """Send, and call `heard` for each message, until the other end is closed."""
        async with self._stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._send)
            with suppress(LinkLost):
                while True:
                    heard(await self._receive())
            nursery.cancel_scope.cancel()

    async def finish(self) -> None:
        """Returns when all that waits is sent, or cannot be."""
        self._outgoing.close()
        await self._all_sent.wait()

    async def _send(self) -> None:
        try:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError), self._queue:
                async for message in self._queue:
                    await self._stream.send_all(_packed(message))
        finally:
            self._all_sent.set()

    async def _receive(self) -> Message:
        (size,) = _SIZE.unpack(await self._exactly(_SIZE.size))
        if size > _MOST_BYTES:
            raise LinkLost
        message: Message = pickle.loads(await self._exactly(size))
        return message

    async def _exactly(self, size: int) -> bytearray:
        found = bytearray()
        while len(found) < size:
            try:
                data = await self._stream.receive_some(size - len(found))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise LinkLost from None
            if not data:
                raise LinkLost
            found += data
        return found


def _packed(message: Message) -> bytes:
    data = pickle.dumps(message)
    return _SIZE.pack(len(data)) + data
