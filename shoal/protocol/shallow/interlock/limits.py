"""The interlock's settings and limits, each with its reason. Seconds and bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["EvidenceSettings", "EvidenceStatistics", "back_off"]

MAX_FLOWS = 4096  # a mirror has one per task
MAX_TAINTED = 4096  # samples that were given in vain: no evidence for another flow
MAX_TOKENS = 4096  # records that were given with a token and have not come back
MAX_EVENTS = 1024  # for a log that nobody reads

# Between two fetch requests of a mirror that runs: an answer is held for 10 s at most. One that asks for nothing at all, since it was paused, or
# its producer's buffer is full, need not bring anything; of a longer break no more than this counts as silence.
BREAK_SECONDS = 15.0
AMBIGUOUS_SECONDS = 60.0  # two clients of one name fetch far more often than that
PAUSE_SECONDS = 0.25  # between two turns of one flow, so that others get theirs
MAX_TURN_FACTOR = 8
TOLD_FAILURES = 2  # in a row for a reason, before the operator is told: one may be a matter of the moment
BACK_OFF_SECONDS = (5.0, 10.0, 20.0, 40.0, 80.0)
STOP_BACK_OFF_SECONDS = (60.0, 300.0, 1800.0)  # each attempt may strand the envelopes of a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSettings:
    """`listener` is where the mirror should produce to, as the operator reads it."""

    evidence_seconds: float = 60.0  # envelopes are handed out and none arrives
    evidence_bytes: int = 64 * 1024 * 1024  # 32 MiB producer buffer, the responses in flight, and some
    connection_bytes: int = (
        16 * 1024 * 1024
    )  # more, for each consumer connection: an answer that lies ready, and one in flight
    turn_seconds: float = 3.0  # for a record to come back; doubled with each failure, MAX_TURN_FACTOR-fold at most
    trial_seconds: float = 10.0  # for the first envelope to arrive; a mirror that has just started takes its time
    reserve_seconds: float = 10.0  # for the holder to catch up with those who have read on
    longest_turn: float = 60.0  # though nobody else waits for it
    grace_seconds: float = (
        5.0  # after this process began, for mirrors that come back with a former one's records in flight
    )
    topic_seconds: float = 10.0  # a topic of a proven flow is withheld until it is proven, too
    probe_seconds: float = 0.2  # samples are watched for so long before they are given
    tell_seconds: float = 15.0  # without evidence, before the operator is told
    any_producer: bool = False  # a token counts by whatever way it comes back (way_back.py)
    listener: str = "the target listener"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceStatistics:
    flows: int
    proven: int  # connections, by topic
    places: int
    outstanding: int  # envelopes


def back_off(seconds: Sequence[float], failures: int) -> float:
    """Seconds to wait after so many failures before this one."""
    return seconds[min(failures, len(seconds) - 1)]
