"""One login of one client: its SASL requests in, answers out.

    SaslHandshake ── mechanism ──> SaslAuthenticate, or raw tokens after v0 ── ... ──> ClientSession | Refusal

The same for the first login and for later ones (KIP-368), which must not change the principal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from shoal.protocol.sasl.answers import answer_authenticate, answer_handshake, read_authenticate, read_handshake
from shoal.protocol.sasl.server import (
    REFUSAL,
    Accepted,
    Challenge,
    PasswordCheck,
    Refused,
    TokenCheck,
)
from shoal.protocol.wire.error_codes import ErrorCode
from shoal.protocol.wire.types import Buffer, write_int32
from shoal.proxy.connection.client_session import ClientSession, NotAllowed
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal.protocol.sasl.server import Result, ServerExchange, Verified
    from shoal.protocol.schema.headers import RequestHeader

__all__ = ["Dialogue", "Refusal", "Server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """`why` is for the log."""

    why: str
    cause: CloseCause = CloseCause.LOGIN_FAILED
    mechanism: str | None = None
    name: str | None = None


class Server(Protocol):
    """What a listener knows of its clients."""

    mechanisms: Sequence[str]

    def exchange(self, mechanism: str) -> ServerExchange: ...

    async def check_password(self, name: str, password: str) -> Verified | str:
        """Or why it is wrong."""

    async def check_token(self, token: str) -> Verified | str: ...

    def session(self, accepted: Accepted, before: ClientSession | None) -> tuple[ClientSession, int]:
        """-> the session, and its lifetime in milliseconds (0: without end). Raises NotAllowed."""

    async def pause(self) -> None:
        """Before a refused client learns of it."""


Reply = tuple[list[Buffer], "ClientSession | Refusal | None"]


class Dialogue:
    """`before`: the session of a client that logs in again."""

    def __init__(self, server: Server, before: ClientSession | None = None) -> None:
        self._server = server
        self._before = before
        self._mechanism = ""
        self._exchange: ServerExchange | None = None
        self.takes_tokens = False  # the next frames have no Kafka header

    async def handshake(self, frame: bytearray, header: RequestHeader) -> Reply:
        """Raises RemoteProtocolError."""
        mechanism = read_handshake(frame, header)
        offered = self._server.mechanisms
        if self._exchange is not None or (self._before is not None and not header.api_version):
            error, why = ErrorCode.ILLEGAL_SASL_STATE, "a second handshake, or one of v0 on an open connection"
        elif mechanism not in offered:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            why = f"the mechanism is not offered here: {', '.join(offered)} ([listener.sasl] mechanisms)"
        else:
            self._mechanism = mechanism
            self._exchange = self._server.exchange(mechanism)
            self.takes_tokens = not header.api_version
            return [answer_handshake(header, ErrorCode.NONE, offered)], None
        await self._server.pause()
        refusal = Refusal(why=why, mechanism=mechanism[:_SHOWN])
        return [answer_handshake(header, error, offered)], refusal

    async def authenticate(self, frame: bytearray, header: RequestHeader) -> Reply:
        """Raises RemoteProtocolError."""
        token = read_authenticate(frame, header)
        if self._exchange is None or self.takes_tokens:
            why = "SaslAuthenticate without SaslHandshake v1"
            await self._server.pause()
            answer = answer_authenticate(header, error=ErrorCode.ILLEGAL_SASL_STATE, why=why)
            return [answer], Refusal(why=why)
        result, told = await self._step(token)
        if isinstance(result, Refusal):
            error = ErrorCode.SASL_AUTHENTICATION_FAILED
            return [answer_authenticate(header, error=error, why=told)], result
        if isinstance(result, Challenge):
            return [answer_authenticate(header, token=result.token)], None
        session, lifetime_ms, last = result
        self._exchange = None
        return [answer_authenticate(header, token=last, lifetime_ms=lifetime_ms)], session

    async def token(self, frame: bytearray) -> Reply:
        """A frame without a Kafka header. A refused client gets no answer, as from a broker."""
        result, _ = await self._step(bytes(frame[4:]))
        if isinstance(result, Refusal):
            return [], result
        token = result.token if isinstance(result, Challenge) else result[2]
        return [write_int32(len(token)) + token], None if isinstance(result, Challenge) else result[0]

    async def _step(self, token: bytes) -> tuple[Challenge | Refusal | tuple[ClientSession, int, bytes], str]:
        """-> what follows, and the words for a refused client."""
        assert self._exchange is not None
        result = await self._checked(self._exchange, self._exchange.step(token))
        if isinstance(result, Challenge):
            return result, ""
        if isinstance(result, Accepted):
            try:
                session, lifetime_ms = self._server.session(result, self._before)
            except NotAllowed as error:
                return await self._refuse(str(error), result.principal, error.cause), str(error)
            return (session, lifetime_ms, result.token), ""
        return await self._refuse(result.why, result.name), REFUSAL

    async def _checked(self, exchange: ServerExchange, result: Result) -> Challenge | Accepted | Refused:
        if isinstance(result, PasswordCheck):
            result = exchange.checked(await self._server.check_password(result.name, result.password))
        elif isinstance(result, TokenCheck):
            result = exchange.checked(await self._server.check_token(result.token))
        assert isinstance(result, Challenge | Accepted | Refused)
        return result

    async def _refuse(self, why: str, name: str | None, cause: CloseCause = CloseCause.LOGIN_FAILED) -> Refusal:
        await self._server.pause()
        return Refusal(why=why, cause=cause, mechanism=self._mechanism, name=None if name is None else name[:_SHOWN])


_SHOWN = 64  # characters of a stranger's text in the log
