"""OpenSSL alone, in CPU seconds per GiB: the cipher, and whole TLS records.

`cipher` is `openssl speed` on pieces of one TLS record. `records` is this process with two SSL objects in memory: the
cipher, OpenSSL's record layer, its copies into and out of memory buffers, and Python's calls. No socket is involved.
"""

from __future__ import annotations

import ssl
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, cast

from bench.proxies.placements import KeyType
from bench.runs import GIB
from shoal.scenarios.kafka.errors import SetupError
from shoal.scenarios.kafka.ports import LOOPBACK

if TYPE_CHECKING:
    from bench.proxies.materials import Materials

__all__ = ["Cost", "cipher", "records"]

_RECORD = 16 * 1024
_CHUNK = 256 * 1024
_BYTES = 512 * 1024 * 1024


class Cost(NamedTuple):
    """CPU seconds per GiB."""

    seal: float
    open: float


def cipher(seconds: int = 1) -> Cost:
    """Raises SetupError."""
    return Cost(_speed(seconds), _speed(seconds, "-decrypt"))


def _speed(seconds: int, *direction: str) -> float:
    argv = ["openssl", "speed", "-mr", "-seconds", str(seconds), "-bytes", str(_RECORD), *direction]
    try:
        done = subprocess.run([*argv, "-evp", "aes-256-gcm"], capture_output=True, text=True, check=True)
        return GIB / parse_speed(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        raise SetupError(f"{' '.join(argv)}: {error}") from error


def parse_speed(output: str) -> float:
    """Bytes per CPU second, of output with -mr. Raises ValueError."""
    for line in output.splitlines():
        if line.startswith("+F:"):
            return float(line.split(":")[-1])
    raise ValueError("no result in the output")


def records(materials: Materials, volume: int = _BYTES) -> Cost:
    sender, receiver = _connected(materials)
    data, into = bytes(_CHUNK), bytearray(_CHUNK)
    sealing = opening = 0.0
    for _ in range(volume // _CHUNK):
        start = time.process_time()
        sender.tls.write(data)
        sealed = sender.outgoing.read()
        middle = time.process_time()
        receiver.incoming.write(sealed)
        left = _CHUNK
        while left:
            left -= cast("int", receiver.tls.read(left, into))
        sealing += middle - start
        opening += time.process_time() - middle
    return Cost(sealing * GIB / volume, opening * GIB / volume)


class _Side(NamedTuple):
    tls: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO


def _connected(materials: Materials) -> tuple[_Side, _Side]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(materials.servers[KeyType.ECDSA])
    one = _side(materials.client(), server_hostname=LOOPBACK)
    other = _side(server, server_side=True)
    for side, far in ((one, other), (other, one)) * 3:
        with suppress(ssl.SSLWantReadError):
            side.tls.do_handshake()
        far.incoming.write(side.outgoing.read())
    return other, one


def _side(context: ssl.SSLContext, *, server_side: bool = False, server_hostname: str | None = None) -> _Side:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=server_side, server_hostname=server_hostname)
    return _Side(tls, incoming, outgoing)
