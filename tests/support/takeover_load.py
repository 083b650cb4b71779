"""Takeovers of a real process under load: producers that stay connected, and clients that connect all the time."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import trio
from confluent_kafka import Producer

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.content.topics import Topics
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.process import until
from tests.support.kafka_python import KafkaProducer
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["PLAIN", "Kind", "Outcome", "take_over_under_load"]

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
    errors: set[str] = field(default_factory=set)
    stored: int = 0  # records in the topic

    def note(self, error: object) -> None:
        self.failed += 1
        self.errors.add(str(error))


@dataclass(frozen=True, kw_only=True)
class Kind:
    """`listener`, `document`: further keys; None removes one. `client`: settings of librdkafka. `host`: of Shoal, for
    it; `listen`: the address to which that and the brokers' names lead. `for_all`: kafka-python and brief clients
    without TLS can connect, too.

    `tls` and `greeting`: of brief clients, which begin with both.
    """

    listener: Mapping[str, object] = field(default_factory=dict)
    document: Mapping[str, object] = field(default_factory=dict)
    client: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    host: str = LOOPBACK
    listen: str = LOOPBACK
    for_all: bool = True
    tls: ssl.SSLContext | None = None
    greeting: bytes = b""
    rate: int = _RATE


PLAIN: Final = Kind()


async def take_over_under_load(
    brokers: Sequence[str], topic: str, work: Path, *, times: int = 10, kind: Kind = PLAIN
) -> Outcome:
    """`brokers`: their addresses. `topic` exists, and is empty."""
    port, outcome, enough = free_port_block(10), Outcome(), Event()
    listener = {"name": "l", "cluster": "c", "listen": f"{kind.listen}:{port}", "ports": f"{port + 1}-{port + 9}"}
    document = {
        "state-dir": str(work / "state"),
        **kind.document,
        "cluster": [{"name": "c", "bootstrap": list(brokers)}],
        "listener": [{key: value for key, value in {**listener, **kind.listener}.items() if value is not None}],
    }
    config, bootstrap = write_toml(work / "shoal.toml", document), f"{kind.host}:{port}"
    shoal = ShoalProcess(["run", "-c", str(config)], work=work, ports=[port])
    async with running_shoal(shoal), trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, _confluent, bootstrap, topic, kind, outcome, enough)
        if kind.for_all:
            nursery.start_soon(trio.to_thread.run_sync, _kafka_python, bootstrap, topic, outcome, enough)
        nursery.start_soon(trio.to_thread.run_sync, _connect, port, kind, outcome, enough)
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
    outcome.stored = await Topics(brokers[0]).total(topic)
    return outcome


def _confluent(bootstrap: str, topic: str, kind: Kind, outcome: Outcome, enough: Event) -> None:
    def delivered(error: object, message: object) -> None:
        if error is None:
            outcome.acknowledged += 1
        else:
            outcome.note(error)

    producers = [Producer({**client_config(bootstrap, linger_ms=0), **kind.client}) for _ in range(10)]
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
        except Exception as error:
            outcome.note(error)
        sleep(0.002)
    producer.close()


def _connect(port: int, kind: Kind, outcome: Outcome, enough: Event) -> None:
    began, number = monotonic(), 0
    while not enough.is_set():
        number += 1
        sleep(max(0.0, began + number / kind.rate - monotonic()))
        for _ in range(_TRIES):
            try:
                if _asks(port, kind):
                    outcome.brief += 1
                    break
            except OSError as error:
                outcome.note(error)
                break
            outcome.sent_again += 1
        else:
            outcome.note("closed again and again")


def _asks(port: int, kind: Kind) -> bool:
    """False: closed before the answer. Raises OSError."""
    with ExitStack() as stack:
        client = stack.enter_context(socket.create_connection((LOOPBACK, port), timeout=_WITHIN))
        client.sendall(kind.greeting)
        if kind.tls is not None:
            try:
                client = stack.enter_context(kind.tls.wrap_socket(client, server_hostname=kind.host))
            except ssl.SSLEOFError:
                return False
        client.sendall(_API_VERSIONS)
        return len(client.recv(4096)) > 8
