"""The oldest consumers: Fetch v0 to v3, as clients before Kafka 0.11 send it, and v4, the oldest in Kafka 4.

Kafka 4 removed Fetch below v4 (KIP-896); a listener with `legacy = true` offers it again and converts the log's
records. The test compares what each version reads with what was written: key, value, and timestamp where the version
has one.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from shoal.protocol.legacy.reading import read_messages
from shoal.protocol.messages.fetch import read_fetch_response
from shoal.protocol.multibatch.messages import CLIENT_ID, api_versions_request, fetch, read_api_versions
from shoal.protocol.records.batch import open_batch
from shoal.protocol.records.recordset import split
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.decomposer import decompose
from shoal.protocol.schema.frames import request_frame
from shoal.protocol.schema.headers import response_body
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.wire.types import TopicPartition
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.traffic import fill
from shoal.scenarios.replay.case import Case, Given
from shoal.scenarios.replay.facts import equals
from shoal.scenarios.replay.sending.leaders import find_leaders
from shoal.scenarios.replay.sending.wire import open_wire

if TYPE_CHECKING:
    from shoal.scenarios.replay.sending.wire import Wire
    from shoal.scenarios.replay.stage import Stage

    Row = tuple[int, bytes, bytes]

RECORDS, OLD, MODERN = 5_000, (0, 1, 2, 3), 4
_TIMED = 2
"""From this version on messages have timestamps (KIP-32)."""
_LIMIT = 1 << 26


async def traffic(stage: Stage) -> None:
    topic = stage.topic("orders")
    await fill(stage.through_shoal, topic, orders(RECORDS), compression_type="gzip")
    leader = (await find_leaders(stage.address, [topic]))[TopicPartition(topic, 0)]
    async with open_wire(leader) as wire:
        offered = {api.api_key: api for api in read_api_versions(await wire.exchange(api_versions_request(1)))}
        stage.seen["offered"] = offered[ApiKey.FETCH].low
    for version in (*OLD, MODERN):
        async with open_wire(leader) as wire:
            stage.seen[f"v{version}"] = await _read(wire, topic, version)


async def _read(wire: Wire, topic: str, version: int) -> int:
    """The number of correct records, in order, that a consumer gets before a wrong one or the end."""
    right = 0
    while right < RECORDS:
        question = request_frame(ApiKey.FETCH, version, right, CLIENT_ID, fetch(topic, 0, right))
        frame = await wire.exchange(question)
        rows = _modern_rows(frame) if version == MODERN else _old_rows(frame, version)
        equal = _equal(rows, right, timed=version >= _TIMED)
        right += equal
        if not rows or equal < len(rows):
            break
    return right


def _equal(rows: list[Row], first: int, *, timed: bool) -> int:
    """How many of the first rows equal the records from number `first` on."""
    wanted = islice(orders(RECORDS), first, None)
    for number, (row, record) in enumerate(zip(rows, wanted, strict=False)):
        if row != (record.timestamp if timed else -1, record.key, record.value):
            return number
    return min(len(rows), RECORDS - first)


def _modern_rows(frame: bytes) -> list[Row]:
    (answer,) = read_fetch_response(frame, MODERN).partitions
    rows = []
    for span in split(frame, answer.start, answer.end).spans:
        header, records = open_batch(frame, span.start, span.end, limit=_LIMIT)
        rows += [(header.timestamp(record), bytes(record.key or b""), bytes(record.value or b"")) for record in records]
    return rows


def _old_rows(frame: bytes, version: int) -> list[Row]:
    """The rows of complete messages: the padding at the end of the set is not one."""
    body = response_body(frame, ApiKey.FETCH, version)
    (answer,) = decompose(MESSAGES["FetchResponse"], version, frame, body, len(frame))["Responses"]
    record_set = bytes(answer["Partitions"][0]["Records"] or b"")
    whole = split(record_set, 0, len(record_set)).tail
    messages = read_messages(record_set, 0, whole, limit=_LIMIT)
    return [(message.timestamp, bytes(message.key or b""), bytes(message.value or b"")) for message in messages]


CASE = Case(
    name="oldest-consumer",
    what=f"consumers with Fetch v{OLD[0]}-v{OLD[-1]} (removed in Kafka 4) and v{MODERN}",
    given=Given(topics={"orders": 1}, listener="legacy = true"),
    traffic=traffic,
    facts=(
        equals("the oldest Fetch that is offered is v0", "offered", 0),
        *(
            equals(f"Fetch v{version} reads every record as it was written", f"v{version}", RECORDS)
            for version in (*OLD, MODERN)
        ),
    ),
)
