"""Free TCP ports on the loopback address.

Ports are taken below the range from which Linux draws the local ports of outgoing connections (32768 and up), so that a
port still is free when the broker that owns it was killed and starts again.
"""

import random
import socket

LOOPBACK = "127.0.0.1"
_LOWEST, _HIGHEST = 15_000, 32_000
_ATTEMPTS = 1_000  # of 17,000 ports: more failures than that are not bad luck


def free_ports(count: int) -> list[int]:
    """`count` different ports that nobody listens on now. Raises OSError when there seem to be none."""
    ports: set[int] = set()
    chooser = random.SystemRandom()  # parallel test runs must not draw the same numbers, whatever seeds `random`
    for _ in range(_ATTEMPTS):
        if len(ports) == count:
            return list(ports)
        port = chooser.randrange(_LOWEST, _HIGHEST)
        if is_free(port):
            ports.add(port)
    raise OSError(f"no {count} free ports found between {_LOWEST} and {_HIGHEST}")


def free_port() -> int:
    return free_ports(1)[0]


def free_port_block(count: int) -> int:
    """The first of `count` free ports in a row."""
    while True:
        first = free_port()
        if all(is_free(port) for port in range(first, first + count)):
            return first


def is_free(port: int) -> bool:
    """Nobody listens on it on the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
