"""InitProducerId v0: a producer id for the batches that Shoal stamps itself (KIP-98).

Version notes: v0-v1 same layout; v2 flexible; v3 takes a producer id and epoch; v4-v5 new errors; v6 KIP-939. Every
broker since 0.11 takes v0; without a transactional id any broker can answer.
"""

from typing import NamedTuple

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import response_body, write_request_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.schema.walker import Walkers
from shoal.protocol.wire.types import Buffer, write_int32, write_string

__all__ = ["GrantedId", "encode_init_producer_id", "read_init_producer_id"]

_VERSION = 0
_TRANSACTION_TIMEOUT_MS = 60_000  # unused without a transactional id, but must be above 0

_RESPONSE = Walkers(MESSAGES["InitProducerIdResponse"], ("ErrorCode", "ProducerId", "ProducerEpoch"))


class GrantedId(NamedTuple):
    """A producer id, if `error_code` is 0."""

    error_code: int
    producer_id: int
    epoch: int


def encode_init_producer_id(correlation_id: int, client_id: str | None) -> bytes:
    """A request for an idempotent, non-transactional producer id."""
    head = write_request_header(ApiKey.INIT_PRODUCER_ID, _VERSION, correlation_id, client_id)
    body = head + write_string(None) + write_int32(_TRANSACTION_TIMEOUT_MS)
    return write_int32(len(body)) + body


def read_init_producer_id(frame: Buffer) -> GrantedId:
    """The response frame. Raises RemoteProtocolError."""
    found = _RESPONSE[_VERSION](frame, response_body(frame, ApiKey.INIT_PRODUCER_ID, _VERSION), len(frame))
    return GrantedId(*found)
