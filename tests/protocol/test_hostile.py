"""For all input: every decoder raises RemoteProtocolError or returns ranges in the frame, in bounded time."""

import gc
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from time import thread_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.messages.api_versions import intersect
from shoal.protocol.messages.fetch import (
    read_fetch_request,
    read_fetch_response,
    replace_record_sets,
)
from shoal.protocol.messages.metadata import read_metadata_response
from shoal.protocol.messages.produce import peek_acks, read_produce_request, read_produce_response
from shoal.protocol.schema.api import ApiKey
from shoal.protocol.schema.headers import read_request_header, response_body
from shoal.protocol.transform.addresses import ADDRESS_RESPONSES, rewrite_endpoints
from shoal.protocol.wire.errors import RemoteProtocolError
from tests.support.endpoints import read_endpoints
from tests.support.kio_messages import Case, cases, entities, request_frame, response_frame

Reader = Callable[[Any], object]

SECONDS = 0.25
"""CPU time for a frame of less than a megabyte; a thousand times what these take."""


def replaced(frame: Any, version: int) -> object:
    response = read_fetch_response(frame, version)
    return replace_record_sets(frame, version, [(partition, [b"new"]) for partition in response.partitions])


def _peek_acks(frame: Any, version: int) -> object:
    return peek_acks(frame)


def readers(case: Case) -> Iterator[Reader]:
    version = case.version
    by_name: dict[str, list[Callable[..., object]]] = {
        "FetchRequest": [read_fetch_request],
        "FetchResponse": [read_fetch_response, replaced],
        "ProduceRequest": [read_produce_request, _peek_acks],
        "ProduceResponse": [read_produce_response],
        "MetadataResponse": [read_metadata_response],
        "ApiVersionsResponse": [intersect],
    }
    for read in by_name.get(case.name, []):
        yield partial(read, version=version)
    if case.name in ("FetchRequest", "ProduceRequest"):
        yield read_request_header
    elif case.name.endswith("Response") and case.api_key in ADDRESS_RESPONSES:
        yield partial(read_endpoints, case.api_key, version)
        yield lambda frame: rewrite_endpoints(case.api_key, version, frame, lambda *_: ("shoal", 9092))


READ = [case for case in cases() if list(readers(case))]


def positions(value: object) -> Iterator[int]:
    """Every range that the decoder returned."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        for name in {"start", "end", "field", "base_offset_at", "max_bytes_at"} & set(value._fields):
            yield getattr(value, name)
    elif is_dataclass(value):
        for field in fields(value):
            part = getattr(value, field.name)
            if field.name in ("node_endpoints", "max_bytes_at") and part is not None:
                yield from part if isinstance(part, tuple) else (part,)
            elif isinstance(part, tuple):
                for one in part:
                    yield from positions(one)


def timed(read: Reader, frame: Any) -> tuple[object, float]:
    begin = thread_time()
    try:
        found = read(frame)
    except RemoteProtocolError:
        found = None
    return found, thread_time() - begin


def survive(read: Reader, frame: Any) -> None:
    found, seconds = timed(read, frame)
    if seconds >= SECONDS:  # a slow decoder is always slow; garbage collection for other tests is not
        gc.collect()
        _, seconds = timed(read, frame)
    assert seconds < SECONDS
    assert all(0 <= at <= len(frame) for at in positions(found))


EDGES = st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]) | st.integers(0, 255)
LENGTHS = st.sampled_from(
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xfe",
        b"\x80\0\0\0",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x7f",
    ]
)


@st.composite
def damaged(draw: st.DrawFn, frame: bytes) -> bytes:
    """Bytes overwritten, absurd lengths inserted, pieces removed, doubled or truncated; one or several of these."""
    made = bytearray(frame)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(made)))
        match draw(st.integers(0, 4)):
            case 0 | 1:
                made[at : at + 1] = bytes([draw(EDGES)])
            case 2:
                length = draw(LENGTHS)
                made[at : at + len(length)] = length
            case 3:
                del made[at : at + draw(st.integers(1, 8))]
            case _:
                made[at:at] = made[at : at + draw(st.integers(1, 40))]
    return bytes(made[: draw(st.integers(0, len(made)))] if draw(st.integers(0, 9)) == 0 else made)


@pytest.mark.parametrize("case", READ, ids=lambda case: f"{case.name}-v{case.version}")
def test_a_damaged_frame(case: Case) -> None:
    make = request_frame if case.name.endswith("Request") else response_frame

    @settings(max_examples=30, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        frame = data.draw(damaged(make(data.draw(entities(case)))))
        for read in readers(case):
            survive(read, memoryview(bytearray(frame)))
            survive(read, frame)

    check()


@pytest.mark.parametrize("case", READ, ids=lambda case: f"{case.name}-v{case.version}")
@settings(max_examples=30, deadline=None)
@given(frame=st.binary(max_size=120))
def test_random_bytes(case: Case, frame: bytes) -> None:
    for read in readers(case):
        survive(read, frame)
        survive(read, bytes(4) + case.api_key.to_bytes(2) + case.version.to_bytes(2) + bytes(4) + b"\xff\xff" + frame)


FILLERS = [b"\0", b"\1", b"\2", b"\x7f", b"\x80", b"\xff", b"\xff\xff\xff\xff\x07", b"\0\0\0\1", b"\7\xff\xff\xff"]


@pytest.mark.parametrize("case", READ, ids=lambda case: f"{case.name}-v{case.version}")
def test_a_long_frame_of_one_pattern(case: Case) -> None:
    """Counts almost as large as the frame, at every depth."""
    head = bytes(4) + case.api_key.to_bytes(2) + case.version.to_bytes(2) + bytes(4) + b"\xff\xff"
    start = head if case.name.endswith("Request") else bytes(8)
    for filler in FILLERS:
        for read in readers(case):
            survive(read, start + filler * (60_000 // len(filler)))


@pytest.mark.parametrize("version", [4, 11])
def test_a_negative_length_does_not_loop(version: int) -> None:
    """An 80-byte frame that once made a hand-written walker loop 2^31 times."""
    body = bytes(4) + (bytes(6) if version >= 7 else b"") + b"\x7f\xff\xff\xff" + b"\xff\xfa" + bytes(60)
    survive(lambda frame: read_fetch_response(frame, version), bytes(8) + body)
    with pytest.raises(RemoteProtocolError):
        read_fetch_response(bytes(8) + body, version)


def test_tags_of_a_header_that_do_not_end() -> None:
    frame = bytes(8) + b"\xff\xff\xff\xff\x07" + bytes(100_000)
    survive(lambda frame: response_body(frame, ApiKey.FETCH, 12), frame)
