import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2

from shoal.protocol.schema.api import ApiKey, request_header_version
from shoal.protocol.schema.headers import (
    REQUEST_PREFIX,
    peek_client_id,
    peek_correlation_id,
    read_request_header,
    read_request_prefix,
    response_body,
    write_request_header,
    write_response_header,
)
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import write_int32, write_tagged_fields
from tests.support.kio_messages import encode

KEYS = st.tuples(st.sampled_from(ApiKey), st.integers(0, 20))
IDS = st.integers(-(1 << 31), (1 << 31) - 1)
CLIENT_IDS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(KEYS, IDS, CLIENT_IDS, st.binary(max_size=9))
def test_a_request_header_is_that_of_kio(
    api: tuple[ApiKey, int], correlation_id: int, client_id: str | None, body: bytes
) -> None:
    key, version = api
    header_type: Any = HeaderV2 if request_header_version(key, version) == 2 else HeaderV1
    theirs = encode(
        header_type(
            request_api_key=int(key), request_api_version=version, correlation_id=correlation_id, client_id=client_id
        )
    )
    assert write_request_header(key, version, correlation_id, client_id) == theirs
    frame = (len(theirs) + len(body)).to_bytes(4) + theirs + body
    assert read_request_header(frame) == (key, version, correlation_id, client_id, 4 + len(theirs))
    assert read_request_prefix(frame) == (len(frame) - 4, key, version, correlation_id)
    whole = REQUEST_PREFIX + 2 + len((client_id or "").encode())
    for cut in range(len(frame) + 1):
        assert peek_client_id(memoryview(frame)[:cut]) == (client_id if cut >= whole else None)
    for cut in range(4 + len(theirs)):
        with pytest.raises(RemoteProtocolError):
            read_request_header(frame[:cut])


@pytest.mark.parametrize(
    ("odd", "read"), [(b"caf\xe9", "caf\ufffd"), (b"\xff", "\ufffd"), (b"\xed\xa0\x80a", "\ufffd" * 3 + "a")]
)
def test_a_client_id_that_is_not_utf_8_is_read_as_brokers_do(odd: bytes, read: str) -> None:
    frame = bytes(4) + struct.pack(">hhih", ApiKey.PRODUCE, 2, 7, len(odd)) + odd
    assert read_request_header(frame + b"body") == (ApiKey.PRODUCE, 2, 7, read, len(frame))
    with pytest.raises(RemoteProtocolError):
        read_request_header(frame[:-1])


def test_a_client_id_that_could_not_be_told_to_a_broker_is_refused() -> None:
    frame = bytes(4) + struct.pack(">hhih", ApiKey.PRODUCE, 2, 7, 20_000) + b"\xff" * 20_000
    with pytest.raises(RemoteProtocolError):
        read_request_header(frame)
    assert peek_client_id(frame) is None


def test_unknown_tags_of_a_request_header() -> None:
    head = bytes(4) + write_request_header(ApiKey.FETCH, 12, 1, "me")[:-1]
    tags = write_tagged_fields([(0, [b"?"]), (7, [b"??"])])
    assert read_request_header(head + tags + b"body").body == len(head + tags)


def test_unknown_api_keys_are_read_as_flexible() -> None:
    assert read_request_header(bytes(4) + b"\x03\xe8\0\5" + bytes(4) + b"\xff\xff" + b"\0").body == 15


@pytest.mark.parametrize(("version", "tags"), [(11, b""), (12, b"\0"), (12, b"\1\5\2ab")])
def test_response_headers(version: int, tags: bytes) -> None:
    frame = b"\0\0\0\x09" + (99).to_bytes(4) + tags + b"body"
    assert frame[response_body(frame, ApiKey.FETCH, version) :] == b"body"


def test_a_frame_that_is_too_short_for_a_response_has_no_correlation_id() -> None:
    frame = write_int32(6) + write_response_header(ApiKey.PRODUCE, 2, -7) + b"ab"
    assert [peek_correlation_id(frame[:cut]) for cut in range(len(frame) + 1)] == [None] * 8 + [-7] * 3


def test_response_headers_are_written_as_they_are_read() -> None:
    for key, version, length in [(ApiKey.FETCH, 11, 4), (ApiKey.FETCH, 12, 5), (ApiKey.API_VERSIONS, 4, 4)]:
        frame = bytes(4) + write_response_header(key, version, 7)
        assert frame[4:8] == (7).to_bytes(4)
        assert response_body(frame, key, version) == len(frame) == 4 + length


@pytest.mark.parametrize("frame", [b"", bytes(7)])
def test_responses_too_short_for_a_header(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        response_body(frame, ApiKey.FETCH, 12)
