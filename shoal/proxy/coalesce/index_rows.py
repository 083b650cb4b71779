"""Index rows of joined requests: each client's batches, with its client id and connection, as if it had sent them
alone.

The lane's own connection makes no rows; otherwise each batch would be in the index twice.
"""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING

from shoal.protocol.capture.index.columns import Handling
from shoal.protocol.capture.index.pending import Request, RequestAnnotation, Treatment
from shoal.protocol.capture.index.record_sets import PartitionRows
from shoal.protocol.capture.index.rows import NO_ANSWER, UNKNOWN_ERROR, Answered, row_of
from shoal.protocol.schema.api import ApiKey

if TYPE_CHECKING:
    from shoal.protocol.coalesce.answer import JoinedAnswer
    from shoal.protocol.coalesce.joinable import LaneKey, PartitionBatch
    from shoal.protocol.coalesce.policy import Batch, Joined
    from shoal.proxy.coalesce.client import TakenRequest

__all__ = ["JoinedCapture"]

_NOTE = RequestAnnotation(treatment=Treatment(handling=Handling.COALESCED))
_SIZE_UNKNOWN = -1
_BASE_OFFSET = slice(6, 14)  # of an element of PartitionResponses: behind Index and ErrorCode


class JoinedCapture:
    """The rows of one joined request; created when the request is sent."""

    def __init__(self, key: LaneKey) -> None:
        self._key = key
        self._sent_ns = time_ns()

    def answered(self, joined: Joined, answer: JoinedAnswer) -> None:
        """Batches of a set that was refused as a set get no rows: they are retried."""
        answered = Answered(at_ns=time_ns(), throttle_ms=answer.throttle_ms)
        for target, results in answer.results.items():
            for batch, (error, content) in zip(joined.sets[target], results, strict=True):
                offset = int.from_bytes(content[_BASE_OFFSET], "big", signed=True)
                self._add_row(batch, answered, error, offset)

    def lost(self, joined: Joined) -> None:
        """The outcome is unknown."""
        for batches in joined.sets.values():
            for batch in batches:
                self._add_row(batch, NO_ANSWER, UNKNOWN_ERROR, -1)

    def _add_row(self, batch: Batch, answered: Answered, error: int, offset: int) -> None:
        taken: TakenRequest = batch.owner
        part: PartitionBatch = batch.content
        tap = taken.member.connection.tap
        if tap is None:
            return
        request = Request(ApiKey.PRODUCE, taken.version, taken.correlation_id, size=_SIZE_UNKNOWN, number=taken.number)
        request.sent_ns, request.acks, request.note = self._sent_ns, self._key.acks, _NOTE
        request.client = (taken.member.connection.client_id or "").encode()
        topic, partition = part.target
        tap.joined(request, answered, PartitionRows(topic, partition, error, [row_of(part.batch, offset)]))
