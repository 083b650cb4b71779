"""A second look at a broker after a failed handshake, so that the error has its cause.

OpenSSL does not hand over a certificate that it refuses, and a plaintext broker only closes the connection or waits for
the rest of a frame of 369 MB, as a web server may wait for the rest of a line. So Shoal connects once more: without
verification, to read the certificate; or in plaintext, with an ApiVersions request and an HTTP request, each over a
connection of its own. Each look is short, and its result is used for a while.
"""

from __future__ import annotations

import errno
import ssl
import time
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar

import trio

from shoal.protocol.wire.framing import Foreign, foreign_protocol
from shoal.proxy.net.tls.explain import FIRST_BYTES, Failure, explain_broker, plaintext_broker, web_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.proxy.config.settings import Address
    from shoal.proxy.net.tls.certificates import Certificate
    from shoal.proxy.net.tls.contexts import TlsContext

T = TypeVar("T")

__all__ = ["BrokerLook", "Plaintext", "speaks_tls"]

_LOOK_SECONDS = 0.8
_ALERT = b"\x15\x03"
_KEPT_SECONDS = 10.0
_MOST_KEPT = 1000  # addresses

# ApiVersions v0, correlation id 7, no client id; every broker answers it before a login.
_API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000007 ffff")
_ANSWER_BEGINS = 8  # size, correlation id
_HTTP = b"HEAD / HTTP/1.0\r\n\r\n"


class Plaintext(Enum):
    """What a peer speaks without TLS."""

    KAFKA = auto()
    HTTP = auto()


class BrokerLook:
    """Looks at the brokers of one cluster."""

    def __init__(
        self, tls: TlsContext, *, seconds: float = _LOOK_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._tls = tls
        self._seconds = seconds
        self._clock = clock
        self._plaintext: dict[Address, tuple[float, Plaintext | None]] = {}
        self._certificates: dict[Address, tuple[float, Certificate | None]] = {}

    async def explain(self, error: Exception, address: Address, received: bytes, name: str) -> str:
        """Why the handshake with the broker failed. `name`: that its certificate must have."""
        failure = Failure(error, received, name=name)
        if failure.code:
            failure = failure._replace(shown=await self._certificate(address, name))
        elif failure.is_end and not received and (spoken := await self.plaintext(address)) is not None:
            return plaintext_broker() if spoken is Plaintext.KAFKA else web_server()
        return explain_broker(failure, self._tls, self._clock())

    def explain_alert(self, error: ssl.SSLError) -> str:
        """An alert of the broker after the handshake."""
        return explain_broker(Failure(error, _ALERT), self._tls, self._clock())

    async def at_silence(self, address: Address) -> None:
        """The broker has not answered our hello yet. Raises OSError if it speaks plaintext: then it never will."""
        if await self.plaintext(address) is not None:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the broker does not use TLS")

    async def plaintext(self, address: Address) -> Plaintext | None:
        """None: nothing that is known, or nothing at all."""
        return await _kept(self._plaintext, address, _spoken_plaintext, self._seconds)

    async def _certificate(self, address: Address, name: str) -> Certificate | None:
        async def look(address: Address) -> Certificate | None:
            return await _shown_certificate(address, name, self._tls.unverified())

        return await _kept(self._certificates, address, look, self._seconds)


async def speaks_tls(addresses: Sequence[Address], seconds: float = _LOOK_SECONDS) -> bool:
    """Whether the first of the addresses that can be reached answers a TLS hello. Brokers that use Java's TLS answer
    plaintext with an alert, but many others only close the connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with trio.move_on_after(seconds):
        for address in addresses:
            with suppress(OSError, UnicodeError):
                return await _answers_hello(address, context)
    return False


async def _answers_hello(address: Address, context: ssl.SSLContext) -> bool:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=address.host).do_handshake()
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        with suppress(trio.BrokenResourceError):
            await stream.send_all(outgoing.read())
            return foreign_protocol(await stream.receive_some(FIRST_BYTES)) in (Foreign.TLS, Foreign.TLS_ALERT)
    return False


async def _kept(
    kept: dict[Address, tuple[float, T | None]],
    address: Address,
    look: Callable[[Address], Awaitable[T | None]],
    seconds: float,
) -> T | None:
    """The result of a recent look, or of a new one; None: it failed."""
    now = trio.current_time()
    if address in kept and kept[address][0] > now:
        return kept[address][1]
    result: T | None = None
    with trio.move_on_after(seconds), suppress(OSError, ValueError, trio.BrokenResourceError):
        result = await look(address)
    kept.pop(address, None)
    kept[address] = (now + _KEPT_SECONDS, result)
    if len(kept) > _MOST_KEPT:
        del kept[next(iter(kept))]
    return result


async def _spoken_plaintext(address: Address) -> Plaintext | None:
    """Both requests at the same time: a web server may say nothing to the one, a broker may wait at the other."""
    found: list[Plaintext] = []

    async def ask(spoken: Plaintext, request: bytes, size: int, is_answer: Callable[[bytes], bool]) -> None:
        with suppress(OSError, trio.BrokenResourceError):
            if is_answer(await _answer(address, request, size)):
                found.append(spoken)
                both.cancel_scope.cancel()

    async with trio.open_nursery() as both:
        same_id = _API_VERSIONS[8:12]
        both.start_soon(ask, Plaintext.KAFKA, _API_VERSIONS, _ANSWER_BEGINS, lambda answer: answer[4:] == same_id)
        both.start_soon(ask, Plaintext.HTTP, _HTTP, len(b"HTTP"), lambda answer: answer == b"HTTP")
    return found[0] if found else None


async def _answer(address: Address, request: bytes, size: int) -> bytes:
    """-> its first bytes, fewer if the peer closes."""
    answer = b""
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(request)
        while len(answer) < size and (data := await stream.receive_some(size - len(answer))):
            answer += data
    return answer


async def _shown_certificate(address: Address, name: str, context: ssl.SSLContext) -> Certificate | None:
    from shoal.proxy.net.tls.pem import read_certificate

    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        tls = trio.SSLStream(stream, context, server_hostname=name)
        await tls.do_handshake()
        der = tls.getpeercert(binary_form=True)
    return read_certificate(der) if der else None
