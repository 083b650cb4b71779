"""The socket by which `shoal reload` asks a running Shoal for a reload, and learns what came of it.

A Unix socket in the state directory: nothing outside this machine reaches it, only the owner's processes (and root's)
are answered, and it leads to the process that uses this directory, in whichever container. The admin listener has no
login, and a number in a file may be another process by now.

    "reload"  ──>      <── {"result": "reloaded", "text": ..., ...}
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trio

from shoal.proxy.events.logs import LogThrottle, event
from shoal.proxy.lifecycle.accepting import accept

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

__all__ = ["NAME", "ask_for_reload", "serve_control"]

log = logging.getLogger("shoal.server")

NAME: Final = "shoal.sock"
_ASK_SECONDS: Final = 60.0  # a reload asks issuers of keys, too
_MOST_BYTES: Final = 1024 * 1024  # of an answer
_PEER = struct.Struct("iII")  # struct ucred: pid, uid, gid


async def serve_control(
    directory: Path, reload: Callable[[], Awaitable[Mapping[str, object]]], is_ours: Callable[[], bool]
) -> None:
    """Until cancelled. Without the socket, Shoal goes on: SIGHUP does the same.

    `is_ours`: no Shoal has taken over the directory. One that has puts its own socket there at any moment.
    """
    try:
        sock, inode = _bound(directory)
    except OSError as error:
        text = (
            f"shoal reload will not reach this process: cannot make {directory / NAME}: {error.strerror}; SIGHUP will"
        )
        return log.warning("control-failed", extra=event(text, file=str(directory / NAME), error=error.strerror))
    try:
        listening, throttle = trio.socket.from_stdlib_socket(sock), LogThrottle()
        async with trio.open_nursery() as clients:
            while True:
                clients.start_soon(_serve, await accept(listening, throttle), reload)
    finally:
        with suppress(OSError):
            if is_ours() and os.stat(directory / NAME).st_ino == inode:
                os.unlink(directory / NAME)
        sock.close()


def _bound(directory: Path) -> tuple[socket.socket, int]:
    """-> the socket and its file's inode. Replaces that of a process that has ended, or hands over. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    there = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    new = f"{NAME}.{os.getpid()}.new"
    try:
        sock.bind(f"/proc/self/fd/{there}/{new}")  # a path of a socket has at most 107 bytes
        os.chmod(new, 0o600, dir_fd=there)
        sock.listen(8)
        inode = os.stat(new, dir_fd=there).st_ino
        os.rename(new, NAME, src_dir_fd=there, dst_dir_fd=there)
    except OSError:
        sock.close()
        raise
    finally:
        os.close(there)
    return sock, inode


async def _serve(client: trio.socket.SocketType, reload: Callable[[], Awaitable[Mapping[str, object]]]) -> None:
    with client, suppress(OSError, trio.BrokenResourceError):
        peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(peer)[1] not in (0, os.getuid()):
            return
        with trio.move_on_after(_ASK_SECONDS):
            if await client.recv(64):
                await trio.SocketStream(client).send_all(json.dumps(await reload()).encode() + b"\n")


def ask_for_reload(directory: Path) -> dict[str, object]:
    """Ask the Shoal that uses this state directory. Raises OSError, and ValueError for an answer that is none."""
    there = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_ASK_SECONDS + 5)
            sock.connect(f"/proc/self/fd/{there}/{NAME}")
            sock.sendall(b"reload\n")
            with sock.makefile("rb") as answers:
                answer = json.loads(answers.readline(_MOST_BYTES))
    finally:
        os.close(there)
    if not isinstance(answer, dict):
        raise ValueError("it is no object")
    return answer
