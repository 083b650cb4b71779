"""Free TCP ports on the loopback address.

Ports are below the range of Linux's ephemeral ports (32768 and up), so that a port is still free when the broker that
owns it is killed and restarted.

A process may take seconds to listen on its port, so the same port is not given twice. Parallel processes, such as test
workers, can have a range each: PORTS in the environment, which child processes inherit.
"""

import os
import random
import socket

LOOPBACK = "127.0.0.1"
PORTS = "SHOAL_TEST_PORTS"  # "15000-23499"
LOWEST, HIGHEST = 15_000, 31_999
_ATTEMPTS = 1_000  # of 17,000 ports: more failures are not chance
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """`count` different ports without a listener. Raises OSError when there seem to be none."""
    lowest, highest = _range()
    if len(_given) > (highest - lowest) // 2:
        _given.clear()
    ports: set[int] = set()
    chooser = random.SystemRandom()  # not seeded: parallel test runs must not draw the same numbers
    for _ in range(_ATTEMPTS):
        if len(ports) == count:
            _given.update(ports)
            return list(ports)
        port = chooser.randint(lowest, highest)
        if port not in _given and is_free(port):
            ports.add(port)
    raise OSError(f"no {count} free ports found between {lowest} and {highest}")


def _range() -> tuple[int, int]:
    lowest, _, highest = os.environ.get(PORTS, f"{LOWEST}-{HIGHEST}").partition("-")
    return int(lowest), int(highest)


def free_port() -> int:
    return free_ports(1)[0]


def free_port_block(count: int) -> int:
    """The first of `count` free ports in a row."""
    _, highest = _range()
    while True:
        first = free_port()
        block = range(first, first + count)
        if block[-1] <= highest and all(is_free(port) for port in block) and _given.isdisjoint(block[1:]):
            _given.update(block)
            return first


def is_free(port: int) -> bool:
    """True when no process listens on it on the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
