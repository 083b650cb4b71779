"""Deferred parsing of a tapped transport gives the rows that immediate parsing gives, for any traffic, cut anywhere."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.protocol.capture.index.answers import AnswerWalker
from shoal.protocol.capture.index.columns import Kind
from shoal.protocol.capture.index.pending import BatchSource, FetchOutcome, Request, RequestAnnotation, Treatment
from shoal.protocol.capture.index.requests import RequestWalker
from shoal.protocol.capture.index.rows import ConnectionInfo
from shoal.protocol.capture.index.tap import MAX_WAITING, Tap
from shoal.protocol.records.key_sample import KeySampler
from shoal.protocol.wire.compression import Codec
from shoal.proxy.capture.backlog import LIMITS, Backlog, BacklogLimits
from shoal.proxy.capture.index import Capture
from shoal.proxy.capture.tapped import TappedTransport
from shoal.proxy.config.settings import CaptureSettings
from tests.support import frames
from tests.support.captures.capture_index import whole_index
from tests.support.captures.produced import Sets, a_batch, answer, answer_of, request, request_of
from tests.support.captures.readable import Kept, new_tap
from tests.support.no_transport import NoTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from shoal.protocol.capture.index.template import Frame
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
        self.broke = self.ends = self.clock = 0
        self.backlog = Backlog(limits)
        self.tap = tap(PLACE, self.kept, None, most_waiting=most_waiting)
        self.socket = Socket()
        self.transport = TappedTransport(self.socket, self.tap, self, self.backlog, lambda: self.clock)

    def broken(self, tap: Tap) -> None:
        self.broke += 1

    def ended(self, tap: Tap) -> None:
        self.ends += 1

    @property
    def deferred(self) -> list[Buffer]:
        return [chunk for _, _, chunk in self.transport.deferred]

    def gathered(self, buffers: list[bytes], now_ns: int = 1) -> None:
        self.clock = now_ns
        assert self.transport.sendmsg([memoryview(buffer) for buffer in buffers]) == sum(map(len, buffers))

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


# -- what is deferred --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [1, 2])
def test_short_chunks_are_deferred(rig: Rig, batches: int) -> None:
    for at in range(10):
        rig.sent(request(9, at, a_batch() * batches))
        rig.received(answer(9, at))
    assert (len(rig.kept.raw), len(rig.deferred), len(rig.backlog.waiting)) == (0, 20, 20)
    rig.backlog.settle()
    assert [row["request"] for row in rig.kept.rows] == [at for at in range(1, 11) for _ in range(batches)]


def test_a_long_chunk_is_parsed_as_it_passes_after_the_deferred_ones(rig: Rig) -> None:
    exchange(rig, 0)
    rig.sent(frames.fetch("reader", TOPIC, {0: 0}))
    assert rig.kept.raw == []
    rig.received(frames.fetch_answer(TOPIC, a_batch() * 40))
    assert (len(rig.kept.rows), rig.deferred) == (41, [])


def test_a_long_chunk_of_another_connection_parses_nothing_of_this_one(rig: Rig) -> None:
    exchange(rig, 0)
    other = TappedTransport(rig.socket, Tap(PLACE, Kept()), rig, rig.backlog)
    other.send(memoryview(request(9, 0, a_batch(records=9, size=4000))))
    assert (rig.kept.raw, len(rig.deferred)) == ([], 2)


def test_requests_that_share_a_chunk_are_put_off_together(rig: Rig) -> None:
    exchange(rig, 0)
    rig.sent(b"".join(request(9, at, a_batch()) for at in (2, 3, 4)))
    rig.received(b"".join(answer(9, at) for at in (2, 3, 4)))
    assert len(rig.deferred) == 4
    rig.backlog.settle()
    assert [row["request"] for row in rig.kept.rows] == [1, 2, 3, 4]


def test_a_row_has_the_times_of_its_traffic(rig: Rig) -> None:
    for at in range(4):
        rig.sent(request(9, at, a_batch()), 1000 * at)
        rig.received(answer(9, at), 1000 * at + 70)
    rig.backlog.settle()
    assert [(row["time_ns"], row["latency_ns"]) for row in rig.kept.rows] == [(1000 * at, 70) for at in range(4)]


def test_requests_of_one_call_are_rows(rig: Rig) -> None:
    """As `unwrap` sends them: what is before the records, the records, and what is after them."""
    exchange(rig, 0)
    asked = [request(9, at, a_batch(Codec.ZSTD, 900, 100)) for at in range(1, 4)]
    rig.gathered([piece for frame in asked for piece in (frame[:150], frame[150:-3], frame[-3:])])
    for at in range(1, 4):
        rig.received(answer(9, at))
    rig.backlog.settle()
    assert [row["request"] for row in rig.kept.rows] == [1, 2, 3, 4]
    assert {row["raw_bytes"] for row in rig.kept.rows[1:]} == {len(a_batch(records=900, size=100)) - 61}


@pytest.mark.parametrize("token", [bytes(30), b"\xff" * 30, b"token"])
def test_a_token_is_no_request_that_others_are_like(rig: Rig, token: bytes) -> None:
    rig.tap.expect_tokens(2)
    for _ in range(2):
        rig.sent(len(token).to_bytes(4) + token)
        rig.received((4).to_bytes(4) + bytes(4))
    for at in range(3):
        exchange(rig, at)
    rig.transport.close()
    assert (rig.broke, [row["request"] for row in rig.kept.rows]) == (0, [3, 4, 5])


def beat(rig: Rig, correlation_id: int, client: str = "maker", size: int = 6) -> None:
    asked = frames.heartbeat(client)
    rig.sent(asked[:8] + correlation_id.to_bytes(4) + asked[12:], 10 * correlation_id)
    rig.received((4 + size).to_bytes(4) + correlation_id.to_bytes(4) + bytes(size), 10 * correlation_id + 3)


def test_requests_without_records_are_read_by_a_template(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for at in range(2):
        beat(rig, at)
    rig.backlog.settle()
    monkeypatch.setattr(RequestWalker, "feed", None)
    monkeypatch.setattr(AnswerWalker, "feed", None)
    for at in range(2, 9):
        beat(rig, at, size=at)
    rig.backlog.settle()
    assert rig.broke == 0
    assert [(row["request"], row["time_ns"], row["latency_ns"], row["kind"]) for row in rig.kept.rows] == [
        (at + 1, 10 * at, 3, Kind.REQUEST) for at in range(9)
    ]
    assert [row["response_bytes"] for row in rig.kept.rows[2:]] == [8 + at for at in range(2, 9)]


def test_notes_of_requests_with_one_id_are_in_their_order(rig: Rig) -> None:
    exchange(rig, 0)
    for reason in ("first", "second"):
        rig.tap.note(1, RequestAnnotation(treatment=Treatment(reason=reason)))
    for _ in range(3):
        exchange(rig, 1)
    rig.backlog.settle()
    assert [row["reason"] for row in rig.kept.rows] == [None, "first", "second", None]


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
    for at in range(LIMITS.chunks):
        exchange(rig, at)
        assert len(rig.deferred) <= LIMITS.chunks >= len(rig.backlog.waiting) - LIMITS.chunks // LIMITS.step - 1
    assert 0 < len(rig.kept.raw) < LIMITS.chunks
    rig.backlog.settle()
    assert (len(rig.kept.raw), rig.deferred) == (LIMITS.chunks, [])


def test_answers_without_requests_are_bounded_too(rig: Rig) -> None:
    rig.sent(frames.fetch("reader", TOPIC, {0: 0}))
    answered = frames.fetch_answer(TOPIC, a_batch(size=9) * 9_000)
    for at in range(0, 3 * LIMITS.chunks * 50, 50):
        rig.received(answered[at : at + 50])
        assert len(rig.deferred) <= 2 * LIMITS.chunks
    rig.backlog.settle()
    assert rig.tap.unread == 0


def test_of_a_full_backlog_every_send_parses_a_part_until_it_is_empty(rig: Rig) -> None:
    sends = 0
    while len(rig.backlog.waiting) < LIMITS.chunks - 1:
        rig.sent(request(9, 0, a_batch()))
    while rig.backlog.waiting:
        rig.sent(request(9, 0, a_batch()))
        sends += 1
    assert rig.deferred == []
    assert sends == LIMITS.chunks // LIMITS.step + 1


def test_many_connections_share_the_bound() -> None:
    rig = Rig(BacklogLimits(chunks=8, step=2))
    others = [TappedTransport(rig.socket, Tap(PLACE, Kept()), rig, rig.backlog) for _ in range(20)]
    for at in range(9):
        for other in others:
            other.send(memoryview(request(9, at, a_batch())))
            assert sum(len(one.deferred) for one in others) <= 8


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


def test_what_waits_is_read_in_slices() -> None:
    rig = Rig(BacklogLimits(slice_ns=0, step=16))
    for at in range(1 + 20):
        exchange(rig, at)
    found = [(rig.backlog.settle_some(), len(rig.kept.raw)) for _ in range(3)]
    assert found == [(True, 8), (True, 16), (False, 21)]
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
        rig.received(frames.fetch_answer(TOPIC, a_batch() * 40))
    assert (rig.broke, rig.kept.raw) == (1, [])


def test_an_error_in_one_of_several_buffers_does_not_reach_the_traffic() -> None:
    rig = Rig(tap=AngryWhenSent)
    rig.gathered([request(9, 2, a_batch())] * 2)
    rig.backlog.settle()
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


UNWRAPPED = RequestAnnotation(
    treatment=Treatment(reason="no envelope"),
    sources={("orders", 0): [BatchSource("source", 3, 100, 102)], ("others", 0): [None], ("others", 1): []},
)


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


def a_beat(draw: st.DrawFn, correlation_id: int) -> Exchange:
    """A request without records, by one of two clients; the answer may be cut short."""
    asked = bytearray(frames.heartbeat(draw(st.sampled_from(["maker", "maker", "another"]))))
    asked[8:12] = correlation_id.to_bytes(4)
    if draw(st.integers(0, 9)) == 9:
        asked[draw(st.integers(4, len(asked) - 1))] = draw(st.integers(0, 255))
        asked[8:12] = correlation_id.to_bytes(4)
    body = draw(st.sampled_from([b"", bytes(6), bytes(300)]))
    note = draw(st.sampled_from([None] * 9 + [RequestAnnotation(treatment=Treatment(reason="why"))]))
    answered = (4 + len(body)).to_bytes(4) + correlation_id.to_bytes(4) + body
    return Exchange(request=bytes(asked), answer=answered, note=note)


@st.composite
def an_exchange(draw: st.DrawFn, correlation_id: int) -> Exchange:
    kind = draw(st.sampled_from(["produce"] * 12 + ["beat"] * 4 + ["hello", "fetch", "damaged"]))
    if kind == "beat":
        return a_beat(draw, correlation_id)
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
    note = draw(st.sampled_from([None] * 20 + [RequestAnnotation(treatment=Treatment(reason="why")), UNWRAPPED]))
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


def put_off(rig: Rig, events: list[Event], pieces: int) -> None:
    """`pieces`: bytes of the buffers of one call; 0: one buffer."""
    for now_ns, (what, given_) in enumerate(events):
        if what == "note":
            rig.tap.note(*given_)
        elif what == "sent" and pieces:
            chunk = given_[0]
            rig.gathered([chunk[at : at + pieces] for at in range(0, len(chunk), pieces)], 10 * now_ns)
        elif what == "sent":
            rig.sent(given_[0], 10 * now_ns)
        elif what == "received":
            rig.received(given_[0], 10 * now_ns)
        elif what == "some":
            rig.backlog.settle_some()
        judge(rig.tap, what, given_)
    rig.transport.close()


@settings(deadline=None, max_examples=120)
@given(
    traffic() | traffic(alike=True), st.sampled_from([3, 40, 100_000]), st.sampled_from([4, 300, LIMITS.chunk_bytes]),
    st.sampled_from([2, LIMITS.chunks]), st.sampled_from([0, 0, 60, 130, 400]),
)  # fmt: skip
def test_whatever_passes_the_rows_are_those_of_the_walkers(
    events: list[Event], batches: int, long: int, most: int, pieces: int
) -> None:
    limits = BacklogLimits(chunk_bytes=long, chunks=most, slice_ns=0, step=2)
    wanted, rows = at_once(events, batches)
    rig = Rig(limits, most_waiting=batches)
    put_off(rig, events, pieces)
    assert rig.kept.rows == rows.rows
    assert (rig.tap.unread, rig.tap.lost, rig.kept.dropped) == (wanted.unread, wanted.lost, rows.dropped)
    assert (rig.broke, rig.ends) == (0, 1)


# -- requests that are not read ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A request of Shoal's own; `record_sets`: in pieces."""

    request: bytes
    answer: bytes
    note: RequestAnnotation
    version: int
    acks: int
    record_sets: list[tuple[str, int, list[bytes]]]

    def post(self, tap: Tap) -> None:
        asked = Request(0, self.version, int.from_bytes(self.request[8:12]), len(self.request), 0)
        asked.client, asked.acks, asked.note = b"maker", self.acks, self.note
        tap.post(asked, self.record_sets)


@st.composite
def an_own_request(draw: st.DrawFn, version: int) -> Own:
    """All requests of an exchange have the id of the mirror's request."""
    correlation_id, acks = draw(st.sampled_from([7, 7, 7, 8])), draw(st.sampled_from([-1, -1, 1]))
    sets: Sets = draw(st.dictionaries(st.sampled_from(["orders", "others", LONG_NAME]), SETS, min_size=1))
    said: dict[str, Any] = draw(
        st.sampled_from([{}] * 6 + [{"error": 6, "offset": -1}, {"throttle": 9}, {"text": "no"}])
    )
    said = {"offset": draw(st.integers(0, 2**40)), **said}
    note = draw(st.sampled_from([UNWRAPPED, UNWRAPPED, RequestAnnotation(treatment=Treatment(reason="why"))]))
    cuts = draw(st.sampled_from([[61], [61], [], [30], [70, 200], [3, 9, 61]]))
    return Own(
        request=request_of(version, correlation_id, sets, acks=acks),
        answer=answer_of(version, correlation_id, sets, **said),
        note=note,
        version=version,
        acks=acks,
        record_sets=[
            (topic, index, [records[start:stop] for start, stop in pairwise([0, *cuts, max(len(records), *cuts, 0)])])
            for topic, each in sets.items()
            for index, records in each.items()
        ],
    )


@settings(deadline=None, max_examples=120)
@given(
    st.sampled_from([3, 8, 9, 11]).flatmap(lambda version: st.lists(an_own_request(version), min_size=1, max_size=12)),
    st.sampled_from([3, 40, 100_000]), st.integers(1, 4), st.booleans(), st.data(),
)  # fmt: skip
def test_requests_that_are_not_read_have_the_rows_of_those_that_are(
    asked: list[Own], batches: int, together: int, is_sampled: bool, data: st.DataObject
) -> None:
    (wanted, rows), rig = new_tap(batches), Rig(most_waiting=batches)
    if is_sampled:
        for tap in (wanted, rig.tap):
            for walker in (tap._requests, tap._record_sets):
                walker.sampler = KeySampler(1, 0)
    for at in range(0, len(asked), together):
        group = asked[at : at + together]
        now_ns = 100 * at
        for one in group:
            wanted.note(int.from_bytes(one.request[8:12]), one.note)
            one.post(rig.tap)
            for piece in (one.request,) if is_sampled else (one.request[:4], one.request[4:]):
                wanted.sent(memoryview(piece), now_ns)
        whole = b"".join(one.request for one in group)
        rig.clock = now_ns
        cut = data.draw(st.sampled_from([0, 0, len(whole) - 1]) | st.integers(0, len(whole) - 1))
        for piece in (whole[:cut], whole[cut:]):
            rig.transport.sendmsg([piece[:50], b"", piece[50:]])
        for one in group:
            for piece in (one.answer[:4], one.answer[4:]):
                wanted.received(memoryview(piece), now_ns + 5)
        rig.received(b"".join(one.answer for one in group), now_ns + 5)
    wanted.close()
    rig.transport.close()
    assert rig.kept.rows == rows.rows
    assert (rig.tap.unread, rig.tap.lost, rig.kept.dropped) == (wanted.unread, wanted.lost, rows.dropped)
    assert (rig.broke, rig.ends) == (0, 1)


class RecordSetsOfATest(list[tuple[str, int, list[bytes]]]):
    """Can be referred to weakly."""


def test_a_connection_without_an_index_keeps_nothing_of_what_is_posted() -> None:
    rig = Rig(sink=Angry())
    for at in range(6):
        exchange(rig, at)
    rig.backlog.settle()
    kept = weakref.ref(record_sets := RecordSetsOfATest([("orders", 0, [a_batch()])]))
    rig.tap.post(Request(0, 9, 0, 90, 0), record_sets)
    del record_sets
    assert (rig.broke, kept()) == (1, None)
