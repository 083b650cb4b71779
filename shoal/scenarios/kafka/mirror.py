"""MirrorMaker 2 in dedicated mode, one flow A -> B, as an operator would run it.

Started with `--clusters B`: only flows to B, so there is no Connect worker on the source cluster.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from shoal.proxy.cli.doctor.value_rules import RAW_BATCH_SIZE

from .errors import HarnessError
from .java.jars import DEFAULT_VERSION, jars
from .java.jvm import Jvm, write_properties
from .process import Process, Usage

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
_REPLICATING = "replicating "  # MirrorSourceTask: "task-thread-... replicating 4 topic-partitions A->B: [...]"

# Production intervals (60 s and 600 s) are too long for tests.
_QUICK: Mapping[str, str] = {
    "emit.checkpoints.interval.seconds": "5",
    "refresh.topics.interval.seconds": "5",
    "refresh.groups.interval.seconds": "5",
}
# One broker per cluster is enough.
_SMALL: Mapping[str, str] = {
    "emit.heartbeats.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSpec:
    source: str
    """Bootstrap servers of the source cluster, direct: admin clients, offset syncs."""
    target: str
    consumer: str | None = None
    """Bootstrap servers of the source's consumers, if different: Shoal's source listener."""
    producer: str | None = None
    """Bootstrap servers of the target's data producers, if different: Shoal's target listener."""
    topics: str = ".*"
    tasks: int = 4
    version: str = DEFAULT_VERSION
    heap: str = "1g"
    """`connect-mirror-maker.sh` uses 2g; 1g was too little for 2,000,000 records with 4 tasks and a slow target."""
    quick: bool = True
    """See `Jvm.quick`; also look for new topics and groups every 5 s. False where CPU or throughput is measured."""
    source_alias: str = "A"
    target_alias: str = "B"
    """Worker group, internal topics and offset syncs are named after both aliases; others start a fresh mirror."""
    other_targets: tuple[str, ...] = ()
    """Aliases of more target clusters, which `extra` describes."""
    exactly_once: bool = False
    """Records and their offsets are committed in one transaction (KIP-618), with the internal REST server (KIP-710).
    All clients of the target use the producer's address: otherwise Connect writes offsets again, outside the
    transaction."""
    extra: Mapping[str, str | None] = field(default_factory=dict)
    """Properties that override all others; None removes one."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """More environment variables of the process."""
    java: tuple[str, ...] = ()
    """More options of the JVM; they override `heap`."""

    @property
    def flow(self) -> str:
        return f"{self.source_alias}->{self.target_alias}"

    def remote_topic(self, topic: str) -> str:
        """The topic's name on the target under DefaultReplicationPolicy."""
        return f"{self.source_alias}.{topic}"

    def properties(self) -> dict[str, str]:
        """The mm2.properties of this flow."""
        source, target = self.source_alias, self.target_alias
        properties: dict[str, str | None] = {
            "clusters": f"{source}, {target}",
            f"{source}.bootstrap.servers": self.source,
            f"{target}.bootstrap.servers": self.producer or self.target if self.exactly_once else self.target,
            f"{source}.consumer.bootstrap.servers": self.consumer,
            f"{target}.producer.bootstrap.servers": self.producer,
            f"{target}.producer.compression.type": "none" if self.producer else None,
            f"{target}.producer.batch.size": str(RAW_BATCH_SIZE) if self.producer else None,
            f"{self.flow}.enabled": "true",
            f"{self.flow}.topics": self.topics,
            "tasks.max": str(self.tasks),
            # Two reflective scans of the class path take 4 s of a start.
            "plugin.discovery": "service_load",
            f"{target}.plugin.discovery": "service_load",
            # The group session of a killed worker must expire before its tasks start again: 10 s by default.
            f"{target}.session.timeout.ms": "6000",
            f"{target}.heartbeat.interval.ms": "2000",
            **(_QUICK if self.quick else {}),
            **_SMALL,
            **(self._exactly_once() if self.exactly_once else {}),
            **self.extra,
        }
        return {key: value for key, value in properties.items() if value is not None}

    def _exactly_once(self) -> dict[str, str]:
        return {
            f"{self.target_alias}.exactly.once.source.support": "enabled",
            f"{self.source_alias}.consumer.isolation.level": "read_committed",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
        }


class Mirror:
    """A MirrorMaker 2 process that can be killed and restarted. Use `Mirror.start` or `running_mirror`."""

    def __init__(self, work: Path, spec: MirrorSpec, jvm: Jvm) -> None:
        self.spec = spec
        self.log = work / "mirror.log"
        self._jvm = jvm
        self._config = work / "mm2.properties"
        self._process: Process | None = None

    @classmethod
    async def start(cls, work: Path, spec: MirrorSpec) -> Self:
        """Starts the process and returns without waiting for it to be ready. Raises SetupError."""
        mirror = cls(work, spec, Jvm(lib=await jars(spec.version), heap=spec.heap, quick=spec.quick, options=spec.java))
        mirror.restart()
        return mirror

    @property
    def process(self) -> Process:
        """Raises HarnessError when it was never started."""
        if self._process is None:
            raise HarnessError("the mirror was not started")
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def restart(self, spec: MirrorSpec | None = None) -> None:
        """Start again after `kill` or `stop`, perhaps with other properties."""
        if self.running:
            raise HarnessError("the mirror is running already")
        self.spec = spec or self.spec
        write_properties(self._config, self.spec.properties())
        targets = (self.spec.target_alias, *self.spec.other_targets)
        argv = self._jvm.argv(_MAIN, str(self._config), "--clusters", *targets)
        self._process = Process(argv, log=self.log, name=f"mirror {self.spec.flow}", env=self.spec.environment)

    async def until_replicating(self, *, tasks: int = 1, within: float = START_TIMEOUT_S) -> None:
        """Wait until `tasks` source tasks have logged their partitions since the last start. Raises NotReady."""
        await self.process.until_printed(_REPLICATING, within=within, times=tasks)

    def usage(self) -> Usage:
        return self.process.usage()

    def kill(self) -> None:
        self.process.kill()

    async def stop(self) -> bool:
        """True if it ended in time; otherwise it is killed."""
        return await self.process.stop(STOP_TIMEOUT_S)


@asynccontextmanager
async def running_mirror(work: Path, spec: MirrorSpec) -> AsyncIterator[Mirror]:
    """A mirror for the duration of a block; killed at its end, which is no worse for the copy than a stop."""
    mirror = await Mirror.start(work, spec)
    try:
        yield mirror
    finally:
        if mirror.running:
            mirror.kill()
