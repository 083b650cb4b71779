"""Raw captures: the packets that Wireshark reads give the frames back, and no input harms a reader."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Address, ip_network
from struct import unpack_from

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocol.capture.frames.pcapng import MAX_SEGMENT, SECTION_EVERY, CapturedFrame, Encoder, Sender
from shoal.protocol.capture.frames.pcapng_reader import Decoder
from shoal.protocol.wire.errors import RemoteProtocolError

PROXY = "0badcafe"


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


_BODIES = st.binary(max_size=40) | st.builds(
    lambda piece, times: piece * times, st.binary(min_size=1, max_size=3), st.integers(0, 2 * MAX_SEGMENT)
)
_FRAMES = st.builds(
    CapturedFrame,
    st.integers(0, (1 << 63) - 1),
    st.just(PROXY),
    st.sampled_from([0, 1, 2, (1 << 24) + 1, (1 << 32) - 1]),
    st.sampled_from(Sender),
    _BODIES.map(sized) | st.just(b""),
    st.none() | st.text(min_size=1, max_size=20),
    st.just(3),
)


def packets(data: bytes) -> list[tuple[bytes, int, int, int, int, int]]:
    """The packets of a file: payload, client's and broker's port, sequence, acknowledgement, flags. Parsed by hand, per
    RFC 791 and 9293."""
    found, pos = [], 0
    while pos < len(data):
        kind, size = unpack_from("<II", data, pos)
        if kind == 6:
            length = int(unpack_from(">H", data, pos + 30)[0])
            ports_and_numbers = unpack_from(">HHII", data, pos + 48)
            found.append((data[pos + 68 : pos + 28 + length], *ports_and_numbers, data[pos + 61]))
        pos += size
    return found


def decoded(data: bytes, piece: int = 1 << 20) -> list[CapturedFrame]:
    decoder = Decoder()
    frames = [frame for start in range(0, len(data), piece) for frame in decoder.feed(data[start : start + piece])]
    assert not decoder.incomplete
    return frames


@given(st.lists(_FRAMES, max_size=6), st.integers(1, 100_000))
def test_frames_come_back(frames: list[CapturedFrame], piece: int) -> None:
    encoder = Encoder(PROXY)
    data = b"".join(map(encoder.frame, frames))

    assert decoded(data, piece) == frames


@given(st.lists(_FRAMES, min_size=1, max_size=6))
def test_sequence_numbers_count_the_bytes_of_each_direction(frames: list[CapturedFrame]) -> None:
    encoder = Encoder(PROXY)
    only = [frame._replace(connection=7) for frame in frames]
    data = encoder.opened(0, 7) + b"".join(map(encoder.frame, only)) + encoder.closed(1, 7)
    (syn, answer, *middle, fin) = packets(data)
    sent = {Sender.CLIENT: 1, Sender.BROKER: 1}

    assert (syn[3:], answer[3:]) == ((0, 0, 0x02), (0, 1, 0x12))
    for payload, source, _, sequence, acknowledged, _ in middle:
        sender = Sender.BROKER if source == 9092 else Sender.CLIENT
        assert (sequence, acknowledged) == (sent[sender], sent[Sender(3 - sender)])
        sent[sender] += len(payload)
    assert fin[3:] == (sent[Sender.CLIENT], sent[Sender.BROKER], 0x11)
    for sender in Sender:
        assert sent[sender] == 1 + sum(len(frame.frame) for frame in only if frame.sender is sender)


@given(st.integers(0, (1 << 24) * 40_000 - 1), st.integers(-1, 1 << 20))
def test_connections_have_addresses_of_their_own_and_the_checksum_is_right(connection: int, node: int) -> None:
    data = Encoder(PROXY).opened(5, connection, node, "a client")
    at = data.index(b"\x45\0\0\x28")
    words = unpack_from(">10H", data, at)
    source, target = IPv4Address(data[at + 12 : at + 16]), IPv4Address(data[at + 16 : at + 20])

    assert sum(words) % 0xFFFF == 0
    assert source in ip_network("10.0.0.0/8")
    assert target in ip_network("172.16.0.0/12")
    assert b"a client" in data
    assert data.count(b"proxy " + PROXY.encode()) == 1


def test_sections_are_repeated_and_files_may_be_joined() -> None:
    frames = [CapturedFrame(n, PROXY, 1, Sender.CLIENT, sized(bytes(600_000))) for n in range(15)]
    encoder = Encoder(PROXY)
    data = b"".join(map(encoder.frame, frames))
    other = Encoder("00000001").frame(frames[0])

    assert data.count(b"\x0a\x0d\x0d\x0a") == len(data) // SECTION_EVERY + 1
    assert decoded(data + other) == [*frames, frames[0]._replace(proxy="00000001")]


def test_who_begins_at_a_section_reads_what_follows() -> None:
    frames = [CapturedFrame(n, PROXY, 1, Sender.CLIENT, sized(bytes(600_000))) for n in range(15)]
    encoder = Encoder(PROXY)
    data = b"".join(map(encoder.frame, frames))
    later = data.index(b"\x0a\x0d\x0d\x0a", 4)

    assert decoded(data[later:]) == frames[len(decoded(data[:later])) :]


@given(st.lists(_FRAMES, min_size=1, max_size=4), st.data())
def test_a_torn_end_costs_the_frame_that_it_is_in(frames: list[CapturedFrame], draw: st.DataObject) -> None:
    encoder = Encoder(PROXY)
    parts = list(map(encoder.frame, frames))
    last = draw.draw(st.integers(0, len(parts[-1]) - 1))
    decoder = Decoder()

    assert list(decoder.feed(b"".join(parts[:-1]) + parts[-1][:last])) == frames[:-1]
    assert list(decoder.feed(parts[-1][last:])) == frames[-1:]
    assert decoder.torn == 0


def test_a_frame_without_all_its_segments_is_left_out_and_counted() -> None:
    encoder = Encoder(PROXY)
    large = CapturedFrame(1, PROXY, 1, Sender.CLIENT, sized(bytes(3 * MAX_SEGMENT)))
    small = CapturedFrame(2, PROXY, 1, Sender.CLIENT, sized(b"small"))
    start, first, second = encoder.opened(0, 1), encoder.frame(large), encoder.frame(small)
    cut = unpack_from("<I", first, 4)[0]
    decoder = Decoder()

    assert list(decoder.feed(start + first[cut:] + second + encoder.frame(small))) == [small, small]
    assert decoder.incomplete == 1


@given(st.lists(_FRAMES, min_size=1, max_size=3), st.data())
def test_a_changed_byte_is_an_error_or_another_frame(frames: list[CapturedFrame], draw: st.DataObject) -> None:
    encoder = Encoder(PROXY)
    data = bytearray(b"".join(map(encoder.frame, frames)))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))

    with suppress(RemoteProtocolError):
        assert len(list(Decoder().feed(data))) <= len(frames)


@given(st.binary(max_size=300))
def test_other_bytes_are_refused_or_not_enough(data: bytes) -> None:
    valid = Encoder(PROXY).opened(0, 1)
    for start in (b"", valid):
        decoder = Decoder()
        with suppress(RemoteProtocolError):
            assert list(decoder.feed(start + data)) == []
            assert decoder.torn == len(data) or not start


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (b"\x4d\x3c\x2b\x1a", b"\x1a\x2b\x3c\x4d", "byte order"),
        (b"\xe4\0\0\0\0\0\0\0", b"\x01\0\0\0\0\0\0\0", "packets of another kind"),
        (b"\x09\0\x01\0\x09", b"\x09\0\x01\0\x06", "not in nanoseconds"),
    ],
)
def test_captures_of_others_are_refused(before: bytes, after: bytes, what: str) -> None:
    data = Encoder(PROXY).opened(0, 1)
    assert before in data

    with pytest.raises(RemoteProtocolError, match=what):
        list(Decoder().feed(data.replace(before, after, 1)))


def test_frames_that_never_end_are_refused() -> None:
    data = Encoder(PROXY).frame(CapturedFrame(1, PROXY, 1, Sender.CLIENT, sized(bytes(5 * MAX_SEGMENT))))

    with pytest.raises(RemoteProtocolError, match="frames that do not end"):
        list(Decoder(max_held=3 * MAX_SEGMENT).feed(data))
