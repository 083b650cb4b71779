"""The interlock: an envelope must never land in a topic.

Evidence first. A mirror's consumer (a flow: peer address and client id) is served raw until records that it, and nobody else,
was given come back through the paired target listener (turn.py, fingerprint.py). That proves, for this topic and the connection over
which they were given, that the producer goes through this process and that nothing changes the records. Where that never comes, nothing
is ever wrapped.

Two mirrors that read the same source cannot be told apart by what comes back, unless one alone was given it. So one flow at a
time has the proving turn; other unproven flows wait with those partitions until the turn ends. The holder waits for nobody,
so there is no deadlock; a turn that another flow waits for ends after seconds, and who failed backs off.

The first response with envelopes is a trial: until one of them has arrived, the rest stays raw. After that, envelopes that are
handed out while none arrives, for `evidence_seconds` or `evidence_bytes`, stop the flow.

Evidence ends
- with the flow's last consumer connection (a restarted mirror may be configured otherwise),
- with the last producer connection that brought evidence or envelopes,
- when the same offsets are read over two connections: a second mirror of the same name behind the same address,
- when wrapping was stopped.

All is bounded by MAX_FLOWS and MAX_PLACES; beyond them nothing new is proven.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from shoal.protocol.shallow import explain
from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.fingerprint import Fingerprint, Sample
from shoal.protocol.shallow.flow import Fetched, Flow, Place, TopicState
from shoal.protocol.shallow.flows import Flows
from shoal.protocol.shallow.interlock import Event, EventKind
from shoal.protocol.shallow.limits import (
    AMBIGUOUS_SECONDS,
    BACK_OFF_SECONDS,
    MAX_EVENTS,
    MAX_FLOWS,
    MAX_TAINTED,
    MAX_TURN_FACTOR,
    PAUSE_SECONDS,
    STOP_BACK_OFF_SECONDS,
    TOLD_FAILURES,
    EvidenceSettings,
    EvidenceStatistics,
    back_off,
)
from shoal.protocol.shallow.positions import MAX_PLACES, Positions
from shoal.protocol.shallow.turn import Turn, Verdict

__all__ = ["Evidence", "EvidenceSettings", "EvidenceStatistics"]


class Evidence:
    """One per pair of listeners. `salt` (16-64 bytes) and `first_serial` are random; `now`: when this process began."""

    def __init__(self, *, salt: bytes, first_serial: int, now: float, settings: EvidenceSettings | None = None) -> None:
        self.salt = salt
        self.next_serial: Callable[[], int] = count(first_serial & (1 << 63) - 1).__next__
        self._settings = settings or EvidenceSettings()
        self._opens_at = now + self._settings.grace_seconds
        self._flows = Flows(salt)
        self._positions = Positions()
        self._turn: Turn | None = None
        self._tainted: OrderedDict[Fingerprint, int] = OrderedDict()
        self._blind: str | None = None
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)

    # connections

    def connected(self, peer: str, client_id: str, connection: int, now: float) -> Flow:
        self._positions.forget_gone(now)
        flow = self._flows.join(peer, client_id, connection, now)
        if flow not in self._flows:
            self._go_blind(f"more than {MAX_FLOWS} consumers", now)
        return flow

    def disconnected(self, flow: Flow, connection: int, now: float) -> None:
        was_proven = flow.is_proven
        if not self._flows.leave(flow, connection):
            return
        self._positions.leave(flow, now)
        self._withdraw(flow, now)
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

    def fetched(self, flow: Flow, read: Fetched, now: float) -> bool:
        if flow not in self._flows:
            return True
        place = self._positions.enter(flow, read)
        if place is None:
            self._go_blind(f"more than {MAX_PLACES} partitions are read", now)
            return True
        if place.reader != read.connection:
            if place.reader in flow.connections and read.fetch_offset < place.next_offset:
                self._confuse(flow, now)
            place.reader = read.connection
        if read.fetch_offset != place.next_offset:
            flow.jump(place, read.fetch_offset)
            self._gave_raw(flow, read, place, read.fetch_offset)
        return place.fresh

    def may_wrap(self, flow: Flow, read: Fetched, now: float) -> bool:
        state, place = flow.topics.get(read.topic), flow.places.get(read.place)
        if state is None or place is None or read.connection not in state.proven or self._is_silent(flow, now):
            return False
        if place.reader != read.connection or place.next_offset != read.fetch_offset:
            return False  # somebody else by this name is given the same
        return flow.arrived or flow.silent_since is None  # the trial

    def sample_from(self, flow: Flow, read: Fetched, now: float) -> int | None:
        if not self._may_prove(flow, read, now):
            return None
        turn = self._turn_for(flow, now)
        if self._turn is None or (turn and turn.is_open(read.topic)):
            return self._positions.others(flow, read.place)
        return turn.wants(read) if turn else None

    def hold_until(self, flow: Flow, read: Fetched, samples: Sequence[Sample], now: float) -> float | None:
        if read.connection in flow.topic(read.topic).proven:
            return None
        turn = self._turn_for(flow, now) or self._begin_turn(flow, read, samples, now)
        if turn is None:
            waits_for = self._turn
            return waits_for.deadline if waits_for and waits_for.covers(read) else None
        floor = self._positions.others(flow, read.place)
        useful = samples or read.topic not in turn.topics
        if useful and turn.is_open(read.topic) and self._may_prove(flow, read, now):
            turn.claim(read, floor)
        clean = [sample for sample in samples if self._tainted.get(sample.fingerprint, flow.token) == flow.token]
        ready = turn.offer(read, clean, ready=now + self._settings.probe_seconds)
        return ready if ready is not None and now < ready else None

    def pause_until(self, flow: Flow, now: float) -> float | None:
        turn = self._turn_for(flow, now)
        if now < self._opens_at:
            until = self._opens_at
        elif turn:
            until = turn.deadline if turn.awaits() else now
        elif flow.is_proven and not flow.arrived and flow.silent_since is not None:
            until = flow.silent_since + self._settings.turn_seconds
        elif self._turn and not flow.failures and not flow.is_proven:
            until = self._turn.deadline
        else:
            return None
        return until if now < until else None

    def given(
        self, flow: Flow, read: Fetched, now: float, raw_next: int | None, envelopes: Sequence[EnvelopeKey] = ()
    ) -> None:
        place = flow.places.get(read.place)
        if place is None:
            return
        if place.next_offset != read.fetch_offset:
            self._confuse(flow, now)
        place.next_offset, place.fresh = read.next_offset, False
        flow.hand_out(place, envelopes, now)
        if raw_next is None:
            return
        if self._turn and self._turn.flow is flow:
            self._turn.give(read, raw_next, now)
            state = flow.topic(read.topic)
            if state.given_at is None and not state.matched and self._turn.gave(read.topic):
                state.given_at = now
        self._gave_raw(flow, read, place, raw_next)

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
                turn.flow.topic(source).strangers = True
        for source, verdict in turn.see(topic, marks).items():
            if verdict is Verdict.MATCHED:
                turn.flow.topic(source).match()
                continue
            if verdict is Verdict.PROVEN:
                self._prove(turn, source, producer)
            else:
                self._taint(turn)
                self._fail(turn.flow, source, verdict.value, now)
            turn.drop(source)
        if not turn.topics:
            self._end_turn(now)

    def arrived(self, key: EnvelopeKey, producer: int, now: float) -> None:
        flow = self._flows.arrived(key.flow)
        place = flow.places.get((key.topic, key.partition)) if flow else None
        if flow and place:
            flow.arrive(place, key.serial, now)
            flow.producers.add(producer)

    # operator

    def why_raw(self, flow: Flow, topic: str, now: float) -> str | None:
        if self._blind and not flow.topic(topic).proven:
            return f"{self._blind}: the interlock cannot keep track of who reads what"
        return explain.why_raw(flow, topic, self._settings, now)

    def tick(self, now: float) -> None:
        self._positions.forget_gone(now)
        if self._turn and now >= self._turn.last_deadline:
            self._end_turn(now)
        for flow in self._flows:
            self._is_silent(flow, now)
            for topic, state in flow.topics.items():
                if self._is_untold(state, now):
                    state.told = True
                    self._events.append(Event(EventKind.NO_EVIDENCE, flow, topic, str(self.why_raw(flow, topic, now))))

    def events(self) -> list[Event]:
        events = list(self._events)
        self._events.clear()
        return events

    def statistics(self) -> EvidenceStatistics:
        return EvidenceStatistics(
            flows=len(self._flows),
            proven=sum(len(state.proven) for flow in self._flows for state in flow.topics.values()),
            places=self._positions.count,
            outstanding=sum(flow.outstanding for flow in self._flows),
        )

    # positions

    def _gave_raw(self, flow: Flow, read: Fetched, place: Place, raw_next: int) -> None:
        place.raw = max(place.raw, raw_next)
        if self._turn and self._turn.flow is not flow:
            self._turn.spoil(read.place, raw_next)

    def _confuse(self, flow: Flow, now: float) -> None:
        flow.ambiguous_until = now + AMBIGUOUS_SECONDS
        self._withdraw(flow, now)
        if flow.is_proven:
            self._void(flow, EventKind.PAUSED, f"two consumers named {flow} read the same partitions.{explain.PAUSED}")

    def _go_blind(self, why: str, now: float) -> None:
        self._blind = why
        self._end_turn(now)

    # turns

    def _may_prove(self, flow: Flow, read: Fetched, now: float) -> bool:
        state = flow.topic(read.topic)
        return (
            self._blind is None
            and read.connection not in state.proven
            and now >= max(self._opens_at, flow.retry_at, flow.ambiguous_until, state.retry_at)
            and flow in self._flows
        )

    def _turn_for(self, flow: Flow, now: float) -> Turn | None:
        """The turn, where it is this flow's. Asked by another flow, a turn past its deadline ends."""
        turn = self._turn
        if turn and (now >= turn.last_deadline or (turn.flow is not flow and now >= turn.deadline)):
            self._end_turn(now)
            return None
        return turn if turn and turn.flow is flow else None

    def _begin_turn(self, flow: Flow, read: Fetched, samples: Sequence[Sample], now: float) -> Turn | None:
        """With samples in hand; or to get ahead of others, who wait until this flow has caught up with them."""
        behind = self._positions.is_behind(flow, read)
        if self._turn or not (samples or behind) or not self._may_prove(flow, read, now):
            return None
        settings = self._settings
        seconds = settings.turn_seconds * min(MAX_TURN_FACTOR, 1 << min(flow.failures, 30))
        reserve = settings.reserve_seconds if behind else seconds
        self._turn = Turn(flow, now=now, seconds=seconds, reserve=reserve, longest=settings.longest_turn)
        return self._turn

    def _end_turn(self, now: float) -> None:
        turn = self._turn
        if turn is None:
            return
        self._turn = None
        self._taint(turn)
        flow = turn.flow
        for topic in filter(turn.gave, turn.topics):
            self._fail(flow, topic, None, now)
        flow.retry_at = now + (PAUSE_SECONDS if turn.proved else back_off(BACK_OFF_SECONDS, flow.failures))
        flow.failures += not turn.proved

    def _withdraw(self, flow: Flow, now: float) -> None:
        if self._turn and self._turn.flow is flow:
            self._end_turn(now)

    def _prove(self, turn: Turn, topic: str, producer: int) -> None:
        flow, state = turn.flow, turn.flow.topic(topic)
        if not state.proven:
            text = f"records of {topic} came back from {flow}: wrapping"
            self._events.append(Event(EventKind.PROVEN, flow, topic, text))
        turn.proved = True
        state.prove(turn.connection(topic))
        flow.failures, flow.stopped = 0, None
        flow.producers.add(producer)

    def _fail(self, flow: Flow, topic: str, why: str | None, now: float) -> None:
        state = flow.topic(topic)
        state.fail(why, now + back_off(BACK_OFF_SECONDS, state.failures))

    def _taint(self, turn: Turn) -> None:
        for mark in turn.unanswered():
            self._tainted[mark] = turn.flow.token
        while len(self._tainted) > MAX_TAINTED:
            self._tainted.popitem(last=False)

    # the end of evidence

    def _void(self, flow: Flow, kind: EventKind, text: str) -> None:
        flow.void()
        self._events.append(Event(kind, flow, None, text))

    def _is_silent(self, flow: Flow, now: float) -> bool:
        """Envelopes are handed out and none arrives: stop."""
        settings = self._settings
        if flow.silent_since is None:
            return False
        seconds = now - flow.silent_since
        if seconds < settings.evidence_seconds and flow.silent_bytes < settings.evidence_bytes:
            return False
        flow.stopped = explain.stopped(flow, settings, now)
        flow.retry_at = now + back_off(STOP_BACK_OFF_SECONDS, flow.stops)
        flow.stops += 1
        self._void(flow, EventKind.STOPPED, flow.stopped)
        return True

    def _is_untold(self, state: TopicState, now: float) -> bool:
        if state.told or state.proven:
            return False
        is_late = state.given_at is not None and now - state.given_at >= self._settings.tell_seconds
        return is_late or (state.why is not None and state.failures >= TOLD_FAILURES)
