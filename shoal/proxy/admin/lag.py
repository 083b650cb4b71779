"""How late the event loop is: a task sleeps, and measures by how much it oversleeps.

That is how long a client's bytes wait until the loop has time for them.
"""

from __future__ import annotations

from typing import Final

import trio

from shoal.proxy.statistics import Histogram

__all__ = ["PERIOD_SECONDS", "LoopLag"]

PERIOD_SECONDS: Final = 0.25
_BOUNDS: Final = (0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class LoopLag:
    def __init__(self) -> None:
        self.last = 0.0  # seconds
        self.histogram = Histogram(_BOUNDS)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due = trio.current_time() + PERIOD_SECONDS
            await trio.sleep_until(due)
            self.last = trio.current_time() - due
            self.histogram.observe(self.last)
