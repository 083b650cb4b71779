"""The tested old clients and their settings."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.java.jvm import Jvm
from tests.support.kafka.old_clients import compiled, java_client, kafka_python

from .client import OldClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Settings = dict[str, object]

JAVA = Path(__file__).with_name("java")
ROOT = Path(__file__).parents[4]
CODECS = ("none", "gzip", "snappy", "lz4")
_SESSION_MS = 6_000  # the minimum of brokers
_RETRIES, _BACKOFF_MS = 100, 100
_ALWAYS = ("OldClient", "Loop", "Reader", "Words", "Writer", "NewProducer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    family: str
    """A key of `_FAMILIES`."""
    release: str
    """Version of the client, or of the broker that it expects."""
    groups: bool = True
    codecs: tuple[str, ...] = CODECS

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(map(int, self.release.split(".")))

    @property
    def timestamps(self) -> bool:
        """Magic 1."""
        return self.version >= (0, 10)

    @property
    def java(self) -> bool:
        return self.family not in ("kafka-python", "librdkafka")

    def producer(self, bootstrap: str, codec: str) -> Settings:
        return _FAMILIES[self.family].producer(self, bootstrap, codec)

    def consumer(self, bootstrap: str, group: str, *, commits: bool = False) -> Settings:
        """With `commits`, polled records are committed before they are reported."""
        return {**_FAMILIES[self.family].consumer(self, bootstrap, group), "commits": commits}

    def words(self, settings: Mapping[str, object]) -> list[str]:
        """The settings as words of a request to the client."""
        return [f"{name}={self._word(value)}" for name, value in settings.items()]

    async def start(self, log: Path) -> OldClient:
        """Raises SetupError."""
        argv, env = await (_java(self) if self.java else _python(self))
        return OldClient(argv, log=log, env={**os.environ, **env})

    def _word(self, value: object) -> str:
        if self.java:
            return str(value).lower() if isinstance(value, bool) else str(value)
        return json.dumps(value, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    producer: Callable[[Kind, str, str], Settings]
    consumer: Callable[[Kind, str, str], Settings]
    classes: tuple[str, str] = ("", "")
    """Writer and Reader of a Java client."""


def _java_producer(kind: Kind, bootstrap: str, codec: str) -> Settings:
    return {
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "acks": "all",
        "retries": _RETRIES,
        "retry.backoff.ms": _BACKOFF_MS,
        "reconnect.backoff.ms": _BACKOFF_MS,
        "max.in.flight.requests.per.connection": 1,  # otherwise retries change the order
        "linger.ms": 20,
    }


def _java_consumer(kind: Kind, bootstrap: str, group: str) -> Settings:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": _SESSION_MS,
        "heartbeat.interval.ms": 300,
        "fetch.max.wait.ms": 200,
        "retry.backoff.ms": _BACKOFF_MS,
        "reconnect.backoff.ms": _BACKOFF_MS,
    }


def _scala_producer(kind: Kind, bootstrap: str, codec: str) -> Settings:
    return {
        "metadata.broker.list": bootstrap,
        "compression.codec": codec,
        "request.required.acks": -1,
        "producer.type": "sync",
        "message.send.max.retries": _RETRIES,
        "retry.backoff.ms": _BACKOFF_MS,
    }


def _simple_consumer(kind: Kind, bootstrap: str, group: str) -> Settings:
    return {"bootstrap.servers": bootstrap, "group.id": group}


def _python_producer(kind: Kind, bootstrap: str, codec: str) -> Settings:
    return {
        "bootstrap_servers": bootstrap,
        "api_version": list(kind.version),
        "compression_type": None if codec == "none" else codec,
        "acks": "all",
        "retries": _RETRIES,
        "retry_backoff_ms": _BACKOFF_MS,
        "max_in_flight_requests_per_connection": 1,
        "linger_ms": 20,
    }


def _python_consumer(kind: Kind, bootstrap: str, group: str) -> Settings:
    return {
        "bootstrap_servers": bootstrap,
        "api_version": list(kind.version),
        "group_id": group,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": _SESSION_MS,
        "heartbeat_interval_ms": 300,
        "fetch_max_wait_ms": 200,
        "retry_backoff_ms": _BACKOFF_MS,
    }


def _rdkafka(kind: Kind, bootstrap: str) -> Settings:
    return {
        "bootstrap.servers": bootstrap,
        "api.version.request": False,
        "broker.version.fallback": kind.release,
        "broker.address.family": "v4",
        "log_level": 3,
        "reconnect.backoff.max.ms": 500,
    }


def _rdkafka_producer(kind: Kind, bootstrap: str, codec: str) -> Settings:
    own = {"compression.type": codec, "acks": "all", "linger.ms": 20, "max.in.flight": 1}
    return {**_rdkafka(kind, bootstrap), **own}


def _rdkafka_consumer(kind: Kind, bootstrap: str, group: str) -> Settings:
    own: Settings = {
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": _SESSION_MS,
        "heartbeat.interval.ms": 300,
        "fetch.wait.max.ms": 200,
    }
    return {**_rdkafka(kind, bootstrap), **own}


_FAMILIES: Mapping[str, _Family] = {
    "java": _Family(producer=_java_producer, consumer=_java_consumer, classes=("NewProducer", "NewConsumer")),
    "simple": _Family(producer=_java_producer, consumer=_simple_consumer, classes=("NewProducer", "SimpleReader")),
    "scala": _Family(producer=_scala_producer, consumer=_simple_consumer, classes=("ScalaProducer", "SimpleReader")),
    "kafka-python": _Family(producer=_python_producer, consumer=_python_consumer),
    "librdkafka": _Family(producer=_rdkafka_producer, consumer=_rdkafka_consumer),
}


async def _java(kind: Kind) -> tuple[list[str], dict[str, str]]:
    writer, reader = classes = _FAMILIES[kind.family].classes
    sources = [JAVA / f"{name}.java" for name in dict.fromkeys((*_ALWAYS, *classes))]
    made = await compiled(kind.release, kind.family, sources)
    jvm = Jvm(
        lib=await java_client(kind.release), heap="192m", options=("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
    )
    argv = jvm.argv("OldClient", writer, reader)
    path = argv.index("-cp") + 1
    argv[path] = f"{made}:{argv[path]}"
    return argv, {}


async def _python(kind: Kind) -> tuple[list[str], dict[str, str]]:
    front = [str(await kafka_python())] if kind.family == "kafka-python" else []
    argv = [sys.executable, "-m", "tests.brokers.legacy.old_clients.python_client", kind.family]
    return argv, {"PYTHONPATH": os.pathsep.join([*front, str(ROOT)])}


KINDS = {
    kind.name: kind
    for kind in (
        Kind(name="java-0.8.2.2", family="simple", release="0.8.2.2", groups=False),
        Kind(name="scala-0.8.2.2", family="scala", release="0.8.2.2", groups=False),
        Kind(name="java-0.9.0.1", family="java", release="0.9.0.1"),
        Kind(name="java-0.10.0.1", family="java", release="0.10.0.1"),
        Kind(name="java-0.10.1.1", family="java", release="0.10.1.1"),
        Kind(name="java-0.10.2.2", family="java", release="0.10.2.2"),
        Kind(name="kafka-python-0.8.2", family="kafka-python", release="0.8.2", groups=False),
        Kind(name="kafka-python-0.9", family="kafka-python", release="0.9"),
        Kind(name="kafka-python-0.10", family="kafka-python", release="0.10"),
        Kind(name="librdkafka-0.8.2", family="librdkafka", release="0.8.2", groups=False),
        Kind(name="librdkafka-0.9.0", family="librdkafka", release="0.9.0"),
    )
}
