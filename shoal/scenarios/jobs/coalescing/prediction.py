"""Arrivals of one broker and a policy -> the result of coalescing: requests, bytes, and the added latency.

Added latency: how much later a batch's answer would have arrived. Requests that are not joined are not delayed here.
The bias (`OPEN_LOOP`): arrivals are as captured, while a client that waits for answers would have sent later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from shoal.scenarios.jobs.coalescing.by_joiner import join_by_joiner
from shoal.scenarios.jobs.coalescing.lanes import Lanes, Outcome, join
from shoal.scenarios.jobs.coalescing.latencies import histogram
from shoal.scenarios.jobs.columns.groups import grouped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from shoal.scenarios.jobs.coalescing.arrivals import Arrivals
    from shoal.scenarios.jobs.coalescing.policies import Policy

__all__ = ["OPEN_LOOP", "Prediction", "lanes_of", "predict"]

OPEN_LOOP: Final = (
    "Open loop: requests arrive here when they were captured. A client that waits for answers would have sent later "
    "with a linger, so its requests would be fewer and larger; savings and latencies are those of the captured load "
    "only."
)
_NARROW: Final = 1 << 15
_PART_BYTES: Final = 9  # of PartitionData around a batch: index, length, tagged fields


class Prediction(NamedTuple):
    policy: Policy
    captured: int  # requests
    requests: int  # that would have been sent: joined ones, and
    alone: int
    batches: int
    bytes: int
    added_ns: int  # in total
    added: NDArray[np.int64]  # histogram of joined batches


def predict(arrivals: Arrivals, policies: Iterable[Policy], *, by_joiner: bool = False) -> Iterator[Prediction]:
    """`by_joiner`: use the listener's own code, not the compiled steps. Same result, a hundred times slower."""
    captured, alone = int(arrivals.first.sum()), int((arrivals.first & arrivals.alone).sum())
    made: dict[tuple[str, bool], Lanes] = {}
    for policy in policies:
        kind = policy.group, policy.client_ids
        lanes = made[kind] = made[kind] if kind in made else lanes_of(arrivals, *kind)
        rules = policy.rules
        outcome = join_by_joiner(lanes, rules) if by_joiner else join(lanes, rules, arrivals.target_count)
        added = _added(lanes, outcome)
        yield Prediction(
            policy=policy,
            captured=captured,
            requests=outcome.requests + alone,
            alone=alone,
            batches=len(arrivals.times),
            bytes=int(arrivals.sizes.sum()),
            added_ns=int(added.sum()),
            added=histogram(added),
        )


def _added(lanes: Lanes, outcome: Outcome) -> NDArray[np.int64]:
    added: NDArray[np.int64] = np.maximum(outcome.answered - lanes.times - lanes.latencies, 0)
    return added


def lanes_of(arrivals: Arrivals, group: str, client_ids: bool) -> Lanes:
    """Arrivals that are joined, in the order of their lanes: fields that a request has once are equal within a lane."""
    taken = np.flatnonzero(~arrivals.alone)
    keys = [arrivals.kinds[taken]]
    keys += [arrivals.clients[taken]] if client_ids else []
    keys += {"broker": [], "connection": [arrivals.sources[taken]], "partition": [arrivals.targets[taken]]}[group]
    lane = grouped(keys).codes if len(taken) else taken
    narrow = lane.astype(np.int16 if lane.max(initial=0) < _NARROW else np.int64)  # of which numpy sorts the digits
    order = taken[np.argsort(narrow, kind="stable")]
    return Lanes(
        starts=np.concatenate(([0], np.cumsum(np.bincount(lane)))).astype(np.int64),
        times=arrivals.times[order],
        sizes=arrivals.sizes[order] + _PART_BYTES,
        targets=arrivals.targets[order],
        lone=arrivals.lone[order],
        latencies=arrivals.latencies[order],
    )
