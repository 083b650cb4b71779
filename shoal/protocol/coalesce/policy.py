"""The policy: when a joined request is sent, and with which batches. A state machine without I/O or clock.

If no request is outstanding, a batch is sent at once; otherwise batches accumulate until the answer. So a quiet client
has no delay, and requests grow with the broker's load, without a timer. Rules, each checked by
`tests/protocol/coalesce/test_policy.py` on random histories:

    1  An added batch is sent exactly once, or withdrawn (a batch of a split set is sent again alone).
    2  The batches of one target are sent in the order of their addition, and a target is in flight at most once.
    3  A request has one batch per target; more only with `set_batches` > 1, and a `lone` batch never with another.
    4  No request exceeds its limits, but a single batch may have any size.
    5  With nothing in flight, no batch waits longer than `linger`; a full request is sent at once.
    6  While others are unanswered, another request is sent only if it is full, or if the oldest has been unanswered for
       `patience`: one slow partition (acks=all and a slow replica) must not delay all others.
    7  Nothing is sent before a `pause` has passed: the broker's throttle time, in which it reads no request (KIP-219).

Rule 2 keeps a producer's order over any connections. Its cost: one request per round trip and partition. Rejected:
several requests of a target in flight, whose order would depend on one connection without retries; and a timer instead
of rule 5, which would delay every quiet client.

`take` returns what to send, `due` when to call it again. `take` is O(batches taken), `add` and `due` O(1). Simulations
run the same code: a `Batch` needs no content.
"""

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

__all__ = ["Batch", "CoalescingPolicy", "JoinLimits", "Joined"]

KIB: Final = 1024
NEVER: Final = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinLimits:
    """Times in seconds, sizes in bytes."""

    linger: float = 0.0  # how long to wait for more batches with nothing in flight
    request_bytes: int = 1024 * KIB  # a producer's default max.request.size
    request_batches: int = 1000
    set_batches: int = 1  # of one target in one request; more than one only if the broker is proven to accept them
    in_flight: int = 4  # requests; each needs a connection, because a broker handles one request per connection
    patience: float = 0.1  # until a request overtakes an unanswered one


class Batch(NamedTuple):
    """One record batch of one owner. `content` and `owner` are opaque here."""

    target: Hashable  # topic and partition
    size: int
    arrived: float
    owner: Any = None
    content: Any = None
    lone: bool = False  # never in a set


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Joined:
    """One request: the batches of each target, in order."""

    sets: dict[Hashable, list[Batch]]
    size: int
    sent: float

    @property
    def batches(self) -> int:
        return sum(map(len, self.sets.values()))

    @property
    def has_sets(self) -> bool:
        return any(len(chosen) > 1 for chosen in self.sets.values())


class _Waiting(deque[Batch]):
    """The unsent batches of one target. `again`: number of batches at the front that were in a split set."""

    again = 0


class CoalescingPolicy:
    """Call `take` after `add`, `answered` and `withdraw`, and at the time `due`."""

    def __init__(self, limits: JoinLimits) -> None:
        self.limits = limits
        self.waiting_batches = 0
        self.waiting_bytes = 0
        self._waiting: dict[Hashable, _Waiting] = {}
        self._ready: dict[Hashable, None] = {}  # waiting and not in flight, the longest wait first
        self._ready_bytes = 0  # sum over the first batch of each
        self._ready_since = NEVER  # arrival of the oldest of these
        self._in_flight: dict[Joined, None] = {}  # in the order of sending
        self._busy: set[Hashable] = set()
        self._paused_until = -NEVER

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def batches(self) -> Iterator[Batch]:
        """All that are unsent or unanswered."""
        for waiting in self._waiting.values():
            yield from waiting
        for joined in self._in_flight:
            for chosen in joined.sets.values():
                yield from chosen

    def holds(self, target: Hashable) -> bool:
        """Whether there is an unsent or unanswered batch of this target."""
        return target in self._waiting or target in self._busy

    def add(self, batch: Batch) -> bool:
        """-> whether a request may be `due` earlier than before.

        The caller limits the unsent batches: see `waiting_batches` and `waiting_bytes`.
        """
        self.waiting_batches += 1
        self.waiting_bytes += batch.size
        waiting = self._waiting.get(batch.target)
        if waiting is not None:
            waiting.append(batch)
            return False
        self._waiting[batch.target] = _Waiting((batch,))
        if batch.target in self._busy:
            return False
        self._make_ready(batch)
        return len(self._ready) == 1 or self._is_full

    def due(self) -> float:
        """When `take` returns something, if nothing else happens before; `inf`: never. It may be in the past."""
        if not self._ready or len(self._in_flight) >= self.limits.in_flight:
            return NEVER
        if self._is_full:
            return self._paused_until
        due = max(self._ready_since + self.limits.linger, self._paused_until)
        if not self._in_flight:
            return due
        oldest = next(iter(self._in_flight))
        return max(due, oldest.sent + self.limits.patience)

    @property
    def _is_full(self) -> bool:
        return len(self._ready) >= self.limits.request_batches or self._ready_bytes >= self.limits.request_bytes

    def take(self, now: float, *, sets: bool = True) -> Joined | None:
        """The next request, if one is due; in flight until `answered`. Without `sets`: one batch per target."""
        if now < self.due():
            return None
        limits = self.limits
        joined: dict[Hashable, list[Batch]] = {}
        space, room = limits.request_bytes, limits.request_batches
        most = limits.set_batches if sets else 1
        for target in self._ready:
            chosen, left = self._choose(target, most if most < room else room, space)
            if not chosen and not joined:
                chosen = [self._waiting[target][0]]  # larger than a request
                left = space - chosen[0].size
            if not chosen:
                break
            joined[target] = chosen
            space = left
            room -= len(chosen)
        self.waiting_batches -= limits.request_batches - room
        return self._send(Joined(sets=joined, size=limits.request_bytes - space, sent=now))

    def _send(self, joined: Joined) -> Joined:
        for target, chosen in joined.sets.items():
            del self._ready[target]
            waiting = self._waiting[target]
            if len(waiting) == len(chosen):
                del self._waiting[target]
                continue
            for _ in chosen:
                waiting.popleft()
            waiting.again = max(waiting.again - len(chosen), 0)
        self.waiting_bytes -= joined.size
        self._busy.update(joined.sets)
        self._in_flight[joined] = None
        self._measure()
        return joined

    def answered(self, joined: Joined, split: Iterable[Hashable] = ()) -> None:
        """`joined` is answered, or never will be. Sets of the targets in `split` are sent again batch by batch."""
        del self._in_flight[joined]
        self._busy.difference_update(joined.sets)
        for target in split:
            again = joined.sets[target]
            waiting = self._waiting.setdefault(target, _Waiting())
            waiting.extendleft(reversed(again))
            waiting.again += len(again)
            self.waiting_batches += len(again)
            self.waiting_bytes += sum(batch.size for batch in again)
        for target in joined.sets:
            if target in self._waiting:
                self._make_ready(self._waiting[target][0])

    def pause(self, until: float) -> None:
        """Requests in flight are not affected."""
        self._paused_until = max(self._paused_until, until)

    def is_paused(self, now: float) -> bool:
        return now < self._paused_until

    def withdraw(self, unwanted: Callable[[Batch], bool]) -> list[Batch]:
        """Remove unsent batches and return them. O(unsent batches)."""
        taken: list[Batch] = []
        for target, waiting in list(self._waiting.items()):
            gone = [batch for batch in waiting if unwanted(batch)]
            if not gone:
                continue
            kept = _Waiting(batch for batch in waiting if not unwanted(batch))
            kept.again = waiting.again - sum(map(unwanted, list(waiting)[: waiting.again]))
            self._waiting[target] = kept
            self.waiting_batches -= len(gone)
            self.waiting_bytes -= sum(batch.size for batch in gone)
            if not kept:
                del self._waiting[target]
                self._ready.pop(target, None)
            taken += gone
        self._measure()
        return taken

    def _choose(self, target: Hashable, most: int, space: int) -> tuple[list[Batch], int]:
        """The batches of a target for a request with room for `most` batches and `space` bytes; the space left."""
        waiting = self._waiting[target]
        chosen: list[Batch] = []
        for batch in waiting:
            if len(chosen) >= most or batch.size > space:
                break
            if chosen and (waiting.again or batch.lone or chosen[0].lone):
                break
            chosen.append(batch)
            space -= batch.size
        return chosen, space

    def _make_ready(self, first: Batch) -> None:
        self._ready[first.target] = None
        self._ready_bytes += first.size
        if first.arrived < self._ready_since:
            self._ready_since = first.arrived

    def _measure(self) -> None:
        """Update the totals after batches were taken."""
        heads = [self._waiting[target][0] for target in self._ready]
        self._ready_bytes = sum(batch.size for batch in heads)
        self._ready_since = min((batch.arrived for batch in heads), default=NEVER)
