"""The watcher notes the same facts of a streamed response as the decoder and the held path."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.messages.fetch import read_fetch_response
from shoal.protocol.records.recordset import split
from shoal.protocol.transform.watch import MAX_WATCHED, FetchWatcher, WatchedPartition
from shoal.protocol.wire.errors import RemoteProtocolError, UnsupportedVersion
from tests.support.kio_messages import Case, for_any, response_frame
from tests.support.shallow.world import some_batch
from tests.support.shallow.wrapping import next_offset

BATCHES = some_batch(100, 4) + some_batch(104, 3)
LEGACY = (7).to_bytes(8) + (22).to_bytes(4) + bytes(4) + b"\1" + bytes(17)
SETS = [b"", BATCHES, BATCHES[:-1], BATCHES[:70], LEGACY, LEGACY + BATCHES, BATCHES + b"\0" * 40, bytes(17), b"?" * 30]
CHUNKS = st.lists(st.integers(1, 9) | st.integers(1, 3000), min_size=1, max_size=6)


def watched(
    frame: bytes, version: int, sizes: list[int], *, most: int = MAX_WATCHED, over: bool = False
) -> FetchWatcher:
    """`over`: bytes that need not be fed are not."""
    watcher, pos, turn = FetchWatcher(version, len(frame), most=most), 0, 0
    while pos < len(frame):
        size = sizes[turn % len(sizes)]
        if over and min(size, watcher.unread) > 0:
            watcher.passed(size := min(size, watcher.unread))
            pos, turn = pos + size, turn + 1
            continue
        chunk = bytearray(frame[pos : pos + size])
        forward = watcher.feed(chunk)
        if forward < len(chunk):
            watcher.finish(bytearray(frame[pos + forward :]))
            break
        pos, turn = pos + len(chunk), turn + 1
    assert watcher.left == 0
    return watcher


def expected(frame: bytes, version: int) -> list[WatchedPartition]:
    """The held path's result."""
    found = []
    for row in read_fetch_response(frame, version).partitions:
        if row.start < row.end:
            following = next_offset(frame, row.start, row.end, 0)
            batches = len(split(frame, row.start, row.end).spans) if following >= 0 else -1
            found.append(
                WatchedPartition(row.topic, row.partition, row.error_code, row.high_watermark, batches, following)
            )
    return found


def with_sets(entity: Any, data: st.DataObject) -> Any:
    """The same response with record sets that are batches, or nearly."""

    def filled(row: Any) -> Any:
        return replace(row, records=data.draw(st.sampled_from(SETS)))

    topics = (replace(topic, partitions=tuple(map(filled, topic.partitions))) for topic in entity.responses)
    return replace(entity, responses=tuple(topics))


@for_any("FetchResponse", oldest=4, examples=30)
def test_it_sees_what_the_decoder_sees(case: Case, entity: Any, data: st.DataObject) -> None:
    frame = response_frame(with_sets(entity, data))
    watcher = watched(frame, case.version, data.draw(CHUNKS), over=data.draw(st.booleans()))
    response = read_fetch_response(frame, case.version)
    assert (watcher.error_code, watcher.session_id) == (response.error_code, response.session_id)
    seen = [row if row.next_offset >= 0 else row._replace(batches=-1) for row in watcher.partitions]
    assert seen == expected(frame, case.version)


def response(*, name: bytes = b"\7orders", sets: tuple[bytes, ...] = (BATCHES,)) -> bytes:
    """Fetch v12, written by hand."""
    parts = b"".join(
        bytes(30) + b"\1" + bytes(4) + bytes([len(row) + 1 & 127 | 128, len(row) + 1 >> 7]) + row + b"\0"
        for row in sets
    )
    payload = (
        bytes(4)
        + b"\0"
        + bytes(4)
        + bytes(2)
        + (77).to_bytes(4)
        + b"\2"
        + name
        + bytes([len(sets) + 1])
        + parts
        + b"\0\0"
    )
    return len(payload).to_bytes(4) + payload


@pytest.mark.parametrize("sizes", [[1], [10_000]])
def test_an_answer_of_one_partition(sizes: list[int]) -> None:
    watcher = watched(response(), 12, sizes)
    assert watcher.session_id == 77
    assert watcher.partitions == [WatchedPartition("orders", 0, 0, 0, 2, 107)]


@pytest.mark.parametrize("name", [b"\3\xff\xff", b"\xff\1" + b"a" * 254], ids=["no UTF-8", "too long"])
def test_a_name_that_is_none_is_refused(name: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="name"):
        watched(response(name=name), 12, [10_000])


def test_more_partitions_than_are_noted_are_refused() -> None:
    assert len(watched(response(sets=(BATCHES,) * 2), 12, [10_000], most=2).partitions) == 2
    with pytest.raises(RemoteProtocolError, match="more than 2"):
        watched(response(sets=(BATCHES,) * 3), 12, [10_000], most=2)


@pytest.mark.parametrize("version", [3, 19])
def test_unknown_versions_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        FetchWatcher(version, 100)


@given(st.data(), st.integers(4, 18), CHUNKS)
def test_damaged_frames_only_raise_remote_protocol_error(data: st.DataObject, version: int, sizes: list[int]) -> None:
    frame = bytearray(response(sets=(BATCHES, LEGACY)))
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=4)):
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
    try:
        watched(bytes(frame), version, sizes)
    except RemoteProtocolError:
        return
