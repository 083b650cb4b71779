"""Further rules for a mirror whose records travel in envelopes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shoal.proxy.cli.doctor.exactly_once_rules import is_exactly_once
from shoal.proxy.cli.doctor.finding import Case, Finding, Severity
from shoal.proxy.cli.mm2_java import BEHIND_SHOAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.cli.doctor.mirror import ReplicationFlow
    from shoal.proxy.cli.doctor.properties import Entry

__all__ = [
    "check_converters",
    "check_heartbeats",
    "check_ignored",
    "check_java",
    "check_loop",
    "check_policy",
    "check_tolerance",
    "check_topic_codec",
    "check_transforms",
]

_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_CONVERTERS = ("key.converter", "value.converter", "header.converter")
_POLICIES = ("DefaultReplicationPolicy", "IdentityReplicationPolicy")
_TOPIC_ONLY = ("RegexRouter",)  # transforms that use only the topic's name
_IGNORED = re.compile(
    r"(producer|consumer|admin|source\.consumer|producer\.override|source\.producer|target\.producer)\.(.+)\Z"
)


def check_converters(case: Case) -> Iterator[Finding]:
    """Dedicated mode uses bytes by default; a Connect worker rarely does."""
    why = "other converters than ByteArrayConverter change records (Connect's default turns headers into base64)"
    missing = []
    for key in _CONVERTERS:
        entry = case.flow.find("connector", key) or case.flow.find("worker", key)
        if entry is None:
            missing.append(key)
        elif entry.value != _BYTES:
            yield case.finding(Severity.MUST, entry, why, (case.flow.key("connector", key), _BYTES))
    if missing and case.flow.form.is_connect:
        at = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        yield case.finding(Severity.MUST, at, why, *((key, _BYTES) for key in missing))


def check_transforms(case: Case) -> Iterator[Finding]:
    """A single message transform sees the envelope, not the records in it."""
    named = case.flow.find("connector", "transforms")
    for name in _names(named):
        entry = case.flow.find("connector", f"transforms.{name}.type")
        kind = "" if entry is None else entry.value.rpartition(".")[2].partition("$")[0]
        if kind not in _TOPIC_ONLY:
            yield _transform(case, entry or named or name, f"{name} ({kind or 'of unknown type'})")


def _names(entry: Entry | None) -> list[str]:
    return [] if entry is None else [name.strip() for name in entry.value.split(",") if name.strip()]


def _transform(case: Case, at: Entry | str, name: str) -> Finding:
    deep = case.shoal.wrap.shallow.deep_topics
    if deep:
        why = f"transform {name} sees envelopes instead of records, except in the deep topics ({', '.join(deep)}): "
        return case.finding(Severity.NOTE, at, f"{why}make sure that the list is complete")
    return case.finding(
        Severity.MUST,
        at,
        f"transform {name} would see one envelope instead of its records. Remove it, or declare its source topics as "
        "deep topics: shoal mirror --deep-topics '^orders$', or deep-topics = [\"^orders$\"] under [listener.shallow]",
    )


def check_tolerance(case: Case) -> Iterator[Finding]:
    """With `all`, Connect skips records that the target refuses; never in exactly-once mode."""
    key = "errors.tolerance"
    entry, idempotent = case.flow.find("connector", key), case.flow.find("producer", "enable.idempotence")
    if entry is None or entry.value.lower() != "all" or is_exactly_once(case):
        return
    if idempotent is not None and idempotent.value.lower() == "true":
        why = (
            "with an idempotent producer, an envelope ends at the first batch that the target refuses, and Connect "
            "then skips the rest of the envelope: records are lost"
        )
        yield case.finding(Severity.MUST, entry, why, (case.flow.key("connector", key), "none"))
    elif case.shoal.wrap.shallow.claim_check_bytes:
        why = (
            "most batches stay with Shoal, and the mirror has claim checks for them. If Shoal must read them again "
            "(after a restart) and the source has deleted or compacted them, Connect skips the claim check: records "
            "are lost, and the task does not fail. Or let all batches pass through the mirror (claim-check-bytes = 0)"
        )
        yield case.finding(Severity.MUST, entry, why, (case.flow.key("connector", key), "none"))
    else:
        why = (
            "what the target refuses (a timestamp too far ahead, no key in a compacted topic, a record too large) is "
            "skipped: through Shoal its whole source batch, without Shoal the batch of the mirror's producer. Shoal "
            "logs it. With none (the default) the task fails, and nothing is skipped"
        )
        yield case.finding(Severity.NOTE, entry, why)


def check_heartbeats(case: Case) -> Iterator[Finding]:
    """MirrorMakerConfig.clusterPairs: with heartbeats (the default), the reverse flow also gets a Connect worker."""
    if case.flow.form.is_connect:
        return
    reverse = f"{case.flow.target}->{case.flow.source}"
    if any(flow.name == reverse for flow in case.flows):
        return
    entries = case.flow.entries
    entry = entries.get(f"{reverse}.emit.heartbeats.enabled") or entries.get("emit.heartbeats.enabled")
    if entry is None or entry.value.lower() == "true":
        why = (
            f"MM2 also starts the reverse worker {reverse} for heartbeats: it creates topics on {case.flow.source} and "
            f"needs permissions there. Switch it off, or start MM2 with --clusters {case.flow.target}"
        )
        at: Entry | str = entry if entry is not None else "emit.heartbeats.enabled is not set (default true)"
        yield case.finding(Severity.SHOULD, at, why, ("emit.heartbeats.enabled", "false"))


def check_policy(case: Case) -> Iterator[Finding]:
    entry = case.flow.find("connector", "replication.policy.class")
    if entry is not None and entry.value.rpartition(".")[2] not in _POLICIES:
        why = (
            "Shoal never wraps internal topics (Kafka's rule: __*, .*, *.internal, *-internal); if this policy has "
            "other names for them, list them as deep topics"
        )
        yield case.finding(Severity.NOTE, entry, why)


def check_loop(case: Case) -> Iterator[Finding]:
    """IdentityReplicationPolicy keeps names, so MM2 cannot detect cycles (MirrorSourceConnector.isCycle)."""
    flow = case.flow
    back = next((other for other in case.flows if (other.source, other.target) == (flow.target, flow.source)), None)
    if back is None or not (_is_identity(flow) and _is_identity(back)):
        return
    names, others = (_topics(end) for end in (flow, back))
    shared = [name for name in names for other in others if _overlap(name, other)]
    policy = flow.find("connector", "replication.policy.class")
    assert policy is not None
    what = f"{flow.name} and {back.name} both copy topics under their own names"
    if shared:
        why = f"{what}, and {shared[0]} is in both: its records are copied in a circle forever. Separate the topics"
        yield case.finding(Severity.MUST, policy, why, *_distinct(case, flow, back))
    elif not any(all(map(_LITERAL.match, patterns)) for patterns in (names, others)):
        why = (
            f"{what}: records of a topic in both are copied in a circle forever. Make sure that no topic matches both "
            f"{', '.join(names)} and {', '.join(others)}"
        )
        yield case.finding(Severity.NOTE, policy, why)


_ENVIRONMENT = re.compile(r"(KAFKA_\w*OPTS|JAVA_OPTS|JDK_JAVA_OPTIONS)\b")
_ALL = ".*"
_LITERAL = re.compile(r"[A-Za-z0-9._-]+\Z")


def _is_identity(flow: ReplicationFlow) -> bool:
    entry = flow.find("connector", "replication.policy.class")
    return entry is not None and entry.value.endswith("IdentityReplicationPolicy")


def _topics(flow: ReplicationFlow) -> list[str]:
    return _names(flow.find("connector", "topics")) or [_ALL]


def _overlap(one: str, other: str) -> bool:
    """True if they certainly overlap. Two different regular expressions cannot be compared."""
    return _ALL in (one, other) or one == other or _fits(one, other) or _fits(other, one)


def _fits(name: str, pattern: str) -> bool:
    try:
        return _LITERAL.match(name) is not None and re.fullmatch(pattern, name) is not None
    except re.error:  # MM2 reports it
        return False


def _distinct(case: Case, flow: ReplicationFlow, back: ReplicationFlow) -> Iterator[tuple[str, str]]:
    """Example lines; only the operator knows which topics belong to which flow."""
    if not case.flow.form.is_connect:
        yield f"{flow.name}.topics", f"{flow.source}-.*".lower()
        yield f"{back.name}.topics", f"{back.source}-.*".lower()


def check_topic_codec(case: Case) -> Iterator[Finding]:
    """The broker compresses again if the topic's compression.type is not `producer`."""
    excluded = case.flow.find("connector", "config.properties.exclude")
    synced = case.flow.find("connector", "sync.topic.configs.enabled")
    if (excluded is not None and "compression" in excluded.value) or (
        synced is not None and synced.value.lower() == "false"
    ):
        return
    why = (
        "topics of the target should have compression.type = producer (the default) or the codec of the source's "
        "producers; otherwise brokers compress every batch again. MM2 copies the setting from the source's topics "
        "(config.properties.exclude)"
    )
    yield case.finding(Severity.NOTE, f"compression.type of topics on {case.flow.target}", why)


def check_java(case: Case) -> Iterator[Finding]:
    """Options of the JVM come from the environment (kafka-run-class.sh), never from this file."""
    for entry in case.flow.entries.values():
        if match := _ENVIRONMENT.match(entry.value if entry.key == "export" else entry.key):
            why = f"no setting of MM2: {match[1]} is a variable of the environment that MM2 is started in"
            yield Finding(severity=Severity.SHOULD, flow="", at=entry, why=why, remove=(entry,))
    limits = " of workers that run nothing but mirrors through Shoal" if case.flow.form.is_connect else ""
    why = (
        f"{BEHIND_SHOAL.performance}: with these options a mirror through Shoal needs half the CPU time. Set them "
        f"in the environment{limits}; `shoal mirror --print-only --form environment` prints the lines"
    )
    yield Finding(severity=Severity.NOTE, flow="", at="KAFKA_JVM_PERFORMANCE_OPTS (not in this file)", why=why)


def check_ignored(case: Case) -> Iterator[Finding]:
    """Lines that look right but that MM2 ignores or uses for another client (dedicated mode only)."""
    if case.flow.form.is_connect:
        return
    for entry in case.flow.entries.values():
        if match := _IGNORED.match(entry.key):
            client = "consumer" if "consumer" in match[1] else "producer"
            right = case.flow.key(client, match[2])
            yield case.finding(Severity.SHOULD, entry, f"MM2 ignores this line: the data {client} reads {right}")
        elif match := re.match(rf"{re.escape(case.flow.name)}\.producer\.(?!override\.)(.+)\Z", entry.key):
            right = case.flow.key("producer", match[1])
            yield case.finding(
                Severity.SHOULD, entry, f"this is for the offset-syncs producer; the data producer reads {right}"
            )
