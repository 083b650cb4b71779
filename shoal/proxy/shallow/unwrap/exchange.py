"""The third stage of unwrapping, and its only I/O: requests to the broker until every partition has its outcome.

    cut what is due ── post requests ── take one answer ──┐
          ^   several in flight, in order                 │ findings go to the fold
          └───────────────────────────────────────────────┘ until nothing is in flight or due

`schedule` decides what is sent and what an answer means. Batches in flight on a lost connection remain in doubt in
their partition until the mirror's retry.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import trio
from trio.lowlevel import checkpoint

from shoal.protocol.shallow.unwrap.outgoing import halves
from shoal.protocol.shallow.unwrap.replay import MAX_REPLAYED_IN_FLIGHT
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.capture.annotations import OWN
from shoal.proxy.errors import UpstreamFault, UpstreamLost
from shoal.proxy.shallow.annotations import unwrapped

if TYPE_CHECKING:
    from shoal.protocol.shallow.batch_row import OutgoingBatch
    from shoal.protocol.shallow.unwrap.schedule import Request, Schedule
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.pending import OwnRequest
    from shoal.proxy.shallow.unwrap.answer import MirrorRequest
    from shoal.proxy.shallow.unwrap.fold import Fold

__all__ = ["exchange"]

# Cutting a batch takes about 3 us per record. Above this number a thread does it, so that other tasks are not blocked.
_RECORDS_CUT_HERE = 300
_CUTS_IN_A_ROW = 16  # of at most 1 ms each; then other tasks run


async def exchange(connection: Connection, held: MirrorRequest, schedule: Schedule, fold: Fold) -> None:
    """Raises UpstreamLost and UpstreamFault; then it is unknown which batches in flight were appended."""
    posted: deque[tuple[OwnRequest, Request]] = deque()
    try:
        while True:
            await _cut(schedule, fold)
            while len(posted) < MAX_REPLAYED_IN_FLIGHT:
                request = schedule.next_request(sets=fold.may_send_sets)
                if request is None:
                    break
                fold.sent()
                is_noted = connection.tap is not None
                note = unwrapped(request.record_sets, schedule.items, held.naming) if is_noted else OWN
                posted.append((await connection.post(held.encode_answered(request), note=note), request))
            if not posted:
                return
            own_request, request = posted[0]
            frame = await own_request.frame()
            posted.popleft()
            answers = fold.read(frame)
            fold.take(schedule.answered(request, answers))
            for partition in request.partitions:
                if partition not in answers:
                    raise UpstreamFault(f"the broker's answer to Produce says nothing about {partition}")
    except UpstreamLost:
        fold.connection_lost(sets_in_flight=any(request.has_sets for _, request in posted))
        raise
    except trio.Cancelled:
        fold.cancelled(schedule.unstamped())
        raise
    finally:
        schedule.abandon()
        fold.close()


async def _cut(schedule: Schedule, fold: Fold) -> None:
    cuts = 0
    for partition in schedule.cuts_due():
        while (batch := schedule.cut_due(partition)) is not None:
            here = batch.records <= _RECORDS_CUT_HERE
            parts = _halves(batch) if here else await trio.to_thread.run_sync(partial(_halves, batch))
            fold.take(schedule.cut(partition, parts))
            cuts += 1
            if not cuts % _CUTS_IN_A_ROW:
                await checkpoint()


def _halves(batch: OutgoingBatch) -> list[OutgoingBatch] | RemoteProtocolError:
    try:
        return halves(batch)
    except RemoteProtocolError as error:
        return error
