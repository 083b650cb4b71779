"""The probe, fed with a whole transcript of answers; and the server's side of a SCRAM log-in."""

from functools import cache

from shoal.protocol.multibatch.probe import Ask, Probe, ProbePlan
from shoal.protocol.multibatch.proof import Proof
from shoal.protocol.sasl.client import Credentials, tokens
from tests.fuzz.target import Target
from tests.support.multibatch.broker import BatchBroker, Habits

__all__ = ["TARGETS"]

_PLAN = ProbePlan(node_id=1, token=b"12345678", now=1_700_000_000_000)
_ANSWERS = 1000  # no probe sends more requests, whatever the answers are


def _feed(data: bytes) -> None:
    """Each answer has the length in its size field; a short one is a closed connection."""
    probe = Probe(_PLAN)
    step = probe.start()
    for _ in range(_ANSWERS):
        if isinstance(step, Proof):
            return
        size = 4 + int.from_bytes(data[:4], "big")
        frame, data = data[:size], data[size:]
        step = probe.answered(frame) if size >= 8 and len(frame) == size else probe.lost()
    raise AssertionError("the probe does not end")


def _transcript(habits: Habits) -> bytes:
    broker, probe = BatchBroker(habits), Probe(_PLAN)
    step, answers = probe.start(), b""
    while isinstance(step, Ask):
        answer = broker.answer(step.frame) or b""
        answers += answer
        step = probe.answered(answer)
    return answers


@cache
def _transcripts() -> list[bytes]:
    return [_transcript(habits) for habits in (Habits(), Habits(keeps=1), Habits(batch_per_fetch=True))]


def _scram(data: bytes) -> None:
    exchange = tokens(Credentials(mechanism="SCRAM-SHA-256", username="u", password="p"), "nonce")
    next(exchange)
    challenge, _, final = data.partition(b"\n")
    exchange.send(challenge[:200])
    exchange.send(final)


TARGETS = [
    Target("multibatch.probe", _feed, _transcripts),
    Target("sasl.scram", _scram, lambda: [b"r=nonceX,s=AAAA,i=4096\nv=AAAA"]),
]
