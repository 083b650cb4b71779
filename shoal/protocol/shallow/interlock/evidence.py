"""The interlock: an envelope must never land in a topic.

Evidence first. A mirror's consumer (a flow: peer address and client id) is served raw until records that it, and nobody else,
was given come back through the paired target listener (turn.py, fingerprint.py). That proves, for this topic and the connection over
which they were given, that the producer goes through this process and that nothing changes the records. Where that never comes, nothing
is ever wrapped.

Records that came back may still be somebody else's copies, if those were late. So one more record is then given with a token in it, which
no topic holds (tokens.py); only when that has come back, the topic is proven.

Two mirrors that read the same source cannot be told apart by what comes back, unless one alone was given it. So one flow at a
time has the proving turn; other unproven flows wait with those partitions until the turn ends. The holder waits for nobody,
so there is no deadlock; a turn that another flow waits for ends after seconds, and who failed backs off.

The first response with envelopes is a trial: the flow is given nothing more until one of them has arrived, or for `trial_seconds`;
then the rest stays raw. (What a mirror is given raw meanwhile would keep it from the trial's envelopes.) After that, envelopes that are
handed out while none arrives, for `evidence_seconds`, or for `trial_seconds` and `evidence_bytes`, stop the flow. A mirror that asks for nothing
meanwhile is paused, and need not bring anything.

Evidence ends
- with the flow's last consumer connection (a restarted mirror may be configured otherwise),
- with the last producer connection that brought evidence or envelopes,
- when the same offsets are read over two connections: a second mirror of the same name behind the same address,
- when wrapping was stopped.

All is bounded by MAX_FLOWS and MAX_PLACES; beyond them nothing new is proven, until GONE_SECONDS after all that is read can be kept again.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from shoal.protocol.shallow.envelope import EnvelopeKey
from shoal.protocol.shallow.fingerprint import Fingerprint, Sample
from shoal.protocol.shallow.interlock import explain
from shoal.protocol.shallow.interlock.flow import Fetched, Flow, TopicPartition, TopicState
from shoal.protocol.shallow.interlock.flows import Flows
from shoal.protocol.shallow.interlock.limits import (
    AMBIGUOUS_SECONDS,
    BREAK_SECONDS,
    MAX_EVENTS,
    MAX_FLOWS,
    STOP_BACK_OFF_SECONDS,
    TOLD_FAILURES,
    EvidenceSettings,
    EvidenceStatistics,
    back_off,
)
from shoal.protocol.shallow.interlock.positions import GONE_SECONDS, MAX_PLACES, Positions
from shoal.protocol.shallow.interlock.proving import Proving
from shoal.protocol.shallow.interlock.rules import Event, EventKind
from shoal.protocol.shallow.interlock.tokens import Tokens
from shoal.protocol.shallow.interlock.way_back import WayBack

__all__ = ["Evidence", "EvidenceSettings", "EvidenceStatistics"]


class Evidence:
    """One per pair of listeners. `salt` (16-64 bytes) and `first_serial` are random; `now`: when this process began."""

    def __init__(self, *, salt: bytes, first_serial: int, now: float, settings: EvidenceSettings | None = None) -> None:
        self.salt = salt
        self.next_serial: Callable[[], int] = count(first_serial & (1 << 63) - 1).__next__
        self._settings = settings or EvidenceSettings()
        self._flows = Flows(salt)
        self._positions = Positions()
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        opens_at = now + self._settings.grace_seconds
        self._tokens = Tokens(self._flows, self._events, self._settings, salt)
        self._proving = Proving(self._flows, self._positions, self._settings, opens_at=opens_at)
        self._longest_break = min(BREAK_SECONDS, self._settings.evidence_seconds / 2)
        self._blind: str | None = None
        self._blind_until = now

    # connections

    def connected(self, peer: str, client_id: str, connection: int, now: float) -> Flow:
        self._positions.forget_gone(now)
        flow = self._flows.join(peer, client_id, connection, now)
        if flow not in self._flows:
            self._go_blind(f"more than {MAX_FLOWS} consumers", now)
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

    def fetched(self, flow: Flow, read: Fetched, now: float) -> bool:
        if flow.waiting and not self._flows.adopt(flow, read.connection):
            self._go_blind(f"more than {MAX_FLOWS} consumers", now)
        if flow not in self._flows:
            return True
        place = self._positions.enter(flow, read.place)
        if place is None:
            self._go_blind(f"more than {MAX_PLACES} partitions are read", now)
            return True
        if place.reader != read.connection:
            if place.reader in flow.connections and read.fetch_offset < place.next_offset:
                self._confuse(flow, now)
            place.reader = read.connection
        if read.fetch_offset != place.next_offset:
            flow.jump(place, read.fetch_offset)
            self._tokens.jumped(flow, read)
            place.raw = max(place.raw, read.fetch_offset)
            self._proving.spoil(flow, read.place, read.fetch_offset)
        return place.fresh

    def may_wrap(self, flow: Flow, read: Fetched, now: float) -> bool:
        state, place = flow.topics.get(read.topic), flow.places.get(read.place)
        if state is None or place is None or read.connection not in state.proven or self._is_silent(flow, now):
            return False
        if place.reader != read.connection or place.next_offset != read.fetch_offset:
            return False  # somebody else by this name is given the same
        return flow.arrived or flow.silent_since is None  # the trial

    def sample_from(self, flow: Flow, read: Fetched, now: float) -> int | None:
        return self._proving.sample_from(flow, read, now)

    def hold_until(self, flow: Flow, read: Fetched, samples: Sequence[Sample], now: float) -> float | None:
        state = flow.topic(read.topic)
        if read.connection in state.sampled:
            return None if read.connection in state.proven else self._tokens.hold_until(flow, read, now)
        return self._proving.hold_until(flow, read, samples, now)

    def expects_proof(self, flow: Flow, connection: int, topic: str, now: float) -> bool:
        return self._proving.expects_proof(flow, connection, topic, now)

    def pause_until(self, flow: Flow, now: float) -> float | None:
        until = self._proving.pause_until(flow, now) or self._tokens.pause_until(flow, now)
        if until is None and flow.is_proven and not flow.arrived and flow.silent_since is not None:
            until = flow.silent_since + self._settings.trial_seconds
        return until if until is not None and now < until else None

    def token(self, flow: Flow, read: Fetched, now: float) -> bytes | None:
        return self._tokens.wanted(flow, read, now)

    def gave_token(self, flow: Flow, read: Fetched, offset: int, token: bytes, mark: Fingerprint, now: float) -> None:
        self._tokens.gave(flow, read, offset, token, mark, now)

    def gave_unseen(self, flow: Flow, place: TopicPartition, raw_next: int, now: float) -> None:
        if flow not in self._flows:
            return
        its_place = self._positions.enter(flow, place)
        if its_place is None:
            return self._go_blind(f"more than {MAX_PLACES} partitions are read", now)
        its_place.raw = max(its_place.raw, raw_next)
        self._proving.spoil(flow, place, raw_next)
        return None

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
        if raw_next is not None:
            place.raw = max(place.raw, raw_next)
            self._proving.given(flow, read, raw_next, now)

    # produce side

    def listens(self, topic: str, partition: int) -> bool:
        return self._proving.listens(topic, partition)

    def saw_produced(self, topic: str, marks: Iterable[Fingerprint], producer: int, now: float) -> None:
        self._proving.saw_produced(topic, marks, producer, now)

    def returned(self, token: bytes, mark: Fingerprint, way: WayBack, now: float) -> None:
        self._tokens.returned(token, mark, way, now)

    def arrived(self, key: EnvelopeKey, producer: int, now: float) -> None:
        flow = self._flows.arrived(key.flow)
        place = flow.places.get((key.topic, key.partition)) if flow else None
        if flow and place:
            flow.arrive(place, key.serial, now)
            flow.producers.add(producer)

    # operator

    def why_raw(self, flow: Flow, topic: str, now: float) -> str | None:
        if self._blind and now < self._blind_until and not flow.topic(topic).proven:
            return f"{self._blind}: the interlock cannot keep track of who reads what"
        return explain.why_raw(flow, topic, self._settings, now)

    def tick(self, now: float) -> None:
        self._positions.forget_gone(now)
        self._proving.tick(now)
        self._tokens.tick(now)
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

    # the end of evidence

    def _confuse(self, flow: Flow, now: float) -> None:
        flow.ambiguous_until = now + AMBIGUOUS_SECONDS
        self._proving.withdraw(flow, now)
        if flow.is_proven:
            self._void(flow, EventKind.PAUSED, f"two consumers named {flow} read the same partitions.{explain.PAUSED}")

    def _go_blind(self, why: str, now: float) -> None:
        """Something was given, or will be, of which nothing is kept. Whoever was given it asks again: then it is noted, if there is room."""
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
        most = settings.evidence_bytes + settings.connection_bytes * len(flow.connections)
        is_much = flow.silent_bytes >= most and seconds >= settings.trial_seconds
        if seconds < settings.evidence_seconds and not is_much:
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
