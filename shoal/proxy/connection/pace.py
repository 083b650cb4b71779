"""Rate limits for clients by delayed reading: nothing is refused, nothing is lost.

    read ── charge ──> in debt? ── no ──> read on
                          └── yes ──> wait in the queue of each limit ──> read on

A `Limit` has one clock: each read moves it ahead by the time that its bytes may take, and while it is ahead of the real
time, clients queue. They take turns as in a deficit round robin with two queues (fq_codel, RFC 8290): a client that has
used its quantum goes behind all others, one that has not goes before them. So shares are equal, and a client with small
requests waits for one read of another client at most, however many of these there are.

No task serves a queue: one of the waiting clients keeps the time.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from typing import Final

import trio

__all__ = ["Limit", "Pace", "Pacing"]

_BURST_SECONDS: Final = 0.05  # an unused limit saves so much
_TURN_SECONDS: Final = 0.02  # of one read at most
_LEAST_TURN: Final = 4 * 1024
_MOST_TURN: Final = 512 * 1024  # the receive buffer
_MOST_CLIENT_IDS: Final = 10_000  # whose limits are remembered; ~1 KiB each
_KEPT_OF_AN_ID = 1024  # characters: a client may have an id of 32 KiB; those that begin alike share a limit


class Flow:
    """One connection under one limit."""

    __slots__ = ("credit", "granted", "task")

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.granted = False
        self.task = trio.Event()  # wakes it: to go on, or to keep the time


class Limit:
    """`rate`: bytes per second."""

    def __init__(self, rate: float) -> None:
        self._free_at = 0.0  # when what was read may have been read
        self._timer = trio.CancelScope()  # of the client that keeps the time
        self.rate = math.inf
        self.use(rate)
        self._sparse: deque[Flow] = deque()  # clients that have not used their quantum
        self._greedy: deque[Flow] = deque()
        self._keeper: Flow | None = None  # keeps the time for all

    def use(self, rate: float) -> None:
        """From now on, also for what was read; infinite: no limit."""
        if self.rate < math.inf:
            now = trio.current_time()
            self._free_at = now + max(self._free_at - now, 0.0) * self.rate / rate
            self._timer.deadline = self._free_at
        self.rate = rate
        self.turn_bytes = int(max(_LEAST_TURN, min(_MOST_TURN, rate * _TURN_SECONDS)))

    def allowance(self, flow: Flow, now: float) -> int:
        """Bytes of one read. Without a turn, a client that was idle may read little while others wait."""
        return self.turn_bytes if flow.granted or self._free_at <= now else _LEAST_TURN

    def flow(self) -> Flow:
        return Flow(self.turn_bytes)

    def charge(self, flow: Flow, size: int, now: float) -> bool:
        """Some bytes were read; -> whether the client must wait for its turn."""
        self._free_at = max(self._free_at, now - _BURST_SECONDS) + size / self.rate
        flow.credit -= size
        flow.granted = False
        return self._free_at > now

    async def turn(self, flow: Flow) -> None:
        """Wait for the turn of a client."""
        queue = self._sparse
        if flow.credit <= 0:
            flow.credit = min(flow.credit + self.turn_bytes, self.turn_bytes)
            queue = self._greedy
        flow.granted = False
        queue.append(flow)
        try:
            while not flow.granted:
                if self._keeper is not None:
                    flow.task = trio.Event()
                    await flow.task.wait()
                else:
                    await self._keep_time(flow)
        finally:
            if not flow.granted:  # cancelled
                queue.remove(flow)
            self._pass_on()

    async def _keep_time(self, flow: Flow) -> None:
        self._keeper = flow
        try:
            with trio.move_on_at(self._free_at) as self._timer:
                await trio.sleep_forever()
        finally:
            self._keeper = None
        following = (self._sparse or self._greedy).popleft()
        following.granted = True
        following.task.set()

    def _pass_on(self) -> None:
        """The next client keeps the time."""
        waiting = self._sparse or self._greedy
        if waiting and self._keeper is None:
            waiting[0].task.set()


class Pacing:
    """The limits of one listener."""

    def __init__(self, bytes_per_second: int | None, client_bytes_per_second: int | None) -> None:
        self._all = None if bytes_per_second is None else Limit(bytes_per_second)
        self._client_rate = client_bytes_per_second
        self._clients: OrderedDict[str | None, Limit] = OrderedDict()

    def use(self, bytes_per_second: int | None, client_bytes_per_second: int | None) -> None:
        """Connections that are limited get the new rates; those that are not stay so."""
        if self._all is not None:
            self._all.use(bytes_per_second or math.inf)
        if bytes_per_second is None or self._all is None:
            self._all = None if bytes_per_second is None else Limit(bytes_per_second)
        for limit in self._clients.values():
            limit.use(client_bytes_per_second or math.inf)
        if client_bytes_per_second is None:
            self._clients.clear()
        self._client_rate = client_bytes_per_second

    def pace(self) -> Pace | None:
        """For a new connection; None: nothing is limited."""
        if self._all is None and self._client_rate is None:
            return None
        return Pace(self, self._all)

    def of_client(self, client_id: str | None) -> Limit | None:
        if self._client_rate is None:
            return None
        kept = client_id if client_id is None else client_id[:_KEPT_OF_AN_ID]
        limit = self._clients.get(kept)
        if limit is None:
            limit = self._clients[kept] = Limit(self._client_rate)
            if len(self._clients) > _MOST_CLIENT_IDS:
                self._clients.popitem(last=False)
        self._clients.move_to_end(kept)
        return limit


class Pace:
    """The limits of one connection."""

    __slots__ = ("_debts", "_flows", "_pacing", "waiting")

    def __init__(self, pacing: Pacing, shared: Limit | None) -> None:
        self._pacing = pacing
        self._flows: list[tuple[Limit, Flow]] = []
        self._debts: list[tuple[Limit, Flow]] = []
        self.waiting = False
        self._add(shared)

    def _add(self, limit: Limit | None) -> None:
        if limit is not None:
            self._flows.append((limit, limit.flow()))

    def belongs_to(self, client_id: str | None) -> None:
        """The client's id is known."""
        self._add(self._pacing.of_client(client_id))

    def allowance(self, now: float) -> int:
        """Bytes of the next read."""
        return min((limit.allowance(flow, now) for limit, flow in self._flows), default=_MOST_TURN)

    def charge(self, size: int, now: float) -> None:
        self._debts = [(limit, flow) for limit, flow in self._flows if limit.charge(flow, size, now)]

    @property
    def in_debt(self) -> bool:
        """`turn` must be awaited before the next read."""
        return bool(self._debts)

    async def turn(self) -> None:
        """Wait until the limits allow another read."""
        if not self._debts:
            return
        self.waiting = True
        debts, self._debts = self._debts, []
        try:
            for limit, flow in debts:
                await limit.turn(flow)
        finally:
            self.waiting = False
