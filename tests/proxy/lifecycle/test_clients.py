"""Which clients are still there."""

from __future__ import annotations

from shoal.proxy.lifecycle.clients import GONE_SECONDS, QUIET_SECONDS, Presence, Seen, named


def test_a_client_that_goes_on_is_there_and_a_silent_one_has_gone() -> None:
    presence = Presence(0.0)
    busy, silent = Seen(1, "busy", 10, 0), Seen(2, "silent", 10, 0)
    presence.look([busy, silent], 0.0)
    assert presence.clients == {"busy": 1, "silent": 1}
    presence.look([busy._replace(received=20), silent], QUIET_SECONDS)
    assert presence.clients == {"busy": 1}


def test_a_request_without_an_answer_counts_however_long_it_takes() -> None:
    presence = Presence(0.0)
    for now in (0.0, 100.0):
        presence.look([Seen(1, "waits", 10, 1)], now)
        assert presence.clients == {"waits": 1}


def test_a_port_scan_is_no_client() -> None:
    presence = Presence(0.0)
    presence.look([Seen(1, "a client", 0, 0)], 0.0)
    assert not presence.clients


def test_clients_that_connect_anew_for_every_request_are_there() -> None:
    presence = Presence(0.0)
    for number in range(8):
        presence.look([Seen(number, "brief", 10, 0)], number * GONE_SECONDS)
        presence.look([], (number + 0.9) * GONE_SECONDS)
        assert not presence.gone((number + 0.9) * GONE_SECONDS)
    assert presence.gone(9 * GONE_SECONDS)


def test_the_log_names_the_clients_with_the_most_connections() -> None:
    assert named({"a": 1, "b": 3}) == "b (3 connections), a (1 connection)"
    assert named({str(number): 1 for number in range(8)}).endswith(", and 3 more")
