"""Reloads: one after the other, asked for by SIGHUP, `shoal reload`, or a change on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.proxy.config.reread import identity_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

__all__ = ["WATCH_SECONDS", "Reloads", "watch_file"]

WATCH_SECONDS = 2.0


class Reloads:
    """`started`: the server serves. `reload` is called with True if files that have not changed are read again, too."""

    def __init__(self, started: trio.Event, reload: Callable[[bool], Awaitable[None]]) -> None:
        self._started = started
        self._reload = reload
        self._wanted = trio.Event()
        self._files_too = False
        self._begun = self._done = 0
        self._one_done = trio.Event()

    async def finish(self) -> None:
        """Ask for one, and wait until it is done: it reads the file after this call."""
        number = self._begun + 1
        self.ask(files_too=True)
        while self._done < number:
            await self._one_done.wait()

    def ask(self, *, files_too: bool) -> None:
        """Soon. One that is at work may have read the file before its last change, so another one follows it."""
        self._files_too |= files_too
        self._wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        await self._started.wait()
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            files_too, self._files_too = self._files_too, False
            self._begun += 1
            await self._reload(files_too)
            self._done += 1
            self._one_done.set()
            self._one_done = trio.Event()


async def watch_file(path: Path, used: object, changed: Callable[[], None], *, seconds: float = WATCH_SECONDS) -> None:
    """Until cancelled: call `changed` when the file has another identity than `used`, in two looks in a row.

    So a file that is being written is not read. Links that are swapped, as by Kubernetes, count (`identity_of`).
    """
    seen = used
    while True:
        await trio.sleep(seconds)
        now = await trio.to_thread.run_sync(identity_of, path)
        if now == seen != used:
            used = now
            changed()
        seen = now
