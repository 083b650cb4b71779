"""Many librdkafka producers in one process, at a steady rate: `python -m bench.coalesce.load` (Producers.java is its
twin).

Each record is its producer's name and number, and goes to a random partition, as keyed records do. Prints "ready" when
all producers know the topic, starts when the file `--go` exists, and ends with a line of JSON; latencies are written to
a file as uint32 microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from array import array
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from shoal.scenarios.kafka.content.clients import client_config

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

WAIT_S = 60.0
GO_S = 0.01
WARM_UP_S = 4.0
PAUSE_S = 0.001  # between two polls for answers


class Crowd:
    def __init__(self, options: argparse.Namespace) -> None:
        settings = {"linger.ms": 0, "acks": options.acks, "client.id": "crowd"}
        self.producers = [Producer(client_config(options.bootstrap) | settings) for _ in range(options.producers)]
        self.options = options
        self.sent = [0] * options.producers
        self.failed = 0
        self.latencies = array("I")
        self._chance = random.Random(options.first)

    def warm_up(self) -> None:
        """Returns when every producer has its connections, and lazy initialisation is done."""
        for number, producer in enumerate(self.producers):
            self._produce(number, producer)
        for producer in self.producers:
            producer.flush(WAIT_S)
        self.run(WARM_UP_S)
        self.latencies = array("I")

    def run(self, seconds: float) -> float:
        """-> seconds until all records were acknowledged."""
        interval, count = 1 / self.options.rate, int(self.options.rate * seconds)
        begin, done = time.monotonic(), 0
        while done < count:
            due = min(count, int((time.monotonic() - begin) / interval) + 1)
            for at in range(done, due):
                number = at % len(self.producers)
                self._produce(number, self.producers[number])
            done = due
            for producer in self.producers:
                producer.poll(0)
            time.sleep(PAUSE_S)
        for producer in self.producers:
            producer.flush(WAIT_S)
        return time.monotonic() - begin

    def _produce(self, number: int, producer: Producer) -> None:
        name = f"{self.options.first + number}:{self.sent[number]}:"
        self.sent[number] += 1
        value = name.ljust(self.options.size, "x").encode()
        partition = self._chance.randrange(self.options.partitions)
        producer.produce(self.options.topic, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.latencies.append(int((message.latency() or 0) * 1e6))
        else:
            self.failed += 1


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser()
    for name in ("bootstrap", "topic", "acks", "go", "out"):
        arguments.add_argument(f"--{name}", required=True)
    for name in ("partitions", "producers", "first", "size"):
        arguments.add_argument(f"--{name}", type=int, required=True)
    for name in ("rate", "seconds"):
        arguments.add_argument(f"--{name}", type=float, required=True)
    return arguments


def main() -> None:
    crowd = Crowd(parser().parse_args())
    crowd.warm_up()
    print("ready", flush=True)
    while not os.path.exists(crowd.options.go):
        time.sleep(GO_S)
    seconds = crowd.run(crowd.options.seconds)
    with open(crowd.options.out, "wb") as file:
        crowd.latencies.tofile(file)
    print(json.dumps({"sent": sum(crowd.sent), "failed": crowd.failed, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
