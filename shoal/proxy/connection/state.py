"""The life cycle of one connection: one state, and a table of transitions by event.

    SILENT ── FIRST_BYTES ──> CONNECTING ── CONNECTED ──> OPEN ── DRAIN ──> DRAINING
                                                            │                  │
                              ┌─────────────────────────────┴──┬───────────────┘
                              │ REQUESTS_ENDED                 │ ANSWERS_ENDED
                              v                                v
                         CLIENT_DONE                      BROKER_DONE
                              │ ANSWERS_ENDED                  │ REQUESTS_ENDED
                              └───────────────┬────────────────┘
                                              v
    every state ── ABORT ──────────────>   CLOSING ── SOCKETS_CLOSED ──> CLOSED

The two pumps end in either order. CLIENT_DONE: no more requests; the broker's answers still pass. BROKER_DONE: no more
answers; nothing is read from the client, and a running handler may finish.

An abort cancels the tasks at their next checkpoint; events that they report until then have no effect. A feature may
keep a reference to a closed connection, on which abort and drain have no effect. When the server is cancelled, it
closes sockets in any state.

The reason for the end is not part of the state: the connection records the first cause (`CloseCause`).
"""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["TRANSITIONS", "Event", "ImpossibleEvent", "State", "after"]


class State(Enum):
    SILENT = auto()  # the client has sent nothing
    CONNECTING = auto()  # the client has sent something, and the broker is not connected
    OPEN = auto()
    DRAINING = auto()  # no further request is read
    CLIENT_DONE = auto()  # the last request has been read and handled
    BROKER_DONE = auto()  # the last answer has been read
    CLOSING = auto()
    CLOSED = auto()

    @property
    def precedes_open(self) -> bool:
        return self in _BEFORE_OPEN


_BEFORE_OPEN = frozenset({State.SILENT, State.CONNECTING})


class Event(Enum):
    FIRST_BYTES = auto()  # the client's socket is readable and not closed
    CONNECTED = auto()  # the broker accepted the connection
    DRAIN = auto()  # Shoal stops, or the client must reconnect to the right broker
    REQUESTS_ENDED = auto()  # the request pump ended, and the path has answered its requests
    ANSWERS_ENDED = auto()  # the response pump ended
    ABORT = auto()
    SOCKETS_CLOSED = auto()


_ROWS: dict[State, dict[Event, State]] = {
    State.SILENT: {
        Event.FIRST_BYTES: State.CONNECTING,
        Event.DRAIN: State.CLOSING,
    },
    State.CONNECTING: {
        Event.CONNECTED: State.OPEN,
        Event.DRAIN: State.CLOSING,
    },
    State.OPEN: {
        Event.DRAIN: State.DRAINING,
        Event.REQUESTS_ENDED: State.CLIENT_DONE,
        Event.ANSWERS_ENDED: State.BROKER_DONE,
    },
    State.DRAINING: {
        Event.DRAIN: State.DRAINING,
        Event.REQUESTS_ENDED: State.CLIENT_DONE,
        Event.ANSWERS_ENDED: State.BROKER_DONE,
    },
    State.CLIENT_DONE: {
        Event.DRAIN: State.CLIENT_DONE,
        Event.ANSWERS_ENDED: State.CLOSING,
    },
    State.BROKER_DONE: {
        Event.DRAIN: State.BROKER_DONE,
        Event.REQUESTS_ENDED: State.CLOSING,
    },
    State.CLOSING: {
        Event.FIRST_BYTES: State.CLOSING,
        Event.CONNECTED: State.CLOSING,
        Event.DRAIN: State.CLOSING,
        Event.REQUESTS_ENDED: State.CLOSING,
        Event.ANSWERS_ENDED: State.CLOSING,
    },
    State.CLOSED: {
        Event.DRAIN: State.CLOSED,
    },
}
_ALWAYS = {Event.ABORT: State.CLOSING, Event.SOCKETS_CLOSED: State.CLOSED}

TRANSITIONS: dict[tuple[State, Event], State] = {
    **{(state, event): then for state in State if state is not State.CLOSED for event, then in _ALWAYS.items()},
    **{(state, event): then for state, row in _ROWS.items() for event, then in row.items()},
    (State.CLOSED, Event.ABORT): State.CLOSED,
}


class ImpossibleEvent(AssertionError):
    """An event that is impossible in this state: a bug in Shoal."""


def after(state: State, event: Event) -> State:
    """Raises ImpossibleEvent."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise ImpossibleEvent(f"a connection that is {state.name} reported {event.name}: an error in Shoal") from None
