"""Free TCP ports on the loopback address.

Ports are below the range of Linux's ephemeral ports (32768 and up), so that a port is still free when the broker that
owns it is killed and restarted.

A process may take seconds to listen on its port, so a port that was given lately is not given again. Brokers draw
theirs with `keep`: while one is killed and not yet restarted, its ports look free, however many were given since.
Parallel processes, such as test workers, can have a range each: PORTS in the environment, which child processes
inherit.
"""

import os
import random
import socket
from collections.abc import Iterable

LOOPBACK = "127.0.0.1"
PORTS = "SHOAL_TEST_PORTS"  # "15000-23499"
LOWEST, HIGHEST = 15_000, 31_999
_ATTEMPTS = 1_000  # of 17,000 ports: more failures are not chance
_given: dict[int, None] = {}  # the newest at the end: at most an eighth of the range, as in `_kept`
_kept: dict[int, None] = {}


def free_ports(count: int, *, keep: bool = False) -> list[int]:
    """`count` ports in a row without a listener; `keep`: not again because others were given.

    Raises OSError when there seem to be none.
    """
    lowest, highest = _range()
    chooser = random.SystemRandom()  # not seeded: parallel test runs must not draw the same numbers
    for _ in range(_ATTEMPTS):
        first = chooser.randint(lowest, highest - count + 1)
        ports = range(first, first + count)
        if all(map(_unused, ports)):
            _remember(ports, _kept if keep else _given)
            return list(ports)
    raise OSError(f"no {count} free ports in a row found between {lowest} and {highest}")


def free_port() -> int:
    return free_ports(1)[0]


def free_port_block(count: int) -> int:
    """The first of `free_ports`."""
    return free_ports(count)[0]


def _range() -> tuple[int, int]:
    lowest, _, highest = os.environ.get(PORTS, f"{LOWEST}-{HIGHEST}").partition("-")
    return int(lowest), int(highest)


def _remember(ports: Iterable[int], memory: dict[int, None]) -> None:
    lowest, highest = _range()
    memory.update(dict.fromkeys(ports))
    while len(memory) > (highest - lowest) // 8:
        del memory[next(iter(memory))]


def _unused(port: int) -> bool:
    return port not in _given and port not in _kept and is_free(port)


def is_free(port: int) -> bool:
    """True when no process listens on it on the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
