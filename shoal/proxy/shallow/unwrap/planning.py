"""The first stage of unwrapping: what each record set of a produce request holds.

The record sets are read where they are in the frame. Tokens of the interlock are taken out of batches without an
envelope; then the request is encoded anew, and planned again. Batches of claim checks that are not here must be read
from the source first (`BatchesMissing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from shoal.protocol.messages.produce import encode_produce_request, read_produce_request
from shoal.protocol.records.batch import BatchHeader
from shoal.protocol.shallow.unwrap.plan import Missing, Plan, Refused, Stripped
from shoal.protocol.shallow.unwrap.plan_record_set import MAX_OUTER_BYTES, plan_record_set
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.proxy.connection.topic_names import Naming
from shoal.proxy.shallow.claims.redemption import Redemption
from shoal.proxy.shallow.unwrap.answer import MirrorRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from shoal.protocol.messages.produce import ProducePartition, ProduceRequest
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.protocol.shallow.envelope import EnvelopeKey
    from shoal.protocol.wire.compression import Codec
    from shoal.protocol.wire.types import Topic, TopicPartition
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.net.transport import Buffer
    from shoal.proxy.shallow.claims.background_reads import Found
    from shoal.proxy.shallow.claims.claim_checks import ClaimChecks
    from shoal.proxy.shallow.interlock import Interlocks

    _Planned = Plan | Stripped | Refused | BatchHeader | None
    Plans = Mapping[TopicPartition, Plan | Refused | BatchHeader]

__all__ = ["UNKNOWN_TOPIC", "BatchesMissing", "Planner"]

_BUSY_SECONDS = 0.05  # other connections wait at most this long, or for one partition
_TOO_MUCH = Refused(
    error_code=ErrorCode.MESSAGE_TOO_LARGE,
    message=f"a request has compressed batches with envelopes, or claim checks, for more than {MAX_OUTER_BYTES} bytes",
)
UNKNOWN_TOPIC = Refused(
    error_code=ErrorCode.UNKNOWN_TOPIC_ID, message="the broker does not know a topic with this id (yet, or any more)"
)


class BatchesMissing(Exception):
    """Those of these claim checks must be read from the source before the request can be planned."""

    def __init__(self, wanted: Mapping[EnvelopeKey, Sequence[ClaimChecks]], *, wants_answer: bool) -> None:
        super().__init__()
        self.wanted = wanted
        self.wants_answer = wants_answer


class Planner:
    """`plain_codec`: what batches without an envelope are compressed with; None: as they are."""

    def __init__(self, interlocks: Interlocks, plain_codec: Codec | None) -> None:
        self._interlocks = interlocks
        self._plain_codec = plain_codec

    async def plan(
        self, connection: Connection, frame: bytearray, header: RequestHeader, again: Mapping[EnvelopeKey, Found]
    ) -> tuple[MirrorRequest, Plans]:
        """-> the request without tokens, and what is known of its partitions. Raises BatchesMissing."""
        request = read_produce_request(frame, header.api_version)
        naming = await Naming.learn(connection, header.client_id, [produced.topic for produced in request.partitions])
        planned = await self._plan_record_sets(frame, request, again)
        if any(isinstance(plan, Stripped) for plan in planned):
            sets = list(self._stripped(connection, frame, naming, zip(request.partitions, planned, strict=True)))
            frame = bytearray().join(encode_produce_request(frame, request, header.correlation_id, sets))
            request = read_produce_request(frame, header.api_version)
            planned = await self._plan_record_sets(frame, request, again)
        plans: dict[TopicPartition, Plan | Refused | BatchHeader] = {}
        partitions = [naming.target(produced.topic, produced.partition) for produced in request.partitions]
        for partition, plan in zip(partitions, planned, strict=True):
            if partition.topic in naming.unknown:
                plans[partition] = UNKNOWN_TOPIC
            elif isinstance(plan, Plan | Refused | BatchHeader):
                plans[partition] = plan
        return MirrorRequest(frame=frame, header=header, request=request, naming=naming, partitions=partitions), plans

    async def _plan_record_sets(
        self, frame: bytearray, request: ProduceRequest, again: Mapping[EnvelopeKey, Found]
    ) -> list[_Planned]:
        plans: list[_Planned] = []
        redemption = Redemption(list(self._interlocks.checks), again, self._interlocks.have_left)
        opened, began = 0, trio.current_time()
        for _, _, start, end in request.partitions:
            plan = plan_record_set(frame, start, end, plain_codec=self._plain_codec, find=redemption.find)
            if isinstance(plan, Missing):
                continue
            if isinstance(plan, Plan):
                opened += plan.opened
            is_within = opened <= MAX_OUTER_BYTES or not isinstance(plan, Plan) or not plan.opened
            plans.append(plan if is_within else _TOO_MUCH)
            if trio.current_time() - began >= _BUSY_SECONDS:  # searching one of many partitions may be slow
                await trio.lowlevel.checkpoint()
                began = trio.current_time()
        if redemption.missing:
            raise BatchesMissing(redemption.missing, wants_answer=request.acks != 0)
        return plans

    def _stripped(
        self,
        connection: Connection,
        frame: bytearray,
        naming: Naming,
        planned: Iterator[tuple[ProducePartition, _Planned]],
    ) -> Iterator[tuple[Topic, list[tuple[int, Sequence[Buffer]]]]]:
        """The record sets by topic, without tokens in batches that have no envelope. The tokens count as returned."""
        topics: dict[Topic, list[tuple[int, Sequence[Buffer]]]] = {}
        for (topic, index, start, end), plan in planned:
            record_set: Buffer = memoryview(frame)[start:end]
            if isinstance(plan, Stripped):
                self._interlocks.returned(connection, naming.target(topic, index), plan.tokens)
                record_set = plan.record_set
            topics.setdefault(topic, []).append((index, [record_set]))
        yield from topics.items()
