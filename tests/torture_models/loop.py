"""A trio loop that a test steps manually: `do` runs a function in it and returns when every task waits.

It is trio's guest mode, hosted by a list of callbacks: no thread, no real time, the same order in every run.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import hypothesis  # noqa: F401  it makes what trio runs next no matter of chance
import trio
import trio.testing
from trio._core import _run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from outcome import Outcome

__all__ = ["Loop"]


class Loop:
    def __init__(self) -> None:
        self.clock = trio.testing.MockClock()
        self._ready: deque[Callable[[], object]] = deque()
        self._todo: deque[Callable[[], object]] = deque()
        self._outcome: Outcome[None] | None = None
        self._ending = False
        _run._r.seed(0)
        trio.lowlevel.start_guest_run(
            self._main,
            run_sync_soon_threadsafe=self._ready.append,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
            clock=self.clock,
        )

    def _done(self, outcome: Outcome[None]) -> None:
        self._outcome = outcome

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            while not self._ending:
                if not self._todo:
                    await trio.lowlevel.checkpoint()  # never idle: otherwise a thread would wait for it
                    continue
                self._todo[0]()
                await trio.testing.wait_all_tasks_blocked()
                self._todo.popleft()
            self._nursery.cancel_scope.cancel()

    def do(self, what: Callable[[], object]) -> None:
        """Raises whatever a task raises."""
        self._todo.append(what)
        self._turn(lambda: not self._todo)

    def spawn(self, task: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """From within `do`."""
        self._nursery.start_soon(task, *arguments)

    def close(self) -> None:
        self._ending = True
        self._turn(lambda: False)

    def _turn(self, until: Callable[[], bool]) -> None:
        while self._outcome is None and not until():
            self._ready.popleft()()
        if self._outcome is not None:
            self._outcome.unwrap()
