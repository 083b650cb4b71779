"""The states of the server: one state, and a table of transitions by event. `server.py` reports the events.

STARTING ── STARTED ──> SERVING ── WAIT ──> WAITING_FOR_CLIENTS
    │                      │                        │
    └──────── DRAIN ───────┴──────── DRAIN ─────────┴──> DRAINING

every state ── END ──> ENDING ── CLOSED ──> ENDED
"""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["TRANSITIONS", "ServerEvent", "ServerState", "after"]


class ServerState(Enum):
    STARTING = auto()  # ports are bound, and not all listeners accept
    SERVING = auto()
    WAITING_FOR_CLIENTS = auto()  # serves like SERVING, and ends when its clients have gone
    DRAINING = auto()  # nothing is accepted; connections end when their requests are answered
    ENDING = auto()  # connections are closed at once
    ENDED = auto()

    @property
    def is_ready(self) -> bool:
        """Clients should be sent here."""
        return self is ServerState.SERVING

    @property
    def accepts(self) -> bool:
        return self in _ACCEPTING


_ACCEPTING = frozenset({ServerState.STARTING, ServerState.SERVING, ServerState.WAITING_FOR_CLIENTS})


class ServerEvent(Enum):
    STARTED = auto()  # all listeners accept
    WAIT = auto()  # the first signal, with drain = "until-clients-gone"
    DRAIN = auto()  # the first signal otherwise; the clients have gone or had their time; another Shoal has the ports
    END = auto()  # a second signal, the time of the drain is over, or an error
    CLOSED = auto()  # connections and ports


_S, _E = ServerState, ServerEvent
_ROWS: dict[ServerState, dict[ServerEvent, ServerState]] = {
    _S.STARTING: {_E.STARTED: _S.SERVING, _E.DRAIN: _S.DRAINING},
    _S.SERVING: {_E.WAIT: _S.WAITING_FOR_CLIENTS, _E.DRAIN: _S.DRAINING},
    _S.WAITING_FOR_CLIENTS: {_E.DRAIN: _S.DRAINING},
    _S.DRAINING: {_E.STARTED: _S.DRAINING},  # the signal was faster
    _S.ENDING: {_E.STARTED: _S.ENDING},
    _S.ENDED: {_E.END: _S.ENDED},  # a late signal
}
_ALWAYS = {_E.END: _S.ENDING, _E.CLOSED: _S.ENDED}

TRANSITIONS: dict[tuple[ServerState, ServerEvent], ServerState] = {
    **{(state, event): then for state in _S if state is not _S.ENDED for event, then in _ALWAYS.items()},
    **{(state, event): then for state, row in _ROWS.items() for event, then in row.items()},
}


def after(state: ServerState, event: ServerEvent) -> ServerState:
    """Raises AssertionError for an event that is impossible in this state: an error in Shoal."""
    assert (state, event) in TRANSITIONS, f"a server that is {state.name} reported {event.name}"
    return TRANSITIONS[state, event]
