"""The interlock's settings and limits, each with its reason. Seconds and bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["EvidenceSettings", "EvidenceStatistics", "back_off"]

MAX_FLOWS = 4096  # a mirror has one per task
MAX_PARTITIONS = 200_000  # flows x partitions; about 300 bytes each
MAX_CLAIMS = 64  # topics proven in one turn
MAX_DISCREDITED = 4096  # samples that were given without effect: no evidence for another flow
MAX_TOKENS = 4096  # records that were given with a token and have not come back
MAX_EVENTS = 1024  # that the log has not taken yet

# Between two fetch requests of a mirror that runs: an answer is held for 10 s at most. A mirror that asks for nothing,
# because it is paused or its producer's buffer is full, need not produce anything. Of a longer break only this much
# counts as silence.
BREAK_SECONDS = 15.0
AMBIGUOUS_SECONDS = 60.0  # two clients of one name fetch far more often than that
PAUSE_SECONDS = 0.25  # between two turns of one flow, so that others get theirs
MAX_TURN_FACTOR = 8
REPORTED_FAILURES = 2  # in a row for a reason, before they are reported: a single one may be an accident
BACK_OFF_SECONDS = (5.0, 10.0, 20.0, 40.0, 80.0)
STOP_BACK_OFF_SECONDS = (60.0, 300.0, 1800.0)  # each attempt may strand the envelopes of a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSettings:
    """`listener` is where the mirror should produce to, as the operator reads it."""

    evidence_seconds: float = 60.0  # envelopes are handed out and none arrives
    evidence_bytes: int = 64 * 1024 * 1024  # 32 MiB producer buffer, the responses in flight, and some
    connection_bytes: int = (
        16 * 1024 * 1024
    )  # more, for each consumer connection: an answer that is ready, and one in flight
    turn_seconds: float = 3.0  # for a record to come back; doubled with each failure, MAX_TURN_FACTOR-fold at most
    trial_seconds: float = 10.0  # for the first envelope to arrive; a mirror that has just started takes its time
    reserve_seconds: float = 10.0  # for the flow with the turn to catch up with flows that have read on
    longest_turn: float = 60.0  # even if no other flow waits for it
    grace_seconds: float = (
        5.0  # after this process began, for mirrors that come back with a former one's records in flight
    )
    topic_seconds: float = 10.0  # a topic of a proven flow is withheld until it is proven, too
    probe_seconds: float = 0.2  # samples are watched for so long before they are given
    report_seconds: float = 15.0  # without evidence, before it is reported
    any_producer: bool = False  # a token counts by whatever way it comes back (way_back.py)
    listener: str = "the target listener"
    max_flows: int = MAX_FLOWS
    max_partitions: int = MAX_PARTITIONS
    max_tokens: int = MAX_TOKENS
    max_claims: int = MAX_CLAIMS


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceStatistics:
    flows: int
    proven: int  # connections, by topic
    partitions: int
    outstanding: int  # envelopes


def back_off(seconds: Sequence[float], failures: int) -> float:
    """Seconds to wait after so many failures before this one."""
    return seconds[min(failures, len(seconds) - 1)]
