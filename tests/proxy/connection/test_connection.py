"""Whole connections between a raw client and a scripted broker: what passes, in which order."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from shoal.proxy.config.settings import KIB, MIB, Limits
from shoal.proxy.net.transport import BUFFER_SIZE
from shoal.proxy.statistics import CloseCause
from tests.support.rig import (
    TLS,
    BrokerSide,
    FakeBroker,
    Peer,
    Tls,
    correlation_id,
    echo,
    request,
    response,
    rig,
    silent,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("lane")

UNKNOWN_KEY = 300
HEARTBEAT = 12


def traffic(rng: random.Random, count: int) -> Iterator[bytes]:
    """Requests that Shoal does not edit: unknown keys, negative keys, known keys; any version; any content and size."""
    for number in range(count):
        key = rng.choice((UNKNOWN_KEY, 10_000, -1, -32768, 93, HEARTBEAT, 2, 36))
        size = rng.choice((0, 1, 50, 3000, 70_000, BUFFER_SIZE - 12, BUFFER_SIZE, BUFFER_SIZE + 1, 1_500_000))
        yield request(key, rng.randrange(-2, 30), rng.choice((number, -number, 2**31 - 1)), rng.randbytes(size))


@pytest.mark.parametrize("seed", range(6))
async def test_frames_that_are_not_edited_pass_byte_for_byte(seed: int) -> None:
    rng = random.Random(seed)
    frames = list(traffic(rng, 40))

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send_in_chunks(response(correlation_id(frame), frame[8:]), rng)

    async with rig(answer) as r, trio.open_nursery() as nursery:
        client = await r.client()
        nursery.start_soon(client.send_in_chunks, b"".join(frames), random.Random(seed + 100))
        for frame in frames:
            assert await client.frame() == response(correlation_id(frame), frame[8:])
        assert r.broker.received == frames


async def test_pipelined_requests_are_answered_in_order() -> None:
    frames = [request(UNKNOWN_KEY, 0, number, b"x" * number) for number in range(200)]
    async with rig() as r:
        client = await r.client()
        await client.send(b"".join(frames))
        answers = [await client.frame() for _ in frames]
    assert answers == [response(number, frame[12:]) for number, frame in enumerate(frames)]


def produce(version: int, acks: int, number: int) -> bytes:
    """The part of a Produce request that decides whether it is answered; the proxy ignores the rest."""
    transactional_id = b"\x00" if version >= 9 else b"\xff\xff"
    tags = b"\x00" if version >= 9 else b""
    return request(0, version, number, tags + transactional_id + struct.pack(">hi", acks, 30_000) + b"noise")


@pytest.mark.parametrize("version", [3, 8, 9])
async def test_a_produce_request_with_acks_0_has_no_answer(version: int) -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        if correlation_id(frame) % 2:
            await broker.send(response(correlation_id(frame), b"answer"))

    frames = [produce(version, acks=number % 2, number=number) for number in range(20)]
    async with rig(answer) as r:
        client = await r.client()
        await client.send(b"".join(frames))
        for number in range(1, 20, 2):
            assert await client.frame() == response(number, b"answer")
        await until(lambda: r.broker.received == frames)
        assert not r.connection.in_flight


async def test_acks_are_found_in_a_request_that_arrives_byte_by_byte() -> None:
    async with rig(silent) as r:
        client = await r.client()
        frame = produce(9, acks=0, number=1)
        for at in range(len(frame)):
            await client.send(frame[at : at + 1])
            await trio.testing.wait_all_tasks_blocked()
        await client.send(request(UNKNOWN_KEY, 0, 2))
        await until(lambda: len(r.broker.received) == 2)
        assert r.broker.received[0] == frame
        assert list(r.connection.in_flight) == [2]


@pytest.mark.parametrize("cut", [13, 21, 24, 26])
async def test_the_bytes_of_an_earlier_request_are_not_read_as_the_missing_ones_of_the_next(cut: int) -> None:
    """They are still in the shared receive buffer, at the same place."""
    async with rig(silent) as r:
        client = await r.client()
        await client.send(produce(9, acks=-1, number=1))
        await until(lambda: len(r.broker.received) == 1)
        await client.send(produce(9, acks=-1, number=2))
        await until(lambda: len(r.broker.received) == 2)
        frame = produce(9, acks=0, number=3)
        for part in (frame[:cut], frame[cut:]):
            await client.send(part)
            await trio.testing.wait_all_tasks_blocked()
        await until(lambda: len(r.broker.received) == 3)
        assert list(r.connection.in_flight) == [1, 2]


async def test_an_answer_out_of_order_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame) + 1))

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 3, 7))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}
    assert "answered correlation id 8 (4 bytes) where 7 was due" in caplog.text


async def test_an_answer_to_no_request_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame)) * 2)

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 3, 7))
        assert await r.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}
    assert "an answer (correlation id 7) to no request" in caplog.text


@pytest.mark.parametrize(
    ("first_bytes", "message"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), "TLS"),
        (b"GET / HTTP/1.1\r\nHost: shoal\r\n\r\n", "HTTP"),
        (b"\xff\xff\xff\xff" + bytes(20), "a frame of -1 bytes"),
        (struct.pack(">ihhi", 4, 0, 0, 0), "4 bytes is too short"),
        (struct.pack(">ihhi", 2 * MIB, 3, 0, 0), "a frame of 2097152 bytes"),
    ],
)
async def test_what_is_not_kafka_is_refused_in_clear_words(
    first_bytes: bytes, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(limits=Limits(frame_bytes=MIB)) as r:
        client = await r.client()
        await client.send(first_bytes)
        assert await client.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
        assert not r.broker.received
    assert message in caplog.text


NOISE = b"\x7f\xff\xff\xff" + bytes(8)


@pytest.mark.parametrize("noise", [NOISE, NOISE[:4], b"\xff" * 12, b"SSH-2.0-x\r\n"])
async def test_noise_does_not_reach_the_broker(noise: bytes) -> None:
    async with rig() as r:
        client = await r.client()
        await client.send(noise)
        assert await client.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
        assert not r.broker.sides


@pytest.mark.parametrize("tls", [TLS, Tls.TO_CLIENTS])
async def test_noise_of_which_only_a_part_has_arrived_is_refused_later(tls: Tls) -> None:
    async with rig(tls=tls) as r:
        client = await r.client()
        await client.send(NOISE[:3])
        await until(lambda: bool(r.listener.connections) and r.connection.connected)
        await client.send(NOISE[3:])
        assert await client.at_end()
        assert await r.closed() == {CloseCause.CLIENT_PROTOCOL: 1}
        assert not r.broker.received


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 11])
async def test_a_first_request_may_arrive_in_two_parts(cut: int) -> None:
    async with rig() as r:
        client = await r.client()
        sent = request(UNKNOWN_KEY, 0, 1, b"body")
        await client.send(sent[:cut])
        await until(lambda: bool(r.listener.connections) and r.connection.connected)
        await client.send(sent[cut:])
        assert await client.frame() == response(1, sent[12:])


async def test_a_client_that_resets_right_behind_its_first_bytes_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with rig() as r:
        client = await r.client()
        await client.send(NOISE)
        await client.reset()
        (cause,) = await r.closed()
        assert cause in (CloseCause.CLIENT_CLOSED, CloseCause.CLIENT_LOST, CloseCause.CLIENT_PROTOCOL)
        assert not r.broker.sides
    assert "Traceback" not in caplog.text


async def test_a_broker_that_wants_tls_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(bytes.fromhex("15030300020246"))
        await broker.stream.aclose()

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(18, 0, 1))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}
    assert "TLS" in caplog.text


async def test_a_client_that_does_not_read_pauses_its_broker_and_holds_no_memory() -> None:
    size = 64 * MIB
    payload = random.Random(1).randbytes(MIB)

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(struct.pack(">ii", 4 + size, correlation_id(frame)))
        for _ in range(size // MIB):
            await broker.stream.send_all(payload)

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(UNKNOWN_KEY, 0, 1))
        await until(lambda: bool(r.listener.connections) and r.connection.connected and r.connection.client_out.blocked)
        await trio.testing.wait_all_tasks_blocked(0.05)
        held = r.connection.responses.received - r.connection.client_out.sent
        assert 0 < held <= BUFFER_SIZE
        assert r.connection.responses.received < size // 2
        assert len(await client.read(8)) == 8
        for _ in range(size // MIB):
            assert await client.read(MIB) == payload


async def test_a_broker_that_does_not_read_pauses_its_client() -> None:
    size = 64 * MIB
    started, go_on = trio.Event(), trio.Event()

    class Deaf(FakeBroker):
        async def _handle(self, stream: trio.SocketStream) -> None:
            started.set()
            await go_on.wait()
            await super()._handle(stream)

    async with rig(broker=Deaf()) as r, trio.open_nursery() as nursery:
        client = await r.client()
        frame = request(UNKNOWN_KEY, 0, 1, bytes(size))
        nursery.start_soon(client.send, frame)
        await until(lambda: started.is_set() and r.connection.connected and r.connection.upstream_out.blocked)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert r.connection.requests.received - r.connection.upstream_out.sent <= BUFFER_SIZE
        assert r.connection.requests.received < size // 2
        go_on.set()
        assert await client.frame() == response(1, frame[12:])
        assert r.broker.received == [frame]


@pytest.mark.parametrize("most", [1, 5])
async def test_too_many_requests_in_flight_wait_and_none_is_lost(most: int) -> None:
    """The last of them has not arrived whole, so its answer must not be waited for."""
    go_on = trio.Event()

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await go_on.wait()
        await echo(broker, frame)

    async with rig(answer, limits=Limits(in_flight=most)) as r, trio.open_nursery() as nursery:
        client = await r.client()
        frames = [request(UNKNOWN_KEY, 0, number, bytes(300 * KIB)) for number in range(30)]
        nursery.start_soon(client.send, b"".join(frames))
        await until(lambda: bool(r.listener.connections) and len(r.connection.in_flight) > most)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(r.connection.in_flight) <= most + 3
        go_on.set()
        for frame in frames:
            assert await client.frame() == response(correlation_id(frame), frame[12:])


async def test_sasl_tokens_after_handshake_v0_pass_without_a_kafka_header() -> None:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        broker_frames.append(frame)
        number = len(broker_frames)
        if number == 1:
            await broker.send(response(correlation_id(frame), b"\x00\x00"))
        elif number < 4:
            await broker.send(struct.pack(">i", number - 2) + b"s" * (number - 2))
        else:
            await echo(broker, frame)

    broker_frames: list[bytes] = []
    tokens = [struct.pack(">i", 3) + b"c-1", struct.pack(">i", 0)]
    async with rig(answer) as r:
        client: Peer = await r.client()
        handshake = request(17, 0, 9, struct.pack(">h", 13) + b"SCRAM-SHA-256")
        await client.send(handshake)
        assert await client.frame() == response(9, b"\x00\x00")
        await client.send(tokens[0])
        assert await client.read(4) == struct.pack(">i", 0)
        await client.send(tokens[1])
        assert await client.read(5) == struct.pack(">i", 1) + b"s"
        after = request(UNKNOWN_KEY, 0, 10, b"now authenticated")
        await client.send(after)
        assert await client.frame() == response(10, after[12:])
        assert broker_frames == [handshake, *tokens, after]


async def test_a_mechanism_that_cannot_be_followed_after_handshake_v0_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agree(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), b"\x00\x00"))

    async with rig(agree) as r:
        client = await r.client()
        await client.send(request(17, 0, 9, struct.pack(">h", 6) + b"GSSAPI"))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.UPSTREAM_PROTOCOL: 1}
    assert "GSSAPI" in caplog.text


async def test_no_token_follows_a_handshake_v0_that_the_broker_refuses() -> None:
    async def refuse(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), b"\x00\x21"))

    async with rig(refuse) as r:
        client = await r.client()
        for number in (9, 10):  # a token would not be parsed, the next answer belongs to a request
            await client.send(request(17, 0, number, struct.pack(">h", 5) + b"PLAIN"))
            assert await client.frame() == response(number, b"\x00\x21")
        await client.send(request(17, 1, 11, struct.pack(">h", 5) + b"PLAIN"))
        assert await client.frame() == response(11, b"\x00\x21")
        assert r.server.statistics().listeners[0].traffic.requests == 3


async def test_statistics_count_both_sides() -> None:
    async with rig() as r:
        client = await r.client()
        frames = [request(UNKNOWN_KEY, 0, number, bytes(1000)) for number in range(5)]
        await client.send(b"".join(frames))
        answers = [await client.frame() for _ in frames]
        await client.stream.aclose()
        await r.closed()
        counted = r.server.statistics().listeners[0].traffic
    assert (counted.requests, counted.answers, counted.opaque) == (5, 5, 5)
    assert counted.from_client == counted.to_upstream == sum(map(len, frames))
    assert counted.from_upstream == counted.to_client == sum(map(len, answers))


async def test_requests_without_an_answer_are_counted() -> None:
    async with rig(silent) as r:
        client = await r.client()
        await client.send(b"".join(request(UNKNOWN_KEY, 0, number) for number in range(3)))
        await until(lambda: r.server.statistics().listeners[0].in_flight == 3)
        await client.stream.aclose()
        await r.closed()
        assert r.server.statistics().listeners[0].in_flight == 0


@pytest.mark.parametrize(("client_id", "shown"), [(b"\xff\xff", "no client id"), (b"\x00\x01x", "client id x")])
async def test_the_log_says_when_a_client_has_no_id(
    client_id: bytes, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    payload = struct.pack(">hhi", UNKNOWN_KEY, 0, 1) + client_id
    async with rig() as r:
        client = await r.client()
        await client.send(struct.pack(">i", len(payload)) + payload)
        await client.frame()
        with caplog.at_level("DEBUG"):
            await client.leave()
            await r.closed()
    assert f"({shown}) to " in "".join(record.shoal_text for record in caplog.records if hasattr(record, "shoal_text"))
