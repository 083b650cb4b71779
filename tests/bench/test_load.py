"""The load client against a small test server that answers each request with a frame of a known size."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from bench import load
from tests.support import frames

ANSWER = struct.pack(">i", 300_000) + b"\7" * 300_000
FRAME = frames.api_versions("bench")


def serve(listener: socket.socket, seen: list[bytes]) -> None:
    with listener.accept()[0] as peer, peer.makefile("rb") as requests:
        while size := requests.read(4):
            seen.append(requests.read(int.from_bytes(size, "big")))
            if seen[-1].endswith(b"hang up"):
                return
            peer.sendall(ANSWER)


@pytest.fixture
def seen() -> list[bytes]:
    return []


@pytest.fixture
def wire(seen: list[bytes]) -> Iterator[load.Wire]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener, seen))
        server.start()
        with load.Wire(listener.getsockname()) as wire:
            yield wire
        server.join()


def test_drain_counts_one_whole_answer(wire: load.Wire) -> None:
    wire.send(FRAME)
    wire.send(FRAME)
    assert [wire.drain(), wire.drain()] == [len(ANSWER)] * 2


def test_answer_keeps_the_frame(wire: load.Wire) -> None:
    wire.send(FRAME)
    assert wire.answer() == ANSWER


def test_forward_counts_what_went_both_ways_and_leaves_nothing_unanswered(wire: load.Wire, seen: list[bytes]) -> None:
    volume = load.forward(wire, [FRAME, frames.metadata("bench")], in_flight=3, seconds=0.05)
    assert volume.rounds * 2 == len(seen) > 3
    assert volume.received == len(seen) * len(ANSWER)
    assert volume.sent == sum(4 + len(request) for request in seen)
    assert seen[0] != seen[1]
    assert seen[0] == seen[2]
    wire.send(FRAME)
    assert wire.drain() == len(ANSWER)


def test_forward_sends_one_whole_round_however_little_time_there_is(wire: load.Wire, seen: list[bytes]) -> None:
    volume = load.forward(wire, [FRAME] * 3, in_flight=1, seconds=0)
    assert (volume.rounds, len(seen)) == (1, 3)


def test_a_peer_that_hangs_up_is_an_error(wire: load.Wire) -> None:
    wire.send(struct.pack(">i", 7) + b"hang up")
    with pytest.raises(ConnectionError, match="closed the connection"):
        wire.drain()


def test_round_trips_times_each_request(wire: load.Wire, seen: list[bytes]) -> None:
    times = load.round_trips(wire, FRAME, 5)
    assert len(times) == len(seen) == 5
    assert min(times) > 0


def test_a_steady_load_sends_whole_rounds_with_one_request_in_flight(wire: load.Wire, seen: list[bytes]) -> None:
    frames_ = [FRAME, FRAME[:-1] + b"\1"]
    found = load.steady([wire], frames_, rate=1_000, least=3)
    assert (found.rounds, found.sent, found.received) == (2, 4 * len(FRAME), 4 * len(ANSWER))
    assert found.seconds >= 3 / 1_000
    assert seen == [frame[4:] for frame in frames_ * 2]
