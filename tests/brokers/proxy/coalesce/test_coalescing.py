"""Real producers of every kind through a coalescing listener before three real brokers: nothing is lost, doubled or
reordered."""

from __future__ import annotations

import re
import uuid
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import Producer

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.java.tools import run_tool
from shoal.scenarios.kafka.process import together
from tests.brokers.proxy.rig.data import IN_TIME, Record, new_topic, produce, read
from tests.brokers.proxy.rig.feeder import Feeder
from tests.brokers.proxy.rig.frames import Closed, Wire, request
from tests.brokers.proxy.test_topology import _lead_as_before
from tests.support.coalesce_rig import batch
from tests.support.shoal_process import running_shoal

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.scenarios.kafka.broker import Cluster
    from tests.brokers.proxy.rig.data import Contents
    from tests.brokers.proxy.rig.stand import Stand

    NewStand = Callable[..., Stand]

pytestmark = pytest.mark.kafka
in_thread = trio.to_thread.run_sync
SIX = [[1], [2], [3], [1], [2], [3]]
SAFE = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]


def coalescing(new_stand: NewStand, **settings: object) -> Stand:
    return new_stand(coalescing={"ignore-client-ids": True, **settings}, log={"report-every": 0.5})


def joined(stand: Stand) -> tuple[int, int]:
    """The numbers of joined produce requests and of requests that they became; call it after Shoal has ended."""
    told = re.findall(r"total plain: .*?joined ([\d,]+) produce requests? into ([\d,]+)", stand.shoal.output())
    (last,) = told[-1:]
    return int(last[0].replace(",", "")), int(last[1].replace(",", ""))


def of(contents: Contents, key: bytes) -> Contents:
    return {partition: [record for record in records if record.key == key] for partition, records in contents.items()}


def read_all_of(brokers: Cluster, topic: str, partitions: int, count: int) -> Contents:
    """Wait for this many records: acks=0 has no answer."""
    deadline = monotonic() + IN_TIME
    while True:
        found = read(brokers.bootstrap, topic, partitions=partitions)
        if sum(map(len, found.values())) >= count or monotonic() > deadline:
            return found
        sleep(0.1)


KINDS: dict[str, dict[str, object]] = {
    "acks=all": {"acks": "all"},
    "acks=1": {"acks": 1},
    "acks=0": {"acks": 0},
    "idempotent": {"enable_idempotence": True},
    "zstd": {"acks": "all", "compression_type": "zstd"},
    "batched": {"acks": 1, "linger_ms": 20},
}


async def test_producers_of_every_kind_at_once(brokers: Cluster, new_stand: NewStand) -> None:
    topic, stand = new_topic(brokers, SIX), coalescing(new_stand, linger=0.05)
    sent: dict[bytes, Contents] = {}

    async def one(name: str, number: int, settings: dict[str, object]) -> None:
        key = f"{name} {number}".encode()
        records = [Record(key, b"%d" % at) for at in range(400)]
        # One client id each: the end of a client makes what others of its id send a possible retry for a while.
        settings = {"client_id": f"{name} {number}", "linger_ms": 0, "max_in_flight": 5, **settings}
        call = partial(produce, stand.bootstrap, topic, records, partitions=6, **settings)
        sent[key] = await in_thread(call)

    async with running_shoal(stand.shoal):
        await together(*(partial(one, name, number, kind) for name, kind in KINDS.items() for number in range(4)))
        stored = await in_thread(read_all_of, brokers, topic, 6, 400 * len(sent))
        assert await in_thread(partial(read, stand.bootstrap, topic, partitions=6)) == stored
    assert sum(map(len, stored.values())) == 400 * len(sent)
    for key, contents in sent.items():
        assert of(stored, key) == contents, key
    requests, into = joined(stand)
    assert requests > 1.5 * into


async def test_a_produce_between_two_metadata_requests_in_one_packet(brokers: Cluster, new_stand: NewStand) -> None:
    topic, stand = new_topic(brokers, [[1]]), coalescing(new_stand)
    metadata = request("metadata", 1, {"topics": [{"name": topic}]})
    partitions = [{"index": 0, "records": batch("in the middle")}]
    topics = [{"name": topic, "partition_data": partitions}]
    produced = request("produce", 7, {"acks": -1, "timeout": timedelta(seconds=5), "topic_data": topics})

    def exchange() -> list[bytes | Closed]:
        with Wire(*stand.broker(1)) as wire:
            wire.send(metadata + produced + metadata)
            return [wire.receive() for _ in range(3)]

    async with running_shoal(stand.shoal):
        assert Closed() not in await in_thread(exchange)
        stored = await in_thread(partial(read, brokers.bootstrap, topic))
    assert [one.value for one in stored[0]] == [b"in the middle"]
    assert joined(stand) == (1, 1)


@pytest.mark.slow
async def test_producers_that_ask_for_metadata_between_their_records(brokers: Cluster, new_stand: NewStand) -> None:
    """librdkafka sends them over the connection on which it produces."""
    topic, stand = new_topic(brokers, SIX), coalescing(new_stand)
    config = {
        **client_config(stand.bootstrap),
        "topic.metadata.refresh.interval.ms": 1000,
        "acks": "all",
        "linger.ms": 0,
    }

    def one(number: int) -> int:
        producer, until, sent = Producer(config), monotonic() + 4.0, 0
        while monotonic() < until:
            producer.produce(topic, b"%d %d" % (number, sent), partition=number % 6)
            sent += 1
            producer.poll(0.005)
        assert not producer.flush(IN_TIME)
        return sent

    sent: list[int] = []

    async def run(number: int) -> None:
        sent.append(await in_thread(one, number))

    async with running_shoal(stand.shoal):
        await together(*(partial(run, number) for number in range(20)))
    stored = await in_thread(partial(read, brokers.bootstrap, topic, partitions=6))
    assert sum(map(len, stored.values())) == sum(sent)
    assert joined(stand)[0]


async def test_java_producers(brokers: Cluster, new_stand: NewStand) -> None:
    topic, other, stand = new_topic(brokers, SIX), new_topic(brokers, SIX), coalescing(new_stand, linger=0.005)
    lines = {name: [f"{name} {number}" for number in range(1000)] for name in "abc"}
    bootstrap = ("--bootstrap-server", stand.bootstrap)

    async def console(name: str) -> None:
        stdin = "".join(f"{line}\n" for line in lines[name]).encode()
        await run_tool("ConsoleProducer", *bootstrap, "--topic", topic, "--batch-size", "200", stdin=stdin)

    async def performance(*more: str) -> None:
        amount = ("--num-records", "3000", "--record-size", "100", "--throughput", "-1")
        properties = (
            "--producer-props",
            f"bootstrap.servers={stand.bootstrap}",
            "linger.ms=0",
            "batch.size=500",
            *more,
        )
        told = await run_tool("ProducerPerformance", "--topic", other, *amount, *properties)
        assert "3000 records sent" in told

    async with running_shoal(stand.shoal):
        perf = (partial(performance), partial(performance, "acks=1", "enable.idempotence=false"))
        transactional = partial(performance, f"transactional.id=x-{uuid.uuid4().hex[:12]}")
        await together(*(partial(console, name) for name in lines), *perf, transactional)
        stored = await in_thread(partial(read, brokers.bootstrap, topic, partitions=6))
        counted = await in_thread(partial(read, brokers.bootstrap, other, partitions=6))
    values = [(record.value or b"").decode() for records in stored.values() for record in records]
    assert sorted(values) == sorted(line for one in lines.values() for line in one)
    for records in stored.values():
        for name in lines:
            numbers = [
                int((record.value or b"")[2:]) for record in records if (record.value or b"").startswith(name.encode())
            ]
            assert numbers == sorted(numbers)
    assert sum(map(len, counted.values())) == 9000
    assert joined(stand)[0]


async def test_a_quota_of_one_client_id_slows_nobody_else(brokers: Cluster, new_stand: NewStand) -> None:
    """A broker mutes a connection that exceeds the quota, here a lane's: each client id has its own lanes."""
    topic, stand = new_topic(brokers, [[1], [1]]), coalescing(new_stand, **{"ignore-client-ids": False})
    greedy, modest = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("greedy", "modest"))
    quota = ("--entity-type", "clients", "--entity-name", greedy, "--alter")
    alter = partial(run_tool, "ConfigCommand", "--bootstrap-server", brokers.bootstrap, *quota)
    await alter("--add-config", "producer_byte_rate=2000")
    async with running_shoal(stand.shoal):
        slowed, not_slowed = [
            await in_thread(_throttled, stand.bootstrap, topic, name, at) for at, name in enumerate((greedy, modest))
        ]
    await alter("--delete-config", "producer_byte_rate")
    assert slowed
    assert slowed[0] > 0
    assert not not_slowed
    requests, into = joined(stand)
    assert requests == into > 0


def _throttled(bootstrap: str, topic: str, name: str, partition: int) -> list[float]:
    """The throttle time of a client that sends 10 % more than the quota for ten seconds."""
    told: list[float] = []
    settings = {"client.id": name, "acks": "all", "throttle_cb": lambda event: told.append(event.throttle_time)}
    producer = Producer({**client_config(bootstrap), **settings})
    producer.produce(topic, bytes(22_000), partition=partition)
    assert not producer.flush(IN_TIME)
    producer.poll(0.1)
    return told


async def test_transactions_beside_ordinary_producers(brokers: Cluster, new_stand: NewStand) -> None:
    topic, fed, stand = new_topic(brokers, SIX), new_topic(brokers, SAFE), coalescing(new_stand)
    async with running_shoal(stand.shoal):
        with Feeder(stand.bootstrap, fed, partitions=3) as feeder:
            kept = await in_thread(_transactions, stand.bootstrap, topic)
            await in_thread(feeder.wait_for, 300)
        committed = await in_thread(
            partial(read, brokers.bootstrap, topic, partitions=6, isolation_level="read_committed")
        )
        assert await in_thread(partial(read, brokers.bootstrap, fed, partitions=3)) == feeder.sent
    assert [one.value for one in committed[0]] == kept
    assert "transactional" in stand.shoal.output()


def _transactions(bootstrap: str, topic: str) -> list[bytes]:
    producer = Producer({**client_config(bootstrap), "transactional.id": f"x-{uuid.uuid4().hex[:12]}", "linger.ms": 0})
    producer.init_transactions(IN_TIME)
    kept = []
    for number in range(6):
        producer.begin_transaction()
        values = [b"%d.%d" % (number, at) for at in range(20)]
        for value in values:
            producer.produce(topic, value, partition=0)
        assert not producer.flush(IN_TIME), "an abort would drop what was not sent yet"
        if number % 2:
            producer.abort_transaction(IN_TIME)
        else:
            producer.commit_transaction(IN_TIME)
            kept += values
    return kept


async def test_a_broker_is_killed_and_comes_back(brokers: Cluster, new_stand: NewStand) -> None:
    topics = [new_topic(brokers, SAFE, {"min.insync.replicas": "2"}) for _ in range(3)]
    stand, victim = coalescing(new_stand), brokers.nodes[3]
    async with running_shoal(stand.shoal):
        with ExitStack() as stack:
            feeders = [stack.enter_context(Feeder(stand.bootstrap, topic, partitions=3)) for topic in topics]
            await _more(feeders)
            victim.kill()
            try:
                await _more(feeders)
            finally:
                await victim.start()
                await brokers.wait_whole()
                await in_thread(_lead_as_before, brokers)
            await _more(feeders)
        for topic, feeder in zip(topics, feeders, strict=True):
            assert await in_thread(partial(read, brokers.bootstrap, topic, partitions=3)) == feeder.sent


async def test_shoal_is_killed_and_comes_back(brokers: Cluster, new_stand: NewStand) -> None:
    topics = [new_topic(brokers, SAFE) for _ in range(3)]
    stand = coalescing(new_stand, linger=0.005)
    async with running_shoal(stand.shoal):
        with ExitStack() as stack:
            feeders = [stack.enter_context(Feeder(stand.bootstrap, topic, partitions=3)) for topic in topics]
            for _ in range(3):
                await _more(feeders)
                stand.shoal.kill()
                await stand.shoal.start()
            await _more(feeders)
        for topic, feeder in zip(topics, feeders, strict=True):
            assert await in_thread(partial(read, brokers.bootstrap, topic, partitions=3)) == feeder.sent


async def _more(feeders: list[Feeder]) -> None:
    for feeder in feeders:
        await in_thread(feeder.wait_for, feeder.acknowledged + 300)
