from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.messages.fetch import read_fetch_response
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.transform.skim import HIDDEN_TAG, FetchSkimmer
from shoal.protocol.wire.errors import RemoteProtocolError, UnsupportedVersion
from shoal.protocol.wire.types import write_tagged_fields, write_uvarint
from tests.support.endpoints import read_endpoints
from tests.support.kio_messages import Case, for_any, response_frame


def skim(
    frame: bytes, sizes: list[int], version: int = 17, *, over: bool = False, kind: type[FetchSkimmer] = FetchSkimmer
) -> bytes:
    """`frame` fed in chunks of `sizes` bytes, repeatedly; returns the client's bytes. `over`: not fed where that is
    allowed."""
    skimmer = kind(version, len(frame))
    passed = bytearray()
    pos = turn = 0
    while pos < len(frame):
        size = sizes[turn % len(sizes)]
        if over and (size := min(size, skimmer.unread)) > 0:
            skimmer.passed(size)
            passed += frame[pos : pos + size]
            pos, turn = pos + size, turn + 1
            continue
        size = sizes[turn % len(sizes)]
        chunk = bytearray(frame[pos : pos + size])
        forward = skimmer.feed(memoryview(chunk))
        passed += chunk[:forward]
        assert skimmer.left == len(frame) - len(passed)
        if forward < len(chunk):
            return bytes(passed + skimmer.finish(bytearray(frame[len(passed) :])))
        pos, turn = pos + size, turn + 1
    return bytes(passed)


@st.composite
def damaged(draw: st.DrawFn, frame: bytes) -> bytes:
    """With up to four other bytes."""
    found = bytearray(frame)
    for at in draw(st.lists(st.integers(0, len(found) - 1), min_size=1, max_size=4)):
        found[at] = draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
    return bytes(found)


CHUNKS = st.lists(st.integers(1, 9) | st.integers(1, 5000), min_size=1, max_size=6)


@for_any("FetchResponse", oldest=16, examples=60)
def test_no_address_and_no_other_byte_is_touched(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = response_frame(entity)
    passed = skim(frame, data.draw(CHUNKS), case.version, over=data.draw(st.booleans()))
    changed = [at for at, (old, new) in enumerate(zip(frame, passed, strict=True)) if old != new]
    if entity.node_endpoints:
        tag = len(response_frame(replace(entity, node_endpoints=())))
        assert changed == [tag]
        assert (frame[tag], passed[tag]) == (0, HIDDEN_TAG)
    else:
        assert changed == []
    assert read_endpoints(ApiKey.FETCH, case.version, passed) == []
    assert replace_endpoints(read_fetch_response(passed, case.version)) == replace_endpoints(
        read_fetch_response(frame, case.version)
    )


def replace_endpoints(response: Any) -> Any:
    return replace(response, node_endpoints=None)


def response(record_set: bytes, tags: bytes) -> bytes:
    """Fetch v17 with one partition, an aborted transaction and unknown tags in every allowed place."""
    future = write_tagged_fields([(7, [b"unknown"]), (900, [b""])])
    partition = bytes(30) + b"\2" + bytes(16) + future + bytes(4) + write_uvarint(len(record_set) + 1) + record_set
    topic = bytes(16) + b"\2" + partition + future + future
    payload = bytes(4) + future + bytes(10) + b"\2" + topic + tags
    return len(payload).to_bytes(4) + payload


ENDPOINTS = b"\2" + (2).to_bytes(4) + b"\5real" + (9092).to_bytes(4) + b"\0\0"


@given(st.integers(0, 40_000), CHUNKS)
def test_unknown_tags_pass(size: int, sizes: list[int]) -> None:
    frame = response(bytes(size), write_tagged_fields([(0, [ENDPOINTS])]))
    hidden = response(bytes(size), write_tagged_fields([(HIDDEN_TAG, [ENDPOINTS])]))
    assert skim(frame, sizes) == hidden
    other = response(bytes(size), write_tagged_fields([(3, [b"?"]), (200, [b"?" * 300])]))
    assert skim(other, sizes) == other


FIELDS = st.dictionaries(st.integers(0, 5) | st.integers(120, 130) | st.integers(0, 1 << 31), st.binary(max_size=300))


@given(FIELDS, st.integers(0, 300), CHUNKS)
def test_endpoints_are_hidden_among_other_tags_in_order_and_all_others_pass(
    fields: dict[int, bytes], size: int, sizes: list[int]
) -> None:
    def frame(fields: dict[int, bytes]) -> bytes:
        return response(bytes(size), write_tagged_fields([(tag, [data]) for tag, data in sorted(fields.items())]))

    passed = skim(frame(fields), sizes)
    expected = dict(fields)
    if 0 in expected:
        expected[max(set(range(1, HIDDEN_TAG + 1)) - expected.keys())] = expected.pop(0)
    assert passed == frame(expected)
    assert len(passed) == len(frame(fields))


def test_endpoints_that_no_tag_can_hide_are_refused() -> None:
    frame = response(b"", write_tagged_fields([(tag, [b"?"]) for tag in range(HIDDEN_TAG + 1)]))
    with pytest.raises(RemoteProtocolError, match="no tag"):
        skim(frame, [10])


@pytest.mark.parametrize("tags", ["02 0000 0000", "02 0100 0000", "02 800000 0100", "02 0000 0101", "03 0000 0100"])
@pytest.mark.parametrize("sizes", [[1], [10_000]])
def test_tags_out_of_order_padded_or_cut_off_are_refused(tags: str, sizes: list[int]) -> None:
    with pytest.raises(RemoteProtocolError):
        skim(response(b"", bytes.fromhex(tags)), sizes)


@pytest.mark.parametrize("version", [4, 15, 19])
def test_versions_without_a_known_place_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        FetchSkimmer(version, 100)


WHOLE = response(b"records", write_tagged_fields([(0, [ENDPOINTS])]))


@pytest.mark.parametrize("sizes", [[1], [7], [10_000]])
@pytest.mark.parametrize(
    "frame", [WHOLE + b"\0", WHOLE[:-1], WHOLE[:20], WHOLE[:-30]], ids=["more", "less", "head", "cut"]
)
def test_a_frame_of_another_length_is_refused(frame: bytes, sizes: list[int]) -> None:
    with pytest.raises(RemoteProtocolError):
        skim(frame, sizes)


def test_an_absurd_count_is_refused_before_its_elements_come() -> None:
    skimmer = FetchSkimmer(17, len(WHOLE))
    with pytest.raises(RemoteProtocolError, match="2147483647 elements or bytes"):
        skimmer.feed(bytearray(bytes(8) + b"\0" + bytes(10) + b"\x80\x80\x80\x80\x08"))


def test_more_bytes_than_the_frame_has_are_refused() -> None:
    skimmer = FetchSkimmer(17, len(WHOLE))
    with pytest.raises(RemoteProtocolError, match="are fed of a frame"):
        skimmer.feed(bytearray(WHOLE + b"\0"))


@given(st.data(), CHUNKS)
def test_damaged_frames_only_raise_remote_protocol_error(data: st.DataObject, sizes: list[int]) -> None:
    frame = data.draw(damaged(WHOLE))
    try:
        passed = skim(frame, sizes, over=data.draw(st.booleans()))
    except RemoteProtocolError:
        return
    assert len(passed) == len(frame)
