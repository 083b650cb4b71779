"""Tokens that another producer than the flow's own brings back."""

import pytest

from shoal.protocol.shallow.interlock.flow import Flow
from shoal.protocol.shallow.interlock.way_back import WayBack, detour

HOST = "10.0.0.1"
DEDICATED = "A->B|MirrorSourceConnector-0|replication-consumer"


def found(consumer: str = DEDICATED, peer: str = HOST, **way: str) -> str | None:
    usual = {"host": peer, "client_id": "connector-producer-MirrorSourceConnector-0", "topic": "A.orders"}
    return detour(Flow(peer=peer, client_id=consumer, token=1), "orders", WayBack(7, **(usual | way)))


@pytest.mark.parametrize(
    ("consumer", "producer"),
    [
        (HOST, HOST),
        ("127.0.0.1", "::1"),
        ("::1", "127.0.0.1"),
        ("::ffff:10.0.0.1", HOST),
        (HOST, "::ffff:10.0.0.1"),
        ("::1", "::ffff:127.0.0.1"),
    ],
)
def test_names_of_one_address(consumer: str, producer: str) -> None:
    assert found(peer=consumer, host=producer) is None


@pytest.mark.parametrize(
    ("consumer", "producer"),
    [
        (HOST, "10.0.0.2"),
        ("127.0.0.1", "127.0.0.2"),
        ("127.0.0.1", "::ffff:127.0.0.2"),
        ("fe80::1%eth0", "fe80::1%eth1"),
        ("2001:db8::1", "2001:db8::2"),
    ],
)
def test_two_addresses(consumer: str, producer: str) -> None:
    assert found(peer=consumer, host=producer) == f"from {producer}, not from {consumer}"


CONNECT = "A->B|orders-to-b-3|replication-consumer"
STRIMZI = "A->B|A->B.MirrorSourceConnector-0|replication-consumer"


@pytest.mark.parametrize(
    ("consumer", "producer"),
    [
        (DEDICATED, "connector-producer-MirrorSourceConnector-0"),
        (f"mine|{DEDICATED}", "connector-producer-MirrorSourceConnector-0"),
        (CONNECT, "connector-producer-orders-to-b-3"),
        (STRIMZI, "connector-producer-A->B.MirrorSourceConnector-0"),
        ("A->B|a|b-0|replication-consumer", "connector-producer-a|b-0"),
        (CONNECT, "a name given by hand"),
        (CONNECT, ""),
        ("mm2|replication-consumer", "connector-producer-MirrorSourceConnector-0"),  # before 3.5
        ("mm1-0", "connector-producer-x-0"),
    ],
)
def test_clients_that_may_be_of_one_task(consumer: str, producer: str) -> None:
    assert found(consumer, client_id=producer) is None


@pytest.mark.parametrize(
    ("consumer", "producer"),
    [
        (CONNECT, "connector-producer-orders-to-c-3"),
        (CONNECT, "connector-producer-orders-to-b-4"),
        (STRIMZI, "connector-producer-B->C.MirrorSourceConnector-0"),
        (f"mine|{DEDICATED}", "connector-producer-MirrorSourceConnector-1"),
    ],
)
def test_clients_of_two_tasks(consumer: str, producer: str) -> None:
    assert found(consumer, client_id=producer) == f"from client {producer!r}, the producer of another task"


@pytest.mark.parametrize(
    "topic", ["orders", "A.orders", "A_orders", "copy.of.orders", "B.orders", "x.A.orders", "BA.orders", "B_A.orders"]
)
def test_topics_that_may_be_a_copy_of_its_own(topic: str) -> None:
    assert found(topic=topic) is None


@pytest.mark.parametrize("topic", ["B.A.orders", "B_A_orders", "B--A--orders", "C.B.A.orders"])
def test_copies_of_copies(topic: str) -> None:
    assert found(topic=topic) == f"as {topic}, which is made of a copy in B"


@pytest.mark.parametrize("client_id", ["->" * 500_000, "A" * 1_000_000, "|->" * 300_000, "a->" * 300_000 + "|x"])
def test_a_hostile_client_id_takes_linear_time(client_id: str) -> None:
    assert found(f"{client_id}|replication-consumer", client_id="x") is None  # quadratic: hours


def test_a_hostile_topic_takes_bounded_time() -> None:
    assert found(topic="B" * 1_000_000 + "orders") is None
