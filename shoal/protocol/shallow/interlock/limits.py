"""The interlock's settings and limits, each with its reason. Seconds and bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["EvidenceSettings", "EvidenceStatistics", "back_off"]

MAX_FLOWS = 4096  # a mirror has one per task
MAX_PARTITIONS = 200_000  # flows x partitions; about 300 bytes each
MAX_TURNS = 16  # tasks of a mirror that are proven at once: each partition of an answer is looked for in all of them
MAX_CLAIMS = 64  # topics proven in one turn
MAX_DISCREDITED = 8192  # samples sent without effect: no evidence for another flow. Those of all turns at once
MAX_TOKENS = 4096  # records sent with a token that have not come back
MAX_EVENTS = 1024  # not logged yet

# Between two fetch requests of a running mirror: an answer is held for at most 10 s. A mirror that sends no fetch
# requests, because it is paused or its producer's buffer is full, need not produce anything. Of a longer break only
# this much counts as silence.
BREAK_SECONDS = 15.0
AMBIGUOUS_SECONDS = 60.0  # two clients with one name fetch far more often
PAUSE_SECONDS = 0.25  # between two turns of one flow, so that others get a turn
MAX_TURN_FACTOR = 8
REPORTED_FAILURES = 2  # consecutive, for one reason, until they are reported: a single one may be an accident
BACK_OFF_SECONDS = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)  # each attempt holds answers for some seconds
STOP_BACK_OFF_SECONDS = (60.0, 300.0, 1800.0)  # each attempt may strand the envelopes of a trial


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSettings:
    """`listener`: where the mirror should produce to, for messages to the operator."""

    evidence_seconds: float = 60.0  # envelopes are sent and none arrives
    evidence_bytes: int = 64 * 1024 * 1024  # 32 MiB producer buffer, the responses in flight, and a margin
    connection_bytes: int = (
        16 * 1024 * 1024
    )  # more, for each consumer connection: an answer that is ready, and one in flight
    turn_seconds: float = 3.0  # for a record to come back; doubled at each failure, at most MAX_TURN_FACTOR times
    trial_seconds: float = 10.0  # for the first envelope to arrive; a mirror that has just started is slow
    reserve_seconds: float = 10.0  # for the flow with the turn to catch up with flows that are ahead
    longest_turn: float = 60.0  # even if no other flow waits
    grace_seconds: float = 5.0  # after start-up: mirrors may still have records of the previous process in flight
    topic_seconds: float = 10.0  # a proven flow's new topic is withheld this long until it is proven
    probe_seconds: float = 0.2  # how long foreign copies of samples are awaited before the samples are sent
    report_seconds: float = 15.0  # without evidence, until it is reported
    any_producer: bool = False  # a token counts whichever producer brings it (way_back.py)
    listener: str = "the target listener"
    max_flows: int = MAX_FLOWS
    max_partitions: int = MAX_PARTITIONS
    max_tokens: int = MAX_TOKENS
    max_turns: int = MAX_TURNS
    max_claims: int = MAX_CLAIMS


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceStatistics:
    flows: int
    proven: int  # connections, by topic
    partitions: int
    outstanding: int  # envelopes


def back_off(seconds: Sequence[float], failures: int) -> float:
    """Seconds to wait after a failure; `failures`: the number of earlier ones."""
    return seconds[min(failures, len(seconds) - 1)]
