"""The coalescer's policy over many lanes of captured arrivals, as a compiled loop.

The policy is `shoal/protocol/coalesce/policy.py`, and nothing here may differ from it: these are its steps, with arrays
instead of deques and dictionaries, because 120 million steps (12 policies over 10 million batches) through the joiner
itself take ten minutes. `by_joiner.py` runs the joiner; `tests/scenarios/jobs/coalescing/test_lanes.py` checks that
both agree on any history.

    joiner                          here
    _waiting: target -> deque       head, tail of a target; `following` of a batch
    _ready: ordered                 a ring: batches are always taken from its beginning
    _in_flight: ordered             `flight`: slots, in the order of sending
    _busy                           `busy` of a target

The loop includes a broker that answers a joined request after a time derived from its batches' own requests: see
`Rules.slowest`. Within one nanosecond answers are handled first, then arrivals, then due requests leave. Sets are never
refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from shoal.scenarios.jobs.coalescing.compiled import compiled, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = ["NEVER", "Lanes", "Outcome", "Rules", "join"]

NEVER: Final = 1 << 62


class Rules(NamedTuple):
    """`JoinLimits` with nanoseconds, and how the broker answers."""

    linger: int
    request_bytes: int
    request_batches: int
    set_batches: int
    in_flight: int
    patience: int
    slowest: bool = False
    """A joined request takes as long as the slowest of its batches' requests took; otherwise their mean."""


class Lanes(NamedTuple):
    """Arrivals in the order of lane and time. `starts`: where each lane begins, and where the last one ends."""

    starts: Longs
    times: Longs
    sizes: Longs
    targets: Longs  # from 0, without gaps
    lone: Flags
    latencies: Longs


class Outcome(NamedTuple):
    """`sent`, `answered`: nanoseconds, per arrival."""

    requests: int
    sent: Longs
    answered: Longs


class _State(NamedTuple):
    counts: Longs
    head: Longs  # of a target: its first waiting batch; -1: none
    tail: Longs
    following: Longs  # of a batch: the next one of its target
    busy: Flags
    ready: Longs
    flight: Longs
    sent: Longs  # of a slot
    ends: Longs
    held: Longs  # how many batches
    batches: Longs  # of a slot, in order
    free: Longs


_READY, _FRONT, _READY_BYTES, _READY_SINCE, _FLYING, _REQUESTS = range(6)


def join(lanes: Lanes, rules: Rules, targets: int) -> Outcome:
    """-> when each batch leaves and is answered, and the number of requests."""
    rows, slots = len(lanes.times), rules.in_flight
    most = min(rules.request_batches, max(rows, 1))
    longs: dict[str, Any] = {"dtype": np.int64}
    state = _State(
        counts=np.zeros(6, **longs),
        head=np.full(targets, -1, **longs),
        tail=np.full(targets, -1, **longs),
        following=np.full(rows, -1, **longs),
        busy=np.zeros(targets, dtype=np.bool_),
        ready=np.zeros(max(targets, 1), **longs),
        flight=np.zeros(slots, **longs),
        sent=np.zeros(slots, **longs),
        ends=np.zeros(slots, **longs),
        held=np.zeros(slots, **longs),
        batches=np.zeros((slots, most), **longs),
        free=np.ones(slots, **longs),
    )
    out = Outcome(0, np.zeros(rows, **longs), np.zeros(rows, **longs))
    _run(lanes, rules, state, out.sent, out.answered)
    return out._replace(requests=int(state.counts[_REQUESTS]))


@compiled
def _run(lanes: Lanes, rules: Rules, state: _State, sent: Longs, answered: Longs) -> None:
    for lane in range(len(lanes.starts) - 1):
        _run_lane(lanes, rules, state, sent, answered, lanes.starts[lane], lanes.starts[lane + 1])


@compiled
def _run_lane(lanes: Lanes, rules: Rules, state: _State, sent: Longs, answered: Longs, cursor: int, end: int) -> None:
    state.counts[_READY_SINCE] = NEVER
    now = -NEVER
    while True:
        coming = lanes.times[cursor] if cursor < end else NEVER
        following = min(coming, _first_end(state), _due(state, rules))
        if following == NEVER:
            return
        now = max(now, following)
        while _first_end(state) <= now:
            _answer(lanes, state, answered)
        while cursor < end and lanes.times[cursor] <= now:
            _add(lanes, state, cursor)
            cursor += 1
        while _due(state, rules) <= now:
            _take(lanes, rules, state, sent, now)


@inlined
def _due(state: _State, rules: Rules) -> int:
    counts = state.counts
    if counts[_READY] == 0 or counts[_FLYING] >= rules.in_flight:
        return NEVER
    if counts[_READY] >= rules.request_batches or counts[_READY_BYTES] >= rules.request_bytes:
        return -NEVER
    due = counts[_READY_SINCE] + rules.linger
    if counts[_FLYING] == 0:
        return int(due)
    return int(max(due, state.sent[state.flight[0]] + rules.patience))


@inlined
def _first_end(state: _State) -> int:
    first = NEVER
    for place in range(state.counts[_FLYING]):
        first = min(first, state.ends[state.flight[place]])
    return first


@inlined
def _add(lanes: Lanes, state: _State, row: int) -> None:
    target = lanes.targets[row]
    if state.head[target] >= 0:
        state.following[state.tail[target]] = row
        state.tail[target] = row
        return
    state.head[target] = state.tail[target] = row
    if not state.busy[target]:
        _make_ready(lanes, state, row)


@inlined
def _make_ready(lanes: Lanes, state: _State, row: int) -> None:
    counts = state.counts
    state.ready[(counts[_FRONT] + counts[_READY]) % len(state.ready)] = lanes.targets[row]
    counts[_READY] += 1
    counts[_READY_BYTES] += lanes.sizes[row]
    counts[_READY_SINCE] = min(counts[_READY_SINCE], lanes.times[row])


@inlined
def _take(lanes: Lanes, rules: Rules, state: _State, sent: Longs, now: int) -> None:
    counts, slot = state.counts, _free_slot(state)
    size, held = 0, 0
    while counts[_READY] > 0:
        target = state.ready[counts[_FRONT]]
        count, taken = _choose(lanes, rules, state, target, rules.request_bytes - size, held, slot)
        if count == 0:
            break
        held, size = held + count, size + taken
        state.busy[target] = True
        counts[_FRONT] = (counts[_FRONT] + 1) % len(state.ready)
        counts[_READY] -= 1
    state.held[slot], state.sent[slot], state.ends[slot] = held, now, now + _service(lanes, rules, state, slot, held)
    for place in range(held):
        sent[state.batches[slot, place]] = now
    state.flight[counts[_FLYING]] = slot
    state.free[slot] = 0
    counts[_FLYING] += 1
    counts[_REQUESTS] += 1
    _measure(lanes, state)


@inlined
def _choose(
    lanes: Lanes, rules: Rules, state: _State, target: int, space: int, held: int, slot: int
) -> tuple[int, int]:
    """-> number and size of a target's batches that fit into a request with `held` batches and `space` bytes left."""
    row, count, size = state.head[target], 0, 0
    most = min(rules.set_batches, rules.request_batches - held)
    lone = lanes.lone[row]
    while row >= 0:
        alone = count > 0 and (lone or lanes.lone[row])
        fits = count < most and lanes.sizes[row] <= space - size and not alone
        if not fits and held + count > 0:  # the first batch of a request may exceed the request's limit
            break
        state.batches[slot, held + count] = row
        count, size = count + 1, size + lanes.sizes[row]
        row = state.following[row]
    state.head[target] = row
    return count, size


@inlined
def _service(lanes: Lanes, rules: Rules, state: _State, slot: int, held: int) -> int:
    total, longest = 0, 0
    for place in range(held):
        latency = lanes.latencies[state.batches[slot, place]]
        total, longest = total + latency, max(longest, latency)
    return int(longest) if rules.slowest else int(total // held)


@inlined
def _free_slot(state: _State) -> int:
    slot = 0
    while not state.free[slot]:
        slot += 1
    return slot


@inlined
def _measure(lanes: Lanes, state: _State) -> None:
    size, since = 0, NEVER
    for place in range(state.counts[_READY]):
        row = state.head[state.ready[(state.counts[_FRONT] + place) % len(state.ready)]]
        size, since = size + lanes.sizes[row], min(since, lanes.times[row])
    state.counts[_READY_BYTES], state.counts[_READY_SINCE] = size, since


@inlined
def _answer(lanes: Lanes, state: _State, answered: Longs) -> None:
    """Handle the first answer that is due; among equals, that of the request that was sent first."""
    counts, end = state.counts, _first_end(state)
    place = 0
    while state.ends[state.flight[place]] != end:
        place += 1
    slot = state.flight[place]
    for later in range(place + 1, counts[_FLYING]):
        state.flight[later - 1] = state.flight[later]
    counts[_FLYING] -= 1
    state.free[slot] = 1
    for held in range(state.held[slot]):
        answered[state.batches[slot, held]] = end
        state.busy[lanes.targets[state.batches[slot, held]]] = False
    _ready_again(lanes, state, slot)


@inlined
def _ready_again(lanes: Lanes, state: _State, slot: int) -> None:
    """Make ready the targets of an answered request that have more batches. Those of a set are adjacent."""
    last = -1
    for held in range(state.held[slot]):
        target = lanes.targets[state.batches[slot, held]]
        if target != last and state.head[target] >= 0:
            _make_ready(lanes, state, state.head[target])
        last = target
