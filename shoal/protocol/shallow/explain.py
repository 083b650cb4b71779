"""What the operator reads about a flow that is not wrapped."""

from shoal.protocol.shallow.flow import Flow
from shoal.protocol.shallow.limits import EvidenceSettings

__all__ = ["stopped", "stranded", "why_raw"]


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
    if state.given_at is None:
        return "no record to tell it by has come back yet"
    return (
        f"no record that {flow} was given has come back through the target listener for {now - state.given_at:.0f} s: does "
        f"{settings.setting} point at it? Does a transform (SMT) change records?"
    )


def stopped(flow: Flow, settings: EvidenceSettings, now: float) -> str:
    silent = now - (now if flow.silent_since is None else flow.silent_since)
    return (
        f"wrapping stopped: {flow} was given {flow.silent_bytes} bytes in envelopes, and none has arrived at the target "
        f"listener for {silent:.0f} s. Does {settings.setting} point at it?"
    )


def stranded(flow: Flow) -> str:
    return (
        f"{flow} has disconnected after it was given its first envelopes, and none has arrived at the target listener: "
        f"is the producer's max.request.size below run-limit?"
    )
