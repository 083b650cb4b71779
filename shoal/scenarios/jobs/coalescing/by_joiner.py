"""`lanes.join` with the joiner itself: a few microseconds per batch. This is the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from shoal.protocol.coalesce.policy import Batch, CoalescingPolicy, Joined, JoinLimits
from shoal.scenarios.jobs.coalescing.lanes import NEVER, Lanes, Outcome, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["join_by_joiner"]


class _Flight(NamedTuple):
    end: int
    joined: Joined


def join_by_joiner(lanes: Lanes, rules: Rules) -> Outcome:
    sent, answered = np.zeros(len(lanes.times), np.int64), np.zeros(len(lanes.times), np.int64)
    requests = 0
    for first, last in zip(lanes.starts[:-1], lanes.starts[1:], strict=True):
        for end, joined in _run(list(_batches(lanes, first, last)), rules):
            requests += 1
            rows = [cast("tuple[int, int]", batch.owner)[0] for chosen in joined.sets.values() for batch in chosen]
            sent[rows], answered[rows] = joined.sent, end
    return Outcome(requests, sent, answered)


def _batches(lanes: Lanes, first: int, last: int) -> Iterator[Batch]:
    for row in range(first, last):
        owner = row, int(lanes.latencies[row])
        yield Batch(
            int(lanes.targets[row]), int(lanes.sizes[row]), int(lanes.times[row]), owner, None, bool(lanes.lone[row])
        )


def _limits(rules: Rules) -> JoinLimits:
    """The joiner accepts times of any unit, as long as it is the same for all."""
    return JoinLimits(**{name: value for name, value in rules._asdict().items() if name != "slowest"})


def _run(coming: list[Batch], rules: Rules) -> Iterator[_Flight]:
    joiner, flying, cursor = CoalescingPolicy(_limits(rules)), list[_Flight](), 0
    now: float = -NEVER
    while True:
        moments = [flight.end for flight in flying] + [batch.arrived for batch in coming[cursor : cursor + 1]]
        following = min([joiner.due(), *moments])
        if following >= NEVER:
            return
        now = max(now, following)
        while flying and min(flying, key=lambda flight: flight.end).end <= now:
            flight = min(flying, key=lambda flight: flight.end)
            flying.remove(flight)
            joiner.answered(flight.joined)
            yield flight
        while cursor < len(coming) and coming[cursor].arrived <= now:
            joiner.add(coming[cursor])
            cursor += 1
        while (joined := joiner.take(now)) is not None:
            flying.append(_Flight(int(now) + _service(joined, rules), joined))


def _service(joined: Joined, rules: Rules) -> int:
    latencies = [cast("tuple[int, int]", batch.owner)[1] for chosen in joined.sets.values() for batch in chosen]
    return max(latencies) if rules.slowest else sum(latencies) // len(latencies)
