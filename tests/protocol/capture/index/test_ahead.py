"""Long Produce requests are parsed as they pass, wherever they are cut; at anything unusual the walker takes over
mid-request."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

import pytest

from shoal.protocol.capture.index import ahead as ahead_module
from shoal.protocol.wire.compression import Codec
from tests.support.captures.produced import a_batch, answer_of, request_of
from tests.support.captures.readable import Kept, new_tap

if TYPE_CHECKING:
    from shoal.protocol.capture.index.tap import Tap
    from tests.support.captures.produced import Sets

VERSIONS = [3, 8, 9, 12, 13]
SETS: Sets = {
    "orders": {0: a_batch(), 7: a_batch(Codec.ZSTD, 900, 100), 300: a_batch(records=1, size=1)},
    "others": {1: a_batch(Codec.LZ4)},
}
LARGE: Sets = {"orders": {0: a_batch(size=400), 1: a_batch(size=9_000), 2: a_batch(size=20)}}


def learnt(version: int) -> tuple[Tap, Kept]:
    """A connection after one such request."""
    tap, kept = new_tap()
    tap.sent(memoryview(request_of(version, 0, SETS)), 0)
    tap.received(memoryview(answer_of(version, 0, SETS)), 1)
    return tap, kept


def passed(tap: Tap, chunk: bytes, now_ns: int) -> bool:
    """As in the proxy; -> whether the chunk was read ahead."""
    found = tap.ahead.read(memoryview(chunk))
    if found is None:
        tap.sent_now(memoryview(chunk), now_ns)
        return False
    tap.read(found, now_ns)
    return True


def rows(version: int, sets: Sets, pieces: list[bytes], *, ahead: bool) -> tuple[list[bool], list[dict[str, Any]]]:
    tap, kept = learnt(version)
    read = []
    for at, piece in enumerate(pieces):
        if ahead:
            read.append(passed(tap, piece, 10 + at))
        else:
            for part in (piece[:4], piece[4:]):
                tap.sent(memoryview(part), 10 + at)
    tap.received(memoryview(answer_of(version, 1, sets)), 99)
    assert tap.unread == 0
    tap.close()
    return read, kept.rows


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("sets", [SETS, LARGE], ids=["some topics", "large"])
def test_whole_requests_are_read(version: int, sets: Sets) -> None:
    frame = request_of(version, 1, sets)
    read, found = rows(version, sets, [frame], ahead=True)
    assert read == [True]
    assert found == rows(version, sets, [frame], ahead=False)[1]
    assert len(found) == 4 + sum(map(len, sets.values()))


@pytest.mark.parametrize("version", VERSIONS)
def test_wherever_a_request_is_cut_the_rows_are_the_same(version: int) -> None:
    frame = request_of(version, 1, SETS)
    _, wanted = rows(version, SETS, [frame, b""], ahead=False)
    reads = []
    for at in range(1, len(frame)):
        read, found = rows(version, SETS, [frame[:at], frame[at:]], ahead=True)
        times = [{**row, "time_ns": 0, "latency_ns": 0} for row in found]
        assert times == [{**row, "time_ns": 0, "latency_ns": 0} for row in wanted], at
        assert {row["time_ns"] for row in found[4:]} == {11}
        reads.append(read)
    records = sum(len(batch) - 61 for sets in SETS.values() for batch in sets.values())
    assert 0.8 * records < reads.count([True, True]) <= records + 4


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_may_come_in_many_pieces_and_others_with_them(version: int) -> None:
    two = request_of(version, 1, LARGE) + request_of(version, 2, LARGE)
    pieces = [two[at : at + 6_500] for at in range(0, len(two), 6_500)]
    tap, kept = learnt(version)
    assert all(passed(tap, piece, 10 + at) for at, piece in enumerate(pieces))
    for at in (1, 2):
        tap.received(memoryview(answer_of(version, at, LARGE)), 99)
    tap.close()
    assert [(row["request"], row["partition"]) for row in kept.rows[4:]] == [
        (at, index) for at in (2, 3) for index in range(3)
    ]


OLD = bytearray(a_batch())
OLD[16] = 1
BEYOND = bytearray(a_batch())
BEYOND[8:12] = (len(BEYOND) + 4000).to_bytes(4)
UNUSUAL: dict[str, tuple[Sets, dict[str, Any]]] = {
    "two batches": ({"orders": {0: a_batch(), 1: a_batch() * 2}}, {}),
    "no records": ({"orders": {0: a_batch(), 1: b""}}, {}),
    "no partitions": ({"orders": {}}, {}),
    "no topics": ({}, {}),
    "another client": (SETS, {"client": "other"}),
    "a transaction": (SETS, {"transaction": "mine"}),
    "other acks": (SETS, {"acks": 1}),
    "an old message": ({"orders": {0: bytes(OLD)}}, {}),
    "a batch that ends behind its set": ({"orders": {0: bytes(BEYOND), 1: a_batch()}}, {}),
    "a batch that ends behind its request": ({"orders": {0: bytes(BEYOND)}}, {}),
    "gzip that is not whole": ({"orders": {0: a_batch(Codec.GZIP), 1: a_batch(Codec.GZIP, 900, 100)}}, {}),
    "snappy that is not whole": ({"orders": {0: a_batch(Codec.SNAPPY), 1: a_batch(Codec.SNAPPY, 900, 100)}}, {}),
    "many partitions": ({"orders": dict.fromkeys(range(ahead_module.MOST_PARTITIONS + 1), a_batch())}, {}),
}


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("what", UNUSUAL)
def test_what_is_not_as_usual_is_left_alone(version: int, what: str) -> None:
    sets, given_ = UNUSUAL[what]
    frame = request_of(version, 1, sets, **given_)
    chunk = frame[:-8] if what.endswith("not whole") else frame
    tap, _ = learnt(version)
    assert tap.ahead.read(memoryview(chunk)) is None
    assert tap.ahead.begun is None


@pytest.mark.parametrize("chunk", [b"", b"\0", bytes(60), b"\xff" * 60, bytes(4096)])
@pytest.mark.parametrize("version", [3, 9])
def test_bytes_that_are_no_request_are_left_alone(version: int, chunk: bytes) -> None:
    tap, _ = learnt(version)
    assert tap.ahead.read(memoryview(chunk)) is None
    assert new_tap()[0].ahead.read(memoryview(chunk)) is None


@pytest.mark.parametrize("at", [-1, -2, -3])
def test_tags_are_left_alone(at: int) -> None:
    frame = bytearray(request_of(9, 1, SETS))
    frame[at] = 1
    tap, _ = learnt(9)
    assert tap.ahead.read(memoryview(frame)) is None


def test_a_request_that_ends_before_its_acks_says_nothing_of_those_behind_it() -> None:
    frame = request_of(9, 0, SETS)
    at = frame.index(Struct(">hi").pack(-1, 30_000))
    tap, _ = new_tap()
    tap.sent(memoryview((at - 4).to_bytes(4) + frame[4:at]), 0)
    assert tap.unread == 1
    assert tap.ahead.known is ahead_module.NOTHING
    tap.sent(memoryview(frame), 1)
    assert tap.ahead.known.acks == -1


def without_transactions(version: int) -> bytes:
    frame = request_of(3, 0, SETS)
    at = 4 + 8 + 2 + len("maker")  # null transactional id
    return (len(frame) - 6).to_bytes(4) + bytes([0, 0, 0, version]) + frame[8:at] + frame[at + 2 :]


@pytest.mark.parametrize("frame", [without_transactions(2), request_of(9, 0, SETS, acks=0)])
def test_of_old_versions_and_without_acks_nothing_is_learnt(frame: bytes) -> None:
    tap, kept = new_tap()
    tap.sent(memoryview(frame), 0)
    tap.close()
    assert len(kept.rows) == 4
    assert tap.ahead.known is ahead_module.NOTHING
