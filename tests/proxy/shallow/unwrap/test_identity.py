"""One identity of a target partition: brokers of Kafka 4.0 use names (Produce v12), later ones topic ids (v13).

During an upgrade a leader moves between such brokers, and a mirror's retry identifies the partition the other way.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
import trio
import trio.testing
from kio.schema.errors import ErrorCode

from shoal.protocol.messages.metadata import MetadataResponse
from shoal.protocol.records.batch import encode_batch
from shoal.proxy.config.settings import Limits
from tests.support.rig import until
from tests.support.shallow.batches import (
    BATCHES,
    EARLIER,
    LATER,
    NONE,
    NOT_LEADER,
    OTHERS,
    envelope,
    outer,
    records,
)
from tests.support.shallow.brokers import ORDERS, ORDERS_ID, Place, Script
from tests.support.shallow.partition import stamp_of
from tests.support.shallow.rig import shallow_rig

if TYPE_CHECKING:
    from tests.support.shallow.brokers import Topic
    from tests.support.shallow.rig import Producer, ShallowRig

pytestmark = pytest.mark.usefixtures("lane")

UNKNOWN_ID = ErrorCode.unknown_topic_id
NEW_ID = UUID(int=0x9ABC)
QUICK = Limits(close_seconds=0.01)
VERSIONS = [(12, 13), (13, 12)]
by_the_mirror = partial(encode_batch, producer_id=5, producer_epoch=2)


def said(version: int) -> Topic:
    return ORDERS_ID if version >= 13 else ORDERS


async def producer(r: ShallowRig, version: int) -> Producer:
    client = await r.producer(agrees=True)
    client.version = version
    return client


async def produce(client: Producer, sent: bytes) -> tuple[ErrorCode, int]:
    await client.produce(sent, topic=said(client.version))
    (answer,) = (await client.answers()).values()
    return answer


@pytest.mark.parametrize("versions", VERSIONS)
async def test_a_retry_that_says_the_topic_otherwise_brings_only_the_rest(versions: tuple[int, int]) -> None:
    async with shallow_rig(scripts={1: Script(errors={0: NOT_LEADER})}) as r:
        first, second = [await producer(r, version) for version in versions]
        assert await produce(first, outer(*BATCHES)) == (NOT_LEADER, -1)
        assert await produce(second, outer(*BATCHES)) == (NONE, 14)
        assert r.target.log() == records(*BATCHES)


@pytest.mark.parametrize("versions", VERSIONS)
async def test_what_is_in_doubt_goes_again_with_the_stamps_it_had(versions: tuple[int, int]) -> None:
    async with shallow_rig(scripts={1: Script(closes=True)}, limits=QUICK) as r:
        first, second = [await producer(r, version) for version in versions]
        await first.produce(outer(*BATCHES), topic=said(versions[0]))
        assert await first.at_end()
        assert await produce(second, outer(*BATCHES)) == (NONE, 14)
        assert r.target.log() == records(*BATCHES)
        stamps = [stamp_of(sent[ORDERS, 0]) for sent in r.target.requests]
        assert len({stamp.producer_id for stamp in stamps if stamp}) == 1
        assert stamps[1] == stamps[3]


@pytest.mark.parametrize("versions", VERSIONS)
async def test_a_retry_that_says_the_topic_otherwise_waits_for_what_is_in_flight(versions: tuple[int, int]) -> None:
    gate = trio.Event()
    async with shallow_rig(scripts={0: Script(gate=gate)}) as r:
        first, second = [await producer(r, version) for version in versions]
        await first.produce(outer(*BATCHES), topic=said(versions[0]))
        await r.arrived(1)
        await second.produce(outer(*BATCHES), topic=said(versions[1]))
        await until(lambda: sum(connection.handling for connection in r.server.connections()) == 2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(r.target.requests) == 1
        gate.set()
        assert await second.answers() == {0: (NONE, 14)}
        assert r.target.log() == records(*BATCHES)


async def test_a_mirror_with_ids_of_its_own_goes_on_when_the_topic_is_said_otherwise() -> None:
    """12, 13, 12 within one epoch: the raw batches' sequences are those of inner batches that the broker remembers."""
    wraps = [envelope(some) for some in (BATCHES[0], OTHERS[0], BATCHES[2])]
    outers = [by_the_mirror([seen.record for seen in wrap], base_sequence=at) for at, wrap in enumerate(wraps)]
    raws = [by_the_mirror([LATER._replace(value=b"%d" % at)], base_sequence=at) for at in range(3, 8)]
    async with shallow_rig() as r:
        clients = {version: await producer(r, version) for version in (12, 13)}
        for number, sent in enumerate([*outers, *raws]):
            error, _ = await produce(clients[12 + number % 2], sent)
            assert error is NONE
        wanted = [LATER._replace(value=b"%d" % at) for at in range(3, 8)]
        assert r.target.log() == [*records(BATCHES[0], OTHERS[0], BATCHES[2]), *wanted]
        stamps = [stamp for sent in r.target.requests if (stamp := stamp_of(sent[ORDERS, 0]))]
        assert all(two.first == one.last + 1 for one, two in pairwise(stamps))


async def test_an_answer_names_the_topic_as_the_request_did() -> None:
    async with shallow_rig() as r:
        for version in (12, 13):
            client = await producer(r, version)
            await client.produce(outer(*BATCHES), encode_batch([EARLIER]), topic=said(version))
            (topic,) = (await client.answer()).responses
            assert (topic.topic_id if version == 13 else topic.name) == said(version)


async def test_plain_batches_that_are_compressed_are_named_as_the_request_did() -> None:
    async with shallow_rig(plain_compression="zstd") as r:
        client = await producer(r, 13)
        many = [EARLIER._replace(value=b"x" * 200)] * 20
        assert await produce(client, encode_batch(many)) == (NONE, 0)
        assert r.target.log() == many


# Ids that are not known


async def test_the_name_of_an_unknown_id_is_asked_for_once() -> None:
    async with shallow_rig() as r:
        client = await producer(r, 13)
        assert await produce(client, outer(*BATCHES)) == (NONE, 14)
        assert await produce(client, outer(*OTHERS)) == (NONE, 19)
        ((asked,),) = (request.topics for request in r.target.asked)
        assert (asked.topic_id, asked.name) == (ORDERS_ID, None)


@pytest.mark.parametrize("sent", [outer(*BATCHES), encode_batch([LATER])], ids=["envelope", "plain"])
async def test_nothing_is_opened_under_an_id_that_the_broker_does_not_know(sent: bytes) -> None:
    """A producer then requests metadata and retries; the other topics of the request are not held up."""
    other = UUID(int=7)
    async with shallow_rig() as r:
        r.target.topics[other] = "others"
        del r.target.topics[ORDERS_ID]
        client = await producer(r, 13)
        sets: dict[Place, bytes] = {(ORDERS_ID, 0): sent, (other, 1): outer(*OTHERS)}
        await client.send(client.request(sets))
        assert await client.answers() == {0: (UNKNOWN_ID, -1), 1: (NONE, 4)}
        assert r.target.log(1, "others") == records(*OTHERS)
        assert all(place != (ORDERS, 0) for request in r.target.requests for place in request)
        r.target.topics[ORDERS_ID] = ORDERS
        error, _ = await produce(client, sent)
        assert error is NONE


async def test_two_ids_of_one_name_are_not_one_topic() -> None:
    """One is of a deleted topic; only the broker knows which: the second is sent again, alone."""
    async with shallow_rig() as r:
        r.target.topics[NEW_ID] = ORDERS
        client = await producer(r, 13)
        await client.send(client.request({(ORDERS_ID, 0): outer(*BATCHES), (NEW_ID, 1): outer(*OTHERS)}))
        assert await client.answers() == {0: (NONE, 14), 1: (UNKNOWN_ID, -1)}
        await client.send(client.request({(NEW_ID, 1): outer(*OTHERS)}))
        assert await client.answers() == {1: (NONE, 4)}


def learn(r: ShallowRig, topic_id: UUID) -> None:
    metadata = MetadataResponse(brokers=(), cluster_id=None, topics=((ORDERS, topic_id.bytes),), partition_counts=(1,))
    r.server.listeners["to"].cluster.learn(metadata)


async def test_a_topic_that_was_made_anew_has_no_past() -> None:
    """A part of an envelope was appended to the deleted one: the new one gets all of it."""
    async with shallow_rig(scripts={1: Script(errors={0: NOT_LEADER})}) as r:
        client = await producer(r, 12)
        learn(r, ORDERS_ID)
        assert await produce(client, outer(*BATCHES)) == (NOT_LEADER, -1)
        learn(r, ORDERS_ID)
        del r.target.logs[ORDERS, 0]
        learn(r, NEW_ID)
        assert await produce(client, outer(*BATCHES)) == (NONE, 14)
        assert r.target.log() == records(*BATCHES)
        assert not r.unwrap.tally.mismatches
        stamps = [stamp for sent in r.target.requests if (stamp := stamp_of(sent[ORDERS, 0]))]
        assert stamps[0].producer_id != stamps[-1].producer_id


async def test_metadata_of_a_broker_that_lags_behind_forget_nothing() -> None:
    """After the topic was recreated, such a broker still reports the id of the deleted one."""
    async with shallow_rig(scripts={1: Script(errors={0: NOT_LEADER})}) as r:
        client = await producer(r, 12)
        learn(r, ORDERS_ID)
        learn(r, NEW_ID)
        assert await produce(client, outer(*BATCHES)) == (NOT_LEADER, -1)
        learn(r, ORDERS_ID)
        learn(r, NEW_ID)
        assert await produce(client, outer(*BATCHES)) == (NONE, 14)
        assert r.target.log() == records(*BATCHES)
