"""How long an answer to a mirror is held for the interlock, and which partitions go without their records.

    flow not proven yet     held whole, until all of it may go
    tiny batches, while a   held whole, until it is known whether they can be wrapped: what is given raw in the meantime would
    target is being asked   keep the mirror from its first envelopes
    whether it takes sets
    flow proven, a new      what may go, goes at once; a partition that has to wait longer than a moment is answered without
    topic in the answer     records, and the mirror asks for it again; where all have to wait, the answer is held as long as a
                            broker holds one that has no records (fetch.max.wait.ms)

So a new topic's proof never stops the proven ones, which share the answer and, as a client has one request under way per broker,
also come in no other. Rejected: holding the whole answer (a topic that is never proven would stop the others for seconds), and
leaving the partition out of the request (the broker's fetch session would have to be rewritten, too). What it costs is that the
broker sends the withheld records again with each answer; so little is asked for of such topics (fetch_path.py).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.protocol.records.recordset import LOG_OVERHEAD
from shoal.protocol.shallow.fingerprint import sample_record_set
from shoal.protocol.shallow.token import put_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.messages.fetch import FetchedPartition
    from shoal.protocol.shallow.interlock.flow import Fetched, Flow
    from shoal.protocol.shallow.token import Tokened
    from shoal.protocol.shallow.wrap.eligible import Topics
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.interlock import Interlock

__all__ = ["Part", "put_tokens", "wait_for_interlock"]

# Of waiting for the interlock with a held answer; clients wait 30 s (request.timeout.ms) before they give up.
_LONGEST_HOLD = 10.0
_MOMENT = 0.25  # holding all partitions so long costs less than asking for one of them again
_EMPTY_HOLD = 0.5  # fetch.max.wait.ms


class Part(NamedTuple):
    """A partition of an answer, with records in it and a known name.

    `aborted`: transactions of which the client, as it reads committed data, drops the records itself: producer id and first offset.
    """

    one: FetchedPartition
    read: Fetched
    aborted: tuple[tuple[int, int], ...] = ()

    @property
    def place(self) -> tuple[Topic, int]:
        return self.one.topic, self.one.partition


async def wait_for_interlock(
    interlock: Interlock, flow: Flow, frame: Buffer, parts: Sequence[Part], topics: Topics, *, min_batch_bytes: int
) -> list[Part]:
    """-> partitions that would have to wait longer: they are to be answered without records."""
    end, end_of_hold = trio.current_time() + _LONGEST_HOLD, inf
    while True:
        now = interlock.tick()
        pause = interlock.rules.pause_until(flow, now) if parts and now < end else None
        if pause is None and now < end and _waits_for_sets(interlock, flow, frame, parts, min_batch_bytes):
            pause = end
        if pause is not None:
            await interlock.change(min(pause, end))
            continue
        waits = {part: until for part in parts if (until := _hold_until(interlock, flow, frame, part, topics))}
        if not waits:
            return []
        if flow.is_sampled:
            end_of_hold = min(end_of_hold, now + _EMPTY_HOLD)
            if len(waits) < len(parts) and min(waits.values()) > now + _MOMENT:
                return list(waits)
        until = min(end, end_of_hold, *waits.values())
        if now >= min(end, end_of_hold):
            return list(waits)
        if flow.is_sampled:
            await interlock.change(until)
        else:
            await trio.sleep_until(until)


def put_tokens(
    interlock: Interlock, flow: Flow, frame: Buffer, parts: Sequence[Part], topics: Topics, now: float
) -> dict[Part, Tokened]:
    """The partitions that are to bring a token, and what is given of each instead. It counts as given from here on."""
    rules = interlock.rules
    tokens: dict[Part, Tokened] = {}
    for part in parts:
        one, read, aborted = part
        if topics.raw_reason(read.topic) is not None or (token := rules.token(flow, read, now)) is None:
            continue
        found = put_token(
            frame,
            one.start,
            one.end,
            token,
            salt=rules.salt,
            partition=read.partition,
            fetch_offset=read.fetch_offset,
            unseen=[producer_id for producer_id, _ in aborted],
        )
        if found is not None:
            given = read._replace(next_offset=found.next_offset)
            rules.fetched(flow, given, now)
            rules.gave_token(flow, given, found.offset, token, found.mark, now)
            rules.given(flow, given, now, given.next_offset)
            tokens[part] = found
    return tokens


def _waits_for_sets(interlock: Interlock, flow: Flow, frame: Buffer, parts: Sequence[Part], least: int) -> bool:
    """Are there tiny batches, which would go raw, and in a moment might not? (Their first batch stands for all of a partition.)"""
    return (
        interlock.learns_sets and flow.is_proven and any(_first_size(frame, part.one.start) < least for part in parts)
    )


def _first_size(frame: Buffer, start: int) -> int:
    return LOG_OVERHEAD + int.from_bytes(frame[start + 8 : start + 12], "big")  # batchLength


def _hold_until(interlock: Interlock, flow: Flow, frame: Buffer, part: Part, topics: Topics) -> float | None:
    rules, (one, read, _), now = interlock.rules, part, trio.current_time()
    rules.fetched(flow, read, now)
    if topics.raw_reason(read.topic) is not None or rules.may_wrap(flow, read, now):
        return None
    first = rules.sample_from(flow, read, now)
    samples = (
        sample_record_set(frame, one.start, one.end, salt=rules.salt, partition=read.partition, first_offset=first)
        if first is not None
        else ()
    )
    return rules.hold_until(flow, read, samples, now)
