"""Repeated requests give the rows that the walkers give: whole in their chunks or cut, valid or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.capture.index.pending import RequestAnnotation, Treatment
from shoal.protocol.capture.index.produce_template import MOST_PARTITIONS, PartitionTemplate, ProduceTemplate
from shoal.protocol.capture.index.sizes import XERIAL
from shoal.protocol.capture.index.template import shared
from shoal.protocol.wire.compression import Codec
from tests.support import frames
from tests.support.captures.produced import Sets, a_batch, answer, answer_of, request, request_of
from tests.support.captures.readable import IDS, Kept, new_tap

if TYPE_CHECKING:
    from shoal.protocol.capture.index.tap import Tap

VERSIONS = range(3, 14)


def seen(exchanges: list[tuple[bytes, bytes]], *, cut: int | None) -> tuple[Tap, Kept]:
    """`cut`: the walkers see each frame in two chunks, and read it byte by byte."""
    tap, kept = new_tap()
    for at, (asked, answered) in enumerate(exchanges):
        for see, frame, now in ((tap.sent, asked, 10 * at), (tap.received, answered, 10 * at + 7)):
            for part in (frame,) if cut is None else (frame[:cut], frame[cut:]):
                see(memoryview(part), now)
    tap.close()
    return tap, kept


def same(exchanges: list[tuple[bytes, bytes]]) -> Kept:
    (whole, kept), (cut, wanted) = seen(exchanges, cut=None), seen(exchanges, cut=4)
    assert kept.rows == wanted.rows
    assert (whole.unread, whole.lost, whole._room) == (cut.unread, cut.lost, cut._room)
    return kept


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each answer was read by a template."""
    found: list[bool] = []
    row = PartitionTemplate.row

    def usual(self: PartitionTemplate, *given_: Any) -> Any:
        made = row(self, *given_)
        found.append(made is not None)
        return made

    monkeypatch.setattr(PartitionTemplate, "row", usual)
    return found


def test_only_short_names_are_kept_for_all_connections() -> None:
    """A client may have another id of 32 kB in each request."""
    for size, is_kept in ((512, True), (513, False)):
        assert (shared(bytes(size)) is shared(bytes(size))) is is_kept


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("codec", list(Codec))
def test_all_but_the_first_are_read_by_a_form(version: int, codec: Codec, reads: list[bool]) -> None:
    sizes = ((3, 40), (1, 1), (900, 100), (3, 20_000))
    exchanges = [
        (request(version, at, a_batch(codec, *size), index=at), answer(version, at, index=at, offset=at))
        for at, size in enumerate(sizes)
    ]
    kept = same(exchanges)
    assert reads == [True] * 3
    assert [row["log_offset"] for row in kept.rows] == [0, 1, 2, 3]
    assert {row["topic"] for row in kept.rows} == {"by-id" if version == 13 else "orders"}


def test_a_connection_with_some_topics_has_a_form_for_each(reads: list[bool]) -> None:
    names = ["a", "b", "other", "b", "a", "other"] * 3
    same([(request(9, at, a_batch(), topic=name), answer(9, at, topic=name)) for at, name in enumerate(names)])
    assert reads == [True] * 15


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize(
    "given_", [{"error": 6, "offset": -1}, {"error": 6, "text": "no"}, {"index": 5}, {"throttle": 9}]
)
def test_answers_that_are_otherwise_are_read_all_the_same(version: int, given_: dict[str, Any]) -> None:
    rest = [(request(version, at, a_batch()), answer(version, at)) for at in (3, 4)]
    same([*rest, (request(version, 5, a_batch()), answer(version, 5, **given_)), *rest])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY])
def test_codecs_that_say_their_size_elsewhere_are_understood(codec: Codec, reads: list[bool]) -> None:
    exchanges = [(request(9, at, a_batch(codec)), answer(9, at)) for at in range(3)]
    kept = same([(request(9, 9, a_batch()), answer(9, 9)), *exchanges])
    assert reads == [True] * 3
    assert {row["raw_bytes"] for row in kept.rows} == {kept.rows[0]["raw_bytes"]}


BLOCK = bytes(cramjam.snappy.compress_raw(b"plain" * 9))
FRAMED = len(BLOCK).to_bytes(4) + BLOCK
PIECES = st.sampled_from(
    [BLOCK, FRAMED, XERIAL + bytes(8), XERIAL, b"\xff" * 9, b"\0\0\0\1", b"\0\0\0\1\x2d", bytes(4), b""]
)


@settings(deadline=None)
@given(st.sampled_from([1, 2]), st.lists(PIECES, max_size=5).map(b"".join) | st.binary(max_size=40))
def test_of_any_payload_the_same_size_is_known(codec: int, payload: bytes) -> None:
    header = bytearray(a_batch()[:61])
    header[8:12], header[22] = (49 + len(payload)).to_bytes(4), codec
    same([(request(9, at, batch), answer(9, at)) for at, batch in enumerate([a_batch(), bytes(header) + payload])])


def test_two_batches_and_other_acks_are_left_to_the_walkers() -> None:
    once = (request(9, 1, a_batch()), answer(9, 1))
    kept = same([once, (request(9, 2, a_batch() * 2), answer(9, 2)), (request(9, 3, a_batch(), acks=0), b""), once])
    assert len(kept.rows) == 5
    assert [row["acks"] for row in kept.rows] == [-1, -1, -1, 0, -1]


EXCHANGE = st.tuples(
    st.sampled_from([4, 9, 13]), st.sampled_from(list(Codec)), st.integers(1, 40), st.integers(0, 2),
    st.integers(0, 2**16), st.binary(max_size=3), st.booleans(),
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.lists(EXCHANGE, min_size=2, max_size=6))
def test_damaged_frames_are_the_same_problem_to_both(drawn: list[Any]) -> None:
    exchanges = []
    for at, (version, codec, records, index, where, damage, in_answer) in enumerate(drawn):
        asked, answered = request(version, at, a_batch(codec, records), index=index), answer(version, at, index=index)
        damaged = bytearray(answered if in_answer else asked)
        place = 8 + where % (
            len(damaged) - 8 - len(damage)
        )  # the size and the correlation id belong to the stream itself
        damaged[place : place + len(damage)] = damage
        exchanges.append((asked, bytes(damaged)) if in_answer else (bytes(damaged), answered))
    same(exchanges)


BEGIN = 4 + 2 + 2 + 4 + 2 + 5 + 1 + 1 + 6 + 1 + 7 + 1 + 4 + 2  # offset of the records of `request(9, ...)`
PLACES = {
    "api": 5, "version": 7, "client": 14, "acks": 21, "topics": 26, "partitions": 34, "length": BEGIN - 2,
    "batch length": BEGIN + 11, "magic": BEGIN + 16, "codec": BEGIN + 22, "tags": -1, "tags of the topic": -2,
}  # fmt: skip


@pytest.mark.parametrize("value", [0, 1, 2, 3, 10, 255])
@pytest.mark.parametrize("place", PLACES)
def test_no_byte_may_differ_unseen(place: str, value: int) -> None:
    first = (request(9, 0, a_batch()), answer(9, 0))
    other = bytearray(request(9, 1, a_batch()))
    assert other[BEGIN + 16] == 2
    other[PLACES[place]] = value
    same([first, (bytes(other), answer(9, 1))])


@pytest.mark.parametrize("value", [0, 1, 255])
@pytest.mark.parametrize("place", range(4, len(answer(9, 0))))
def test_no_byte_of_an_answer_may_differ_unseen(place: int, value: int) -> None:
    first = (request(9, 0, a_batch()), answer(9, 0))
    other = bytearray(answer(9, 1))
    other[place] = value
    same([first, (request(9, 1, a_batch()), bytes(other))])


def test_two_frames_in_a_chunk_are_two() -> None:
    asked = [request(9, at, a_batch()) for at in range(5)]
    answered = [answer(9, at) for at in range(5)]
    exchanges = [(asked[0], answered[0]), (asked[1] + asked[2], answered[1] + answered[2]), (asked[3], answered[3])]
    assert [row["request"] for row in same(exchanges).rows] == [1, 2, 3, 4]


def test_frames_that_share_a_chunk_are_read_by_a_form(reads: list[bool]) -> None:
    asked = [request(9, at, a_batch()) for at in range(5)]
    answered = [answer(9, at) for at in range(5)]
    tap, kept = new_tap()
    for part in (slice(0, 1), slice(1, 5)):
        tap.sent(memoryview(b"".join(asked[part])), 1)
        reads.clear()
        tap.received(memoryview(b"".join(answered[part])), 2)
    assert reads == [False, True, True, True, True]  # the chunk and its contents
    assert [row["request"] for row in kept.rows] == [1, 2, 3, 4, 5]
    assert not tap.unread


def test_more_partitions_than_are_remembered(reads: list[bool]) -> None:
    order = [*range(MOST_PARTITIONS + 1), 2, 1, 0]
    exchanges = [(request(9, at, a_batch(), index=index), answer(9, at, index=index)) for at, index in enumerate(order)]
    assert [row["partition"] for row in same(exchanges).rows] == order
    assert reads == [True] * (len(order) - 1)
    (template,) = seen(exchanges, cut=None)[0].templates
    assert isinstance(template, ProduceTemplate)
    assert len(template._partitions) == 4


def test_a_topic_id_has_its_name_from_the_row_on_at_which_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    tap, kept = new_tap()
    monkeypatch.delitem(IDS, b"i" * 16)
    for at in range(6):
        if at == 3:
            IDS[b"i" * 16] = "by-id"
        tap.sent(memoryview(request(13, at, a_batch())), 1)
        tap.received(memoryview(answer(13, at)), 2)
    assert [row["topic"] for row in kept.rows] == [(b"i" * 16).hex()] * 3 + ["by-id"] * 3


def test_software_that_becomes_known_is_in_the_rows_of_what_is_answered_from_then_on() -> None:
    hello = bytearray(frames.api_versions("maker"))
    hello[8:12] = (3).to_bytes(4)
    tap, kept = new_tap()
    for at in range(3):
        tap.sent(memoryview(request(9, at, a_batch())), 1)
    tap.received(memoryview(answer(9, 0)), 2)
    tap.received(memoryview(answer(9, 1)), 2)
    tap.sent(memoryview(hello), 3)
    tap.received(memoryview(answer(9, 2)), 4)
    assert [row["software"] for row in kept.rows] == [None, None, "bench/1"]


@pytest.mark.parametrize(
    "inside", [answer(9, 3), answer(9, 3, throttle=8), answer(9, 3) + answer(9, 4)], ids=["usual", "throttled", "two"]
)
def test_what_is_inside_an_answer_is_no_answer(inside: bytes) -> None:
    """Whatever it looks like, even at the start of a chunk."""
    tap, kept = new_tap()
    exchanges = [(request(9, at, a_batch()), answer(9, at)) for at in range(2)]
    for asked, answered in exchanges:
        tap.sent(memoryview(asked), 1)
        tap.received(memoryview(answered), 2)
    other = bytearray(frames.metadata("maker"))
    other[8:12] = (2).to_bytes(4)
    for asked in (bytes(other), request(9, 3, a_batch()), request(9, 4, a_batch())):
        tap.sent(memoryview(asked), 1)
    around = (len(inside) + 4).to_bytes(4) + (2).to_bytes(4)
    for chunk in (around, inside, answer(9, 3, offset=1000), answer(9, 4, offset=2000)):
        tap.received(memoryview(chunk), 2)
    assert [(row["request"], row["log_offset"]) for row in kept.rows] == [
        (1, 70),
        (2, 70),
        (3, -1),
        (4, 1000),
        (5, 2000),
    ]


def test_what_waits_is_bounded_and_a_note_is_heeded() -> None:
    tap, kept = new_tap(most_waiting=2)
    for at in range(4):
        tap.sent(memoryview(request(9, at, a_batch())), 1)
    for at in range(4):
        tap.received(memoryview(answer(9, at)), 2)
    assert (kept.dropped, tap._room) == (2, 2)
    tap.note(7, RequestAnnotation(treatment=Treatment(reason="why")))
    tap.sent(memoryview(request(9, 7, a_batch())), 1)
    tap.received(memoryview(answer(9, 7)), 2)
    assert kept.rows[-1]["reason"] == "why"


@pytest.mark.parametrize("partitions", [1, 2])
def test_names_have_new_numbers_in_a_new_file(partitions: int) -> None:
    tap, kept = new_tap()
    sets: Sets = {"orders": dict.fromkeys(range(partitions), a_batch())}
    for at in range(4):
        if at == 2:
            kept.take()
            kept._numbers.renewed()
            kept.number("another")
        tap.sent(memoryview(request_of(9, at, sets)), 1)
        tap.received(memoryview(answer_of(9, at, sets)), 2)
    found = [(row["client"], row["listener"], row["topic"]) for row in kept.rows]
    assert found == [("maker", "here", "orders")] * 2 * partitions


def test_a_connection_that_ends_leaves_requests_without_an_answer() -> None:
    exchanges = [(request(9, 0, a_batch()), answer(9, 0)), (request(9, 1, a_batch()), b"")]
    kept = same(exchanges)
    assert [row["log_offset"] for row in kept.rows] == [70, -1]
