"""Which flow has the proving turn, and how it ends: proof, failure, or nothing (proof_round.py has the rules of one
turn).

One flow at a time has the turn. It waits for no other flow; others wait until the turn ends, at the latest at its
deadline. Samples that had no effect are remembered (discredited): if such a record comes back late, it is no evidence
for another flow.

Records sent before a topic's proof are raw, and a small topic would be read completely by then. So it waits:

- a flow without any proven topic waits as a whole (`pause_until`): there is nothing that could be wrapped;
- in a flow with a proven topic, each other topic waits separately (`hold_until`), and the proven ones continue: it
  waits while its samples are in the mirror, and until this flow gets the turn, but at most `topic_seconds` from its
  first records, once per connection, and not after a failure. So no topic waits for another topic's proof, and none is
  starved.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from math import inf

from shoal.protocol.shallow.fingerprint import Fingerprint, Sample
from shoal.protocol.shallow.interlock.flow import Fetched, Flow, TopicState
from shoal.protocol.shallow.interlock.flows import Flows
from shoal.protocol.shallow.interlock.limits import (
    BACK_OFF_SECONDS,
    MAX_DISCREDITED,
    MAX_TURN_FACTOR,
    PAUSE_SECONDS,
    EvidenceSettings,
    back_off,
)
from shoal.protocol.shallow.interlock.positions import Positions
from shoal.protocol.shallow.interlock.proof_round import ProofRound, RoundResult
from shoal.protocol.wire.types import TopicPartition

__all__ = ["Proving"]


class Proving:
    """One per `Evidence`; shares its flows and positions. Nothing is proven before `opens_at`."""

    def __init__(self, flows: Flows, positions: Positions, settings: EvidenceSettings, *, opens_at: float) -> None:
        self._flows = flows
        self._positions = positions
        self._settings = settings
        self._opens_at = opens_at
        self._closed_until = opens_at
        self._turn: ProofRound | None = None
        self._discredited: OrderedDict[Fingerprint, int] = OrderedDict()

    def open_at(self, at: float) -> None:
        """Nothing is proven before."""
        self._opens_at = at
        self._closed_until = max(self._closed_until, at)

    def close(self, now: float, until: float) -> None:
        """Nothing new is proven until then."""
        self._closed_until = until
        self._end_turn(now)

    def tick(self, now: float) -> None:
        if self._turn and now >= self._turn.last_deadline:
            self._end_turn(now)

    def withdraw(self, flow: Flow, now: float) -> None:
        """End the flow's turn, if it has it."""
        if self._turn and self._turn.flow is flow:
            self._end_turn(now)

    # fetch side

    def sample_from(self, flow: Flow, read: Fetched, now: float) -> int | None:
        if not self._may_prove(flow, read, now):
            return None
        turn = self._turn_for(flow, now)
        if self._turn is None or (turn and turn.is_open(read.topic)):
            return self._positions.others(flow, read.topic_partition)
        return turn.wants(read) if turn and not self._waits(turn, flow, read, now) else None

    def hold_until(self, flow: Flow, read: Fetched, samples: Sequence[Sample], now: float) -> float | None:
        self._start_waiting(flow, read, now)
        turn = self._turn_for(flow, now) or self._begin_turn(flow, read, samples, now)
        if turn is None:
            return self._until_turn(flow, read, now)
        floor = self._positions.others(flow, read.topic_partition)
        useful = samples or read.topic not in turn.topics
        if useful and turn.is_open(read.topic) and self._may_prove(flow, read, now):
            turn.claim(read, floor)
        clean = [sample for sample in samples if self._discredited.get(sample.fingerprint, flow.token) == flow.token]
        ready = turn.offer(read, clean, ready=now + self._settings.probe_seconds)
        if ready is not None and now < ready:
            return ready
        return self._waits(turn, flow, read, now)

    def expects_proof(self, flow: Flow, connection: int, topic: str, now: float) -> bool:
        state = flow.topic(topic)
        return (
            connection not in state.proven
            and self._is_hopeful(flow, topic, now)
            and now < self._patience(state, connection, now)
        )

    def pause_until(self, flow: Flow, now: float) -> float | None:
        """When the flow may get more records; None: now."""
        turn = self._turn_for(flow, now)
        if now < self._opens_at:
            return self._opens_at
        if flow.is_sampled:
            return None
        if turn:
            return turn.deadline if turn.awaits() else None
        return self._turn.deadline if self._turn and not flow.failures else None

    def given(self, flow: Flow, read: Fetched, raw_next: int, now: float) -> None:
        """The flow gets `read`, raw below `raw_next`."""
        turn = self._turn
        if turn is None or turn.flow is not flow:
            return self.spoil(flow, read.topic_partition, raw_next)
        turn.give(read, raw_next, now)
        state = flow.topic(read.topic)
        if state.given_at is None and not state.matched and turn.gave(read.topic):
            state.given_at = now
        return None

    def spoil(self, flow: Flow, topic_partition: TopicPartition, raw_next: int) -> None:
        """The flow got records of this partition below `raw_next`, here or elsewhere."""
        if self._turn and self._turn.flow is not flow:
            self._turn.spoil(topic_partition, raw_next)

    # produce side

    def listens(self, topic: str, partition: int) -> bool:
        return self._turn is not None and self._turn.listens(topic, partition)

    def saw_produced(self, topic: str, marks: Iterable[Fingerprint], producer: int, now: float) -> None:
        turn = self._turn
        if turn is None:
            return
        turn.progress(now)
        if not any(producer in flow.producers for flow in self._flows if flow is not turn.flow):
            for source in turn.topics_in(topic):
                turn.flow.topic(source).foreign_records = True
        for source, result in turn.see(topic, marks).items():
            if result is RoundResult.MATCHED:
                turn.flow.topic(source).match()
                continue
            if result is RoundResult.PROVEN:
                self._sampled(turn, source)
            else:
                self._discredit(turn)
                self._fail(turn.flow, source, result.value, now)
            turn.drop(source)
        if not turn.topics:
            self._end_turn(now)

    # turns

    def _may_prove(self, flow: Flow, read: Fetched, now: float) -> bool:
        state = flow.topic(read.topic)
        return (
            read.connection not in state.sampled
            and now >= max(self._opens_at, self._closed_until, flow.retry_at, flow.ambiguous_until, state.retry_at)
            and flow in self._flows
        )

    def _turn_for(self, flow: Flow, now: float) -> ProofRound | None:
        """The turn, if this flow has it. If another flow asks, a turn past its deadline ends."""
        turn = self._turn
        if turn and (now >= turn.last_deadline or (turn.flow is not flow and now >= turn.deadline)):
            self._end_turn(now)
            return None
        return turn if turn and turn.flow is flow else None

    def _begin_turn(self, flow: Flow, read: Fetched, samples: Sequence[Sample], now: float) -> ProofRound | None:
        """With samples; or to overtake other flows, which wait until this one has caught up."""
        behind = self._positions.is_behind(flow, read)
        if self._turn or not (samples or behind) or not self._may_prove(flow, read, now):
            return None
        settings = self._settings
        seconds = settings.turn_seconds * min(MAX_TURN_FACTOR, 1 << min(flow.failures, 30))
        reserve = settings.reserve_seconds if behind else seconds
        longest, most = settings.longest_turn, settings.max_claims
        self._turn = ProofRound(flow, now=now, seconds=seconds, reserve=reserve, longest=longest, most=most)
        return self._turn

    # waiting

    def _is_hopeful(self, flow: Flow, topic: str, now: float) -> bool:
        failed = now < self._closed_until or flow.topic(topic).failures or now < flow.ambiguous_until
        return flow.is_sampled and not failed and flow in self._flows

    def _start_waiting(self, flow: Flow, read: Fetched, now: float) -> None:
        if self._is_hopeful(flow, read.topic, now):
            flow.topic(read.topic).waits_since.setdefault(read.connection, now)

    def _patience(self, state: TopicState, connection: int, now: float) -> float:
        """Until when the topic waits on this connection."""
        return state.waits_since.get(connection, now) + self._settings.topic_seconds

    def _bounded(self, until: float, flow: Flow, read: Fetched, now: float) -> float | None:
        """`until`, or None if the topic has waited too long."""
        if not self._is_hopeful(flow, read.topic, now):
            return None
        until = min(until, self._patience(flow.topic(read.topic), read.connection, now))
        return until if now < until else None

    def _until_turn(self, flow: Flow, read: Fetched, now: float) -> float | None:
        """Another flow has the turn, or this one pauses after its last turn."""
        other = self._turn
        if other and other.covers(read):
            return other.deadline
        return self._bounded(other.deadline if other else flow.retry_at, flow, read, now)

    def _waits(self, turn: ProofRound, flow: Flow, read: Fetched, now: float) -> float | None:
        """The flow has the turn."""
        return self._bounded(inf, flow, read, now) if turn.blocks(read) else None

    # the turn

    def _end_turn(self, now: float) -> None:
        turn = self._turn
        if turn is None:
            return
        self._turn = None
        self._discredit(turn)
        flow = turn.flow
        for topic in filter(turn.gave, turn.topics):
            self._fail(flow, topic, None, now)
        flow.retry_at = now + (PAUSE_SECONDS if turn.proved else back_off(BACK_OFF_SECONDS, flow.failures))
        flow.failures += not turn.proved

    def _sampled(self, turn: ProofRound, topic: str) -> None:
        turn.proved = True
        turn.flow.topic(topic).sample(turn.connection(topic))
        turn.flow.failures = 0

    def _fail(self, flow: Flow, topic: str, why: str | None, now: float) -> None:
        state = flow.topic(topic)
        state.fail(why, now + back_off(BACK_OFF_SECONDS, state.failures))

    def _discredit(self, turn: ProofRound) -> None:
        for mark in turn.unanswered():
            self._discredited[mark] = turn.flow.token
        while len(self._discredited) > MAX_DISCREDITED:
            self._discredited.popitem(last=False)
