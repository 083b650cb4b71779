"""A process that faults can kill, stop and freeze, in any order and overlapping: it restarts after the last of them."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.errors import NotReady

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shoal.scenarios.kafka.process import Process

_STOP_S = 20.0


@dataclass(slots=True)
class Part:
    name: str
    start: Callable[[], Awaitable[object]]
    """Returns once it runs. May raise NotReady: then `heal` tries again."""
    process: Callable[[], Process]
    log: Callable[[str], None]
    deaths: list[int | None] = field(default_factory=list)
    """Exit codes of processes that ended without a fault."""
    _ended: Process | None = None
    """The last process that a fault ended."""
    _held: int = 0
    _frozen: int = 0
    _lock: trio.Lock = field(default_factory=trio.Lock)

    @property
    def running(self) -> bool:
        return self.process().running

    def _kill(self) -> None:
        self._note_death()
        self._ended = self.process()
        with suppress(ProcessLookupError):
            if self.running:
                self.process().kill()

    async def down(self, seconds: float, *, orderly: bool) -> bool:
        """End the process; restart it after `seconds` unless another fault holds it. True: it ended in time."""
        self._held += 1
        in_time = True
        try:
            if orderly:
                if self.running and not self._frozen:
                    self._ended = self.process()
                    in_time = await self.process().stop(_STOP_S)
            else:
                self._kill()
            await trio.sleep(seconds)
        finally:
            self._held -= 1
        await self.heal()
        return in_time

    def _note_death(self) -> None:
        process = self.process()
        if not process.running and process is not self._ended:
            self._ended = process
            self.deaths.append(process.exit_code)

    async def starved(self, seconds: float) -> None:
        """Its files cannot grow, as on a full disk. A broker then exits by itself."""
        if self.running:
            resource.prlimit(self.process().pid, resource.RLIMIT_FSIZE, (0, 0))
        self._held += 1
        try:
            await trio.sleep(seconds)
        finally:
            self._held -= 1
        if self.running:
            self.log(f"{self.name} continues without a disk")
        await self.down(0.0, orderly=False)

    async def frozen(self, seconds: float) -> None:
        """SIGSTOP for `seconds`."""
        process = self.process()
        self._signal(process, signal.SIGSTOP)
        self._frozen += 1
        try:
            await trio.sleep(seconds)
        finally:
            self._frozen -= 1
            if not self._frozen:
                self._signal(process, signal.SIGCONT)
                self._signal(self.process(), signal.SIGCONT)

    def _signal(self, process: Process, number: signal.Signals) -> None:
        if process.running:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    async def heal(self) -> bool:
        """Start it unless a fault holds it down. False: it did not start."""
        async with self._lock:
            if self._held or self.running:
                return True
            self._note_death()
            try:
                await self.start()
            except NotReady as error:
                self.log(f"{self.name} did not start: {str(error).splitlines()[0]}")
                return False
            return True
