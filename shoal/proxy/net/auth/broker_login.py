"""One identity of Shoal at the brokers of a cluster: logs in on new connections, and again when a session ends."""

from __future__ import annotations

import logging
import math
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import trio

from shoal.protocol.sasl.login import Granted, LoginRefused, Refusal, log_in, log_in_again
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.reread import Outcome, Reread
from shoal.proxy.events.logs import event
from shoal.proxy.net.auth.backoff import Backoff
from shoal.proxy.net.auth.identity import NoCredentials, in_thread
from shoal.proxy.net.broker_client import BrokerClient
from shoal.proxy.net.transport import PeerLost
from shoal.proxy.net.upstream import BrokerConnection, LoginFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from shoal.protocol.sasl.login import Talk
    from shoal.protocol.wire.types import Buffer
    from shoal.proxy.config.settings import Address, Limits
    from shoal.proxy.net.auth.identity import Identity, SaslTable
    from shoal.proxy.net.transport import SocketTransport

    Send = Callable[[bytes], Awaitable[Buffer]]

__all__ = ["BrokerLogin", "BrokerSession"]

log = logging.getLogger("shoal.auth")

_CLIENT_ID = "shoal"
_USED_UP = 0.85  # of a session, when Shoal logs in again
_LEAST_S = 1.05  # a broker ignores a second re-authentication within one second


class BrokerLogin:
    """`where`: the settings, for errors. `secrets`: a digest of the files that they name. Raises OperatorError."""

    def __init__(
        self,
        identity: Identity,
        where: SaslTable,
        limits: Limits,
        *,
        secrets: Callable[[], bytes] | None = None,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._identity = identity
        self._where = where
        self._limits = limits
        self._now = clock
        self._backoff = Backoff(clock)
        self._gates: dict[Address, trio.Lock] = {}
        self._secrets = secrets or identity.material
        self._read = self._secrets()

    def reread(self) -> Reread:
        """Whether the files of the credentials can be used now."""
        before = self._read
        try:
            self._read = self._secrets()
        except OperatorError as error:
            text = f"{error}: until then Shoal cannot log in with it"
            log.error("broker-credentials-refused", extra=event(text, setting=str(self._where), error=str(error)))
            return Reread(str(self._where), Outcome.REFUSED)
        return Reread(str(self._where), Outcome.UNCHANGED if self._read == before else Outcome.LOADED)

    async def login(self, transport: SocketTransport, address: Address) -> BrokerSession:
        """Raises LoginFailed, and OSError if the connection is lost."""

        async def given() -> BrokerConnection:
            return BrokerConnection(transport, address)

        client = BrokerClient(given, self._limits)  # not closed: the connection is the caller's
        try:
            began, granted = await self._log_in(address, client.exchange, None)
        except PeerLost as error:
            raise LoginFailed(f"{error} during the login") from error
        return BrokerSession(self, address, granted, _due_at(began, granted))

    async def again(self, session: BrokerSession, send: Send) -> None:
        """Over a connection without other requests in flight. Raises LoginFailed, and what `send` raises."""
        seconds = self._limits.connect_timeout
        try:
            with trio.fail_after(seconds):
                began, granted = await self._log_in(session.address, send, session.granted)
        except trio.TooSlowError:
            raise LoginFailed(f"no answer within {seconds:g} s (limits.connect-timeout)") from None
        text = f"{self._where}: logged in again at {session.address}"
        log.debug("broker-login-renewed", extra=event(text, setting=str(self._where), broker=str(session.address)))
        session.granted, session.due_at = granted, max(_due_at(began, granted), began + _LEAST_S)

    async def _log_in(self, address: Address, send: Send, before: Granted | None) -> tuple[float, Granted]:
        try:
            material = self._identity.material()
            async with self._turn(address, material):
                exchange = await self._identity.exchange(address)
                mechanism = self._identity.mechanism
                if before is None:
                    talk = log_in(mechanism, exchange, _CLIENT_ID)
                else:
                    talk = log_in_again(before, mechanism, exchange, _CLIENT_ID)
                began = self._now()
                granted = await self._converse(talk, send)
                self._backoff.granted()
                return began, granted
        except LoginRefused as error:
            why = f"{error}: {self._advice(error)}"
            if error.refusal is Refusal.CREDENTIALS:
                self._backoff.refused(material, why)
            raise LoginFailed(why) from error
        except (NoCredentials, OperatorError) as error:
            raise LoginFailed(str(error)) from error
        except RemoteProtocolError as error:
            raise LoginFailed(f"the broker's answer cannot be read: {error}") from error

    @asynccontextmanager
    async def _turn(self, address: Address, material: bytes) -> AsyncIterator[None]:
        """One login at a time for a broker, until one was granted. Raises LoginFailed while held back."""
        self._require_patience(material)
        if self._backoff.is_good:
            yield
            return
        async with self._gates.setdefault(address, trio.Lock()):
            self._require_patience(material)
            yield

    def _require_patience(self, material: bytes) -> None:
        why = self._backoff.held_back(material)
        if why is not None:
            raise LoginFailed(why)

    async def _converse(self, talk: Talk, send: Send) -> Granted:
        answer: Buffer | None = None
        while True:
            if self._identity.blocks(answer):
                step = await in_thread(partial(_step, talk, answer))
            else:
                step = _step(talk, answer)
            if isinstance(step, Granted):
                return step
            answer = await send(step)

    def _advice(self, error: LoginRefused) -> str:
        match error.refusal:
            case Refusal.MECHANISM:
                return f"set {self._where.named('mechanism')} to one of these"
            case Refusal.NO_SASL:
                return f"use the address of its SASL port, or remove {self._where.named()}"
            case _:
                return self._identity.advice(error)


class BrokerSession:
    """One connection's login. `due_at`: when it must log in again, in trio's time; infinite: never."""

    __slots__ = ("_login", "address", "due_at", "granted")

    def __init__(self, login: BrokerLogin, address: Address, granted: Granted, due_at: float) -> None:
        self._login = login
        self.address = address
        self.granted = granted
        self.due_at = due_at

    async def renew(self, send: Send) -> None:
        """Over the same connection, without other requests in flight. Raises LoginFailed, and what `send` raises."""
        await self._login.again(self, send)


def _due_at(began: float, granted: Granted) -> float:
    return began + granted.session_ms / 1000 * _USED_UP if granted.session_ms > 0 else math.inf


def _step(talk: Talk, answer: Buffer | None) -> bytes | Granted:
    """The next request, or the result: StopIteration cannot leave a thread."""
    try:
        return talk.send(answer)  # type: ignore[arg-type]
    except StopIteration as end:
        granted: Granted = end.value
        return granted
