"""A Shoal that takes over from the one that runs (`--takeover`).

It gets the sockets that listen, so no port is closed in between, and a client that connects meanwhile waits in the
kernel's queue. (Two sockets with SO_REUSEPORT have a queue each: when one is closed, what waits in its queue is reset.)

    ask       the ports are here; the Shoal before still serves them
    commit    it accepts nothing more, and drains; this one accepts on plain ports
    released  its mirrors' listeners have ended, and their files are closed: this one opens the files, and accepts there

So mirrors are never served by two Shoals at a time: for them, a takeover is a restart without refused connections.

If the Shoal before is killed meanwhile, this one has what it needs, and takes over. One that goes on says so.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from shoal.proxy.config.identity import shoal_version
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.events.logs import event
from shoal.proxy.lifecycle.channel import VERSION, Channel, ChannelLost, PeerEnded, Word, close_all
from shoal.proxy.lifecycle.state_directory import StateDirectory, is_locked, short_path
from shoal.proxy.listener.syn_filter import remove_filter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Taking"]

log = logging.getLogger("shoal.server")

_ANSWER_SECONDS: Final = 5.0
_GO_SECONDS: Final = 30.0
_REPORT_SECONDS: Final = 10.0  # between two log lines, while the Shoal before drains
_LOOK_SECONDS: Final = 0.1


class Taking:
    """`sockets`: what each was for, and itself."""

    def __init__(
        self, channel: Channel, directory: StateDirectory, sockets: Sequence[tuple[str, socket.socket]], pid: int
    ) -> None:
        self._channel = channel
        self.directory = directory
        self.sockets = sockets
        self.pid = pid
        self._has_taken = self._is_released = self._is_closed = False

    @classmethod
    async def ask(cls, path: Path) -> Taking:
        """Raises OperatorError: the Shoal that runs goes on; and PeerEnded: it ends, or cannot be asked."""
        channel = await _connected(path)
        try:
            await channel.send(Word.TAKE, version=VERSION, pid=os.getpid(), shoal=shoal_version())
            return await cls._receive(channel, path)
        except PeerEnded:
            channel.close()
            raise
        except ChannelLost as error:
            channel.close()
            raise _failed(f"the Shoal in {path} does not hand over its ports: {error}. It goes on") from None
        except BaseException:
            channel.close()
            raise

    @classmethod
    async def _receive(cls, channel: Channel, path: Path) -> Taking:
        """Raises ChannelLost and OperatorError."""
        pid, lock, control = 0, -1, -1
        sockets: list[tuple[str, socket.socket]] = []
        with ExitStack() as received:
            while True:
                word, values, descriptors = await channel.receive(within=_ANSWER_SECONDS)
                match word, descriptors:
                    case Word.DIRECTORY, [lock, control]:
                        received.callback(close_all, descriptors)
                        pid = int(values.get("pid", 0))
                    case Word.PORTS, _ if len(descriptors) == len(values.get("uses", ())):
                        some = [received.enter_context(_socket(number)) for number in descriptors]
                        sockets += zip(map(str, values["uses"]), some, strict=True)
                    case Word.ALL, [] if lock >= 0:
                        received.pop_all()
                        directory = StateDirectory.inherited(path, lock, _socket(control))
                        return cls(channel, directory, sockets, pid)
                    case Word.REFUSED, []:
                        raise _failed(f"the Shoal in {path} refuses: {values.get('why')}. It goes on")
                    case _:
                        close_all(descriptors)
                        raise ChannelLost(f"it says {word}")

    async def commit(self) -> None:
        """Everything here is ready. When this returns, the Shoal before accepts nothing more. Raises OperatorError."""
        word, values, goes_on = Word.GO, dict[str, Any](), "drains"
        try:
            with trio.CancelScope(shield=True):  # else a signal now would end both
                await self._channel.send(Word.READY)
                word, values, _ = await self._channel.receive(within=_GO_SECONDS)
        except PeerEnded:
            goes_on = "has ended"
        except ChannelLost as error:
            raise _failed(f"process {self.pid} has not handed over its ports: {error}") from None
        if word is not Word.GO:
            raise _failed(f"process {self.pid} has not handed over its ports: {values.get('why', word)}. It goes on")
        self._has_taken = True
        self.directory.note_pid()
        text = f"took over from process {self.pid}, which {goes_on}"
        log.info("took-over", extra=event(text, pid=self.pid))

    async def released(self, files: Sequence[Path]) -> None:
        """Returns when the Shoal before has closed the files of its mirrors, or has ended.

        `files`: those that it locks. Workers of one that was killed drain, and have them until then.
        """
        while True:
            with trio.move_on_after(_REPORT_SECONDS):
                await self._until_released()
                while any(map(is_locked, files)):  # noqa: ASYNC110 (another process unlocks them)
                    await trio.sleep(_LOOK_SECONDS)
                return
            text = f"process {self.pid} still has the files of its mirrors: their ports wait until it has drained"
            log.warning("takeover-waits", extra=event(text, pid=self.pid))

    async def _until_released(self) -> None:
        """Also if it has ended."""
        with suppress(ChannelLost):
            while not self._is_released:
                word, _, _ = await self._channel.receive(within=float("inf"))
                self._is_released = word is Word.RELEASED

    async def ended(self) -> None:
        """Returns when the Shoal before has ended. What it has left in the sockets is removed."""
        with suppress(ChannelLost):
            while True:
                await self._channel.receive(within=float("inf"))
        for _, sock in self.sockets:
            remove_filter(sock)
        self._close_sockets()
        log.info("predecessor-ended", extra=event(f"process {self.pid} has ended", pid=self.pid))

    def close(self, error: BaseException | None = None) -> None:
        """`error`: why this process has not taken over."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._has_taken:
            self._channel.say_now(Word.FAILED, why="it was stopped" if error is None else _words(error))
        self._channel.close()
        self._close_sockets()

    def _close_sockets(self) -> None:
        for _, sock in self.sockets:
            sock.close()


async def _connected(path: Path) -> Channel:
    """Raises OperatorError and PeerEnded."""
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with trio.fail_after(_ANSWER_SECONDS), short_path(path) as address:
            await sock.connect(address)
    except PermissionError:
        sock.close()
        raise _failed(f"the Shoal in {path} is of another user: start this one as the same user") from None
    except (ConnectionRefusedError, FileNotFoundError):
        sock.close()
        raise PeerEnded from None
    except (OSError, trio.TooSlowError) as error:
        sock.close()
        why = getattr(error, "strerror", None) or "no answer"
        what = f"the Shoal in {path} cannot be asked for its ports ({why}): stop it, then start this one"
        raise _failed(what) from None
    return Channel(sock)


def _socket(descriptor: int) -> socket.socket:
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)  # it does not know that it is so, and a duplicate would block both processes
    return sock


def _failed(what: str) -> OperatorError:
    return OperatorError.of("--takeover", what)


def _words(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(map(_words, error.exceptions))
    return str(error) or type(error).__name__
