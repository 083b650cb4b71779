"""drain = "until-clients-gone" with real clients: after SIGTERM they go on for seconds, end by themselves, and see
no error. None of them tries anything twice."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from time import sleep
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.process import until
from shoal.scenarios.kafka.security.clients import ClientSecurity
from tests.brokers.proxy.rig.data import new_topic, read
from tests.support.kafka.long_lived import long_lived, outcomes
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shoal.scenarios.kafka.broker import Cluster

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
GO_ON_S = 5.0
WITHIN = 60.0
ONCE = {"acks": "all", "retries": 0, "enable.idempotence": False}
JAVA = {key: str(value).lower() for key, value in ONCE.items()}
KINDS: Mapping[str, Mapping[str, object]] = {"plain": {}, "coalescing": {"coalesce": True}, "legacy": {"legacy": True}}


@dataclass
class Outcome:
    sent: int = 0
    acknowledged: int = 0
    errors: list[str] = field(default_factory=list)


def produce(bootstrap: str, topic: str, outcome: Outcome, stop: Event) -> None:
    def failed(error: KafkaError) -> None:
        outcome.errors.append(error.str())

    def delivered(error: KafkaError | None, _: object) -> None:
        outcome.acknowledged += error is None
        if error is not None:
            failed(error)

    producer = Producer({**client_config(bootstrap, linger_ms=0), **ONCE, "error_cb": failed})
    while not stop.is_set():
        producer.produce(topic, b"v%d" % outcome.sent, partition=0, on_delivery=delivered)
        outcome.sent += 1
        producer.poll(0)
        sleep(0.005)  # a pace, in a thread of its own
    assert producer.flush(WITHIN) == 0


def configured(kind: str, brokers: Cluster, work: Path) -> ShoalProcess:
    port = free_port_block(6)
    listener = {"name": "l", "cluster": "c", "listen": f"127.0.0.1:{port}", "ports": f"{port + 1}-{port + 5}"}
    document = {
        "limits": {"drain": "until-clients-gone", "drain-wait-seconds": WITHIN},
        "cluster": [{"name": "c", "bootstrap": brokers.bootstrap}],
        "listener": [{**listener, **KINDS[kind]}],
    }
    return ShoalProcess(["run", "-c", str(write_toml(work / "shoal.toml", document))], work=work, ports=[port])


@pytest.mark.parametrize("kind", KINDS)
async def test_producers_that_go_on_after_sigterm_see_no_error(kind: str, brokers: Cluster, tmp_path: Path) -> None:
    ours, javas = new_topic(brokers, [[1]]), new_topic(brokers, [[1]])
    outcome, stop, stop_file = Outcome(), Event(), tmp_path / "stop"
    async with running_shoal(configured(kind, brokers, tmp_path)) as shoal, trio.open_nursery() as nursery:
        bootstrap = f"127.0.0.1:{shoal.ports[0]}"
        nursery.start_soon(trio.to_thread.run_sync, produce, bootstrap, ours, outcome, stop)
        java = await long_lived(bootstrap, {javas: ClientSecurity()}, stop_file, settings=JAVA)
        try:
            await until(
                lambda: outcome.acknowledged > 100 and end_of(brokers, javas) > 20,
                within=WITHIN,
                what="traffic",
                process=java,
                poll_s=0.5,
            )
            before = outcome.acknowledged, end_of(brokers, javas)
            os.kill(shoal.pid, signal.SIGTERM)
            over = partial(is_past, trio.current_time() + GO_ON_S)
            await until(over, within=2 * GO_ON_S, what="the clients to go on", process=shoal.process)
        finally:
            stop.set()
            stop_file.touch()
        await until(lambda: not java.running, within=WITHIN, what="Java's clients to end")
        await until(lambda: not shoal.running, within=WITHIN, what="Shoal to end by itself")
        assert shoal.process.exit_code == 0
        assert "the clients have gone, after " in shoal.output()
        assert "serving until the clients have gone, for at most 60 s more: " in shoal.output()
    assert java.exit_code == 0, java.tail()
    assert outcome.errors == []
    assert outcome.acknowledged == outcome.sent == len(read(brokers.bootstrap, ours)[0])
    ((_, count, _),) = outcomes(java)
    assert count == len(read(brokers.bootstrap, javas)[0])
    assert outcome.sent - before[0] > 100, "librdkafka went on after the signal"
    assert count - before[1] > 20, "Java went on after the signal"


def end_of(brokers: Cluster, topic: str) -> int:
    """The number of records."""
    consumer = Consumer(client_config(brokers.bootstrap, group_id="unused"))
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), WITHIN)[1]
    finally:
        consumer.close()


def is_past(end: float) -> bool:
    return trio.current_time() >= end
