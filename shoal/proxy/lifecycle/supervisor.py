"""What a supervisor such as systemd is notified of (sd_notify(3)): Shoal is ready, reloads, ends; its event loop runs.

One datagram each to the socket that `$NOTIFY_SOCKET` names. Without the variable nothing is sent, and a supervisor that
does not listen changes nothing.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["READY", "STOPPING", "keep_alive", "notify", "reloading"]

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
_WATCHDOG: Final = "WATCHDOG=1"
_USEC: Final = 1_000_000


def notify(*lines: str) -> None:
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
        sender.sendto("\n".join(lines).encode(), address)


@contextmanager
def reloading() -> Iterator[None]:
    """Around a reload: `Type=notify-reload` waits for its end."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
    try:
        yield
    finally:
        notify(READY)


async def keep_alive() -> None:
    """Runs forever if the supervisor has a watchdog, which ends a process that is silent for `$WATCHDOG_USEC`."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", str(os.getpid()))
    if not usec.isdecimal() or not int(usec) or pid != str(os.getpid()):
        return
    while True:
        notify(_WATCHDOG)
        await trio.sleep(int(usec) / _USEC / 3)
