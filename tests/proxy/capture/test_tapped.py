"""Deferred parsing of a tapped transport gives the rows that immediate parsing gives, for any traffic, cut anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.capture.index.pending import FetchOutcome, RequestAnnotation, Treatment
from shoal.protocol.capture.index.rows import ConnectionInfo
from shoal.protocol.capture.index.stream import is_whole
from shoal.protocol.capture.index.tap import MAX_WAITING, Tap
from shoal.protocol.wire.compression import Codec
from shoal.proxy.capture.backlog import LIMITS, Backlog, BacklogLimits
from shoal.proxy.capture.index import Capture
from shoal.proxy.capture.tapped import _OF_A_BATCH, TappedTransport
from shoal.proxy.config.settings import CaptureSettings
from tests.support import frames
from tests.support.captures.capture_index import whole_index
from tests.support.captures.produced import Sets, a_batch, answer, answer_of, request, request_of
from tests.support.captures.readable import Kept, new_tap
from tests.support.no_transport import NoTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from shoal.protocol.capture.index.produce_template import Frame
    from shoal.proxy.net.transport import Buffer


TOPIC = frames.Topic("orders", bytes(range(16)))
PLACE = ConnectionInfo(connection=7, listener="here", cluster="there", node=3)
VIEW = memoryview(bytearray(32 * 1024 * 1024))


class Socket(NoTransport):
    """A socket with scripted sends and receives."""

    def __init__(self) -> None:
        super().__init__(0)
        self.next = b""
        self.takes: int | None = None  # bytes of a `sendmsg`; None: all

    def sendmsg(self, buffers: Iterable[Buffer], /) -> int:
        return super().sendmsg(buffers) if self.takes is None else self.takes

    def recv_into(self, buffer: memoryview, /) -> int:
        buffer[: len(self.next)] = self.next
        return len(self.next)


class Rig:
    """A connection as in the proxy; times are those of `clock`."""

    def __init__(
        self,
        limits: BacklogLimits = LIMITS,
        *,
        sink: Kept | None = None,
        tap: type[Tap] = Tap,
        most_waiting: int = MAX_WAITING,
    ) -> None:
        self.kept = sink or Kept()
        self.wakes = self.broke = self.ends = self.clock = 0
        self.backlog = Backlog(self._woken, self._failed, limits)
        self.tap = tap(PLACE, self.kept, None, self.backlog.settle, most_waiting=most_waiting)
        self.socket = Socket()
        self.transport = TappedTransport(self.socket, self.tap, self, self.backlog, lambda: self.clock)

    def _woken(self) -> None:
        self.wakes += 1

    def _failed(self, tap: Tap) -> None:
        assert tap is self.tap
        self.transport.give_up()

    def broken(self, tap: Tap) -> None:
        self.broke += 1

    def ended(self, tap: Tap) -> None:
        self.ends += 1

    @property
    def deferred_bytes(self) -> int:
        return self.backlog.limits.bytes - self.backlog.room

    def sent(self, chunk: bytes, now_ns: int = 1) -> None:
        """From a reused buffer, as in the proxy."""
        self.clock = now_ns
        VIEW[: len(chunk)] = chunk
        assert self.transport.send(VIEW[: len(chunk)]) == len(chunk)
        VIEW[: len(chunk)] = b"?" * len(chunk)

    def received(self, chunk: bytes, now_ns: int = 2) -> None:
        self.clock, self.socket.next = now_ns, chunk
        assert self.transport.recv_into(VIEW) == len(chunk)
        VIEW[: len(chunk)] = b"?" * len(chunk)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def exchange(rig: Rig, correlation_id: int, **given_: Any) -> None:
    rig.sent(request(9, correlation_id, a_batch(), **given_))
    rig.received(answer(9, correlation_id, **given_))


def is_amid(rig: Rig) -> bool:
    """Part of a request has been read ahead."""
    return rig.tap.ahead.begun is not None


# -- what is deferred --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [1, 2])
def test_only_the_first_of_a_producers_requests_is_looked_at_at_once(rig: Rig, batches: int) -> None:
    for at in range(10):
        rig.sent(request(9, at, a_batch() * batches))
        rig.received(answer(9, at))
    assert (len(rig.kept.raw), len(rig.backlog.waiting)) == (0, 19)  # the answer to the first is deferred
    rig.backlog.settle()
    assert [row["request"] for row in rig.kept.rows] == [at for at in range(1, 11) for _ in range(batches)]


def test_of_who_fetches_nothing_is_put_off(rig: Rig) -> None:
    exchange(rig, 0)
    for waiting in (1, 0):  # it had produced before
        rig.backlog.settle()
        rig.sent(frames.fetch("reader", TOPIC, {0: 0}))
        assert len(rig.backlog.waiting) == waiting
        rig.received(frames.fetch_answer(TOPIC, a_batch() * 40))
        assert len(rig.backlog.waiting) == 0
    assert len(rig.kept.rows) == 81


def test_requests_that_share_a_chunk_are_put_off_together(rig: Rig) -> None:
    exchange(rig, 0)
    exchange(rig, 1)
    rig.sent(b"".join(request(9, at, a_batch()) for at in (2, 3, 4)))
    rig.received(b"".join(answer(9, at) for at in (2, 3, 4)))
    assert len(rig.backlog.waiting) == 5  # the answer to the first, the second exchange, and two chunks
    rig.backlog.settle()
    assert [row["request"] for row in rig.kept.rows] == [1, 2, 3, 4, 5]


WHOLE = request(9, 2, a_batch())
NOT_WHOLE = [
    b"\0",
    WHOLE[:-1],
    WHOLE + WHOLE[:8],
    WHOLE + b"\xff\xff\xff\xf0" + bytes(8),
    WHOLE + bytes(12),
    bytes(40),
]


@pytest.mark.parametrize("chunk", NOT_WHOLE)
def test_frames_that_are_not_whole_are_not_put_off(chunk: bytes) -> None:
    assert is_whole(WHOLE * 3, 3 * len(WHOLE))
    assert not is_whole(chunk, len(chunk))


def test_a_row_has_the_times_of_its_traffic(rig: Rig) -> None:
    for at in range(4):
        rig.sent(request(9, at, a_batch()), 1000 * at)
        rig.received(answer(9, at), 1000 * at + 70)
    rig.backlog.settle()
    assert [(row["time_ns"], row["latency_ns"]) for row in rig.kept.rows] == [(1000 * at, 70) for at in range(4)]


def test_a_long_request_is_read_ahead_and_not_copied(rig: Rig) -> None:
    exchange(rig, 0)
    exchange(rig, 1)
    for at in range(2, 5):
        rig.sent(request(9, at, a_batch(records=9, size=4000)))
        rig.received(answer(9, at))
    assert [type(what) for *_, what, _ in rig.backlog.waiting][-6:] == [tuple, bytes] * 3
    rig.backlog.settle()
    assert [row["request"] for row in rig.kept.rows] == [1, 2, 3, 4, 5]
    assert rig.kept.rows[-1]["record_count"] == 9


@pytest.mark.parametrize("names", [("orders", "a" * 90), ("a" * 90, "orders")])
def test_what_was_kept_for_one_topic_is_not_read_as_for_another(rig: Rig, names: tuple[str, str]) -> None:
    for at in range(8):
        exchange(rig, at, topic=names[at % 2])
    rig.backlog.settle()
    for at in range(8, 12):
        rig.sent(request(9, at, a_batch(records=9, size=4000), topic=names[at % 2]))
        rig.received(answer(9, at, topic=names[at % 2]))
    assert [see.__name__ for _, see, *_ in rig.backlog.waiting] == ["held", "received"] * 4
    rig.backlog.settle()
    assert [row["topic"] for row in rig.kept.rows] == [*names] * 6
    assert rig.broke == 0


def test_what_is_in_front_of_a_request_that_was_read_ahead_may_change_its_name(rig: Rig) -> None:
    hello = bytearray(frames.api_versions("maker"))
    hello[8:12] = (2).to_bytes(4)
    exchange(rig, 0)
    exchange(rig, 1)
    rig.sent(bytes(hello))
    rig.sent(request(9, 3, a_batch(records=9, size=4000)))
    rig.received((8).to_bytes(4) + (2).to_bytes(4) + bytes(4))
    rig.received(answer(9, 3))
    rig.transport.close()
    assert [(row["request"], row["software"]) for row in rig.kept.rows][2:] == [(3, "bench/1"), (4, "bench/1")]


@pytest.mark.parametrize("size", [40, 4000])
def test_what_is_inside_a_request_is_no_request(rig: Rig, size: int) -> None:
    exchange(rig, 0)
    exchange(rig, 1)
    inside, head = request(9, 3, a_batch(size=size)), Struct(">hhih").pack(18, 99, 2, 0)
    rig.sent((len(head) + len(inside)).to_bytes(4) + head)
    rig.sent(inside)
    rig.received((4).to_bytes(4) + (2).to_bytes(4))
    exchange(rig, 4)
    rig.transport.close()
    assert [(row["request"], row["api_key"]) for row in rig.kept.rows] == [(1, 0), (2, 0), (3, 18), (4, 0)]


def test_a_connection_that_ends_has_all_its_rows(rig: Rig) -> None:
    for at in range(5):
        exchange(rig, at)
    rig.sent(request(9, 5, a_batch()))
    rig.transport.close()
    assert [row["log_offset"] for row in rig.kept.rows] == [70] * 5 + [-1]
    assert (rig.ends, rig.broke) == (1, 0)


SAYINGS: dict[str, Callable[[Tap], Any]] = {
    "note": lambda tap: tap.note(99, RequestAnnotation()),
    "judge": lambda tap: tap.judge(99, {}),
    "expect_tokens": lambda tap: tap.expect_tokens(1),
    "unread": lambda tap: tap.unread,
    "lost": lambda tap: tap.lost,
    "next_number": lambda tap: tap.next_number(),
}


@pytest.mark.parametrize("saying", SAYINGS)
def test_before_anything_is_said_of_a_connection_all_is_seen(rig: Rig, saying: str) -> None:
    for at in range(5):
        exchange(rig, at)
    SAYINGS[saying](rig.tap)
    assert len(rig.kept.raw) == 5


def test_what_waits_is_bounded(rig: Rig) -> None:
    exchange(rig, 0)
    for at in range(1, LIMITS.chunks):
        exchange(rig, at)
        assert len(rig.backlog.waiting) < LIMITS.chunks
    assert rig.wakes >= LIMITS.chunks // LIMITS.wake_every
    copied = [what for _, see, _, what, _ in rig.backlog.waiting if see == rig.tap.sent]
    assert rig.deferred_bytes == sum(map(len, copied)) < LIMITS.bytes
    rig.backlog.settle()
    assert rig.deferred_bytes == 0
    assert len(rig.kept.raw) == LIMITS.chunks


def test_long_requests_of_many_partitions_are_read_ahead(rig: Rig) -> None:
    exchange(rig, 0)
    sets = {topic: dict.fromkeys(range(5), a_batch(records=9, size=400)) for topic in ("orders", "others")}
    for at in range(1, 4):
        rig.sent(request_of(9, at, sets))
        rig.received(answer_of(9, at, sets))
    assert len(rig.kept.raw) == 0
    assert rig.deferred_bytes == 3 * 10 * _OF_A_BATCH
    rig.backlog.settle()
    assert rig.deferred_bytes == 0
    places = [(topic, index) for topic in sets for index in range(5)]
    assert [(row["request"], row["topic"], row["partition"]) for row in rig.kept.rows] == [
        (1, "orders", 0), *((at, *place) for at in (2, 3, 4) for place in places),
    ]  # fmt: skip


def test_a_request_that_comes_in_pieces_is_read_as_they_pass(rig: Rig) -> None:
    exchange(rig, 0)
    sets = {"orders": dict.fromkeys(range(3), a_batch(records=9, size=4000))}
    asked = request_of(9, 1, sets)
    for at in range(0, len(asked), 20_000):
        rig.sent(asked[at : at + 20_000], at)
    rig.received(answer_of(9, 1, sets), 1_000_000)
    assert [see.__name__ for _, see, *_ in rig.backlog.waiting] == ["received", "read", "received"]
    rig.backlog.settle()
    assert [(row["partition"], row["time_ns"], row["latency_ns"]) for row in rig.kept.rows[1:]] == [
        (at, 100_000, 900_000) for at in range(3)
    ]


def test_the_walker_goes_on_where_a_piece_is_not_as_usual(rig: Rig) -> None:
    exchange(rig, 0)
    sets = {"orders": {0: a_batch(records=9, size=4000), 1: a_batch(records=9, size=4000) * 2, 2: a_batch()}}
    asked = request_of(9, 1, sets)
    begun = []
    for piece in (asked[:20_000], asked[20_000:50_000], asked[50_000:]):
        rig.sent(piece)
        begun.append(is_amid(rig))
    assert begun == [True, False, False]
    rig.received(answer_of(9, 1, sets))
    exchange(rig, 2)
    rig.backlog.settle()
    assert [(row["request"], row["partition"]) for row in rig.kept.rows] == [
        (1, 0), (2, 0), (2, 1), (2, 1), (2, 2), (3, 0),
    ]  # fmt: skip


@pytest.mark.parametrize("saying", ["note", "unread", "next_number"])
def test_in_the_midst_of_a_request_the_walker_takes_over(rig: Rig, saying: str) -> None:
    exchange(rig, 0)
    sets = {"orders": dict.fromkeys(range(3), a_batch(records=9, size=4000))}
    asked = request_of(9, 1, sets)
    rig.sent(asked[:50_000])
    assert is_amid(rig)
    SAYINGS[saying](rig.tap)
    assert not is_amid(rig)
    rig.sent(asked[50_000:])
    rig.received(answer_of(9, 1, sets))
    rig.backlog.settle()
    assert [(row["request"], row["partition"]) for row in rig.kept.rows] == [(1, 0), (2, 0), (2, 1), (2, 2)]


def test_what_was_read_ahead_is_bounded() -> None:
    most = 250 * _OF_A_BATCH
    rig = Rig(BacklogLimits(bytes=most))
    exchange(rig, 0)
    sets = {"orders": dict.fromkeys(range(100), a_batch(size=400))}
    for at in range(1, 6):
        rig.sent(request_of(9, at, sets))
        assert rig.deferred_bytes <= most
        rig.received(answer_of(9, at, sets))
    rig.backlog.settle()
    assert len(rig.kept.rows) == 501


def test_requests_without_batches_take_no_room_from_those_with_some(rig: Rig) -> None:
    """They were assumed to have as many as the one before."""
    exchange(rig, 0)
    for at in range(1, 6):
        rig.sent(request(9, 2 * at, a_batch() * 3))
        rig.received(answer(9, 2 * at))
        hello = bytearray(frames.api_versions("maker"))
        hello[8:12] = (2 * at + 1).to_bytes(4)
        rig.sent(bytes(hello))
        rig.received((4).to_bytes(4) + (2 * at + 1).to_bytes(4))
    rig.backlog.settle()
    assert rig.tap._room == MAX_WAITING


def test_an_answer_to_be_judged_is_not_overtaken_by_those_behind_it() -> None:
    seen: list[str] = []

    class Told(Tap):
        def received(self, chunk: Frame, now_ns: int) -> None:
            seen.append(f"begins {now_ns}")
            super().received(chunk, now_ns)
            seen.append(f"ends {now_ns}")

    rig = Rig(BacklogLimits(step=1), tap=Told)
    exchange(rig, 0)
    rig.backlog.settle()
    fetch, fetched = frames.fetch("reader", TOPIC, {0: 0}), frames.fetch_answer(TOPIC, a_batch())
    rig.tap.note(1, RequestAnnotation(judged=True))
    rig.sent(fetch[:8] + (1).to_bytes(4) + fetch[12:])
    rig.sent(request(9, 2, a_batch()))
    rig.received(fetched[:4] + (1).to_bytes(4) + fetched[8:], 11)
    rig.received(answer(9, 2), 12)
    while rig.backlog.settle_some():
        pass
    assert seen[2:] == ["begins 11", "ends 11", "begins 12", "ends 12"]


@pytest.mark.parametrize("size", [40, 1000])
def test_the_bytes_that_wait_are_bounded(size: int) -> None:
    large = request(9, 1, a_batch(records=9, size=size) * 2)  # cannot be read ahead
    rig = Rig(BacklogLimits(bytes=3 * len(large)))
    exchange(rig, 0)
    for at in range(1, 9):
        rig.sent(large[:8] + at.to_bytes(4) + large[12:])
        rig.received(answer(9, at))
        assert rig.backlog.room >= 0
    assert 1 < len(rig.kept.rows) < 17
    rig.backlog.settle()
    assert [row["request"] for row in rig.kept.rows] == [1, *(at for at in range(2, 10) for _ in range(2))]


def test_what_waits_is_read_in_slices() -> None:
    rig = Rig(BacklogLimits(slice_ns=0))
    for at in range(1 + 20):
        exchange(rig, at)
    assert [(rig.backlog.settle_some(), len(rig.kept.raw)) for _ in range(3)] == [(True, 8), (True, 16), (False, 21)]
    assert [row["request"] for row in rig.kept.rows] == list(range(1, 22))


class Angry(Kept):
    def add(self, rows: bytes) -> None:
        if len(self.raw) == 3:
            raise ZeroDivisionError
        super().add(rows)


def test_an_error_in_shoal_ends_the_index_of_its_connection_alone() -> None:
    rig = Rig(sink=Angry())
    for at in range(6):
        exchange(rig, at)
    rig.backlog.settle()
    exchange(rig, 7)
    rig.transport.close()
    assert (rig.broke, rig.ends, len(rig.kept.raw)) == (1, 0, 3)


class AngryCapture(Capture):
    def add(self, rows: bytes) -> None:
        if self._waiting:
            raise ZeroDivisionError
        super().add(rows)


class AngryWhenSent(Tap):
    def sent(self, chunk: Frame, now_ns: int) -> None:
        raise ZeroDivisionError


class AngryWhenReceived(Tap):
    def received(self, chunk: Frame, now_ns: int) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize("tap", [AngryWhenSent, AngryWhenReceived])
def test_an_error_in_a_chunk_that_is_parsed_as_it_passes_does_not_reach_the_traffic(tap: type[Tap]) -> None:
    rig = Rig(tap=tap)
    for _ in range(2):
        rig.sent(frames.fetch("reader", TOPIC, {0: 0}))
        rig.received(frames.fetch_answer(TOPIC, a_batch()))
    assert (rig.broke, rig.kept.raw) == (1, [])


def test_an_error_in_one_of_several_buffers_does_not_reach_the_traffic() -> None:
    rig = Rig(tap=AngryWhenSent)
    assert rig.transport.sendmsg([WHOLE, WHOLE]) == 2 * len(WHOLE)
    assert rig.broke == 1


def test_of_several_buffers_only_what_the_kernel_took_is_parsed(rig: Rig) -> None:
    buffers = [request(9, at, a_batch()) for at in range(3)]
    rig.socket.takes = len(buffers[0]) + 40
    assert rig.transport.sendmsg(buffers) == rig.socket.takes
    rig.sent(buffers[1][40:] + buffers[2])
    rig.transport.close()
    assert [row["request"] for row in rig.kept.rows] == [1, 2, 3]
    assert (rig.broke, rig.tap.unread) == (0, 0)


@pytest.mark.parametrize("fails", [False, True])
async def test_the_index_reads_what_was_put_off_before_it_writes(
    tmp_path: Path, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    capture = (AngryCapture if fails else Capture)(CaptureSettings(directory=tmp_path), {}, lambda _, __: None)
    socket = Socket()
    _, transport = capture.tap(socket, PLACE)
    for at in range(6):
        transport.send(memoryview(request(9, at, a_batch())))
        socket.next = answer(9, at)
        transport.recv_into(VIEW)
    await capture.flush()
    found = capture.statistics()
    transport.close()
    capture.close()
    assert (found.written, found.unread, len(whole_index(tmp_path))) == ((1, 1, 1) if fails else (6, 0, 6))
    assert caplog.messages == ["the index no longer sees one connection"] * fails


# -- the same rows -----------------------------------------------------------------------------------------------------

BATCHES = {
    "small": a_batch(), "one byte": a_batch(records=1, size=1), "large": a_batch(records=30, size=1000),
    "zstd": a_batch(Codec.ZSTD), "lz4": a_batch(Codec.LZ4), "gzip": a_batch(Codec.GZIP),
    "snappy": a_batch(Codec.SNAPPY), "two": a_batch() * 2,
    "cut": a_batch()[:-1], "none": b"", "old": bytes(11), "large zstd": a_batch(Codec.ZSTD, 900, 100),
}  # fmt: skip
USUAL = ["small", "small", "one byte", "large", "large", "zstd", "gzip", "snappy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    request: bytes
    answer: bytes  # none with acks=0
    note: RequestAnnotation | None = None


LONG_NAME = "a-topic-whose-name-is-longer-than-the-others"
SET = (st.sampled_from(USUAL) | st.sampled_from(list(BATCHES))).map(BATCHES.__getitem__)
SETS = st.dictionaries(st.integers(0, 4), SET, min_size=1, max_size=5) | st.integers(1, 40).map(
    lambda many: dict.fromkeys(range(many), BATCHES["large"])
)


@st.composite
def an_exchange(draw: st.DrawFn, correlation_id: int) -> Exchange:
    kind = draw(st.sampled_from(["produce"] * 12 + ["hello", "fetch", "damaged"]))
    if kind == "hello":
        hello = bytearray(frames.api_versions(draw(st.sampled_from(["maker", "another"]))))
        hello[8:12] = correlation_id.to_bytes(4)
        return Exchange(request=bytes(hello), answer=(8).to_bytes(4) + correlation_id.to_bytes(4) + bytes(4))
    if kind == "fetch":
        asked, answered = (
            frames.fetch("reader", TOPIC, {0: 0}),
            frames.fetch_answer(TOPIC, a_batch() * draw(st.integers(0, 40))),
        )
        asked, answered = (
            frame[:at] + correlation_id.to_bytes(4) + frame[at + 4 :] for frame, at in ((asked, 8), (answered, 4))
        )
        return Exchange(
            request=asked, answer=answered, note=draw(st.sampled_from([None, RequestAnnotation(judged=True)]))
        )
    version, acks = draw(st.sampled_from([3, 7, 8, 9, 9, 9, 11, 13])), draw(st.sampled_from([-1] * 9 + [1, 0]))
    given_: dict[str, Any] = {
        "index": draw(st.sampled_from([0, 0, 0, 1])),
        "topic": draw(st.sampled_from(["orders", "orders", "others", LONG_NAME])),
        "client": draw(st.sampled_from(["maker"] * 5 + ["another"])),
        "transaction": draw(st.sampled_from([None] * 5 + ["mine"])),
    }
    index, topic = given_.pop("index"), given_.pop("topic")
    one: Sets = {topic: {index: draw(SET)}}
    sets: Sets = draw(
        st.just(one) | st.dictionaries(st.sampled_from(["orders", "others", LONG_NAME]), SETS, min_size=1)
    )
    said: dict[str, Any] = draw(
        st.sampled_from([{}] * 6 + [{"error": 6, "offset": -1}, {"throttle": 9}, {"text": "no"}, {"index": 3}])
    )
    asked = request_of(version, correlation_id, sets, acks=acks, **given_)
    sets = {topic: {said.pop("index", at): b"" for at in each} for topic, each in sets.items()}
    answered = answer_of(version, correlation_id, sets, **{"offset": correlation_id, **said}) if acks else b""
    if kind == "damaged":
        at = draw(
            st.integers(12, len(asked) - 1)
            | st.integers(12, min(150, len(asked) - 1))
            | st.integers(len(asked) - 9, len(asked) - 1)
        )
        asked = asked[:at] + draw(st.binary(min_size=1, max_size=1)) + asked[at + 1 :]
    note = draw(st.sampled_from([None] * 20 + [RequestAnnotation(treatment=Treatment(reason="why"))]))
    return Exchange(request=asked, answer=answered, note=note)


Event = tuple[str, Any]


@st.composite
def an_exchange_like_the_others(draw: st.DrawFn, correlation_id: int, version: int) -> Exchange:
    """Requests of one producer, some of them long."""
    sets = draw(st.dictionaries(st.sampled_from(["orders", "others", LONG_NAME]), SETS, min_size=1))
    acks = draw(st.sampled_from([-1] * 30 + [0]))
    asked = request_of(version, correlation_id, sets, acks=acks)
    if draw(st.integers(0, 30)) == 30:
        at = draw(st.integers(30, 150))  # after acks
        asked = asked[:at] + draw(st.binary(min_size=1, max_size=1)) + asked[at + 1 :]
    return Exchange(request=asked, answer=answer_of(version, correlation_id, sets) if acks else b"")


@st.composite
def traffic(draw: st.DrawFn, *, alike: bool = False) -> list[Event]:
    """Chunks in both directions: every answer after its request, with up to five requests in flight."""
    version = draw(st.sampled_from([3, 8, 9, 13]))
    exchanges = [
        draw(an_exchange_like_the_others(at, version) if alike else an_exchange(at))
        for at in range(draw(st.integers(1, 14)))
    ]
    events: list[Event] = []
    answered = 0
    for at, one in enumerate(exchanges):
        if one.note is not None:
            events.append(("note", (at, one.note)))
        events.append(("sent", one.request))
        until = max(at + 1 - draw(st.integers(0, 4)), answered)
        events += [("received", each.answer) for each in exchanges[answered:until]]
        answered = until
        events += [(draw(st.sampled_from(["settle", "some"])), None)] * draw(st.booleans())
    events += [("received", each.answer) for each in exchanges[answered:]]
    return list(cut(draw, events))


def cut(draw: st.DrawFn, events: list[Event]) -> Iterator[Event]:
    """Consecutive frames in a direction are joined in some chunks and cut in others."""
    way, data, ends = "", b"", [0]
    for what, given_ in [*events, ("end", None)]:
        if what == way and draw(st.booleans()):
            data += given_
        else:
            if data:
                yield from pieces(draw, way, data, ends)
            ends = [0]
            way, data = (what, given_) if what in ("sent", "received") else ("", b"")
            if not way and what != "end":
                yield what, given_
        if way:
            ends.append(len(data))


def pieces(draw: st.DrawFn, way: str, data: bytes, ends: list[int]) -> Iterator[Event]:
    """Each with the offsets in it at which frames begin."""
    cuts = sorted({0, len(data), *draw(st.lists(st.integers(0, len(data)), max_size=3) | st.just([]))})
    for start, stop in pairwise(cuts):
        yield way, (data[start:stop], [end - start for end in ends if start <= end < stop])
        if draw(st.integers(0, 9)) == 9:
            yield draw(st.sampled_from(["settle", "some"])), None


def at_once(events: list[Event], most_waiting: int) -> tuple[Tap, Kept]:
    """No piece is a whole frame, so the walkers read everything."""
    tap, kept = new_tap(most_waiting)
    for now_ns, (what, given_) in enumerate(events):
        if what == "note":
            tap.note(*given_)
        elif what in ("sent", "received"):
            chunk, begins = given_
            places = sorted({0, len(chunk), *(at for begin in begins for at in (begin, begin + 4) if at < len(chunk))})
            for start, stop in pairwise(places):
                (tap.sent if what == "sent" else tap.received)(memoryview(chunk)[start:stop], 10 * now_ns)
        judge(tap, what, given_)
    tap.close()
    return tap, kept


def judge(tap: Tap, what: str, given_: Any) -> None:
    """As in the proxy, once it has the answer."""
    if what == "settle":
        for at in range(20):
            tap.judge(at, {(TOPIC.topic_id, 0): FetchOutcome(reason="why")})


def put_off(rig: Rig, events: list[Event]) -> None:
    for now_ns, (what, given_) in enumerate(events):
        if what == "note":
            rig.tap.note(*given_)
        elif what == "sent":
            rig.sent(given_[0], 10 * now_ns)
        elif what == "received":
            rig.received(given_[0], 10 * now_ns)
        elif what == "some":
            rig.backlog.settle_some()
        judge(rig.tap, what, given_)
    rig.transport.close()


@settings(deadline=None, max_examples=400)
@given(
    traffic() | traffic(alike=True), st.sampled_from([3, 40, 100_000]), st.sampled_from([4, 300, LIMITS.long]),
    st.sampled_from([2, LIMITS.chunks]),
)  # fmt: skip
def test_whatever_passes_the_rows_are_those_of_the_walkers(
    events: list[Event], batches: int, long: int, most: int
) -> None:
    limits = BacklogLimits(long=long, copied=2 * long, chunks=most, wake_every=2, slice_ns=0, step=2)
    wanted, rows = at_once(events, batches)
    rig = Rig(limits, most_waiting=batches)
    put_off(rig, events)
    assert rig.kept.rows == rows.rows
    assert (rig.tap.unread, rig.tap.lost, rig.kept.dropped) == (wanted.unread, wanted.lost, rows.dropped)
    assert (rig.broke, rig.ends) == (0, 1)
