"""Which new connections are accepted: single rules, and a model that counts everything anew at each step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from ipaddress import ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.proxy.config.parse import parse_network
from shoal.proxy.config.security import AccessSettings
from shoal.proxy.config.settings import Limits, ListenerSettings
from shoal.proxy.listener.addresses import Networks, group_of, plain_host
from shoal.proxy.listener.admission import (
    BURST_SECONDS,
    FAILED_SECONDS,
    REPORT_SECONDS,
    Admission,
    Guest,
    Refusals,
    Strangers,
)
from shoal.proxy.statistics import CloseCause

HOST, OTHER = "10.0.0.1", "10.0.0.2"


def admission(
    *, max_connections: int = 100, limits: Limits | None = None, idle_addresses: int = 100, **access: object
) -> Admission:
    listener = ListenerSettings(
        name="l",
        cluster="c",
        max_connections=max_connections,
        access=replace(AccessSettings(), **access),  # type: ignore[arg-type]
    )
    return Admission(listener, Strangers(limits or Limits()), idle_addresses)


def guest(found: Guest | CloseCause) -> Guest:
    assert isinstance(found, Guest), found
    return found


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", bytes.fromhex("20010db800000000")),
        ("2001:db8:0:0:ffff::2", bytes.fromhex("20010db800000000")),
        ("fe80::1%eth0", bytes.fromhex("fe80000000000000")),
    ],
)
def test_an_ipv6_address_counts_as_its_64(host: str, group: object) -> None:
    assert group_of(host) == group


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:a00:1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:0:a00:1", "::ffff:0:a00:1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_an_ipv4_address_has_one_name(host: str, plain: str) -> None:
    assert plain_host(host) == plain


@pytest.mark.parametrize("written", ["::ffff:10.0.0.0/104", "::ffff:a00:0/104", "10.0.0.0/8"])
def test_an_ipv4_network_may_be_written_as_ipv6(written: str) -> None:
    networks = Networks([parse_network(written)])
    assert "10.1.2.3" in networks
    assert "::ffff:10.1.2.3" in networks
    assert "11.1.2.3" not in networks


def test_networks_have_addresses_of_both_families() -> None:
    networks = Networks(map(ip_network, ("10.0.0.0/8", "192.168.1.4/32", "2001:db8::/32")))
    for inside in ("10.255.0.1", "192.168.1.4", "::ffff:10.1.1.1", "2001:db8:1::1"):
        assert inside in networks
    for outside in ("11.0.0.1", "192.168.1.5", "2001:db9::1", "::1"):
        assert outside not in networks
    assert "10.0.0.1" not in Networks(())
    assert "10.0.0.1" in Networks([ip_network("0.0.0.0/0")])


def test_an_address_that_is_not_in_the_list_is_refused() -> None:
    made = admission(addresses=(ip_network("10.0.0.0/24"),))
    guest(made.admit(HOST, 0, stranger=False))
    assert made.admit("10.0.1.1", 0, stranger=False) is CloseCause.ADDRESS_REFUSED


def test_connections_are_limited_in_all_and_per_address() -> None:
    made = admission(max_connections=3, connections_per_address=2)
    first = guest(made.admit(HOST, 0, stranger=False))
    guest(made.admit(HOST, 0, stranger=False))
    assert made.admit(HOST, 0, stranger=False) is CloseCause.ADDRESS_FULL
    guest(made.admit(OTHER, 0, stranger=False))
    assert made.admit(OTHER, 0, stranger=False) is CloseCause.REFUSED
    first.ended(0)
    guest(made.admit(HOST, 0, stranger=False))


def test_new_connections_of_an_address_are_limited_per_second() -> None:
    made = admission(new_connections_per_second=2.0)
    burst = int(2 * BURST_SECONDS)
    for _ in range(burst):
        guest(made.admit(HOST, 0.0, stranger=False)).ended(0.0)
    assert made.admit(HOST, 0.0, stranger=False) is CloseCause.TOO_FAST
    guest(made.admit(OTHER, 0.0, stranger=False))
    assert made.admit(HOST, 0.4, stranger=False) is CloseCause.TOO_FAST
    guest(made.admit(HOST, 0.5, stranger=False))
    assert made.admit(HOST, 0.6, stranger=False) is CloseCause.TOO_FAST
    for _ in range(burst):
        guest(made.admit(HOST, 100.0, stranger=False))
    assert made.admit(HOST, 100.0, stranger=False) is CloseCause.TOO_FAST


def test_less_than_one_connection_per_second_is_possible() -> None:
    made = admission(new_connections_per_second=0.1)
    guest(made.admit(HOST, 0.0, stranger=False))
    assert made.admit(HOST, 9.9, stranger=False) is CloseCause.TOO_FAST
    guest(made.admit(HOST, 10.1, stranger=False))


def test_the_oldest_address_without_connections_is_forgotten() -> None:
    made = admission(new_connections_per_second=0.1, idle_addresses=2)
    for number in range(1000):
        guest(made.admit(f"10.1.{number // 250}.{number % 250}", 0.0, stranger=False)).ended(0.0)
    assert len(made._idle) == 2
    assert not made._addresses
    assert made.admit("10.1.3.249", 0.0, stranger=False) is CloseCause.TOO_FAST


def test_strangers_are_limited_over_all_listeners() -> None:
    strangers = Strangers(Limits(unauthenticated=3, unauthenticated_per_address=2))
    listener = ListenerSettings(name="l", cluster="c")
    one, other = Admission(listener, strangers), Admission(listener, strangers)
    first = guest(one.admit(HOST, 0, stranger=True))
    guest(other.admit(HOST, 0, stranger=True))
    assert one.admit(HOST, 0, stranger=True) is CloseCause.ADDRESS_UNAUTHENTICATED
    guest(one.admit(HOST, 0, stranger=False))
    guest(one.admit(OTHER, 0, stranger=True))
    assert one.admit("10.0.0.3", 0, stranger=True) is CloseCause.UNAUTHENTICATED
    first.logged_in()
    first.logged_in()
    guest(one.admit("10.0.0.3", 0, stranger=True))
    first.ended(0)
    assert strangers.count == 3


def test_a_failed_login_keeps_its_place_for_a_second() -> None:
    made = admission(limits=Limits(unauthenticated_per_address=1))
    guest(made.admit(HOST, 0.0, stranger=True)).ended(0.0)
    assert made.admit(HOST, 0.9 * FAILED_SECONDS, stranger=True) is CloseCause.ADDRESS_UNAUTHENTICATED
    made.admit(HOST, FAILED_SECONDS, stranger=True)
    assert made.strangers.count == 1


def test_a_client_whose_broker_is_unreachable_gives_its_place_back_at_once() -> None:
    made = admission(limits=Limits(unauthenticated_per_address=1))
    guest(made.admit(HOST, 0.0, stranger=True)).ended(0.0, by_broker=True)
    guest(made.admit(HOST, 0.0, stranger=True))


def test_behind_a_load_balancer_the_address_of_the_header_counts() -> None:
    limits = Limits(unauthenticated_per_address=1)
    made = admission(limits=limits, connections_per_address=2, addresses=(ip_network("10.0.0.0/24"),))
    first, second, third, fourth = (guest(made.admit(None, 0, stranger=True)) for _ in range(4))
    assert first.comes_from(HOST, 0) is None
    assert second.comes_from(HOST, 0) is CloseCause.ADDRESS_UNAUTHENTICATED
    first.logged_in()
    assert second.comes_from(HOST, 0) is None
    second.logged_in()
    assert third.comes_from(HOST, 0) is CloseCause.ADDRESS_FULL
    assert fourth.comes_from("10.0.1.1", 0) is CloseCause.ADDRESS_REFUSED
    for made_guest in (first, second, third, fourth):
        made_guest.ended(0)
    made.strangers.refusal(None, 2 * FAILED_SECONDS)
    assert (made.connections, made.strangers.count, made._addresses) == (0, 0, {})


HOSTS = ["10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit stranger", "balanced", "balanced stranger", "named", "login", "end"]),
        st.sampled_from(HOSTS),
        st.integers(0, 30),
        st.sampled_from([0.0, 0.1, 0.5, 3.0]),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(
    steps=STEPS,
    most=st.integers(1, 8),
    per_address=st.none() | st.integers(1, 4),
    rate=st.none() | st.sampled_from([0.5, 2.0]),
    strangers=st.integers(1, 5),
)
def test_no_limit_is_ever_exceeded_and_nothing_is_counted_twice(
    steps: list[tuple[str, str, int, float]], most: int, per_address: int | None, rate: float | None, strangers: int
) -> None:
    made = admission(
        max_connections=most,
        connections_per_address=per_address,
        new_connections_per_second=rate,
        limits=Limits(unauthenticated=strangers, unauthenticated_per_address=2),
        idle_addresses=3,
    )
    guests: list[Guest] = []
    unnamed: list[Guest] = []
    now = 0.0
    for what, host, index, passed in steps:
        now += passed
        if what.startswith(("admit", "balanced")):
            balanced = what.startswith("balanced")
            found = made.admit(None if balanced else host, now, stranger=what.endswith("stranger"))
            if isinstance(found, Guest):
                guests.append(found)
                unnamed += [found] * balanced
        elif what == "named" and unnamed:
            unnamed.pop(index % len(unnamed)).comes_from(host, now)
        elif what == "login" and guests:
            guests[index % len(guests)].logged_in()
        elif what == "end" and guests:
            ended = guests.pop(index % len(guests))
            ended.ended(now)
            unnamed = [one for one in unnamed if one is not ended]
        counts = Counter(one._group for one in guests if one._group is not None)
        assert made.connections == len(guests) <= most
        assert max(counts.values(), default=0) <= (per_address or most)
        assert made.strangers.count <= strangers
        assert made.strangers.count >= sum(one.is_stranger for one in guests)
        assert max(made.strangers._of.values(), default=0) <= 2
        assert len(made._idle) <= 3
        if per_address is not None or rate is not None:
            assert {group: row.connections for group, row in made._addresses.items()} == counts
    for one in guests:
        one.ended(now)
    made.strangers.refusal(None, now + FAILED_SECONDS)
    assert (made.connections, made.strangers.count, made.strangers._of, made._addresses) == (0, 0, {}, {})


def test_one_line_per_cause_and_interval_has_the_number_since() -> None:
    settings = ListenerSettings(name="l", cluster="c", access=AccessSettings(connections_per_address=2))
    refusals = Refusals(settings, Limits())
    refusals.note(CloseCause.ADDRESS_FULL, HOST)
    assert [due.text for due in refusals.due(0.0)] == [
        "refused one connection from 10.0.0.1: too many connections of an address (access.connections-per-address = 2)"
    ]
    for _ in range(1234):
        refusals.note(CloseCause.ADDRESS_FULL, OTHER)
    assert refusals.due(REPORT_SECONDS / 2) == []
    assert [due.text for due in refusals.due(REPORT_SECONDS)] == [
        "refused 1,234 connections, the last from 10.0.0.2: too many connections of an address "
        "(access.connections-per-address = 2)"
    ]
    assert refusals.due(3 * REPORT_SECONDS) == []


def test_a_refusal_names_the_setting_that_refused_it() -> None:
    """Not the one of a reload since then."""
    before = ListenerSettings(name="l", cluster="c", max_connections=2)
    refusals = Refusals(before, Limits())
    for _ in range(2):
        refusals.note(CloseCause.REFUSED, HOST)
        refusals.due(0.0)
    refusals.use(replace(before, max_connections=5000), Limits())
    (due,) = refusals.due(REPORT_SECONDS)
    assert due.setting == "max-connections = 2"
