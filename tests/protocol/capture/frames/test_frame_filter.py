"""What a raw capture writes: the selected exchanges, complete, and no credentials."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.capture.frames.frame_filter import FrameFilter, FrameSelection
from shoal.protocol.capture.frames.pcapng import CapturedFrame, Sender
from shoal.protocol.capture.frames.redaction import WITHHELD, ExchangePart, is_known
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.headers import write_request_header, write_response_header
from shoal.protocol.wire.types import write_compact_string, write_string

PROXY = "0badcafe"
SECRET = b"correct horse battery staple"
ORDERS = bytes(range(1, 17))


def frame(sender: Sender, payload: bytes, time_ns: int = 0, connection: int = 1) -> CapturedFrame:
    return CapturedFrame(time_ns, PROXY, connection, sender, len(payload).to_bytes(4, "big") + payload)


def request(
    key: int, version: int, correlation_id: int, body: bytes = b"", client: str = "a", connection: int = 1
) -> CapturedFrame:
    header = write_request_header(key, version, correlation_id, client)
    return frame(Sender.CLIENT, header + body, correlation_id, connection)


def answer(key: int, version: int, correlation_id: int, body: bytes = b"", connection: int = 1) -> CapturedFrame:
    header = write_response_header(key, version, correlation_id)
    return frame(Sender.BROKER, header + body, correlation_id, connection)


def produce(correlation_id: int, topic: str, acks: int = -1, client: str = "a") -> CapturedFrame:
    body = write_string(None) + acks.to_bytes(2, "big", signed=True) + bytes(4) + bytes(4) + write_string(topic)
    return request(ApiKey.PRODUCE, 3, correlation_id, body, client)


def picked(wanted: FrameSelection, frames: list[CapturedFrame]) -> list[CapturedFrame]:
    picker = FrameFilter(wanted)
    return [kept for one in frames for kept in picker.take(one)] + picker.closed(PROXY, 1)


def test_everything_is_written_as_it_was() -> None:
    frames = [produce(1, "orders"), request(3, 9, 2), answer(0, 3, 1, b"x"), answer(3, 9, 2, b"y")]

    assert picked(FrameSelection(), frames) == frames


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key in ApiKey for version in range(3) if key in WITHHELD and is_known(key, version)],
)
def test_credentials_are_cut_and_the_header_stays(key: ApiKey, version: int) -> None:
    part, why = WITHHELD[key]
    frames = [request(key, version, 7, SECRET, "the client"), answer(key, version, 7, SECRET)]
    asked, answered = picked(FrameSelection(), frames)

    for kept, whole, cut in zip((asked, answered), frames, (ExchangePart.REQUEST, ExchangePart.ANSWER), strict=True):
        if cut in part:
            assert kept.frame == whole.frame[: -len(SECRET)].replace(whole.frame[:4], kept.frame[:4], 1)
            assert int.from_bytes(kept.frame[:4], "big") == len(kept.frame) - 4
            assert kept.withheld == f"withheld: {why}"
        else:
            assert kept == whole


@pytest.mark.parametrize(("key", "version"), [(93, 0), (32767, 0), (-1, 0), (ApiKey.PRODUCE, 99), (ApiKey.FETCH, -1)])
def test_what_is_not_known_is_withheld(key: int, version: int) -> None:
    asked, answered = picked(FrameSelection(), [request(key, version, 7, SECRET), answer(key, version, 7, SECRET)])

    assert (asked.frame, answered.frame) == (b"", b"")
    assert asked.withheld is not None
    assert answered.withheld is not None


def test_an_answer_without_a_request_is_withheld() -> None:
    (kept,) = picked(FrameSelection(), [answer(0, 3, 7, SECRET)])

    assert (kept.frame, kept.withheld) == (b"", "withheld: the answer to a request that was not seen")
    assert picked(FrameSelection(clients=frozenset("a")), [answer(0, 3, 7, SECRET)]) == []


@pytest.mark.parametrize(("mechanism", "rounds"), [("PLAIN", 1), ("SCRAM-SHA-256", 2), ("OAUTHBEARER", 1)])
def test_tokens_behind_an_old_handshake_are_withheld_and_then_requests_go_on(mechanism: str, rounds: int) -> None:
    frames = [request(17, 0, 1, write_string(mechanism)), answer(17, 0, 1, bytes(6))]
    for _ in range(rounds):
        frames += [frame(Sender.CLIENT, SECRET), frame(Sender.BROKER, SECRET)]
    frames += [produce(2, "orders"), answer(0, 3, 2)]
    kept = picked(FrameSelection(), frames)

    assert kept[:2] + kept[-2:] == frames[:2] + frames[-2:]
    assert [one.frame for one in kept[2:-2]] == [b""] * 2 * rounds
    assert {one.withheld for one in kept[2:-2]} == {"withheld: a SASL token"}


def test_a_token_that_looks_like_a_request_is_withheld_even_before_the_handshake_is_answered() -> None:
    token = produce(5, SECRET.decode())
    kept = picked(FrameSelection(), [request(17, 0, 1, write_string("PLAIN")), token, answer(17, 0, 1, bytes(6))])

    assert [one.frame for one in kept[1:2]] == [b""]


def test_after_a_refused_handshake_come_requests() -> None:
    frames = [request(17, 0, 1, write_string("GSSAPI")), answer(17, 0, 1, b"\0\x21" + bytes(4)), produce(2, "orders")]

    assert picked(FrameSelection(), frames) == frames


def test_clients_and_apis_are_picked_with_their_answers() -> None:
    mine = [produce(1, "orders", client="mine"), answer(0, 3, 1)]
    other = [request(3, 9, 2, client="mine"), answer(3, 9, 2), produce(3, "orders", client="his"), answer(0, 3, 3)]

    assert picked(FrameSelection(clients=frozenset({"mine"}), apis=frozenset({0})), [*mine, *other]) == mine


def test_a_topic_is_picked_by_its_name_as_a_whole_name() -> None:
    frames = []
    for number, topic in enumerate(["orders", "orders-2", "my-orders", "payments", "orders"]):
        frames += [produce(number, topic), answer(0, 3, number)]

    assert picked(FrameSelection(topics=frozenset({"orders"})), frames) == frames[:2] + frames[-2:]


def test_an_exchange_is_kept_for_what_its_answer_mentions_and_in_order() -> None:
    metadata = [request(3, 10, 1), answer(3, 10, 1, write_compact_string("orders") + ORDERS)]
    fetches = [request(1, 13, 2), request(1, 13, 3), answer(1, 13, 2, b"none"), answer(1, 13, 3, b"-" + ORDERS)]

    assert picked(FrameSelection(topics=frozenset({"orders"})), metadata + fetches) == [
        *metadata,
        fetches[1],
        fetches[3],
    ]


def test_requests_without_an_answer_are_decided_at_once_or_at_the_end() -> None:
    silent, open_ = produce(1, "orders", acks=0), produce(2, "orders")
    picker = FrameFilter(FrameSelection(topics=frozenset({"orders"})))

    assert picker.take(silent) == [silent]
    assert picker.take(open_) == []
    assert picker.closed(PROXY, 1) == [open_]


def test_a_request_that_is_passed_over_is_decided_then() -> None:
    frames = [produce(1, "orders"), produce(2, "orders"), answer(0, 3, 2)]

    assert picked(FrameSelection(topics=frozenset({"orders"})), frames) == frames


def test_what_waits_is_bounded() -> None:
    frames = first, second, third = produce(1, "orders"), produce(2, "orders"), produce(3, "orders")
    wanted = FrameSelection(topics=frozenset({"orders"}))
    by_bytes = FrameFilter(wanted, max_held=len(first.frame) * 2)
    by_number = FrameFilter(wanted, max_waiting=1)

    assert [by_bytes.take(frame) for frame in frames] == [[], [], [first]]
    assert [by_number.take(frame) for frame in frames] == [[], [first], [second]]
    assert (by_bytes.close(), by_number.close()) == ([second, third], [third])


def test_a_frame_of_which_only_the_beginning_is_there_is_cut_to_its_header() -> None:
    whole = produce(1, "orders")
    lost = whole._replace(frame=whole.frame[:20], withheld="lost: the capture was behind")
    asked, answered = picked(FrameSelection(), [lost, answer(0, 3, 1)])

    assert (len(asked.frame), asked.withheld) == (15, lost.withheld)
    assert answered.frame == answer(0, 3, 1).frame


@given(st.lists(st.tuples(st.sampled_from(Sender), st.binary(max_size=30)), max_size=8), st.booleans())
def test_no_bytes_are_an_error(some: list[tuple[Sender, bytes]], with_topics: bool) -> None:
    wanted = FrameSelection(topics=frozenset({"orders"})) if with_topics else FrameSelection()
    frames = [CapturedFrame(0, PROXY, 1, sender, data) for sender, data in some]

    for kept in picked(wanted, frames):
        assert kept.frame == b"" or kept.frame in [one.frame for one in frames] or kept.withheld


@given(st.sampled_from(sorted(API)), st.integers(0, 20), st.binary(max_size=40))
def test_a_cut_frame_is_read_as_its_header(key: int, version: int, body: bytes) -> None:
    (kept,) = picked(FrameSelection(), [request(key, version, 9, body, "client")])

    if kept.frame and kept.withheld:
        assert kept.frame[4:] == write_request_header(key, version, 9, "client")
