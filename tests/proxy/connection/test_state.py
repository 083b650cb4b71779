"""Every state with every event, and walks through the table."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.proxy.connection.state import TRANSITIONS, Event, ImpossibleEvent, State, after

EVERY = list(product(State, Event))
ORDER = [
    {State.SILENT},
    {State.CONNECTING},
    {State.OPEN},
    {State.DRAINING},
    {State.CLIENT_DONE, State.BROKER_DONE},
    {State.CLOSING},
    {State.CLOSED},
]
ONLY_FROM = {
    Event.FIRST_BYTES: {State.SILENT, State.CLOSING},
    Event.CONNECTED: {State.CONNECTING, State.CLOSING},
    Event.REQUESTS_ENDED: {State.OPEN, State.DRAINING, State.BROKER_DONE, State.CLOSING},
    Event.ANSWERS_ENDED: {State.OPEN, State.DRAINING, State.CLIENT_DONE, State.CLOSING},
    Event.DRAIN: set(State),
    Event.ABORT: set(State),
    Event.SOCKETS_CLOSED: set(State) - {State.CLOSED},
}


def rank(state: State) -> int:
    return next(rank for rank, states in enumerate(ORDER) if state in states)


@pytest.mark.parametrize(("state", "event"), EVERY)
def test_every_event_in_every_state(state: State, event: Event) -> None:
    """A connection never goes back; an impossible event raises an error that says so."""
    if state not in ONLY_FROM[event]:
        with pytest.raises(ImpossibleEvent, match=rf"{state.name} reported {event.name}"):
            after(state, event)
        return
    then = after(state, event)
    assert rank(then) >= rank(state)
    if then is State.CLOSED:
        assert event is Event.SOCKETS_CLOSED or state is State.CLOSED
    if state is State.CLOSING and event is not Event.SOCKETS_CLOSED:
        assert then is State.CLOSING, "an abort is not undone by what the tasks still report"


def test_the_table_has_nothing_else() -> None:
    assert set(TRANSITIONS) == {(state, event) for event, states in ONLY_FROM.items() for state in states}


@pytest.mark.parametrize("drained", [False, True])
@pytest.mark.parametrize("first", [Event.REQUESTS_ENDED, Event.ANSWERS_ENDED])
def test_the_pumps_end_in_either_order(drained: bool, first: Event) -> None:
    second = ({Event.REQUESTS_ENDED, Event.ANSWERS_ENDED} - {first}).pop()
    state = State.OPEN
    for event in [Event.DRAIN] * drained + [first]:
        state = after(state, event)
    assert state is (State.CLIENT_DONE if first is Event.REQUESTS_ENDED else State.BROKER_DONE)
    assert after(after(state, Event.DRAIN), second) is State.CLOSING


walks = st.lists(st.sampled_from(Event), max_size=40)


@given(walk=walks)
def test_walks(walk: list[Event]) -> None:
    """An impossible event changes nothing; after any events, a connection can be aborted, drained and closed."""
    state, seen = State.SILENT, [State.SILENT]
    happened: list[Event] = []
    for event in walk:
        try:
            state = after(state, event)
        except ImpossibleEvent:
            continue
        seen.append(state)
        happened.append(event)
        assert state.precedes_open == (state in {State.SILENT, State.CONNECTING})
        if state is State.DRAINING:
            assert Event.DRAIN in happened
        if state is State.CLIENT_DONE:
            assert Event.REQUESTS_ENDED in happened
            assert Event.ANSWERS_ENDED not in happened
        if state is State.BROKER_DONE:
            assert Event.ANSWERS_ENDED in happened
            assert Event.REQUESTS_ENDED not in happened
    assert [rank(one) for one in seen] == sorted(map(rank, seen))
    after(state, Event.DRAIN)
    aborted = after(state, Event.ABORT)
    assert aborted is (State.CLOSED if state is State.CLOSED else State.CLOSING)
    if aborted is State.CLOSING:
        assert after(aborted, Event.SOCKETS_CLOSED) is State.CLOSED


@given(walk=walks)
def test_every_walk_of_a_connection_ends_closed(walk: list[Event]) -> None:
    """Every possible event moves the connection forward or leaves its state: there are no cycles."""
    state, moves = State.SILENT, 0
    for event in walk:
        if (state, event) in TRANSITIONS:
            then = after(state, event)
            moves += then is not state
            state = then
    assert moves <= len(State) - 1
