from shoal.scenarios.kafka.ports import HIGHEST, LOWEST, free_port_block, free_ports
from shoal.scenarios.kafka.settings import Ports


def test_ports_of_a_killed_broker_are_not_given_again() -> None:
    """However many others are drawn before it is restarted: here more than there are."""
    drawn = [Ports.draw() for _ in range(10)]
    kept = {port for ports in drawn for port in (ports.plaintext, ports.controller, *ports.secured.values())}
    blocks = [free_port_block(20) for _ in range((HIGHEST - LOWEST) // 20)]
    given = {port for first in blocks for port in range(first, first + 20)}
    assert given.isdisjoint(kept)


def test_a_port_is_not_given_twice_in_a_row() -> None:
    ports = [*free_ports(50), *(free_port_block(1) for _ in range(50)), *free_ports(50, keep=True)]
    assert len(set(ports)) == len(ports)
