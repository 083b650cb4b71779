"""The server's states: every event in every state, and what is ready."""

from __future__ import annotations

import pytest

from shoal.proxy.lifecycle.state import TRANSITIONS, ServerEvent, ServerState, after


def test_only_a_serving_shoal_is_ready() -> None:
    assert [state for state in ServerState if state.is_ready] == [ServerState.SERVING]


def test_a_shoal_that_waits_for_clients_still_accepts() -> None:
    assert ServerState.WAITING_FOR_CLIENTS.accepts
    assert not ServerState.DRAINING.accepts


@pytest.mark.parametrize("state", ServerState)
def test_every_state_can_be_ended_at_once(state: ServerState) -> None:
    expected = ServerState.ENDED if state is ServerState.ENDED else ServerState.ENDING
    assert after(state, ServerEvent.END) is expected


def test_no_state_leads_back() -> None:
    order = list(ServerState)
    assert all(order.index(then) >= order.index(state) for (state, _), then in TRANSITIONS.items())


def test_an_impossible_event_is_our_error() -> None:
    with pytest.raises(AssertionError, match="a server that is DRAINING reported WAIT"):
        after(ServerState.DRAINING, ServerEvent.WAIT)
