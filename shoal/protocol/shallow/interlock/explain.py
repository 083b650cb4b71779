"""What the operator reads about a flow that is not wrapped."""

import re

from shoal.protocol.shallow.interlock.flow import Flow, GivenToken
from shoal.protocol.shallow.interlock.limits import EvidenceSettings
from shoal.protocol.shallow.interlock.rules import EventKind

__all__ = ["CHANGED_TOKEN", "PAUSED", "brought", "left", "stopped", "stranded", "strayed", "why_raw"]

PAUSED = " Raw records only, until some come back again"

CHANGED_TOKEN = "a record came back changed: a transform changes the mirror's records"

# MirrorConnectorConfig.addClientId: "A->B|MirrorSourceConnector-0|replication-consumer"
_TARGET = re.compile(r"->([^|]+)\|")


def why_raw(flow: Flow, topic: str, settings: EvidenceSettings, now: float) -> str | None:
    """None when the topic is wrapped."""
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
        return "records came back; one that nobody else was given is still to come"
    if state.given_at is None:
        return "no record to tell it by has come back yet"
    seconds = f"{now - state.given_at:.0f} s"
    if state.strangers:
        return (
            f"records for {topic} come to {settings.listener}, but for {seconds} none of those that {flow} was given. Does a "
            f"transform (SMT), filter or converter change them? Then list the topic in deep-topics. Or are they another mirror's? "
            f"{_question(flow)}"
        )
    return (
        f"no record of {topic} that {flow} was given has come to {settings.listener} for {seconds}. {_question(flow)} Can the mirror "
        f"produce at all (see its log)?"
    )


_OWN = (
    "Is that the mirror's own producer all the same (NAT, several addresses, a client.id given by hand)? Then write any-producer = true "
    "for the source listener (shoal mirror: --any-producer). Otherwise another mirror copies what this one writes past Shoal."
)


def _question(flow: Flow) -> str:
    alias = _TARGET.search(flow.client_id)
    return (
        f"Does {alias[1] if alias else 'B'}.producer.bootstrap.servers (on Connect: producer.override.bootstrap.servers) "
        f"name this listener, and nothing else?"
    )


def stopped(flow: Flow, settings: EvidenceSettings, now: float) -> str:
    silent = now - (now if flow.silent_since is None else flow.silent_since)
    return (
        f"wrapping stopped: {flow} was given {flow.silent_bytes} bytes in envelopes, and none has arrived at {settings.listener} "
        f"for {silent:.0f} s. {_question(flow)}"
    )


def left(flow: Flow) -> tuple[EventKind, str]:
    """Its last connection has closed."""
    if flow.is_stranded:
        return EventKind.STOPPED, f"{stranded(flow)}{PAUSED}"
    return EventKind.PAUSED, f"{flow} has disconnected.{PAUSED}"


def strayed(flow: Flow, given: GivenToken, settings: EvidenceSettings, now: float) -> str:
    return (
        f"records of {given.topic} that {flow} was given came to {settings.listener}, but not the one that nobody else was given: "
        f"{given.topic}-{given.partition} at offset {given.offset}, with one extra header (shoal.interlock/...), for {now - given.at:.0f} s. "
        f"So another client copies these records, or a filter dropped it; nothing is wrapped. Where the mirror produces to, that record "
        f"may have that header. {_question(flow)}"
    )


def brought(flow: Flow, given: GivenToken, settings: EvidenceSettings) -> str:
    """The token came by a detour."""
    return (
        f"the record of {given.topic} that only {flow} was given ({given.topic}-{given.partition} at offset {given.offset}, with one extra "
        f"header, shoal.interlock/...) came to {settings.listener} {flow.detour}; nothing is wrapped. "
        f"{_OWN} {_question(flow)} Where the mirror produces to, that record may have that header"
    )


def stranded(flow: Flow) -> str:
    if flow.has_lost_a_token and flow.detour:
        return (
            f"{flow} has disconnected after a record that only it was given, with a token (shoal.interlock/...), came to the target "
            f"listener {flow.detour}. {_OWN} {_question(flow)}"
        )
    if flow.has_lost_a_token:
        return (
            f"{flow} has disconnected after it was given a record with a token (shoal.interlock/...), which has not come to the "
            f"target listener. {_question(flow)}"
        )
    return (
        f"{flow} has disconnected after it was given its first envelopes, and none has arrived at the target listener: "
        f"is the producer's max.request.size below run-limit (RecordTooLargeException in the mirror's log)?"
    )
