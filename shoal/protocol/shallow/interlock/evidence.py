"""The interlock: an envelope must never be stored in a topic.

Evidence first. A mirror's consumer (a flow: peer address and client id) gets raw records until records that only this
flow got come back through the paired target listener (proof_round.py, fingerprint.py). This proves, for this topic and
this consumer connection, that the producer goes through this process and that nothing changes the records. If they
never come back, nothing is ever wrapped.

Records that came back may still be late copies by another client. So the flow then gets one more record, with a token
that is in no topic (tokens.py). The topic is proven when that record comes back.

If two mirrors read the same source, what comes back proves something only if just one of them got it. So one mirror at
a time is proven, each of its tasks in a turn of its own; other unproven flows wait with the partitions of those turns
until they end. A turn waits for no other mirror, so there is no deadlock. One for which another mirror waits ends after
seconds, and a flow that failed backs off.

The first partition with envelopes is a trial: the flow gets nothing more until one of them arrives, or for
`trial_seconds`; after that the rest is raw. (Raw records sent meanwhile would delay the trial's envelopes.) Later, the
flow is stopped if envelopes are sent and none arrives for `evidence_seconds`, or for `trial_seconds` and
`evidence_bytes`. A mirror that sends no fetch requests is paused, and need not produce anything.

Evidence ends
- with the flow's last consumer connection (a restarted mirror may have another configuration),
- with the last producer connection that brought evidence or envelopes,
- when the same offsets are read over two connections: a second mirror with the same name and address,
- when wrapping was stopped.

Memory is limited by MAX_FLOWS and MAX_PARTITIONS. Above them nothing new is proven, until GONE_SECONDS after everything
that is read fits again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from math import inf

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.fingerprint import Fingerprint
from shoal.protocol.shallow.interlock import explain
from shoal.protocol.shallow.interlock.flow import Fetched, Flow, TopicState
from shoal.protocol.shallow.interlock.flows import Flows
from shoal.protocol.shallow.interlock.limits import (
    AMBIGUOUS_SECONDS,
    BREAK_SECONDS,
    MAX_EVENTS,
    REPORTED_FAILURES,
    STOP_BACK_OFF_SECONDS,
    EvidenceSettings,
    EvidenceStatistics,
    back_off,
)
from shoal.protocol.shallow.interlock.positions import GONE_SECONDS, Positions
from shoal.protocol.shallow.interlock.proving import Proving
from shoal.protocol.shallow.interlock.rules import (
    Decision,
    Event,
    EventKind,
    HandedOut,
    PartitionData,
    Raw,
    Review,
    Withhold,
    Wrap,
)
from shoal.protocol.shallow.interlock.tokens import Tokens
from shoal.protocol.shallow.interlock.way_back import WayBack
from shoal.protocol.shallow.token import Tokened
from shoal.protocol.wire.types import TopicPartition

__all__ = ["Evidence", "EvidenceSettings", "EvidenceStatistics"]


class Evidence:
    """One per pair of listeners. `salt` (16-64 bytes) and `first_serial` are random; `now`: when this process began."""

    def __init__(self, *, salt: bytes, first_serial: int, now: float, settings: EvidenceSettings | None = None) -> None:
        self.salt = salt
        self.next_serial: Callable[[], int] = count(first_serial & (1 << 63) - 1).__next__
        self._settings = settings or EvidenceSettings()
        self._flows = Flows(salt, self._settings.max_flows)
        self._positions = Positions(self._settings.max_partitions)
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        opens_at = now + self._settings.grace_seconds
        self._tokens = Tokens(self._flows, self._events, self._settings, salt)
        self._proving = Proving(self._flows, self._positions, self._settings, opens_at=opens_at)
        self._longest_break = min(BREAK_SECONDS, self._settings.evidence_seconds / 2)
        self._blind: str | None = None
        self._blind_until = now

    def begin(self, now: float) -> None:
        self._proving.open_at(now + self._settings.grace_seconds)

    # connections

    def connected(self, peer: str, client_id: str, connection: int, now: float) -> Flow:
        self._positions.forget_gone(now)
        flow = self._flows.join(peer, client_id, connection, now)
        if flow not in self._flows:
            self._go_blind(f"more than {self._settings.max_flows} consumers", now)
        return flow

    def disconnected(self, flow: Flow, connection: int, now: float) -> None:
        was_proven = flow.is_proven
        self._tokens.leave(flow, connection, now)
        if not self._flows.leave(flow, connection):
            return
        self._positions.leave(flow, now)
        self._proving.withdraw(flow, now)
        if was_proven:
            self._void(flow, *explain.left(flow))

    def producer_disconnected(self, producer: int, now: float) -> None:
        for flow in self._flows:
            if producer in flow.producers:
                flow.producers.discard(producer)
                if not flow.producers and flow.is_proven:
                    self._void(
                        flow, EventKind.PAUSED, f"the last producer connection of {flow} has closed.{explain.PAUSED}"
                    )

    # fetch side

    def asked(self, flow: Flow, now: float) -> None:
        flow.ask(now, self._longest_break)

    def expects_proof(self, flow: Flow, connection: int, topic: str, now: float) -> bool:
        return self._proving.expects_proof(flow, connection, topic, now)

    def pause_until(self, flow: Flow, now: float) -> float | None:
        until = self._proving.pause_until(flow, now) or self._tokens.pause_until(flow, now)
        if until is None and flow.is_proven and not flow.arrived and flow.silent_since is not None:
            until = flow.silent_since + self._settings.trial_seconds
        return until if until is not None and now < until else None

    def hold(self, flow: Flow, partitions: Sequence[PartitionData], now: float) -> Sequence[float | None]:
        return [self._hold_until(flow, partition, now) for partition in partitions]

    def review(
        self, flow: Flow, partitions: Sequence[PartitionData], waits: Sequence[float | None], now: float
    ) -> Review:
        tokens = self._give_tokens(flow, partitions, waits, now)
        topics = {partitions[at].read.topic for at in tokens}
        decisions = list[Decision]()
        for at, (partition, until) in enumerate(zip(partitions, waits, strict=True)):
            read = partition.read
            # It would be raw, and queue after the record with the token, or before the first envelopes.
            is_behind = bool(tokens) and (read.topic in topics or not flow.is_proven)
            if at in tokens:
                decisions.append(tokens[at])
            elif until is not None or is_behind:
                decisions.append(Withhold())
            elif partition.may_be_wrapped and self.may_wrap(flow, read, now):
                decisions.append(Wrap(flow.partitions[read.topic_partition].fresh))
            else:
                decisions.append(Raw())
        return Review(decisions, self._allowance(flow, now))

    def commit(self, flow: Flow, review: Review, handed_out: Sequence[HandedOut | None], now: float) -> None:
        for decision, handed in zip(review.decisions, handed_out, strict=True):
            if handed is not None:
                if review.allowance < inf and isinstance(decision, Wrap):
                    self._is_silent(flow, now)  # the partitions before it may have used up the allowance
                self._given(flow, handed, now)

    def gave_raw(self, flow: Flow, read: Fetched, now: float) -> None:
        self._enter(flow, read, now)
        self._given(flow, HandedOut(read, read.next_offset), now)

    def gave_unseen(self, flow: Flow, topic_partition: TopicPartition, raw_next: int, now: float) -> None:
        if flow not in self._flows:
            return
        partition = self._positions.enter(flow, topic_partition)
        if partition is None:
            return self._go_blind(f"more than {self._settings.max_partitions} partitions are read", now)
        partition.raw = max(partition.raw, raw_next)
        self._proving.spoil(flow, topic_partition, raw_next)
        return None

    def may_wrap(self, flow: Flow, read: Fetched, now: float) -> bool:
        """True if there is evidence for it now."""
        state, partition = flow.topics.get(read.topic), flow.partitions.get(read.topic_partition)
        if state is None or partition is None or read.connection not in state.proven or self._is_silent(flow, now):
            return False
        if partition.reader != read.connection or partition.next_offset != read.fetch_offset:
            return False  # another client of this name reads the same
        return flow.arrived or flow.silent_since is None  # the trial

    def _enter(self, flow: Flow, read: Fetched, now: float) -> None:
        """The flow requested this."""
        if flow.waiting and not self._flows.adopt(flow, read.connection):
            self._go_blind(f"more than {self._settings.max_flows} consumers", now)
        if flow not in self._flows:
            return
        partition = self._positions.enter(flow, read.topic_partition)
        if partition is None:
            return self._go_blind(f"more than {self._settings.max_partitions} partitions are read", now)
        if partition.reader != read.connection:
            if partition.reader in flow.connections and read.fetch_offset < partition.next_offset:
                self._confuse(flow, now)
            partition.reader = read.connection
        if read.fetch_offset != partition.next_offset:
            flow.jump(partition, read.fetch_offset)
            self._tokens.jumped(flow, read)
            partition.raw = max(partition.raw, read.fetch_offset)
            self._proving.spoil(flow, read.topic_partition, read.fetch_offset)
        return None

    def _hold_until(self, flow: Flow, partition: PartitionData, now: float) -> float | None:
        read = partition.read
        self._enter(flow, read, now)
        if not partition.may_be_wrapped or self.may_wrap(flow, read, now):
            return None
        state = flow.topic(read.topic)
        if read.connection in state.sampled:
            return None if read.connection in state.proven else self._tokens.hold_until(flow, read, now)
        first = self._proving.sample_from(flow, read, now)
        samples = () if first is None else partition.samples(first)
        return self._proving.hold_until(flow, read, samples, now)

    def _give_tokens(
        self, flow: Flow, partitions: Sequence[PartitionData], waits: Sequence[float | None], now: float
    ) -> dict[int, Tokened]:
        """Partitions, by number, that bring a token. One that is given decides whether the next one is due."""
        tokens = dict[int, Tokened]()
        for at, (partition, until) in enumerate(zip(partitions, waits, strict=True)):
            if until is not None or not partition.may_be_wrapped:
                continue
            token = self._tokens.wanted(flow, partition.read, now)
            tokened = partition.with_token(token) if token is not None else None
            if token is not None and tokened is not None:
                read = partition.read._replace(next_offset=tokened.next_offset)
                self._tokens.gave(flow, read, tokened.offset, token, tokened.mark, now)
                self._given(flow, HandedOut(read, read.next_offset), now)
                tokens[at] = tokened
        return tokens

    def _allowance(self, flow: Flow, now: float) -> float:
        """The trial ends with the first partition that has envelopes.

        Later, more would make the flow count as silent.
        """
        settings = self._settings
        if flow.silent_since is None:
            return inf if flow.arrived else 1
        if flow.silence(now, self._longest_break) < settings.trial_seconds:
            return inf
        return self._most_silent_bytes(flow) - flow.silent_bytes

    def _given(self, flow: Flow, handed: HandedOut, now: float) -> None:
        read, raw_next, envelopes = handed
        partition = flow.partitions.get(read.topic_partition)
        if partition is None:
            return
        if partition.next_offset != read.fetch_offset:
            self._confuse(flow, now)
        partition.got(read)
        flow.hand_out(partition, envelopes, now)
        if raw_next is not None:
            partition.raw = max(partition.raw, raw_next)
            self._proving.given(flow, read, raw_next, now)

    # produce side

    def listens(self, topic: str, partition: int) -> bool:
        return self._proving.listens(topic, partition)

    def saw_produced(self, topic: str, partition: int, marks: Iterable[Fingerprint], producer: int, now: float) -> None:
        self._proving.saw_produced(topic, partition, marks, producer, now)

    def returned(self, token: bytes, mark: Fingerprint, way: WayBack, now: float) -> None:
        self._tokens.returned(token, mark, way, now)

    def arrived(self, key: EnvelopeKey, producer: int, now: float) -> None:
        flow = self._flows.arrived(key.flow)
        partition = flow.partitions.get(TopicPartition(key.topic, key.partition)) if flow else None
        if flow and partition:
            flow.arrive(partition, key.serial, now)
            flow.producers.add(producer)

    # operator

    def flows(self) -> Iterable[Flow]:
        return self._flows

    def why_raw(self, flow: Flow, topic: str, now: float) -> str | None:
        if self._blind and now < self._blind_until and not flow.topic(topic).proven:
            return f"{self._blind}: the interlock cannot keep track of what each consumer reads"
        return explain.why_raw(flow, topic, self._settings, now)

    def tick(self, now: float) -> None:
        self._positions.forget_gone(now)
        self._proving.tick(now)
        self._tokens.tick(now)
        for flow in self._flows:
            self._is_silent(flow, now)
            for topic, state in flow.topics.items():
                if self._is_unreported(state, now):
                    state.reported = True
                    self._events.append(Event(EventKind.NO_EVIDENCE, flow, topic, str(self.why_raw(flow, topic, now))))

    def events(self) -> list[Event]:
        events = list(self._events)
        self._events.clear()
        return events

    def statistics(self) -> EvidenceStatistics:
        return EvidenceStatistics(
            flows=len(self._flows),
            proven=sum(len(state.proven) for flow in self._flows for state in flow.topics.values()),
            partitions=self._positions.count,
            outstanding=sum(flow.outstanding for flow in self._flows),
        )

    # the end of evidence

    def _confuse(self, flow: Flow, now: float) -> None:
        flow.ambiguous_until = now + AMBIGUOUS_SECONDS
        self._proving.withdraw(flow, now)
        if flow.is_proven:
            self._void(flow, EventKind.PAUSED, f"two consumers named {flow} read the same partitions.{explain.PAUSED}")

    def _go_blind(self, why: str, now: float) -> None:
        """Records were given, or will be, that are not noted.

        Their client asks again: then they are, if there is room.
        """
        self._blind, self._blind_until = why, now + GONE_SECONDS
        self._proving.close(now, self._blind_until)

    def _void(self, flow: Flow, kind: EventKind, text: str) -> None:
        flow.void()
        self._events.append(Event(kind, flow, None, text))

    def _is_silent(self, flow: Flow, now: float) -> bool:
        """Envelopes are handed out and none arrives, while the mirror asks for more: stop."""
        settings = self._settings
        if flow.silent_since is None:
            return False
        seconds = flow.silence(now, self._longest_break)
        is_much = flow.silent_bytes >= self._most_silent_bytes(flow) and seconds >= settings.trial_seconds
        if seconds < settings.evidence_seconds and not is_much:
            return False
        flow.stopped = explain.stopped(flow, settings, now)
        flow.retry_at = now + back_off(STOP_BACK_OFF_SECONDS, flow.stops)
        flow.stops += 1
        self._void(flow, EventKind.STOPPED, flow.stopped)
        return True

    def _most_silent_bytes(self, flow: Flow) -> int:
        return self._settings.evidence_bytes + self._settings.connection_bytes * len(flow.connections)

    def _is_unreported(self, state: TopicState, now: float) -> bool:
        if state.reported or state.proven:
            return False
        is_late = state.given_at is not None and now - state.given_at >= self._settings.report_seconds
        return is_late or (state.why is not None and state.failures >= REPORTED_FAILURES)
