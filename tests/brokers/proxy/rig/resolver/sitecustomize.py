"""Python runs this at start-up where this directory is on PYTHONPATH: names under `.shoal.test` are the loopback
address.

Brokers of these tests advertise such names. Shoal alone runs with this on its path, so no client can reach a broker
whose address leaked through.
"""

import socket
from typing import Any

_resolve = socket.getaddrinfo


def _getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    return _resolve("127.0.0.1" if name and name.endswith(".shoal.test") else host, *args, **kwargs)


socket.getaddrinfo = _getaddrinfo
