from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.schema.api import ApiKey
from shoal.protocol.transform.skim_share import ShareFetchSkimmer
from shoal.protocol.wire.errors import RemoteProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import write_uvarint
from tests.protocol.transform.test_skim import CHUNKS, damaged
from tests.protocol.transform.test_skim import skim as skimmed
from tests.support.endpoints import read_endpoints
from tests.support.kio_messages import Case, for_any, response_frame


def skim(frame: bytes, sizes: list[int], version: int, *, over: bool = False) -> bytes:
    return skimmed(frame, sizes, version, over=over, kind=ShareFetchSkimmer)


@for_any("ShareFetchResponse", examples=60)
def test_node_endpoints_are_hidden_and_all_else_passes(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = response_frame(entity)
    passed = skim(frame, data.draw(CHUNKS), case.version, over=data.draw(st.booleans()))
    if not entity.node_endpoints:
        assert passed == frame
        return
    nothing = response_frame(replace(entity, node_endpoints=()))
    before = len(nothing) - 2  # the array's length, and no tags
    hidden = passed[before:]
    size = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(hidden[3:8]))
    assert passed[4:before] == frame[4:before]
    assert hidden[:3] == b"\1\1\x7f"
    assert hidden[8:] == bytes(size)
    assert len(passed) == len(frame)
    assert read_endpoints(ApiKey.SHARE_FETCH, case.version, passed) == []


def response(endpoints: bytes, records: bytes = b"records") -> bytes:
    """v1 with one partition, some records and an acquired range."""
    records = write_uvarint(len(records) + 1) + records
    acquired = b"\2" + bytes(18) + b"\0"
    partition = bytes(6) + b"\0" + bytes(2) + b"\0" + bytes(8) + b"\0" + records + acquired + b"\0"
    topic = bytes(16) + b"\2" + partition + b"\0"
    payload = bytes(4) + b"\0" + bytes(6) + b"\0" + bytes(4) + b"\2" + topic + endpoints
    return len(payload).to_bytes(4) + payload


ENDPOINT = (2).to_bytes(4) + b"\5real" + (9092).to_bytes(4) + b"\0\0"
ENDPOINTS = b"\2" + ENDPOINT + b"\0"
WHOLE = response(ENDPOINTS)


def test_versions_without_a_known_place_are_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        ShareFetchSkimmer(3, 100)


@pytest.mark.parametrize("sizes", [[1], [7], [10_000]])
@pytest.mark.parametrize("endpoints", [b"\1\0\0", b"\1", b"\2\0", b""], ids=["more", "less", "too few", "none"])
def test_a_frame_of_another_length_is_refused(endpoints: bytes, sizes: list[int]) -> None:
    with pytest.raises(RemoteProtocolError):
        skim(response(endpoints), sizes, 1)


@given(st.data(), CHUNKS)
def test_damaged_frames_only_raise_remote_protocol_error(data: st.DataObject, sizes: list[int]) -> None:
    frame = data.draw(damaged(WHOLE))
    try:
        passed = skim(frame, sizes, 1, over=data.draw(st.booleans()))
    except RemoteProtocolError:
        return
    assert len(passed) == len(frame)
