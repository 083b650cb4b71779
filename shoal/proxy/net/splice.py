"""splice(2): bytes from socket to socket through a pipe, without a copy to user space (Linux).

The middle of a long frame passes unread. `recv_into` and `send` copy it twice; splicing moves references to the pages,
for half the CPU time. Like the receive buffer, one pipe is enough for any number of connections: it is empty again
before anything awaits. What the other socket does not accept at once is read out of it.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from fcntl import fcntl
from functools import cache

__all__ = ["SplicePipe", "shared_pipe"]

PIPE_BYTES = 512 * 1024  # like the receive buffer; at most fs.pipe-max-size (1 MiB), or there is no pipe
_F_SETPIPE_SZ = 1031  # linux/fcntl.h; not in every build of Python's fcntl
_FLAGS = 3  # SPLICE_F_MOVE | SPLICE_F_NONBLOCK


class SplicePipe:
    """Non-blocking on both ends. Raises OSError if the kernel cannot make or use it. `held`: bytes in it."""

    def __init__(self) -> None:
        self.held = 0
        self._out, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl(self._in, _F_SETPIPE_SZ, PIPE_BYTES)
            self._try()
        except OSError:
            self.close()
            raise

    def _try(self) -> None:
        """A sandbox may refuse splice(2) (seccomp). Then the first long frame must not be the one to find out."""
        one, other = socket.socketpair()
        with one, other:
            one.send(b"\0")
            self.take(other.fileno(), 1)
            self.give(other.fileno())

    def take(self, fd: int, size: int) -> int:
        """At most `size` bytes from a socket; 0: it has ended. Raises BlockingIOError, or the socket's OSError."""
        if self.held:  # of a connection that failed in an unforeseen way: never to another one
            self.rest()
        self.held = os.splice(fd, self._in, min(size, PIPE_BYTES), flags=_FLAGS)
        return self.held

    def give(self, fd: int) -> None:
        """All bytes to a socket. Raises BlockingIOError, or the socket's OSError; then the rest is still held."""
        while self.held:
            self.held -= os.splice(self._out, fd, self.held, flags=_FLAGS)

    def rest(self) -> bytes:
        """A copy of what is held; the pipe is empty then."""
        pieces = []
        while self.held:
            pieces.append(os.read(self._out, self.held))
            self.held -= len(pieces[-1])
        return b"".join(pieces)

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)


@cache
def shared_pipe() -> SplicePipe | None:
    """None: this system has or allows no splice(2), or no pipe of this size (fs.pipe-user-pages-soft)."""
    if hasattr(os, "splice"):
        with suppress(OSError):
            return SplicePipe()
    return None


os.register_at_fork(after_in_child=shared_pipe.cache_clear)  # else the child has the parent's pipe
