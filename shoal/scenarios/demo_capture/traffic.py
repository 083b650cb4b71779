"""The traffic of the demo: many small producers, one of which runs away at the end, and a busy one that suits a mirror.

sensors    clients that send a record or a few at a time, at random times (no linger: a request each)
runaway    one of them, in the last part of the time: forty times as often
orders     one producer with full zstd batches, all the time
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import trio
from confluent_kafka import KafkaException, Producer

from shoal.scenarios.kafka.content.clients import client_config, in_thread
from shoal.scenarios.kafka.content.records import orders
from shoal.scenarios.kafka.content.traffic import Layout, fill
from shoal.scenarios.kafka.errors import TrafficFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError, Message

__all__ = ["ORDERS", "PARTITIONS", "READINGS", "RUNAWAY", "Sent", "send"]

READINGS, ORDERS = "readings", "orders"
PARTITIONS = {READINGS: 12, ORDERS: 4}
SENSORS, PER_SECOND = 40, 1.5  # of each sensor
RUNAWAY, TIMES, LAST_PART = "sensor-07", 40, 0.25
_CHUNK, _PAUSE_S = 5_000, 1.5  # orders per chunk, and seconds between chunks
_FLUSH_S = 30.0


@dataclass(slots=True)
class Sent:
    """Acknowledged records."""

    readings: int = 0
    orders: int = 0
    error: KafkaError | None = None

    def delivered(self, error: KafkaError | None, _: Message) -> None:
        self.error = self.error or error
        self.readings += error is None


async def send(bootstrap: str, seconds: float, show: Callable[[str], None], seed: int = 1) -> Sent:
    """Send until the time is over. Returns when all is acknowledged. Raises TrafficFailed."""
    sent, over = Sent(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_orders, bootstrap, sent, over)
        await _readings(bootstrap, seconds, sent, show, random.Random(seed))
        over.set()
    if sent.error is not None:
        raise TrafficFailed(f"a reading was not delivered: {sent.error}")
    return sent


async def _orders(bootstrap: str, sent: Sent, over: trio.Event) -> None:
    while not over.is_set():
        layout = Layout(partitions=PARTITIONS[ORDERS])
        sent.orders += await fill(
            bootstrap,
            ORDERS,
            (order._replace(timestamp=_now_ms()) for order in orders(_CHUNK, seed=sent.orders)),
            layout=layout,
            compression_type="zstd",
            client_id="orders",
            enable_idempotence=True,
        )
        with trio.move_on_after(_PAUSE_S):
            await over.wait()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _readings(
    bootstrap: str, seconds: float, sent: Sent, show: Callable[[str], None], rng: random.Random
) -> None:
    names = [f"sensor-{number:02}" for number in range(SENSORS)]
    sensors = {name: _sensor(bootstrap, name, number) for number, name in enumerate(names)}
    runaway, begin = names.index(RUNAWAY), trio.current_time()
    weights = [1.0] * SENSORS
    at = 0.0
    while at < seconds:
        weights[runaway] = TIMES if at > seconds * (1 - LAST_PART) else 1.0
        at += rng.expovariate(PER_SECOND * sum(weights))
        await trio.sleep_until(begin + at)
        name = rng.choices(names, weights)[0]
        _say(sensors[name], name, rng, sent)
        show(f"{at:.0f} of {seconds:.0f} s, {sent.readings:,} readings, {sent.orders:,} orders")
    for producer in sensors.values():
        if await in_thread(partial(producer.flush, _FLUSH_S)):
            raise TrafficFailed(f"readings not acknowledged within {_FLUSH_S:g} s")


def _sensor(bootstrap: str, name: str, number: int) -> Producer:
    codec = ("none", "lz4", "snappy")[number % 3]
    return Producer(client_config(bootstrap, client_id=name, linger_ms=0, compression_type=codec))


def _say(producer: Producer, name: str, rng: random.Random, sent: Sent) -> None:
    for _ in range(rng.choice((1, 1, 1, 3))):
        reading = {
            "sensor": name,
            "celsius": round(rng.gauss(12, 5), 3),
            "battery": rng.randrange(100),
            "note": "ok" * 40,
        }
        try:
            producer.produce(READINGS, json.dumps(reading), name, on_delivery=sent.delivered)
        except (BufferError, KafkaException) as error:
            raise TrafficFailed(f"{name}: {error}") from error
    producer.poll(0)
