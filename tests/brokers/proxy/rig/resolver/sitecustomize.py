"""Python runs this at start-up if this directory is on PYTHONPATH: names under `.shoal.test` resolve to loopback.

Brokers of these tests advertise such names. Only Shoal has this on its path, so a client cannot reach a leaked broker
address.
"""

import socket
from typing import Any

_resolve = socket.getaddrinfo


def _getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    return _resolve("127.0.0.1" if name and name.endswith(".shoal.test") else host, *args, **kwargs)


socket.getaddrinfo = _getaddrinfo
