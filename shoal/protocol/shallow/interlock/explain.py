"""What the operator reads about a flow that is not wrapped."""

import re
from enum import StrEnum

from shoal.protocol.shallow.interlock.flow import Flow, GivenToken
from shoal.protocol.shallow.interlock.limits import EvidenceSettings
from shoal.protocol.shallow.interlock.rules import EventKind

__all__ = [
    "CHANGED_TOKEN",
    "PAUSED",
    "Standing",
    "brought",
    "left",
    "left_with_token",
    "standing",
    "stopped",
    "stranded",
    "strayed",
    "why_raw",
]

PAUSED = " Raw records only, until some come back again"

CHANGED_TOKEN = "a record came back changed: a transform changes the mirror's records"

_NAMED = 5  # partitions in one message
# MirrorConnectorConfig.addClientId: "A->B|MirrorSourceConnector-0|replication-consumer"
_TARGET = re.compile(r"->([^|]+)\|")


class Standing(StrEnum):
    """How far the interlock is with a topic of a flow, as a code for status and metrics."""

    WRAPPED = "wrapped"
    TRIAL = "trial"  # proven; the first envelopes are on their way
    AMBIGUOUS = "ambiguous"  # two consumers with one name
    STOPPED = "stopped"  # envelopes did not arrive
    FAILED = "failed"  # what came back proves nothing
    SAMPLED = "sampled"  # records came back; one with a token is still to come
    WAITING = "waiting"  # no record that identifies the flow has come back yet
    PROVING = "proving"  # samples were sent


def standing(flow: Flow, topic: str, now: float) -> Standing:
    """In the order of `why_raw`."""
    state = flow.topic(topic)
    if state.proven:
        return Standing.WRAPPED if flow.arrived else Standing.TRIAL
    if now < flow.ambiguous_until:
        return Standing.AMBIGUOUS
    if flow.stopped:
        return Standing.STOPPED
    if state.why:
        return Standing.FAILED
    if state.sampled:
        return Standing.SAMPLED
    return Standing.WAITING if state.given_at is None else Standing.PROVING


def why_raw(flow: Flow, topic: str, settings: EvidenceSettings, now: float) -> str | None:
    """None: the topic is wrapped."""
    state = flow.topic(topic)
    if state.proven:
        return None if flow.arrived else "the first envelopes are on their way"
    if now < flow.ambiguous_until:
        return f"two consumers named {flow} read the same partitions: give each mirror a client.id of its own"
    if flow.stopped:
        return flow.stopped
    if state.why:
        return f"{state.why}; list the topic in deep-topics if it is meant to stay so"
    if state.sampled:
        return "records came back; one that no other client was given is still to come"
    if state.given_at is None:
        return "no record that identifies it has come back yet"
    seconds = f"{now - state.given_at:.0f} s"
    if state.foreign_records:
        return (
            f"records for {topic} come to {settings.listener}, but for {seconds} none of those that {flow} was given. "
            "Does a transform (SMT), filter or converter change them? Then list the topic in deep-topics. Or are they "
            f"another mirror's? {_question(flow)}"
        )
    return (
        f"no record of {topic} that {flow} was given has come to {settings.listener} for {seconds}. {_question(flow)} "
        "Can the mirror produce at all (see its log)?"
    )


_OWN = (
    "Is that the mirror's own producer nevertheless (NAT, several addresses, a client.id given by hand)? Then write "
    "any-producer = true for the source listener (shoal mirror: --any-producer). Otherwise another mirror copies what "
    "this one writes past Shoal."
)


def _question(flow: Flow) -> str:
    alias = _TARGET.search(flow.client_id)
    return (
        f"Does {alias[1] if alias else 'B'}.producer.bootstrap.servers (on Connect: "
        "producer.override.bootstrap.servers) name this listener, and nothing else?"
    )


def stopped(flow: Flow, settings: EvidenceSettings, now: float) -> str:
    silent = now - (now if flow.silent_since is None else flow.silent_since)
    awaited = [f"{topic}-{number}" for (topic, number), partition in flow.partitions.items() if partition.outstanding]
    more = f" and {len(awaited) - _NAMED} more partitions" if len(awaited) > _NAMED else ""
    named = f", of {', '.join(awaited[:_NAMED])}{more}" if awaited else ""
    return (
        f"wrapping stopped: {flow} was given {flow.silent_bytes} bytes in envelopes, and none has arrived at "
        f"{settings.listener} for {silent:.0f} s{named}. {_question(flow)} Or does a "
        "transform (SMT) or filter of the mirror drop them? Then their records are missing in the copy: list the topic "
        "in deep-topics"
    )


def left(flow: Flow) -> tuple[EventKind, str]:
    """The flow's last connection has closed."""
    if not flow.is_stranded:
        return EventKind.PAUSED, f"{flow} has disconnected.{PAUSED}"
    if flow.stops or flow.detour:
        return EventKind.STOPPED, f"{stranded(flow)}{PAUSED}"
    what, cause = _strand(flow)
    return EventKind.LOST, f"{what}. {_ACCIDENT}{cause}{PAUSED}"


def left_with_token(flow: Flow, given: GivenToken, settings: EvidenceSettings, now: float) -> tuple[EventKind, str]:
    """The connection over which it got a token has closed, and the token has not come back."""
    if flow.stops or flow.detour or flow.unanswered > 1:
        return EventKind.STRAYED, strayed(flow, given, settings, now)
    return EventKind.LOST, (
        f"{flow} lost a connection after it was given {_record(given)} over it, and before that came back. "
        f"{_ACCIDENT}{_question(flow)}"
    )


def strayed(flow: Flow, given: GivenToken, settings: EvidenceSettings, now: float) -> str:
    return (
        f"records of {given.topic} that {flow} was given came to {settings.listener}, but not the one that no other "
        f"client was given, for {now - given.at:.0f} s: {_record(given)}. So another client copies these records, or a "
        "filter dropped it; nothing is wrapped. Its copy, in the topic that the mirror writes, may still have that "
        f"header. {_question(flow)}"
    )


def brought(flow: Flow, given: GivenToken, settings: EvidenceSettings) -> str:
    """Another mirror brought the token."""
    return (
        f"the record of {given.topic} that only {flow} was given ({_record(given)}) came to {settings.listener} "
        f"{flow.detour}; nothing is wrapped. {_OWN} {_question(flow)} Its copy, in the topic that the mirror "
        "writes, may still have that header"
    )


def stranded(flow: Flow) -> str:
    """Why the flow's next life starts with raw records."""
    what, cause = _strand(flow)
    return f"{what}. {cause}"


_ACCIDENT = "Most likely a connection failed. If it happens again: "


def _strand(flow: Flow) -> tuple[str, str]:
    """-> what happened, and the possible cause."""
    if flow.has_lost_a_token and flow.detour:
        return (
            f"{flow} has disconnected after a record that only it was given, with a token (shoal.interlock/...), came "
            f"to the target listener {flow.detour}",
            f"{_OWN} {_question(flow)}",
        )
    if flow.has_lost_a_token:
        return (
            f"{flow} has disconnected after it was given a record with a token (shoal.interlock/...), which has not "
            "come to the target listener",
            _question(flow),
        )
    return (
        f"{flow} has disconnected after it was given its first envelopes, and none has arrived at the target listener",
        "Is the producer's max.request.size below run-limit (RecordTooLargeException in the mirror's log)?",
    )


def _record(given: GivenToken) -> str:
    where = f"{given.topic}-{given.partition} at offset {given.offset}"
    return f"{where}, with one extra header (shoal.interlock/...)"
