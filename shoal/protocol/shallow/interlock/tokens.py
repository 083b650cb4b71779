"""The second half of the evidence: a record that only this flow got comes back.

Samples (proof_round.py) are ordinary records that only one flow got through Shoal. But a client that reads the source
directly has them too, and may produce equal records later. Samples cost nothing and detect most wiring errors, but
cannot distinguish the flow from such a client. So after they came back, the flow gets one more record with a token, an
extra header (token.py) that is a secret of the flow and this process. A token that comes back, however late, proves
that the client that reads the topic over that connection produces through the target listener, and that the record is
unchanged. The token is removed there.

If it does not come back, the flow's producer writes elsewhere, perhaps a record with one header too many, but never an
envelope. So only one record at a time has a token, until one comes back over that connection. A flow that failed backs
off (`stops`), also after its connections close. The log names the record.

A token that another mirror brings back does not count (way_back.py).

The waits are those of the first envelopes: a flow without any proven topic gets nothing else until its token is back,
or for `trial_seconds`; in other flows, only this topic waits.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from hashlib import blake2b
from itertools import count

from shoal.protocol.shallow.fingerprint import Fingerprint
from shoal.protocol.shallow.interlock import explain
from shoal.protocol.shallow.interlock.flow import Fetched, Flow, GivenToken
from shoal.protocol.shallow.interlock.flows import Flows
from shoal.protocol.shallow.interlock.limits import (
    BACK_OFF_SECONDS,
    STOP_BACK_OFF_SECONDS,
    EvidenceSettings,
    back_off,
)
from shoal.protocol.shallow.interlock.rules import Event, EventKind
from shoal.protocol.shallow.interlock.way_back import WayBack, detour
from shoal.protocol.shallow.token import TOKEN_BYTES

__all__ = ["Tokens"]


class Tokens:
    """One per `Evidence`; shares its flows and its queue of events."""

    def __init__(self, flows: Flows, events: deque[Event], settings: EvidenceSettings, salt: bytes) -> None:
        self._flows = flows
        self._events = events
        self._settings = settings
        self._salt = salt
        self._numbers = count()
        # All that may still come back, also of closed flows: these then do not back off.
        self._given: OrderedDict[bytes, tuple[Flow, GivenToken]] = OrderedDict()

    # fetch side

    def wanted(self, flow: Flow, read: Fetched, now: float) -> bytes | None:
        """A token to add to what the flow is about to get; None: none is due."""
        if flow not in self._flows or not self._is_due(flow, read, now):
            return None
        number = next(self._numbers).to_bytes(8, "big")
        return blake2b(number + flow.token.to_bytes(8, "big"), digest_size=TOKEN_BYTES, key=self._salt).digest()

    def gave(self, flow: Flow, read: Fetched, offset: int, token: bytes, mark: Fingerprint, now: float) -> None:
        given = flow.tokens[token] = GivenToken(read.connection, read.topic, read.partition, offset, mark, now)
        if read.connection not in flow.vouched:
            flow.token_at = now + back_off(BACK_OFF_SECONDS, flow.unanswered)
            flow.unanswered += 1
        self._given[token] = flow, given
        if len(self._given) > self._settings.max_tokens:
            oldest, (its_flow, _) = self._given.popitem(last=False)
            its_flow.tokens.pop(oldest, None)

    def jumped(self, flow: Flow, read: Fetched) -> None:
        """The flow continues at another offset of a partition: it may have dropped what it got there."""
        for given in flow.tokens.values():
            if (given.topic, given.partition) == read.topic_partition:
                given.awaited = False

    def leave(self, flow: Flow, connection: int, now: float) -> None:
        """The connection is about to be removed."""
        for given in flow.tokens.values():
            if given.connection == connection and connection not in flow.vouched and not given.reported:
                kind, text = explain.left_with_token(flow, given, self._settings, now)
                self._events.append(Event(kind, flow, given.topic, text))

    def hold_until(self, flow: Flow, read: Fetched, now: float) -> float | None:
        """Until when a topic whose samples came back waits for its token. None: it may be sent, with or without one."""
        if not flow.is_proven:
            return None  # `pause_until`
        return self._until([given for given in flow.tokens.values() if given.is_for(read)], now)

    def pause_until(self, flow: Flow, now: float) -> float | None:
        return None if flow.is_proven else self._until([given for given in flow.tokens.values() if given.awaited], now)

    def _until(self, waits: Sequence[GivenToken], now: float) -> float | None:
        until = max((given.at for given in waits), default=now) + self._settings.trial_seconds
        return until if waits and now < until else None

    # produce side

    def returned(self, token: bytes, mark: Fingerprint, way: WayBack, now: float) -> None:
        if token not in self._given:
            return
        flow, given = self._given.pop(token)
        is_looked_for = flow.tokens.pop(token, None) is not None
        flow.detour = None if self._settings.any_producer else detour(flow, given.topic, way)
        if flow.detour:
            if is_looked_for:
                self._stray(flow, given, explain.brought(flow, given, self._settings), now)
            return
        if self._flows.arrived(flow.token) is None or not is_looked_for:
            return
        flow.vouched.add(given.connection)
        flow.producers.add(way.producer)
        flow.unanswered, flow.token_at = 0, now
        if given.mark != mark:
            self._fail(flow, given, explain.CHANGED_TOKEN, now)
            return
        state = flow.topic(given.topic)
        if not state.proven:
            text = f"records of {given.topic} came back from {flow}: wrapping"
            self._events.append(Event(EventKind.PROVEN, flow, given.topic, text))
        state.prove(given.connection)
        flow.stopped = None

    def tick(self, now: float) -> None:
        for flow in self._flows:
            for given in flow.tokens.values():
                if not given.reported and now - given.at >= self._settings.report_seconds:
                    self._stray(flow, given, explain.strayed(flow, given, self._settings, now), now)

    def _stray(self, flow: Flow, given: GivenToken, text: str, now: float) -> None:
        was_reported = given.reported
        given.awaited, given.reported = False, True  # if it arrives, it still is proof
        if given.connection in flow.topic(given.topic).proven:
            return  # another token was
        self._report(flow, given, text)
        if given.connection not in flow.vouched:
            flow.stopped = text
            if not was_reported:
                flow.retry_at = now + back_off(STOP_BACK_OFF_SECONDS, flow.stops)
                flow.stops += 1
        self._fail(flow, given, text, now)

    def _report(self, flow: Flow, given: GivenToken, text: str) -> None:
        self._events.append(Event(EventKind.STRAYED, flow, given.topic, text))

    def _fail(self, flow: Flow, given: GivenToken, why: str, now: float) -> None:
        state = flow.topic(given.topic)
        state.sampled.discard(given.connection)
        state.fail(why, now + back_off(STOP_BACK_OFF_SECONDS, state.failures))

    def _is_due(self, flow: Flow, read: Fetched, now: float) -> bool:
        state = flow.topics.get(read.topic)
        if state is None or read.connection not in state.sampled or read.connection in state.proven:
            return False
        if read.connection in flow.vouched:
            return not any(given.is_for(read) for given in flow.tokens.values())
        return now >= flow.token_at and not any(given.awaited for given in flow.tokens.values())
