"""Reloads of a real process under load: producers whose listener does not change, and SIGHUP again and again.

Every reload changes nearly all the rest: limits, the log, tags, another listener (its port, coalescing, who may
connect, the order of its brokers), and one listener comes and goes.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from threading import Event
from time import sleep
from typing import TYPE_CHECKING, Any

import trio
from confluent_kafka import Producer

from shoal.scenarios.kafka.content.clients import client_config
from shoal.scenarios.kafka.ports import LOOPBACK
from shoal.scenarios.kafka.process import until
from tests.support.shoal_process import ShoalProcess, free_port_block, running_shoal, write_toml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["Outcome", "reload_under_load"]

_WITHIN = 60.0
_PAUSE = 0.01  # seconds between two rounds of all producers


@dataclass(kw_only=True)
class Outcome:
    produced: int = 0
    acknowledged: int = 0
    errors: int = 0  # that producers have seen
    reloads: int = 0
    opened: int = 0  # connections of the producers, since the first reload
    dropped: int = 0


async def reload_under_load(
    brokers: Sequence[str], topic: str, work: Path, *, producers: int = 50, times: int = 20
) -> Outcome:
    """`brokers`: their addresses. `topic` exists."""
    ports, outcome, enough = free_port_block(40), Outcome(), Event()
    config = write_toml(work / "shoal.toml", _document(brokers, ports, 0))
    argv = ["run", "-c", str(config), "--log-format", "json", "--report-every", "0.2"]
    async with running_shoal(ShoalProcess(argv, work=work, ports=[ports])) as shoal, trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, _produce, f"{LOOPBACK}:{ports}", topic, producers, outcome, enough)
        await until(lambda: outcome.acknowledged > 5 * producers, within=_WITHIN, what="all producers to produce")
        steady = await _steady(shoal)
        for number in range(1, times + 1):
            write_toml(config, _document(brokers, ports, number))
            os.kill(shoal.pid, signal.SIGHUP)
            await until(lambda n=number: _count(shoal, "reloaded") >= n, within=_WITHIN, what="a reload")  # type: ignore[misc]
            before = outcome.acknowledged
            await until(lambda n=before: outcome.acknowledged > n, within=_WITHIN, what="records")  # type: ignore[misc]
        flows = len(list(_flows(shoal)))
        await until(lambda: len(list(_flows(shoal))) > flows + 1, within=_WITHIN, what="a report")
        found = list(_flows(shoal))
        outcome.reloads = _count(shoal, "reloaded")
        outcome.opened = sum(int(line["opened"]) for line in found[steady:])
        outcome.dropped = int(found[steady - 1]["connections"]) + outcome.opened - int(found[-1]["connections"])
        enough.set()
    assert _count(shoal, "reload-refused") == 0
    return outcome


async def _steady(shoal: ShoalProcess) -> int:
    """Wait until no more connections come; -> the number of lines up to then."""
    while True:
        seen = list(_flows(shoal))
        if len(seen) > 10 and not any(line["opened"] for line in seen[-10:]):
            return len(seen)
        await trio.sleep(0.1)


def _flows(shoal: ShoalProcess) -> Iterator[dict[str, Any]]:
    return (line for line in shoal.json_lines() if line["event"] == "flow" and line["listener"] == "load")


def _count(shoal: ShoalProcess, event: str) -> int:
    return sum(line["event"] == event for line in shoal.json_lines())


def _produce(bootstrap: str, topic: str, number: int, outcome: Outcome, enough: Event) -> None:
    def failed(error: object) -> None:
        outcome.errors += 1

    def delivered(error: object, message: object) -> None:
        outcome.acknowledged += error is None
        outcome.errors += error is not None

    producers = [Producer({**client_config(bootstrap, linger_ms=0), "error_cb": failed}) for _ in range(number)]
    while not enough.is_set():
        for producer in producers:
            producer.produce(topic, b"x" * 100, on_delivery=delivered)
            outcome.produced += 1
            producer.poll(0)
        sleep(_PAUSE)
    for producer in producers:
        outcome.errors += producer.flush(_WITHIN)


def _document(brokers: Sequence[str], ports: int, number: int) -> dict[str, object]:
    odd = number % 2 == 1
    other = ports + 10 + 10 * odd
    listeners: list[dict[str, object]] = [
        _listener("load", ports),
        {
            **_listener("other", other),
            "cluster": "other",
            "coalesce": odd,
            "max-connections": 100 + number,
            "access": {"addresses": ["127.0.0.0/8"], "bytes-per-second": 1_000_000 + number},
        },
    ]
    if odd:
        listeners.append(_listener("guest", ports + 30))
    return {
        "tags": {"number": str(number)},
        "limits": {"drain-seconds": 1 + number % 3, "connect-timeout": 5 + number, "in-flight": 5000 + number},
        "log": {"level": "debug" if odd else "info"},
        "cluster": [
            {"name": "load", "bootstrap": list(brokers)},
            {
                "name": "other",
                "bootstrap": list(brokers)[:: -1 if odd else 1],
                "multi-batch": "never" if odd else "auto",
            },
        ],
        "listener": listeners,
    }


def _listener(name: str, port: int) -> dict[str, object]:
    return {"name": name, "cluster": "load", "listen": f"{LOOPBACK}:{port}", "ports": f"{port + 1}-{port + 9}"}
