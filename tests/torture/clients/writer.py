"""The common part of all producers: a plan, a rate, and a ledger that gets every record before it is sent."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.security.clients import ANYBODY, ClientSecurity
from tests.torture.environment.mirrors import DROPPED

from .ledger import Entry, Ledger
from .records import SHAPES, Written, content_of, mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.torture.plan import ProducerPlan

_DROPPED = 0.2  # share of the records of a filtered topic
_BACK_MS = 5_000_000  # occasional steps back of timestamps


@dataclass(slots=True)
class Writer:
    """`work` ends after `stop`. Subclasses write: `produce` until `stopped` is set."""

    plan: ProducerPlan
    bootstrap: str
    topic: str
    """The topic's name in the cluster; the ledger has the plan's name."""
    partitions: Callable[[], int]
    ledger: Ledger
    said: Callable[[str], None]
    filtered: bool = False
    login: ClientSecurity = ANYBODY
    stopped: threading.Event = field(default_factory=threading.Event)
    draw: random.Random = field(default_factory=random.Random)
    _number: int = 0
    _last_ms: int = 0

    def stop(self) -> None:
        self.stopped.set()

    async def work(self) -> None:
        self.draw = random.Random(self.plan.number * 7919 + 1)
        await trio.to_thread.run_sync(self._run, limiter=trio.CapacityLimiter(1))

    def _run(self) -> None:
        while not self.stopped.is_set():
            try:
                self.produce()
            except Exception as error:  # a fenced or fatal producer, of any client: another one continues
                self.said(f"producer {self.plan.number}: {type(error).__name__}: {error}"[:500])
                self.stopped.wait(0.5)

    def produce(self) -> None:
        raise NotImplementedError

    def next_record(self, transaction: tuple[int, int] | None = None) -> tuple[Written, int, Entry]:
        """The next record, its timestamp, and its entry in the ledger."""
        self._number += 1
        sign = mark(self.plan.number, self._number)
        written = SHAPES[self.plan.shape](self.draw, sign)
        dropped = self.filtered and self.draw.random() < _DROPPED
        if dropped:
            written = written._replace(headers=[*written.headers, (DROPPED, b"1")])
        self._last_ms = max(self._last_ms + 1, int(time.time() * 1000) - self.plan.age_s * 1000)
        timestamp = self._last_ms - (_BACK_MS if self.plan.shape == "odd" and self._number % 13 == 0 else 0)
        plan = self.plan
        entry = Entry(
            plan.cluster, plan.topic, content_of(*written), timestamp, plan.kind, transaction, dropped=dropped
        )
        self.ledger.entries[sign.strip(b"~")] = entry
        return written, timestamp, entry

    def rest(self, began: float, count: int) -> float:
        """Seconds until the rate allows the next records."""
        return began + count / self.plan.rate - time.monotonic()
