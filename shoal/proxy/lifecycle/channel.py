"""Messages between two Shoals at a takeover, with open descriptors: one JSON object per packet of a Unix socket.

new                                   old
take, its pid and version   ──>
                            <──       refused, why
                            <──       directory, its pid       with the lock and the control socket
                            <──       ports, what they are     with the sockets that listen; several messages
                            <──       all
ready: every file is read,
every port is open          ──>
                            <──       go: nothing more is accepted here
accepts on plain ports
                            <──       released: the files of mirrors are closed
accepts on all ports
                            <──       (end: it has ended)
"""

from __future__ import annotations

import array
import json
import os
import socket
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MOST_DESCRIPTORS", "VERSION", "Channel", "ChannelLost", "PeerEnded", "Word"]

VERSION: Final = 1
MOST_DESCRIPTORS: Final = 200  # of a message; the kernel takes 253 (SCM_MAX_FD)
_MOST_BYTES: Final = 65536


class Word(StrEnum):
    TAKE = "take"
    REFUSED = "refused"
    DIRECTORY = "directory"
    PORTS = "ports"
    ALL = "all"
    READY = "ready"
    FAILED = "failed"
    GO = "go"
    RELEASED = "released"


class ChannelLost(Exception):
    """The other Shoal has closed it, sends something else, or says nothing in time. The message says which."""


class PeerEnded(ChannelLost):
    """It has closed the channel. One that goes on says so before."""

    def __init__(self) -> None:
        super().__init__("it has ended")


class Channel:
    def __init__(self, sock: trio.socket.SocketType) -> None:
        self._sock = sock

    def peer(self) -> tuple[int, int]:
        """-> process id and user id."""
        credentials = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, user, _ = array.array("i", credentials)
        return pid, user

    async def send(self, word: Word, descriptors: Sequence[int] = (), **values: object) -> None:
        """Raises ChannelLost."""
        data = json.dumps({"word": word, **values}).encode()
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            await self._sock.sendmsg([data], passed)
        except OSError as error:
            raise _lost(error) from error

    def say_now(self, word: Word, **values: object) -> None:
        """Without waiting, whether the other one still listens or not."""
        with suppress(OSError):
            os.write(self._sock.fileno(), json.dumps({"word": word, **values}).encode())

    async def receive(self, *, within: float) -> tuple[Word, dict[str, Any], list[int]]:
        """-> the word, further values, descriptors. Raises ChannelLost."""
        with trio.move_on_after(within):
            return await self._receive()
        raise ChannelLost(f"no answer within {within:g} s")

    async def _receive(self) -> tuple[Word, dict[str, Any], list[int]]:
        space = socket.CMSG_SPACE(MOST_DESCRIPTORS * array.array("i").itemsize)
        try:
            data, passed, flags, _ = await self._sock.recvmsg(_MOST_BYTES, space, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise _lost(error) from error
        descriptors = [number for level, kind, numbers in passed for number in _numbers(level, kind, numbers)]
        try:
            if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
                raise ChannelLost("too many open files: raise the limit (ulimit -n, LimitNOFILE)")
            if not data:
                raise PeerEnded
            message = json.loads(data)
            return Word(message.pop("word")), message, descriptors
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            close_all(descriptors)
            raise ChannelLost(f"it says {data[:100]!r}") from error
        except ChannelLost:
            close_all(descriptors)
            raise

    def close(self) -> None:
        self._sock.close()


def _lost(error: OSError) -> ChannelLost:
    """A process that ends with unread messages resets the channel."""
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return PeerEnded()
    return ChannelLost(error.strerror or str(error))


def _numbers(level: int, kind: int, data: bytes) -> array.array[int]:
    numbers = array.array("i")
    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
        numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return numbers


def close_all(descriptors: Sequence[int]) -> None:
    for number in descriptors:
        os.close(number)
