"""Other producers: kafka-python, which builds batches in Python, and the Java client, through Kafka's
VerifiableProducer."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from shoal.scenarios.kafka.java.tools import tool_argv
from shoal.scenarios.kafka.security.clients import ANYBODY
from tests.support.kafka_python import KafkaProducer

from .ledger import Entry, Fate
from .records import content_of
from .writer import Writer

if TYPE_CHECKING:
    from kafka.producer.future import RecordMetadata

_FLUSH_S = 60.0
_JAVA_S = 300  # seconds of records that are in the ledger in advance
_CODECS = {"none": None}


@dataclass(slots=True)
class KafkaPython(Writer):
    def produce(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap.split(","),
            acks="all",
            enable_idempotence=self.plan.kind == "idempotent",
            max_in_flight_requests_per_connection=1,
            compression_type=_CODECS.get(self.plan.codec, self.plan.codec),
            batch_size=max(1, self.plan.run) * 500,
            linger_ms=5,
            delivery_timeout_ms=120_000,
            max_request_size=4 * 1024 * 1024,
            **self.login.kafka_python(),
        )
        try:
            while not self.stopped.is_set():
                self._run_of(producer)
            producer.flush(_FLUSH_S)
        finally:
            producer.close(timeout=5)

    def _run_of(self, producer: KafkaProducer) -> None:
        began, count = time.monotonic(), max(1, self.plan.run)
        partition = self.draw.randrange(self.partitions())
        for _ in range(count):
            (key, value, headers), timestamp, entry = self.next_record()
            # It rejects records that have neither a key nor a value.
            future = producer.send(self.topic, value if value or key else b"", key, list(headers), partition, timestamp)
            if not value and not key:
                entry.content = content_of(key, b"", headers)

            def delivered(metadata: RecordMetadata, entry: Entry = entry) -> None:
                entry.fate, entry.partition, entry.offset = Fate.ACKED, metadata.partition, metadata.offset

            future.add_callback(delivered)
        self.stopped.wait(max(0.0, self.rest(began, count)))


@dataclass(slots=True)
class Java(Writer):
    """Its values are `producer.number`; it prints what was acknowledged. If it ends early, another one continues."""

    _process: subprocess.Popen[str] | None = None

    async def work(self) -> None:
        argv = await tool_argv("VerifiableProducer", *self._arguments())
        await trio.to_thread.run_sync(self._all, argv, limiter=trio.CapacityLimiter(1))

    def _arguments(self) -> list[str]:
        secured = [] if self.login == ANYBODY else ["--command-config", str(self._properties())]
        return [
            *secured,
            *("--bootstrap-server", self.bootstrap, "--topic", self.topic, "--acks", "-1"),
            *("--throughput", str(min(self.plan.rate, 300)), "--value-prefix", str(self.plan.number)),
        ]

    def _properties(self) -> Path:
        handle, name = tempfile.mkstemp(suffix=".properties")
        os.close(handle)
        return self.login.write(Path(name))

    def _all(self, argv: list[str]) -> None:
        plan = self.plan
        for number in range(min(plan.rate, 300) * _JAVA_S):
            value = b"%d.%d" % (plan.number, number)
            self.ledger.entries[value] = Entry(plan.cluster, plan.topic, content_of(None, value, []), None, plan.kind)
        command = ["setpriv", "--pdeathsig", "KILL", "--", *argv]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ends = threading.Thread(target=self._end_it, daemon=True)
        ends.start()
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._line(line)
        self._process.wait()

    def _line(self, line: str) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            return
        if said.get("name") == "producer_send_success":
            entry = self.ledger.entries[said["value"].encode()]
            entry.fate, entry.partition, entry.offset = Fate.ACKED, said["partition"], said["offset"]

    def _end_it(self) -> None:
        self.stopped.wait()
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
