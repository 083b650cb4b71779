"""Takeovers of a real process under load: producers that stay connected, and clients that connect all the time."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from threading import Event
from time import monotonic, sleep
from typing import TYPE_CHECKING

import trio
from confluent_kafka import Producer
from kafka import KafkaProducer

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.process import until
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Outcome", "take_over_under_load"]

_WITHIN = 60.0
_RATE = 200  # brief clients in a second
_TRIES = 3  # of a brief client
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@dataclass(kw_only=True)
class Outcome:
    """`failed`: requests of which a client has seen an error, and connections that were refused or reset."""

    takeovers: int = 0
    produced: int = 0
    acknowledged: int = 0
    brief: int = 0  # clients with a connection of their own
    sent_again: int = 0  # by brief clients: the connection was closed between two requests
    failed: int = 0


async def take_over_under_load(brokers: Sequence[str], topic: str, work: Path, *, times: int = 10) -> Outcome:
    """`brokers`: their addresses. `topic` exists."""
    port, outcome, enough = free_port_block(10), Outcome(), Event()
    document = {
        "state-dir": str(work / "state"),
        "cluster": [{"name": "c", "bootstrap": list(brokers)}],
        "listener": [
            {"name": "l", "cluster": "c", "listen": f"{LOOPBACK}:{port}", "ports": f"{port + 1}-{port + 9}"},
        ],
    }
    config, bootstrap = write_toml(work / "shoal.toml", document), f"{LOOPBACK}:{port}"
    shoal = ShoalProcess(["run", "-c", str(config)], work=work, ports=[port])
    async with running_shoal(shoal), trio.open_nursery() as nursery:
        for load in (_confluent, _kafka_python):
            nursery.start_soon(trio.to_thread.run_sync, load, bootstrap, topic, outcome, enough)
        nursery.start_soon(trio.to_thread.run_sync, _connect, port, outcome, enough)
        await until(lambda: outcome.acknowledged > 100, within=_WITHIN, what="all producers to produce")
        for _ in range(times):
            await shoal.take_over()
            outcome.takeovers += 1
            before = outcome.acknowledged, outcome.brief
            await until(
                lambda n=before: outcome.acknowledged > n[0] + 100 and outcome.brief > n[1] + 100,  # type: ignore[misc]
                within=_WITHIN,
                what="records",
            )
        enough.set()
    return outcome


def _confluent(bootstrap: str, topic: str, outcome: Outcome, enough: Event) -> None:
    def delivered(error: object, message: object) -> None:
        outcome.acknowledged += error is None
        outcome.failed += error is not None

    producers = [Producer(client_config(bootstrap, linger_ms=0)) for _ in range(10)]
    while not enough.is_set():
        for producer in producers:
            producer.produce(topic, b"x" * 100, on_delivery=delivered)
            outcome.produced += 1
            producer.poll(0)
        sleep(0.01)
    for producer in producers:
        outcome.failed += producer.flush(_WITHIN)


def _kafka_python(bootstrap: str, topic: str, outcome: Outcome, enough: Event) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    while not enough.is_set():
        outcome.produced += 1
        try:
            producer.send(topic, b"x" * 100).get(_WITHIN)
            outcome.acknowledged += 1
        except Exception:
            outcome.failed += 1
        sleep(0.002)
    producer.close()


def _connect(port: int, outcome: Outcome, enough: Event) -> None:
    began, number = monotonic(), 0
    while not enough.is_set():
        number += 1
        sleep(max(0.0, began + number / _RATE - monotonic()))
        for _ in range(_TRIES):
            try:
                if _asks(port):
                    outcome.brief += 1
                    break
            except OSError:
                outcome.failed += 1
                break
            outcome.sent_again += 1
        else:
            outcome.failed += 1


def _asks(port: int) -> bool:
    """False: closed before the answer. Raises OSError."""
    with socket.create_connection((LOOPBACK, port), timeout=_WITHIN) as client:
        client.sendall(_API_VERSIONS)
        return len(client.recv(4096)) > 8
