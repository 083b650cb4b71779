"""What every listener rewrites, as a client sees it. kio encodes the broker's answers and decodes the results."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import kio.schema.api_versions.v4.response as api_versions_v4
import kio.schema.describe_quorum.v2.response as quorum_v2
import kio.schema.find_coordinator.v4.response as coordinator_v4
import kio.schema.metadata.v12.response as metadata_v12
import kio.schema.produce.v10.response as produce_v10
import pytest
import trio
from kio.schema.errors import ErrorCode

from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.wire.types import write_uvarint
from shoal.proxy.config.settings import KIB, Address, Limits, PortMap
from shoal.proxy.net.transport import BUFFER_SIZE
from shoal.proxy.statistics import CloseCause
from tests.protocol.transform.test_skim_share import ENDPOINTS as SHARE_ENDPOINTS
from tests.protocol.transform.test_skim_share import response as share_fetch_response
from tests.proxy.connection.test_connection import produce
from tests.support.kio_messages import decode_response, response_frame
from tests.support.rig import (
    Answer,
    BrokerSide,
    FakeBroker,
    api_key,
    correlation_id,
    echo,
    request,
    response,
    rig,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("lane")

NO_TIME = timedelta(0)


def make(entity: Any, **fields: Any) -> Any:
    """A kio entity, without its types for Kafka's types."""
    return entity(**fields)


def answering(entity: Callable[[], Any]) -> Answer:
    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response_frame(entity(), correlation_id(frame)))

    return answer


def metadata(*brokers: tuple[int, str, int], topics: int = 0, response: Any = metadata_v12) -> Any:
    return make(
        response.MetadataResponse,
        throttle_time=NO_TIME,
        brokers=tuple(
            make(response.MetadataResponseBroker, node_id=node_id, host=host, port=port, rack="r")
            for node_id, host, port in brokers
        ),
        cluster_id="the cluster",
        topics=tuple(
            make(
                response.MetadataResponseTopic,
                error_code=ErrorCode.none,
                name=f"topic-{number}" * 10,
                topic_id=None,
                partitions=(),
            )
            for number in range(topics)
        ),
    )


@pytest.mark.parametrize("topics", [0, 3, 30_000])
async def test_metadata_name_our_ports_and_each_leads_to_its_broker(topics: int) -> None:
    brokers = [FakeBroker(), FakeBroker()]
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            await nursery.start(broker.run)
        real = metadata(*((number, *broker.address) for number, broker in enumerate(brokers)), topics=topics)
        assert topics < 1000 or len(response_frame(real)) > BUFFER_SIZE
        async with rig(answering(lambda: real)) as r:
            client = await r.client()
            await client.send(request(3, 12, 5))
            seen = decode_response(await client.frame(), metadata_v12.MetadataResponse)
            assert seen.topics == real.topics
            assert seen.cluster_id == "the cluster"
            assert [(one.node_id, one.host, one.rack) for one in seen.brokers] == [
                (0, "127.0.0.1", "r"),
                (1, "127.0.0.1", "r"),
            ]
            for number, broker in enumerate(brokers):
                port = seen.brokers[number].port
                assert port not in (broker.port, r.listener.port)
                to_broker = await r.client(port)
                await to_broker.send(request(300, 0, 9, b"to %d" % number))
                assert (await to_broker.frame()).endswith(b"to %d" % number)
                assert len(broker.received) == 1
            assert r.server.statistics().listeners[0].traffic.edited == 1
        nursery.cancel_scope.cancel()


async def test_a_share_fetch_answer_that_is_too_large_to_hold_passes_without_addresses() -> None:
    """A refused one would be asked for again, and its records archived after five deliveries."""
    real = share_fetch_response(SHARE_ENDPOINTS, bytes(2 * BUFFER_SIZE))

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(real[:4] + frame[8:12] + real[8:])

    async with rig(answer, limits=Limits(held_response_bytes=64 * KIB)) as r:
        client = await r.client()
        await client.send(request(ApiKey.SHARE_FETCH, 1, 0))
        seen = await client.frame()
        assert len(seen) == len(real)
        assert seen[: -len(SHARE_ENDPOINTS)] == real[: -len(SHARE_ENDPOINTS)]
        assert b"real" not in seen


async def test_a_broker_that_moves_is_reached_under_its_old_port() -> None:
    moved = FakeBroker()
    async with trio.open_nursery() as nursery:
        await nursery.start(moved.run)
        where = [Address("127.0.0.1", 1)]
        async with rig(answering(lambda: metadata((1, *where[0])))) as r:
            client = await r.client()
            ports = []
            for _ in range(2):
                await client.send(request(3, 12, 5))
                seen = decode_response(await client.frame(), metadata_v12.MetadataResponse)
                ports.append(seen.brokers[0].port)
                where[:] = [moved.address]
            assert ports[0] == ports[1]
            to_broker = await r.client(ports[0])
            await to_broker.send(request(300, 0, 9, b"moved"))
            assert (await to_broker.frame()).endswith(b"moved")
        nursery.cancel_scope.cancel()


async def test_a_broker_that_has_no_port_ends_the_connection_in_clear_words(caplog: pytest.LogCaptureFixture) -> None:
    answer = answering(lambda: metadata((7, "b7", 9092)))
    async with rig(answer, nodes=PortMap(ports={})) as r:
        client = await r.client()
        await client.send(request(3, 12, 5))
        assert await client.at_end()
        assert await r.closed() == {CloseCause.NO_PORT: 1}
    assert (
        "listener 'test': broker 7 at b7:9092 has no port in the listener's ports (empty): add one for 7" in caplog.text
    )


async def test_a_coordinator_is_rewritten_and_an_error_is_not() -> None:
    def one(node_id: int, host: str, port: int, error: ErrorCode) -> Any:
        return make(
            coordinator_v4.Coordinator,
            key="g",
            node_id=node_id,
            host=host,
            port=port,
            error_code=error,
            error_message=None,
        )

    error = one(-1, "", -1, ErrorCode.coordinator_not_available)
    real = make(
        coordinator_v4.FindCoordinatorResponse,
        throttle_time=NO_TIME,
        coordinators=(one(4, "b4", 9092, ErrorCode.none), error),
    )
    async with rig(answering(lambda: real)) as r:
        client = await r.client()
        await client.send(request(10, 4, 5))
        seen = decode_response(await client.frame(), coordinator_v4.FindCoordinatorResponse)
        assert (seen.coordinators[0].host, seen.coordinators[0].port) == ("127.0.0.1", r.listener.ports.bound[4].port)
        assert seen.coordinators[1] == error


async def test_a_new_leader_in_a_produce_answer_is_rewritten() -> None:
    real = make(
        produce_v10.ProduceResponse,
        responses=(),
        node_endpoints=(make(produce_v10.NodeEndpoint, node_id=2, host="b2", port=9092),),
    )
    async with rig(answering(lambda: real)) as r:
        client = await r.client()
        await client.send(produce(10, acks=-1, number=3))
        seen = decode_response(await client.frame(), produce_v10.ProduceResponse)
        assert [(one.host, one.port) for one in seen.node_endpoints] == [("127.0.0.1", r.listener.ports.bound[2].port)]


async def test_a_controllers_address_is_for_people_and_stays() -> None:
    listener = make(quorum_v2.Listener, name="CONTROLLER", host="c9", port=9093)
    real = make(
        quorum_v2.DescribeQuorumResponse,
        error_code=ErrorCode.none,
        error_message=None,
        topics=(),
        nodes=(make(quorum_v2.Node, node_id=9, listeners=(listener,)),),
    )
    async with rig(answering(lambda: real)) as r:
        client = await r.client()
        await client.send(request(55, 2, 3))
        seen = decode_response(await client.frame(), quorum_v2.DescribeQuorumResponse)
        assert [(one.host, one.port) for one in seen.nodes[0].listeners] == [("c9", 9093)]
        assert list(r.listener.ports.bound) == [None]


def fetch_v17(records: int, endpoints: bytes = b"") -> bytes:
    """A response body of one partition (Fetch v17, written by hand from FetchResponse.json)."""
    length = records + 1
    varint = bytearray()
    while length > 127:
        varint.append(length & 127 | 128)
        length >>= 7
    varint.append(length)
    partition = (
        struct.pack(">ihqqq", 0, 0, 9, 9, 0) + b"\x00" + struct.pack(">i", -1) + varint + b"r" * records + b"\x00"
    )
    tags = b"\x01\x00" + bytes([len(endpoints)]) + endpoints if endpoints else b"\x00"
    return b"\x00" + struct.pack(">ihi", 0, 0, 0) + b"\x02" + bytes(16) + b"\x02" + partition + b"\x00" + tags


ENDPOINT = b"\x02" + struct.pack(">i", 3) + b"\x08secret3" + struct.pack(">i", 9092) + b"\x00\x00"


@pytest.mark.parametrize("records", [100, BUFFER_SIZE - 200, BUFFER_SIZE, 3 * BUFFER_SIZE])
async def test_a_fetched_record_set_passes_as_it_is(records: int) -> None:
    body = fetch_v17(records)

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), body))

    async with rig(answer) as r:
        client = await r.client()
        for number in range(3):
            await client.send(request(1, 17, number))
            assert await client.frame() == response(number, body)


@pytest.mark.parametrize("records", [100, 3 * BUFFER_SIZE])
async def test_a_new_leader_in_a_fetch_answer_never_leaks(records: int) -> None:
    body = fetch_v17(records, ENDPOINT)

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), body))

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(1, 17, 1) + request(1, 17, 2))
        for _ in range(2):
            seen = await client.frame()
            assert b"r" * records in seen
            tail = seen[seen.rindex(b"r" * 100) + 100 :]
            renamed = tail.startswith(b"\x00\x00\x01\x7f")  # tag 127, unknown to clients, instead of NodeEndpoints
            rewritten = tail.startswith(b"\x00\x00\x01\x00") and b"secret3" not in tail and b"127.0.0.1" in tail
            assert renamed or rewritten
            assert rewritten == (records < BUFFER_SIZE)


@pytest.mark.parametrize("size", [3, 2 * BUFFER_SIZE])
async def test_a_tagged_field_behind_a_new_leader_passes(size: int) -> None:
    """The end of the answer is held to sort the tags, however large; what follows is unchanged."""
    future = b"\x01" + write_uvarint(size) + b"?" * size
    hidden = bytes([len(ENDPOINT)]) + ENDPOINT
    start = fetch_v17(3 * BUFFER_SIZE)[:-1] + b"\x02"

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), start + b"\x00" + hidden + future))

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(1, 17, 1) + request(1, 17, 2))
        for number in (1, 2):
            assert await client.frame() == response(number, start + future + b"\x7f" + hidden)


async def test_the_versions_of_edited_keys_only_are_capped() -> None:
    def key(number: int, newest: int) -> Any:
        return make(api_versions_v4.ApiVersion, api_key=number, min_version=0, max_version=newest)

    real = make(
        api_versions_v4.ApiVersionsResponse,
        error_code=ErrorCode.none,
        api_keys=(key(0, 99), key(12, 99), key(10_000, 99)),
        throttle_time=NO_TIME,
    )
    async with rig(answering(lambda: real)) as r:
        client = await r.client()
        await client.send(request(18, 4, 3))
        seen = decode_response(await client.frame(), api_versions_v4.ApiVersionsResponse)
    assert seen.api_keys == (key(0, API[ApiKey.PRODUCE].newest or 0), key(12, 99), key(10_000, 99))


async def test_a_too_new_api_versions_request_is_answered_in_version_0_in_its_turn() -> None:
    go_on = trio.Event()

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await go_on.wait()
        await echo(broker, frame)

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(18, 30, 3, b"\x00"))
        refusal = await client.frame()
        assert refusal[4:14] == struct.pack(">ihi", 3, 35, 1)
        await client.send(request(300, 0, 4) + request(18, 30, 3, b"\x00") + request(300, 0, 5))
        go_on.set()
        assert (await client.frame())[:8] == response(4, b"\x00\x04test")[:8]
        assert await client.frame() == refusal
        assert (await client.frame())[4:8] == struct.pack(">i", 5)
        assert len(r.broker.received) == 2


async def test_a_brokers_own_refusal_of_api_versions_passes() -> None:
    refusal = struct.pack(">hi", 35, 1) + struct.pack(">hhh", 18, 0, 2)

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(response(correlation_id(frame), refusal))

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(18, 4, 3))
        assert await client.frame() == response(3, refusal)


async def test_edited_answers_wait_in_order_for_a_client_that_does_not_read() -> None:
    """Each changes size, and the next ones are already in the receive buffer."""
    real = metadata((1, "a-rather-long-host-name.example", 9092), topics=200)
    count = 2000
    async with rig(answering(lambda: real)) as r, trio.open_nursery() as nursery:
        client = await r.client()
        nursery.start_soon(client.send, b"".join(request(3, 12, number) for number in range(count)))
        await until(lambda: bool(r.listener.connections) and r.connection.connected and r.connection.client_out.blocked)
        port = r.listener.ports.bound[1].port
        expected = make(
            metadata_v12.MetadataResponse,
            throttle_time=NO_TIME,
            brokers=metadata((1, "127.0.0.1", port)).brokers,
            cluster_id=real.cluster_id,
            topics=real.topics,
        )
        frame = response_frame(expected, 0)
        for number in range(count):
            assert await client.frame() == frame[:4] + struct.pack(">i", number) + frame[8:]


async def test_a_streamed_fetch_answer_leaves_the_next_answers_alone() -> None:
    body = fetch_v17(3 * BUFFER_SIZE)

    async def answer(broker: BrokerSide, frame: bytes) -> None:
        await broker.send(
            response(correlation_id(frame), body if api_key(frame) == ApiKey.FETCH else bytes(2 * BUFFER_SIZE))
        )

    async with rig(answer) as r:
        client = await r.client()
        await client.send(request(1, 17, 1) + request(300, 0, 2) + request(1, 17, 3))
        assert await client.frame() == response(1, body)
        assert await client.frame() == response(2, bytes(2 * BUFFER_SIZE))
        assert await client.frame() == response(3, body)
