"""The oldest consumer that works: Fetch v4, as clients since Kafka 0.11 speak it; older ones are refused, clearly.

Kafka 4 has dropped Fetch below v4 (KIP-896), and Shoal gives what the broker gives. Once a listener offers Fetch v0-v3 again (`legacy`,
design section 5), this is the case to extend: the facts about v3 turn round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.protocol.api import ApiKey
from shoal.protocol.messages.fetch import read_fetch_response
from shoal.protocol.multibatch.messages import api_versions_request, fetch, read_api_versions, request_frame
from shoal.protocol.records.batch import open_batch
from shoal.protocol.records.recordset import split
from shoal.scenarios.kafka.records import orders
from shoal.scenarios.kafka.traffic import fill
from shoal.scenarios.replay.case import Case, Given
from shoal.scenarios.replay.facts import equals
from shoal.scenarios.replay.leaders import find_leaders
from shoal.scenarios.replay.wire import open_wire

if TYPE_CHECKING:
    from shoal.scenarios.replay.stage import Stage
    from shoal.scenarios.replay.wire import Wire

RECORDS, OLDEST, REFUSED = 5_000, 4, 3


async def traffic(stage: Stage) -> None:
    topic = stage.topic("orders")
    await fill(stage.through_shoal, topic, orders(RECORDS), compression_type="gzip")
    leaders = await find_leaders(stage.address, [topic])
    async with open_wire(leaders[topic, 0]) as wire:
        offered = {one.api_key: one for one in read_api_versions(await wire.exchange(api_versions_request(1)))}
        stage.seen["offered"] = offered[ApiKey.FETCH].low
        stage.seen["records"] = await _read(wire, topic)
    async with open_wire(leaders[topic, 0]) as wire:
        stage.seen["older"] = await _refused(wire, topic)


async def _read(wire: Wire, topic: str) -> int:
    """How many records a consumer gets, one batch after the other."""
    records = 0
    while records < RECORDS:
        frame = await wire.exchange(request_frame(ApiKey.FETCH, OLDEST, records, fetch(topic, 0, records)))
        (answer,) = read_fetch_response(frame, OLDEST).partitions
        spans = split(frame, answer.start, answer.end).spans
        if answer.error_code or not spans:
            break
        records += sum(len(list(open_batch(frame, span.start, span.end, limit=1 << 26)[1])) for span in spans)
    return records


async def _refused(wire: Wire, topic: str) -> str:
    try:
        frame = await wire.exchange(request_frame(ApiKey.FETCH, REFUSED, 1, fetch(topic, 0, 0)))
    except trio.BrokenResourceError:
        return "the connection is closed"
    return f"an answer of {len(frame)} bytes"


CASE = Case(
    name="oldest-consumer",
    what=f"a consumer that speaks Fetch v{OLDEST}, and one that speaks v{REFUSED}",
    given=Given(topics={"orders": 1}),
    traffic=traffic,
    facts=(
        equals(f"the oldest Fetch that is offered is v{OLDEST}", "offered", OLDEST),
        equals(f"Fetch v{OLDEST} reads every record", "records", RECORDS),
        equals(f"Fetch v{REFUSED} is refused, not half answered", "older", "the connection is closed"),
    ),
)
