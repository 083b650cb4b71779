"""The wrap listener between a scripted source broker and a mirror's consumer. Whether it may wrap is not tested here:
the operator vouches for the other end (`unpaired`), or scripted rules decide. test_evidence.py has the real ones.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode

from shoal.protocol.records.batch import TRANSACTIONAL, read_batch_header
from shoal.protocol.shallow.facts import read_facts
from shoal.protocol.shallow.wrap.eligible import Reason
from shoal.protocol.wire.compression import Codec
from shoal.proxy.config.identity import host_name
from shoal.proxy.config.settings import KIB, MIB, CaptureSettings, Mode
from shoal.proxy.shallow.paths import ShallowPaths
from shoal.proxy.shallow.wrap.mirror_fetch import MOST_KEPT
from tests.support.kafka_python import murmur2
from tests.support.kio_messages import decode_request, request_frame
from tests.support.shallow.batches import BATCHES, NONE, records
from tests.support.shallow.brokers import ORDERS, ORDERS_ID, Place, SourceBroker, make
from tests.support.shallow.rig import Consumer, ShallowRig, shallow_rig
from tests.support.shallow.sets import LEADER, LOG, MORE, P0, P1, keys, raw, spans
from tests.support.shallow.world import poll, produced, some_batch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock


P2: Place = ORDERS, 2

pytestmark = pytest.mark.usefixtures("lane")


@pytest.fixture
async def r() -> AsyncIterator[ShallowRig]:
    async with shallow_rig(paired=False, min_batch_bytes=0) as rig:
        yield rig


# Ordinary consumers


@pytest.mark.parametrize("version", range(4, 19))
async def test_an_ordinary_consumer_sees_every_byte_as_it_was(version: int) -> None:
    topic = ORDERS_ID if version >= 13 else ORDERS
    async with shallow_rig(paired=False, source=SourceBroker(sets=[{(topic, 0): LOG}, {}])) as r:
        client = await r.consumer()
        client.version, client.client_id = version, "replication-consumer of another client"
        for _ in range(2):
            frame = client.request({(topic, 0): 100})
            await client.send(frame)
            assert await client.frame() == r.source.answers[-1]
            assert r.brokers[0].received[-1] == frame


async def test_who_is_taken_for_no_mirror_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "shoal.fetch")
    async with shallow_rig(paired=False, source=SourceBroker(sets=[{P0: LOG}] * 3)) as r:
        for client_id in ("mm1-0", "mm1-0", "mm1-1"):
            client = await r.consumer()
            client.client_id = client_id
            await client.ask(100)
            await client.answer()
    assert [record.getMessage() for record in caplog.records if record.name == "shoal.fetch"] == [
        rf"client id '{name}' is none of mirror-clients (\|replication-consumer$): it gets records as they are; "
        "if it is a mirror's consumer of data, correct mirror-clients"
        for name in ("mm1-0", "mm1-1")
    ]


@pytest.mark.parametrize("client_id", ["another client", "A->B|MirrorSourceConnector-0|replication-consumer"])
@pytest.mark.parametrize("version", [16, 18])
async def test_the_address_of_another_broker_is_ours(version: int, client_id: str) -> None:
    source = SourceBroker(sets=[{(ORDERS_ID, 0): LOG}], leader=LEADER, topics={ORDERS_ID: (ORDERS, 1)})
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0) as r:
        client = await r.consumer()
        client.version, client.client_id = version, client_id
        await client.ask(100, topic=ORDERS_ID)
        answer = await client.answer()
        (leader,) = answer.node_endpoints
        bound_port = r.server.listeners["from"].ports.bound[7]
        assert (leader.node_id, leader.host, leader.port) == (7, "127.0.0.1", bound_port.port)
        ((one,),) = (topic.partitions for topic in answer.responses)
        assert (one.records == LOG) == (client_id == "another client")


# A mirror's request


@pytest.mark.parametrize("version", range(4, 19))
async def test_limits_of_a_mirror_s_request_are_lowered_and_nothing_else(version: int) -> None:
    topic = ORDERS_ID if version >= 13 else ORDERS
    source = SourceBroker(topics={ORDERS_ID: (ORDERS, 1)})
    async with shallow_rig(paired=False, source=source) as r:
        client = await r.consumer()
        client.version = version
        schema = load_request_schema(1, version)
        for given, lowered in ((50, 8), (3, 3)):
            frame = client.request(
                {(topic, 0): 5, (topic, 1): 6}, max_bytes=given * MIB, partition_max_bytes=given * MIB
            )
            header, entity = decode_request(frame, schema)
            await client.send(frame)
            await client.frame()
            wanted = replace(entity, max_bytes=lowered * MIB, topics=tuple(map(_lowered, entity.topics)))
            assert r.brokers[0].received[-1] == request_frame(wanted, header.correlation_id, header.client_id)


def _lowered(topic: Any) -> Any:
    parts = (replace(part, partition_max_bytes=min(part.partition_max_bytes, 960 * KIB)) for part in topic.partitions)
    return replace(topic, partitions=tuple(parts))


# Wrapping


async def test_an_envelope_states_what_is_in_it_and_who_made_it() -> None:
    source = SourceBroker(sets=[{P0: LOG}, {P0: MORE}])
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0, tags={"site": "north"}) as r:
        client = await r.consumer()
        await client.fetch(100)
        (seen,) = poll(await client.fetch(115))
    facts = read_facts(seen.record.headers)
    assert facts is not None
    assert (facts.batches, facts.records, facts.has_keys) == (2, 5, None)
    headers = dict(seen.record.headers)
    assert headers[b"shoal.tag.site"] == b"north"
    says = json.loads(bytes(headers[b"shoal.provenance"] or b""))
    assert (says["cluster"], says["listener"], says["host"]) == ("from", "from", host_name())


async def test_batches_of_the_sample_are_looked_into() -> None:
    capture = CaptureSettings(directory=Path("never written"), has_keys_sample=1)
    source = SourceBroker(sets=[{P0: LOG}, {P0: MORE}])
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0) as r:
        paths = ShallowPaths().of(replace(r.server.settings, capture=capture))
        listener = r.server.listeners["from"]
        listener.path = paths[Mode.WRAP](listener)
        listener.routes.update(listener.path.routes)
        client = await r.consumer()
        await client.fetch(100)
        (seen,) = poll(await client.fetch(115))
    facts = read_facts(seen.record.headers)
    assert facts is not None
    assert facts.has_keys is True


@pytest.mark.parametrize("version", range(4, 19))
async def test_the_first_batch_stays_raw_and_what_follows_is_wrapped(version: int) -> None:
    """After a start, and after each seek, the mirror needs an offset sync at its first batch."""
    topic = ORDERS_ID if version >= 13 else ORDERS
    sets = [{(topic, 0): LOG}, {(topic, 0): MORE}, {(topic, 0): LOG[len(BATCHES[0]) :]}]
    source = SourceBroker(sets=list(sets), topics={ORDERS_ID: (ORDERS, 1)})
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0) as r:
        client = await r.consumer()
        client.version = version
        first = await client.fetch(100, topic=topic)
        assert first.startswith(BATCHES[0])
        assert spans(first) == [None] * 4 + [(104, 114)]
        assert spans(await client.fetch(115, topic=topic)) == [(115, 119)]
        after_seek = await client.fetch(104, topic=topic)
        assert after_seek.startswith(BATCHES[1])
        assert spans(after_seek) == [None] * 6 + [(110, 114)]
        assert raw(r) == {Reason.FIRST: 2}
        tally = r.wrap.tally
        assert (tally.envelopes, tally.wrapped_batches, tally.wrapped_records) == (3, 5, 21)
        assert tally.wrapped_bytes == len(LOG) - len(BATCHES[0]) + len(MORE) + len(BATCHES[2])


async def test_what_is_wrapped_here_comes_out_at_the_other_end(r: ShallowRig) -> None:
    r.source.sets = [{P0: LOG}, {P0: MORE}]
    client, producer = await r.consumer(), await r.producer()
    for offset in (100, 115):
        await producer.produce(produced(poll(await client.fetch(offset))))
        ((error, _),) = (await producer.answers()).values()
        assert error is NONE
    assert r.target.log() == records(LOG, MORE)
    assert r.unwrap.tally.opened_envelopes == 2


async def test_a_run_ends_at_the_run_limit() -> None:
    log = [some_batch(offset, 40) for offset in range(0, 400, 40)]
    limit = 3 * max(map(len, log)) + 1000
    source = SourceBroker(sets=[{P0: log[0]}, {P0: b"".join(log[1:])}])
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0, run_limit=limit) as r:
        client = await r.consumer()
        assert await client.fetch(0) == log[0]
        wrapped = await client.fetch(40)
        assert spans(wrapped) == [(40, 159), (160, 279), (280, 399)]


async def test_topics_that_are_never_wrapped_pass_byte_for_byte() -> None:
    never: dict[Place, bytes] = {("deep-orders", 0): LOG, ("__consumer_offsets", 3): LOG, ("a.internal", 0): LOG}
    source = SourceBroker(sets=[never] * 2)
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0, deep_topics=("^deep",)) as r:
        client = await r.consumer()
        for offset in (0, 115):
            await client.send(client.request(dict.fromkeys(never, offset)))
            assert await client.frame() == r.source.answers[-1]
        assert raw(r) == {Reason.DEEP_TOPIC: 6, Reason.INTERNAL_TOPIC: 12}


async def test_batches_whose_headers_are_not_kept_are_wrapped_as_well(r: ShallowRig) -> None:
    """Tiny batches in three partitions: the headers of the second exceed the bound, those of the third fit again."""
    many, few = _tiny_batches(MOST_KEPT - 10), _tiny_batches(10)
    more = _tiny_batches(11)
    r.source.sets = [{P0: LOG, P1: LOG, P2: LOG}, {P0: many, P1: more, P2: few}]
    client = await r.consumer()
    for offset in (100, 115):
        await client.send(client.request({P0: offset, P1: offset, P2: offset}))
        sets = await client.record_sets()
    inside = {place: b"".join(seen.record.value or b"" for seen in poll(given)) for place, given in sets.items()}
    assert inside == {P0: many, P1: more, P2: few}
    assert r.wrap.tally.raw_batches[Reason.FIRST] == 3


def _tiny_batches(count: int) -> bytes:
    """One record each, from offset 115 on. The checksum excludes the base offset."""
    behind = some_batch(0, 1, Codec.NONE)[8:]
    return b"".join(struct.pack(">q", offset) + behind for offset in range(115, 115 + count))


@pytest.mark.parametrize("rubbish", [bytes(300), LOG[:40], b"\xff" * 100], ids=["zeros", "cut off", "ones"])
async def test_what_cannot_be_read_passes_as_it_is(r: ShallowRig, rubbish: bytes) -> None:
    r.source.sets = [{P0: rubbish, P1: LOG}]
    client = await r.consumer()
    await client.send(client.request({P0: 100, P1: 100}))
    sets = await client.record_sets()
    assert sets[P0] == rubbish
    assert spans(sets[P1]) == [None] * 4 + [(104, 114)]


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_producer_ids_stay_where_the_mirror_has_to_know_them(r: ShallowRig, isolation_level: int) -> None:
    batch = partial(some_batch, attributes=TRANSACTIONAL, producer_id=5, producer_epoch=2, base_sequence=0)
    log = batch(115) + batch(118)
    r.source.sets = [{P0: LOG}, {P0: log}]
    client = await r.consumer()
    await client.fetch(100)
    wrapped = await client.fetch(115, isolation_level=isolation_level)
    assert spans(wrapped) == [(115, 120)]
    header = read_batch_header(wrapped, 0, len(wrapped))
    assert (header.is_transactional, header.producer_id) == ((True, 5) if isolation_level else (False, -1))


async def test_envelopes_hash_to_their_partition_where_the_mirror_chooses_it_by_key() -> None:
    sets: list[dict[Place, bytes]] = [{(ORDERS, 4): LOG}, {(ORDERS, 4): MORE}, {(ORDERS, 4): some_batch(120, 9)}]
    source = SourceBroker(sets=[*sets], topics={ORDERS_ID: (ORDERS, 7)})
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0, partition_by_key=True) as r:
        client = await r.consumer()
        assert await client.fetch(100, 4) == LOG  # the number of partitions is unknown
        assert raw(r) == {Reason.UNKNOWN_TOPIC: 3}
        await learn(client)
        (seen,) = poll(await client.fetch(115, 4))
        assert seen.record.key is not None
        assert (murmur2(seen.record.key) & 0x7FFFFFFF) % 7 == 4
        (key,) = keys(await client.fetch(120, 4))
        assert key is not None
        assert key.cluster == "the source"


async def test_a_partition_that_is_newer_than_the_known_count_is_raw_where_the_mirror_chooses_it_by_key() -> None:
    source = SourceBroker(sets=[{(ORDERS, 4): LOG}], topics={ORDERS_ID: (ORDERS, 3)})
    async with shallow_rig(paired=False, source=source, min_batch_bytes=0, partition_by_key=True) as r:
        client = await r.consumer()
        await learn(client)
        assert await client.fetch(100, 4) == LOG
        assert raw(r) == {Reason.UNKNOWN_TOPIC: 3}


async def learn(client: Consumer) -> None:
    """Request metadata, as every client does."""
    schema = load_request_schema(3, 12)
    entity = make(schema, "MetadataRequest", topics=None, include_topic_authorized_operations=False)
    await client.send(request_frame(entity, 5, client.client_id))
    await client.frame()


# Sessions


async def test_an_incremental_session_is_followed(r: ShallowRig) -> None:
    """A partition that a request does not name keeps its last fetch offset."""
    r.source.session_id = 77
    r.source.sets = [{P0: LOG, P1: LOG}, {P1: MORE}, {P0: MORE}, {P1: some_batch(120, 4)}]
    client = await r.consumer()
    await client.send(client.request({P0: 100, P1: 100}, session_epoch=0))
    assert [spans(records) for records in (await client.record_sets()).values()] == [[None] * 4 + [(104, 114)]] * 2
    await client.send(client.request({P0: 115, P1: 115}, session_id=77, session_epoch=1))
    assert spans(await client.record_set()) == [(115, 119)]
    await client.send(client.request({P1: 120}, session_id=77, session_epoch=2))
    assert spans(await client.record_set()) == [(115, 119)]
    await client.send(client.request({P0: 120}, session_id=77, session_epoch=3))
    assert spans(await client.record_set()) == [(120, 123)]


@pytest.mark.parametrize("version", [7, 11, 12, 13])
async def test_a_session_of_another_connection_is_begun_anew(r: ShallowRig, version: int) -> None:
    """The mirror's connection was lost between two requests, and it continues its session over the next one."""
    r.source.topics = {ORDERS_ID: (ORDERS, 7)}
    r.source.session_id = 77
    r.source.sets = [{P0: LOG}]
    client = await r.consumer()
    client.version = version
    await client.send(client.request({}, session_id=5, session_epoch=9))
    answer = await client.answer()
    assert (answer.error_code, answer.session_id, answer.responses) == (ErrorCode.fetch_session_id_not_found, 0, ())
    assert r.source.requests == []


async def test_it_then_goes_on_as_ever(r: ShallowRig) -> None:
    r.source.session_id = 77
    r.source.sets = [{P0: LOG}, {P0: MORE}]
    client = await r.consumer()
    await client.send(client.request({}, session_id=5, session_epoch=9))
    await client.answer()
    await client.send(client.request({P0: 100}, session_epoch=0))
    assert spans(await client.record_set()) == [None] * 4 + [(104, 114)]
    await client.send(client.request({P0: 115}, session_id=77, session_epoch=1))
    assert spans(await client.record_set()) == [(115, 119)]
    assert Reason.UNKNOWN_OFFSET not in raw(r)


async def test_a_client_that_goes_on_all_the_same_is_not_sent_back_for_ever(r: ShallowRig) -> None:
    """Then its answers pass unchanged."""
    r.source.sets = [{P0: LOG}, {P0: MORE}]
    client = await r.consumer()
    for epoch in (9, 10, 11, 12):
        await client.send(client.request({}, session_id=5, session_epoch=epoch))
        if epoch % 2:
            assert (await client.answer()).error_code is ErrorCode.fetch_session_id_not_found
        else:
            assert await client.frame() == r.source.answers[-1]
    assert raw(r) == {Reason.UNKNOWN_OFFSET: 5}


async def test_the_session_of_another_reader_is_its_own_business(r: ShallowRig) -> None:
    client = await r.consumer()
    client.client_id = "another client"
    await client.send(client.request({}, session_id=5, session_epoch=9))
    assert (await client.answer()).error_code is ErrorCode.none
    assert len(r.source.requests) == 1


# Topic ids


async def test_an_unknown_topic_id_is_asked_for_once_in_a_while(r: ShallowRig, clock: MockClock) -> None:
    place = ORDERS_ID, 0
    r.source.sets = [{place: LOG}, {place: MORE}, {place: LOG}]
    client = await r.consumer()
    client.version = 13
    assert await client.fetch(100, topic=ORDERS_ID) == LOG
    assert await client.fetch(115, topic=ORDERS_ID) == MORE
    ((asked,),) = (request.topics for request in r.source.asked)
    assert (asked.topic_id, asked.name) == (ORDERS_ID, None)
    assert not r.source.asked[0].allow_auto_topic_creation
    assert raw(r) == {Reason.UNKNOWN_TOPIC: 5}
    r.source.topics = {ORDERS_ID: (ORDERS, 1)}
    await trio.sleep(5)
    (key,) = keys(await client.fetch(100, topic=ORDERS_ID))[4:]
    assert key is not None
    assert (key.topic, key.cluster) == (ORDERS, "the source")
    await client.ask(200, topic=ORDERS_ID)
    await client.frame()
    assert len(r.source.asked) == 2
