"""Working clients: producers of small records at a fixed rate, in a process of its own; prints JSON."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any

from confluent_kafka import Producer

_CLIENTS = 50
_PER_SECOND = 10  # records of each client
_WARM_SECONDS = 4.0
_SETTINGS = {"linger.ms": 0, "enable.idempotence": True, "message.timeout.ms": 60_000}


class _Crowd:
    def __init__(self, topic: str, name: str, plain: str, tls: str, ca: str) -> None:
        secured = {"bootstrap.servers": tls, "security.protocol": "SSL", "ssl.ca.location": ca}
        ways = ({"bootstrap.servers": plain}, secured)
        self._topic = topic
        self._name = name
        self._producers = [Producer({**_SETTINGS, **ways[at % 2]}) for at in range(_CLIENTS)]
        self.latencies: tuple[list[float], list[float]] = ([], [])  # plaintext, TLS
        self.acknowledged: list[str] = []
        self.failed: list[str] = []

    def run(self, seconds: float) -> None:
        start = time.monotonic()
        for turn in range(int(seconds * _PER_SECOND)):
            for at, producer in enumerate(self._producers):
                due = start + turn / _PER_SECOND + at / _PER_SECOND / _CLIENTS
                while (left := due - time.monotonic()) > 0:
                    time.sleep(min(left, 0.0005))
                    self._poll()
                value = f"{self._name}-{at}-{turn}"
                is_warm = time.monotonic() - start > _WARM_SECONDS
                done = partial(self._done, value, at % 2, time.monotonic(), is_warm)
                producer.produce(self._topic, value, on_delivery=done)
            self._poll()
        for producer in self._producers:
            producer.flush(60)

    def _poll(self) -> None:
        for producer in self._producers:
            producer.poll(0)

    def _done(self, value: str, kind: int, sent: float, is_warm: bool, error: object, message: Any) -> None:
        if error is not None:
            self.failed.append(value)
            return
        self.acknowledged.append(value)
        if is_warm:
            self.latencies[kind].append(message.latency())


def _quantiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        f"p{percent}_ms": round(1000 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 2)
        for percent in (50, 99)
    }


def main() -> None:
    topic, name, plain, tls, ca, seconds = sys.argv[1:]
    crowd = _Crowd(topic, name, plain, tls, ca)
    crowd.run(float(seconds))
    both = crowd.latencies[0] + crowd.latencies[1]
    names = ("plaintext", "tls", "all")
    found = {name: _quantiles(latencies) for name, latencies in zip(names, (*crowd.latencies, both), strict=True)}
    print(json.dumps({**found, "acknowledged": crowd.acknowledged, "failed": len(crowd.failed)}))


if __name__ == "__main__":
    main()
