"""Tiered storage in a folder: the plugin of Kafka's own tests, in `build/tiered/<version>/lib`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shoal.scenarios.kafka.java.jars import BUILD, DEFAULT_VERSION, made_once, run_maven

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TIERED_TOPIC", "tiered_properties", "tiered_storage"]

_CLASS = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
TIERED_TOPIC = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "retention.ms": "-1",
    "local.retention.ms": "1000",
    "local.retention.bytes": "1",
}
"""Only the newest segment stays at the broker."""


async def tiered_storage(version: str = DEFAULT_VERSION) -> Path:
    """Raises SetupError."""
    lib = await made_once(BUILD / "tiered" / version, version, partial(_fetch, version))
    return lib / f"kafka-storage-{version}-test.jar"


async def _fetch(version: str, into: Path) -> None:
    artifact = f"-Dartifact=org.apache.kafka:kafka-storage:{version}:jar:test"
    await run_maven("dependency:copy", artifact, f"-DoutputDirectory={into}", what=f"tiered storage {version}")


def tiered_properties(plugin: Path, folder: Path) -> dict[str, str]:
    """Broker properties; for a cluster of one."""
    storage, metadata = "remote.log.storage.manager", "rlmm.config.remote.log.metadata.topic"
    return {
        "remote.log.storage.system.enable": "true",
        f"{storage}.class.name": _CLASS,
        f"{storage}.class.path": str(plugin),
        f"{storage}.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(folder),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        f"{metadata}.replication.factor": "1",
        f"{metadata}.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "500",
    }
