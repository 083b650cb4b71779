"""Shoal's own questions about consumer groups, and for records: the bytes that a broker reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shoal.protocol.messages.fetch import OWN_VERSION, encode_fetch_request, read_fetch_request
from shoal.protocol.messages.group_offsets import (
    CommittedOffset,
    Coordinator,
    encode_find_coordinator,
    encode_offset_fetch,
    read_coordinator,
    read_offset_fetch,
)
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.composer import compose
from shoal.protocol.schema.headers import read_request_header, write_response_header
from shoal.protocol.schema.tables import MESSAGES
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import write_int32

if TYPE_CHECKING:
    from shoal.protocol.schema.composer import Values


def answer(key: ApiKey, name: str, version: int, values: Values) -> bytes:
    body = write_response_header(key, version, 0) + compose(MESSAGES[name], version, values)
    return write_int32(len(body)) + body


def test_requests_have_the_bytes_of_the_protocol() -> None:
    frame = encode_find_coordinator("me", "billing")
    header = read_request_header(frame)
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.FIND_COORDINATOR, 1, "me")
    assert frame[header.body :] == b"\0\7billing\0"
    frame = encode_offset_fetch("me", "billing")
    header = read_request_header(frame)
    assert (header.api_key, header.api_version) == (ApiKey.OFFSET_FETCH, 2)
    assert frame[header.body :] == b"\0\7billing\xff\xff\xff\xff", "null: all partitions"


def test_answers() -> None:
    values = {"ErrorCode": 0, "NodeId": 3, "Host": "b3", "Port": 9092}
    frame = answer(ApiKey.FIND_COORDINATOR, "FindCoordinatorResponse", 1, values)
    assert read_coordinator(frame) == Coordinator(0, 3, "b3", 9092)
    partitions = [
        {"PartitionIndex": 0, "CommittedOffset": 7, "Metadata": None},
        {"PartitionIndex": 1, "CommittedOffset": -1, "Metadata": ""},
    ]
    values = {"Topics": [{"Name": "orders", "Partitions": partitions}], "ErrorCode": 15}
    frame = answer(ApiKey.OFFSET_FETCH, "OffsetFetchResponse", 2, values)
    offsets = [CommittedOffset("orders", 0, 7, 0), CommittedOffset("orders", 1, -1, 0)]
    assert read_offset_fetch(frame) == (15, offsets)
    for end in range(8, len(frame)):
        with pytest.raises(RemoteProtocolError):
            read_offset_fetch(write_int32(end - 4) + frame[4:end])


def test_a_fetch_request() -> None:
    frame = encode_fetch_request("me", "orders", 2, 1 << 40, max_bytes=1000)
    request = read_fetch_request(frame, OWN_VERSION)
    (asked,) = request.partitions
    assert asked[:4] == ("orders", 2, 1 << 40, 1000)
    assert (request.max_bytes, request.isolation_level) == (1000, 0)
