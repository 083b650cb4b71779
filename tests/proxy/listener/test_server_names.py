"""Which broker a TLS client means by a name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.proxy.listener.server_names import ServerNames, UnknownName

NAMES = ServerNames("Shoal.example", "broker-{node}.Shoal.example")


@pytest.mark.parametrize(
    ("name", "node"),
    [
        (None, None),
        ("shoal.example", None),
        ("SHOAL.example.", None),
        ("broker-0.shoal.example", 0),
        ("Broker-12.shoal.EXAMPLE", 12),
        ("broker-2147483647.shoal.example", 2147483647),
    ],
)
def test_known_names(name: str | None, node: int | None) -> None:
    assert NAMES.node(name) == node


@pytest.mark.parametrize(
    "name",
    [
        "",
        "other.example",
        "broker-.shoal.example",
        "broker--1.shoal.example",
        "broker-01.shoal.example",
        "broker-1xshoal.example",
        "broker-1.shoal.example.evil",
        "broker-2147483648.shoal.example",
        "broker-99999999999999999999.shoal.example",
        "broker-\u0661.shoal.example",
    ],
)
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownName, match=r"shoal\.example \(advertise\)"):
        NAMES.node(name)


@given(st.integers(0, (1 << 31) - 1))
def test_each_broker_has_its_name(node: int) -> None:
    assert NAMES.node(NAMES.host(node)) == node
