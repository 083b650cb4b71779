"""Which flows have a proving turn, and how one ends: proof, failure, or nothing (proof_round.py has the rules of one
turn).

One mirror at a time has turns: its tasks, each with partitions of its own, are proven together. A turn waits for no
flow of another mirror; those wait until the turns end, at the latest at their deadlines, and the mirror that has waited
longest is next. Samples that had no effect are remembered (discredited): if such a record comes back late, it is no
evidence for another flow.

Records sent before a topic's proof are raw, and a small topic would be read completely by then. So it waits:

- a flow without any proven topic waits as a whole (`pause_until`): there is nothing that could be wrapped;
- in a flow with a proven topic, each other topic waits separately (`hold_until`), and the proven ones continue: it
  waits while its samples are in the mirror, and until this flow gets a turn, but at most `topic_seconds` from its
  first records, once per connection, and not after a failure. So no topic waits for another topic's proof, and none is
  starved.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

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
from shoal.protocol.shallow.interlock.way_back import mirror_of
from shoal.protocol.wire.types import TopicPartition

__all__ = ["Proving"]


class _Mirror(NamedTuple):
    peer: str
    name: str


class Proving:
    """One per `Evidence`; shares its flows and positions. Nothing is proven before `opens_at`."""

    def __init__(self, flows: Flows, positions: Positions, settings: EvidenceSettings, *, opens_at: float) -> None:
        self._flows = flows
        self._positions = positions
        self._settings = settings
        self._opens_at = opens_at
        self._closed_until = opens_at
        self._turns: dict[Flow, ProofRound] = {}  # of one mirror
        self._join_until = 0.0  # until then other tasks of it may begin theirs
        self._due = inf  # no turn has a deadline before
        self._queue: dict[_Mirror, None] = {}  # mirrors that wait for a turn
        self._free_at = 0.0  # since when no mirror has one
        self._discredited: OrderedDict[Fingerprint, int] = OrderedDict()

    def open_at(self, at: float) -> None:
        """Nothing is proven before."""
        self._opens_at = at
        self._closed_until = max(self._closed_until, at)

    def close(self, now: float, until: float) -> None:
        """Nothing new is proven until then."""
        self._closed_until = until
        for turn in self._all_turns():
            self._end_turn(turn, now)

    def tick(self, now: float) -> None:
        for turn in self._all_turns():
            if now >= turn.last_deadline:
                self._end_turn(turn, now)

    def withdraw(self, flow: Flow, now: float) -> None:
        """End the flow's turn, if it has one."""
        if flow in self._turns:
            self._end_turn(self._turns[flow], now)

    # fetch side

    def sample_from(self, flow: Flow, read: Fetched, now: float) -> int | None:
        turn = self._turn_for(flow, now)
        if not self._may_prove(flow, read, now) or self._is_claimed_by_another(flow, read):
            return None
        if turn is None:
            self._queue_up(flow)
        if turn.is_open(read.topic) if turn else self._may_join(flow, now):
            return self._positions.others(flow, read.topic_partition)
        return turn.wants(read) if turn and not self._waits(turn, flow, read, now) else None

    def hold_until(self, flow: Flow, read: Fetched, samples: Sequence[Sample], now: float) -> float | None:
        self._start_waiting(flow, read, now)
        turn = self._turn_for(flow, now)
        if (until := self._covered_until(flow, read)) is not None:
            return until
        turn = turn or self._begin_turn(flow, read, samples, now)
        if turn is None:
            return self._until_turn(flow, read, now)
        floor = self._positions.others(flow, read.topic_partition)
        useful = samples or read.topic not in turn.topics
        may_claim = self._may_prove(flow, read, now) and not self._is_claimed_by_another(flow, read)
        if useful and turn.is_open(read.topic) and may_claim:
            turn.claim(read, floor)
        clean = [sample for sample in samples if self._is_clean(flow, sample.fingerprint)]
        ready = turn.offer(read, clean, ready=now + self._settings.probe_seconds)
        if ready is not None and now < ready:
            return ready
        return self._waits(turn, flow, read, now)

    def expects_proof(self, flow: Flow, connection: int, topic: str, now: float) -> bool:
        state = flow.topics.get(topic) or TopicState()  # not kept: a client may name any
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
        if flow.failures:
            return None
        self._queue_up(flow)
        return self._next_turn(flow, now)

    def given(self, flow: Flow, read: Fetched, raw_next: int, now: float) -> None:
        """The flow gets `read`, raw below `raw_next`."""
        self.spoil(flow, read.topic_partition, raw_next)
        turn = self._turns.get(flow)
        if turn is None:
            return
        turn.give(read, raw_next, now)
        state = flow.topic(read.topic)
        if state.given_at is None and not state.matched and turn.gave(read.topic):
            state.given_at = now

    def spoil(self, flow: Flow, topic_partition: TopicPartition, raw_next: int) -> None:
        """The flow got records of this partition below `raw_next`, here or elsewhere."""
        for turn in self._other_turns(flow):
            turn.spoil(topic_partition, raw_next)

    # produce side

    def listens(self, topic: str, partition: int) -> bool:
        return any(turn.listens(topic, partition) for turn in self._turns.values())

    def saw_produced(self, topic: str, partition: int, marks: Iterable[Fingerprint], producer: int, now: float) -> None:
        marks = tuple(marks)
        seen = [(turn, turn.see(topic, marks)) for turn in self._all_turns() if turn.listens(topic, partition)]
        is_of_a_turn = any(results for _, results in seen)
        for turn, results in seen:
            turn.progress(now)
            if not is_of_a_turn:
                self._note_foreign(turn, topic, producer)
            self._judge(turn, results, now)

    def _note_foreign(self, turn: ProofRound, topic: str, producer: int) -> None:
        if not any(producer in flow.producers for flow in self._flows if flow is not turn.flow):
            for source in turn.topics_in(topic):
                turn.flow.topic(source).foreign_records = True

    def _judge(self, turn: ProofRound, results: Mapping[str, RoundResult], now: float) -> None:
        for source, result in results.items():
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
            self._end_turn(turn, now)

    # turns

    def _may_prove(self, flow: Flow, read: Fetched, now: float) -> bool:
        state = flow.topic(read.topic)
        return (
            read.connection not in state.sampled
            and now >= max(self._opens_at, self._closed_until, flow.retry_at, flow.ambiguous_until, state.retry_at)
            and flow in self._flows
        )

    def _all_turns(self) -> Sequence[ProofRound]:
        """Also while some of them end."""
        return tuple(self._turns.values())

    def _other_turns(self, flow: Flow) -> Iterator[ProofRound]:
        return (turn for turn in self._turns.values() if turn.flow is not flow)

    def _turn_for(self, flow: Flow, now: float) -> ProofRound | None:
        """The flow's turn, if it has one. If another flow asks, a turn past its deadline ends."""
        if now >= self._due:
            for turn in self._all_turns():
                if now >= turn.last_deadline or (turn.flow is not flow and now >= turn.deadline):
                    self._end_turn(turn, now)
            deadlines = (min(turn.deadline, turn.last_deadline) for turn in self._turns.values())
            self._due = min(deadlines, default=inf)  # they are only put off
        return self._turns.get(flow)

    def _may_join(self, flow: Flow, now: float) -> bool:
        """True if it is the mirror's turn: of those that wait, or because other tasks have just begun theirs."""
        mirror, other = _mirror(flow), next(iter(self._turns), None)
        if other is not None:
            is_its_own = mirror == _mirror(other)
            return is_its_own and now < self._join_until and len(self._turns) < self._settings.max_turns
        if now >= self._free_at + PAUSE_SECONDS:
            self._queue.clear()  # it has nothing to prove, or has gone
        return next(iter(self._queue), mirror) == mirror

    def _queue_up(self, flow: Flow) -> None:
        other = next(iter(self._turns), flow)
        if _mirror(flow) != _mirror(other) and len(self._queue) < self._settings.max_flows:
            self._queue.setdefault(_mirror(flow))

    def _next_turn(self, flow: Flow, now: float) -> float | None:
        """When the flow may begin a turn, at the latest; None: now."""
        if self._may_join(flow, now):
            return None
        return min((turn.deadline for turn in self._turns.values()), default=self._free_at + PAUSE_SECONDS)

    def _covered_until(self, flow: Flow, read: Fetched) -> float | None:
        """When the turn ends that this would spoil; None: there is none."""
        return next((turn.deadline for turn in self._other_turns(flow) if turn.covers(read)), None)

    def _is_claimed_by_another(self, flow: Flow, read: Fetched) -> bool:
        return any(turn.claims(read.topic_partition) for turn in self._other_turns(flow))

    def _is_clean(self, flow: Flow, mark: Fingerprint) -> bool:
        """False: it may come back because another flow was given such a record."""
        is_of_another = any(turn.samples(mark) for turn in self._other_turns(flow))
        return not is_of_another and self._discredited.get(mark, flow.token) == flow.token

    def _begin_turn(self, flow: Flow, read: Fetched, samples: Sequence[Sample], now: float) -> ProofRound | None:
        """With samples; or to overtake other flows, which wait until this one has caught up."""
        behind = self._positions.is_behind(flow, read)
        may_begin = self._may_join(flow, now) and self._may_prove(flow, read, now)
        if not may_begin or not (samples or behind) or self._is_claimed_by_another(flow, read):
            return None
        settings = self._settings
        seconds = settings.turn_seconds * min(MAX_TURN_FACTOR, 1 << min(flow.failures, 30))
        reserve = settings.reserve_seconds if behind else seconds
        longest, most = settings.longest_turn, settings.max_claims
        turn = ProofRound(flow, now=now, seconds=seconds, reserve=reserve, longest=longest, most=most)
        if not self._turns:
            self._join_until = now + settings.turn_seconds
            self._queue.pop(_mirror(flow), None)
        self._turns[flow] = turn
        self._due = min(self._due, turn.deadline, turn.last_deadline)
        return turn

    # waiting

    def _is_hopeful(self, flow: Flow, topic: str, now: float) -> bool:
        state = flow.topics.get(topic)
        failed = now < self._closed_until or (state is not None and state.failures) or now < flow.ambiguous_until
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
        """Other flows have all turns, or this one pauses after its last turn."""
        return self._bounded(self._next_turn(flow, now) or flow.retry_at, flow, read, now)

    def _waits(self, turn: ProofRound, flow: Flow, read: Fetched, now: float) -> float | None:
        """The flow has a turn."""
        return self._bounded(inf, flow, read, now) if turn.blocks(read) else None

    # the end of a turn

    def _end_turn(self, turn: ProofRound, now: float) -> None:
        flow = turn.flow
        del self._turns[flow]
        self._free_at = now
        self._discredit(turn)
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


def _mirror(flow: Flow) -> _Mirror:
    return _Mirror(flow.peer, mirror_of(flow.client_id))
