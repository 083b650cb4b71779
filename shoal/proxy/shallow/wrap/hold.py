"""How long an answer to a mirror is held for the interlock, and which partitions go without their records.

    flow not proven yet     held whole, until all of it may go
    tiny batches, while a   held whole, until it is known whether they can be wrapped: records that are given raw in the
    target is being asked   meantime would keep the mirror from its first envelopes
    whether it takes sets
    flow proven, a new      what may go, goes at once; a partition that has to wait longer than a moment is answered
    topic in the answer     without records, and the mirror asks for it again; where all have to wait, the answer is
                            held as long as a broker holds one that has no records (fetch.max.wait.ms)

So a new topic's proof never stops the proven ones. They share the answer, and since a client has one request under way
per broker, they arrive in no other. Rejected: holding the whole answer (a topic that is never proven would stop the
others for seconds), and leaving the partition out of the request (the broker's fetch session would have to be
rewritten, too). The cost is that the broker sends the withheld records again with each answer; so little is asked for
of such topics (wrap.py).
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

__all__ = ["hold"]

# The longest wait for the interlock with a held answer; clients wait 30 s (request.timeout.ms) before they give up.
_LONGEST_HOLD = 10.0
_MOMENT = 0.25  # holding all partitions so long costs less than asking for one of them again
_EMPTY_HOLD = 0.5  # fetch.max.wait.ms


async def hold(
    interlock: Interlock, flow: Flow, partitions: Sequence[AnsweredPartition], *, min_batch_bytes: int
) -> Sequence[float | None]:
    """-> what `Interlock.hold` said last: partitions that would have to wait longer are to be answered without
    records.
    """
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
            end_of_hold = min(end_of_hold, now + _EMPTY_HOLD)
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
    """Are there tiny batches, which would go raw, and in a moment might not?

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
