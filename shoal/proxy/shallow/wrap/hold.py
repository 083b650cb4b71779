"""How long a mirror's answer is held for the interlock, and which partitions are sent without their records.

    flow not proven yet     held whole, until all of it may be sent
    tiny batches, while a   held whole, until it is known whether they can be wrapped: raw records sent meanwhile would
    probe of the target     delay the mirror's first envelopes
    runs
    flow proven, a new      ready partitions are sent at once; a partition that must wait longer than a moment is
    topic in the answer     answered without records, and the mirror requests it again; if all must wait, the answer is
                            held as long as a broker holds one without records (fetch.max.wait.ms)

So proving a new topic never delays the proven ones, which share the answer: a client has only one fetch request per
broker in flight. Rejected: holding the whole answer (a topic that is never proven would delay the others for seconds),
and leaving the partition out of the request (the broker's fetch session would have to be rewritten, too). The cost: the
broker sends the withheld records again with each answer, so Shoal requests little of such topics (path.py).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import trio

from shoal.protocol.records.recordset import LOG_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.shallow.interlock.flow import Flow
    from shoal.proxy.shallow.interlock import Interlock
    from shoal.proxy.shallow.wrap.mirror_fetch import AnsweredPartition

__all__ = ["EMPTY_HOLD", "hold"]

# The longest wait for the interlock with a held answer; clients give up after 30 s (request.timeout.ms).
_LONGEST_HOLD = 10.0
_MOMENT = 0.25  # holding all partitions this long costs less than requesting one of them again
EMPTY_HOLD = 0.5  # fetch.max.wait.ms


async def hold(
    interlock: Interlock, flow: Flow, partitions: Sequence[AnsweredPartition], *, min_batch_bytes: int
) -> Sequence[float | None]:
    """-> per partition until when it must wait, or None; those that must wait are answered without records."""
    end, end_of_hold = trio.current_time() + _LONGEST_HOLD, inf
    while True:
        now = interlock.tick()
        pause = interlock.rules.pause_until(flow, now) if partitions and now < end else None
        if pause is None and now < end and _waits_for_sets(interlock, flow, partitions, min_batch_bytes):
            pause = end
        if pause is not None:
            await interlock.change(min(pause, end))
            continue
        waits = interlock.rules.hold(flow, partitions, now)
        times = [until for until in waits if until is not None]
        if not times:
            return waits
        if flow.is_sampled:
            end_of_hold = min(end_of_hold, now + EMPTY_HOLD)
            if len(times) < len(partitions) and min(times) > now + _MOMENT:
                return waits
        if now >= min(end, end_of_hold):
            return waits
        until = min(end, end_of_hold, *times)
        if flow.is_sampled:
            await interlock.change(until)
        else:
            await trio.sleep_until(until)


def _waits_for_sets(
    interlock: Interlock, flow: Flow, partitions: Sequence[AnsweredPartition], min_batch_bytes: int
) -> bool:
    """True if there are tiny batches that would be raw now, but perhaps not after the probe.

    The first batch of a partition represents all of it.
    """
    return (
        interlock.learns_sets
        and flow.is_proven
        and any(_first_size(partition) < min_batch_bytes for partition in partitions)
    )


def _first_size(partition: AnsweredPartition) -> int:
    start = partition.fetched.start
    return LOG_OVERHEAD + int.from_bytes(partition.frame[start + 8 : start + 12], "big")  # batchLength
