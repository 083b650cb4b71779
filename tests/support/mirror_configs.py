"""Configurations of MirrorMaker 2 for the tests of `shoal check`, and what a check of them found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from shoal.proxy.cli.doctor import (
    Finding,
    Report,
    Severity,
    ShoalListeners,
    check_mirror,
    read_mirror,
)
from shoal.proxy.config.settings import ListenerSettings, Mode, PortMap, PortRange, ShallowSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The properties with which real MM2 3.9.1 and 4.3.0 mirror through a proxy between two real brokers.
WIRED = """\
clusters = A, B
A.bootstrap.servers = 127.0.0.1:9092
B.bootstrap.servers = 127.0.0.1:9192
A.consumer.bootstrap.servers = 127.0.0.1:19092
B.producer.bootstrap.servers = 127.0.0.1:29092
B.producer.compression.type = none
B.producer.batch.size = 131072
A->B.enabled = true
A->B.topics = t.*
tasks.max = 4
emit.heartbeats.enabled = false
emit.checkpoints.interval.seconds = 5
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 5
refresh.topics.interval.seconds = 10
sync.topic.acls.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
"""
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONNECTOR = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a1:9092",
    "target.cluster.bootstrap.servers": "b1:9092",
    "source.consumer.bootstrap.servers": "127.0.0.1:19092",
    "producer.override.bootstrap.servers": "127.0.0.1:29092",
    "producer.override.compression.type": "none",
    "producer.override.batch.size": "131072",
    "key.converter": BYTES,
    "value.converter": BYTES,
    "header.converter": BYTES,
    "topics": "t.*",
    "tasks.max": 4,
}
SHALLOW = ShallowSettings()


def shoal(shallow: ShallowSettings = SHALLOW, host: str = "127.0.0.1", advertise: str | None = None) -> ShoalListeners:
    wrap, unwrap = (
        ListenerSettings(
            name=name,
            cluster=name,
            host=host,
            port=port,
            advertised_host=advertise,
            nodes=PortRange(first=port + 1, last=port + 100),
            mode=mode,
            shallow=shallow,
        )
        for name, port, mode in (("source", 19092, Mode.WRAP), ("target", 29092, Mode.UNWRAP))
    )
    plain = ListenerSettings(name="plain", cluster="source", port=18092, nodes=PortMap(ports={1: 18093}))
    return ShoalListeners(wrap=wrap, unwrap=unwrap, others=(plain,))


def wired(*changes: str, without: Iterable[str] = ()) -> str:
    """The good properties with lines replaced (by their key), added and taken away."""
    lines = {line.partition(" = ")[0]: line for line in WIRED.splitlines()}
    lines.update({line.partition(" = ")[0]: line for line in changes})
    return "\n".join(line for key, line in lines.items() if key not in without) + "\n"


def check(text: str, against: ShoalListeners | None = None) -> Report:
    return check_mirror(read_mirror(text), against or shoal())


def check_json(**changes: object) -> Report:
    return check_connector(changes, shoal())


def check_connector(changes: Mapping[str, object], against: ShoalListeners) -> Report:
    config = {key: value for key, value in {**CONNECTOR, **changes}.items() if value is not None}
    return check_mirror(read_mirror(json.dumps({"name": "m", "config": config}, indent=2)), against)


def grave(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity is not Severity.NOTE]


def the_one(report: Report) -> Finding:
    (finding,) = grave(report)
    return finding


def mended(text: str, report: Report) -> str:
    """The properties after the operator has done what the report says."""
    lines = {line.partition(" = ")[0]: line for line in text.splitlines()}
    for finding in grave(report):
        for entry in finding.remove:
            lines.pop(entry.key, None)
        lines.update({key: f"{key} = {value}" for key, value in finding.write})
    return "\n".join(lines.values()) + "\n"
