"""Clients log in at a listener: the requests before the login, and the routes after it.

Before it, a client may send ApiVersions, SaslHandshake and SaslAuthenticate, a few frames of a bounded size. Anything
else ends its connection. A refused client learns nothing but that, after a pause (as brokers do), and the log gets a
line at most every `LOG_SECONDS`.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import trio

from shoal.protocol.messages.api_versions import unsupported
from shoal.protocol.sasl.server import MOST_TOKEN_BYTES, Accepted, OAuthBearerServer, PlainServer, ScramServer, Verified
from shoal.protocol.schema.api import API, ApiKey
from shoal.protocol.schema.headers import REQUEST_PREFIX, read_request_header, read_request_prefix
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.proxy.config.quantities import counted
from shoal.proxy.config.reread import Reread
from shoal.proxy.connection.client_session import ClientSession, NotAllowed, credentials_of
from shoal.proxy.connection.pending import EditAnswer, PendingAnswer
from shoal.proxy.connection.routes import ANY_VERSION, Decision, Route, Wait, table
from shoal.proxy.events.logs import event
from shoal.proxy.listener.login.bearer import BearerTokens
from shoal.proxy.listener.login.dialogue import Dialogue, Refusal
from shoal.proxy.listener.login.key_set import KeySet
from shoal.proxy.listener.login.requests import FrameReader
from shoal.proxy.listener.login.users_file import read_users_file
from shoal.proxy.listener.login.versions import BrokerVersions
from shoal.proxy.listener.login.watched_file import WatchedFile
from shoal.proxy.net.transport import SendSide
from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from shoal.protocol.sasl.server import ServerExchange
    from shoal.protocol.sasl.users import Users
    from shoal.protocol.schema.headers import RequestHeader
    from shoal.proxy.config.security import ListenerSasl
    from shoal.proxy.config.settings import ListenerSettings
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.connection.listener_api import ListenerApi
    from shoal.proxy.connection.routes import RouteTable
    from shoal.proxy.listener.login.dialogue import Reply
    from shoal.proxy.net.transport import Buffer, SocketTransport

__all__ = ["ClientLogin"]

log = logging.getLogger("shoal.login")

LOG_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.1  # connection.failed.authentication.delay.ms of a broker
_MOST_REQUESTS: Final = 16  # of one login: SCRAM takes four, and a client may try versions of ApiVersions
_MOST_FRAME: Final = MOST_TOKEN_BYTES + 4096  # each stranger may hold one, so less than login-frame-bytes
_HASHING: Final = 2  # PLAIN passwords at a time, in threads
_NONCE_BYTES: Final = 24
_MOST_NAMED: Final = 10  # users in a log line

_READABLE: Final = {"PLAIN": "passwords of PLAIN", "OAUTHBEARER": "tokens of OAUTHBEARER"}
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_LOGIN_KEYS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


class ClientLogin:
    """One for each listener with `[listener.sasl]`. Raises OperatorError if a file cannot be used."""

    def __init__(
        self,
        settings: ListenerSasl,
        listener: ListenerApi[Connection],
        *,
        tokens: BearerTokens | None = None,
        pause: float = _PAUSE_SECONDS,
    ) -> None:
        self.mechanisms: Sequence[str] = settings.mechanisms
        self._settings = settings
        self._listener = listener
        self._users: WatchedFile[Users] | None = None
        if settings.users is not None:
            where = f"listener {listener.name!r}: users"
            self._users = WatchedFile(settings.users, where, "users", read_users_file)
        needs_tokens = "OAUTHBEARER" in settings.mechanisms
        self._tokens = tokens or (BearerTokens(settings, KeySet(settings, listener.name)) if needs_tokens else None)
        self._versions = BrokerVersions(listener.cluster)
        self._hashing = trio.CapacityLimiter(_HASHING)
        self._pause = pause
        self._unlogged = 0  # refusals since the last line
        _warn_of_plaintext(settings, listener.settings)
        self._again_at: WeakKeyDictionary[Connection, Dialogue] = WeakKeyDictionary()
        own = table(dict.fromkeys(_LOGIN_KEYS, Route(decide=self._decide, handle=self._again)))
        self.routes: RouteTable[Connection] = {**listener.routes, **own}
        self.expired: RouteTable[Connection] = _Expired(own)

    @property
    def _most_frame(self) -> int:
        return min(self._listener.limits.login_frame_bytes, _MOST_FRAME)

    async def keep_fresh(self) -> None:
        """From the start on, so that an issuer that cannot be reached is known before the first client comes."""
        if self._tokens is not None:
            await self._tokens.keep_fresh()

    async def reread(self) -> list[Reread]:
        """Read the files of users and keys now."""
        found, where = [], f"listener {self._listener.name!r}: sasl"
        if self._users is not None:
            found.append(Reread(f"{where}.users", self._users.reread()))
        if self._tokens is not None:
            found.append(Reread(f"{where}.jwks", await self._tokens.reread()))
        return found

    # -- a new connection ------------------------------------------------------------------------------------------

    async def log_in(self, connection: Connection, transport: SocketTransport) -> ClientSession | None:
        """Serve the client until it has logged in. None: it has not, and the connection's cause is noted.

        Raises PeerLost and RemoteProtocolError.
        """
        reader, out = FrameReader(transport, self._most_frame), SendSide(transport)
        dialogue = Dialogue(self)
        for _ in range(_MOST_REQUESTS):
            frame = await reader.next()
            if frame is None:
                connection.note(CloseCause.CLIENT_CLOSED)
                return None
            is_token = dialogue.takes_tokens
            buffers, outcome = await (dialogue.token(frame) if is_token else self._request(connection, dialogue, frame))
            await out.send_all(buffers)
            if isinstance(outcome, Refusal):
                self._refused(connection, outcome)
                return None
            if outcome is not None:
                return outcome
        self._refused(connection, Refusal(why=f"more than {_MOST_REQUESTS} requests"))
        return None

    async def _request(self, connection: Connection, dialogue: Dialogue, frame: bytearray) -> Reply:
        header = read_request_header(frame)
        connection.client_id = header.client_id
        self._listener.clients.read(connection, frame)
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            return await dialogue.handshake(frame, header)
        if header.api_key == ApiKey.SASL_AUTHENTICATE:
            return await dialogue.authenticate(frame, header)
        if header.api_key == ApiKey.API_VERSIONS:
            return await self._api_versions(connection, frame, header), None
        raise RemoteProtocolError(
            f"{_name(header.api_key)} before the client has logged in: set its security.protocol to SASL_PLAINTEXT "
            f"or SASL_SSL, and sasl.mechanism to one of {', '.join(self.mechanisms)}"
        )

    async def _api_versions(self, connection: Connection, frame: bytearray, header: RequestHeader) -> list[Buffer]:
        """The broker's answer, as the client will get it after its login. Raises UpstreamUnreachable."""
        route = connection.routes[ApiKey.API_VERSIONS]
        assert route.decide is not None
        decision = route.decide(connection, memoryview(frame))
        if decision is Decision.HOLD or header.api_version < 0:
            return [unsupported(header.correlation_id)]
        answer = bytearray(await self._versions.answer(connection.node_id, header.api_version))
        answer[4:8] = header.correlation_id.to_bytes(4, "big", signed=True)
        if not isinstance(decision, EditAnswer):
            return [answer]
        entry = PendingAnswer(header.correlation_id, header.api_key, header.api_version, decision)
        edited = decision.edit(connection, entry, answer)
        return [edited] if isinstance(edited, (bytes, bytearray, memoryview)) else list(edited)

    # -- an open connection ----------------------------------------------------------------------------------------

    def _decide(self, connection: Connection, first: memoryview) -> Decision:
        size = read_request_prefix(first)[0]
        if size > self._most_frame:
            raise RemoteProtocolError(f"a login request of {size} bytes: at most {self._most_frame} are allowed")
        return Decision.HOLD

    async def _again(self, connection: Connection, frame: bytearray, header: RequestHeader) -> None:
        assert connection.session is not None
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            dialogue = self._again_at[connection] = Dialogue(self, connection.session)
            buffers, outcome = await dialogue.handshake(frame, header)
        else:
            dialogue = self._again_at.get(connection) or Dialogue(self, connection.session)
            buffers, outcome = await dialogue.authenticate(frame, header)
        if isinstance(outcome, Refusal):
            await _answer_earlier_requests(connection)
        await connection.reply(buffers)
        if isinstance(outcome, Refusal):
            self._refused(connection, outcome)
            connection.requests.use(_NOTHING)  # requests that came in the same packet are of another principal
            connection.drain()
        elif outcome is not None:
            del self._again_at[connection]
            connection.logged_in(outcome)

    def tick(self, connections: Collection[Connection]) -> None:
        """Called every second: end sessions of users that the users file no longer has, or not with these hashes."""
        if self._users is None:
            return
        hashes = self._users.value.hashes
        ended = [
            (connection, session.principal or "")
            for connection in connections
            if (session := connection.session) is not None
            and session.hashes is not None
            and session.hashes != hashes.get(session.principal or "")
        ]
        for connection, _ in ended:
            connection.end_session(CloseCause.USER_CHANGED)
        if ended:
            names = sorted({name for _, name in ended})
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            text = (
                f"listener {self._listener.name!r}: ended {counted(len(ended), 'connection')} of users that are "
                f"removed or have a new password: {', '.join(names[:_MOST_NAMED])}{more}"
            )
            values = event(text, listener=self._listener.name, connections=len(ended), users=len(names))
            log.info("users-cut-off", extra=values)

    # -- for dialogues ---------------------------------------------------------------------------------------------

    def exchange(self, mechanism: str) -> ServerExchange:
        if mechanism == "PLAIN":
            return PlainServer()
        if mechanism == "OAUTHBEARER":
            return OAuthBearerServer()
        assert self._users is not None
        return ScramServer(mechanism, self._users.value, secrets.token_urlsafe(_NONCE_BYTES))

    async def check_password(self, name: str, password: str) -> Verified | str:
        """In a thread: it takes milliseconds."""
        assert self._users is not None
        users = self._users.value
        right = await trio.to_thread.run_sync(
            users.accepts, name, password, limiter=self._hashing, abandon_on_cancel=True
        )
        return Verified(principal=name, hashes=users.hashes[name]) if right else "no such user, or a wrong password"

    async def check_token(self, token: str) -> Verified | str:
        assert self._tokens is not None
        return await self._tokens.verify(token)

    def session(self, accepted: Accepted, before: ClientSession | None) -> tuple[ClientSession, int]:
        principal = accepted.principal
        if before is not None and principal != before.principal:
            what = f"another principal than before: {principal!r}, not {before.principal!r}"
            raise NotAllowed(CloseCause.LOGIN_FAILED, what)
        credentials = credentials_of(principal, self._listener.settings)
        seconds = math.inf if self._settings.session_seconds is None else self._settings.session_seconds
        if accepted.expires_at is not None:
            seconds = max(min(seconds, accepted.expires_at - time.time()), _LEAST_SESSION)
        session = ClientSession(
            principal=principal,
            credentials=credentials,
            ends_at=trio.current_time() + seconds,
            hashes=accepted.hashes,
        )
        return session, 0 if seconds == math.inf else int(seconds * 1000)

    async def pause(self) -> None:
        await trio.sleep(self._pause)

    # -- refusals --------------------------------------------------------------------------------------------------

    def _refused(self, connection: Connection, refusal: Refusal) -> None:
        connection.note(refusal.cause, refusal.why)
        self._unlogged += 1
        if not connection.throttle.is_news(self, LOG_SECONDS):
            return
        others, self._unlogged = self._unlogged - 1, 0
        text = (
            f"listener {self._listener.name!r}: {connection.peer} did not log in ({connection.shown_client_id}, "
            f"mechanism {refusal.mechanism}, user {refusal.name}): {refusal.why}"
        )
        values = event(
            text + (f"; and {others} other logins failed" if others else ""),
            listener=self._listener.name,
            peer=str(connection.peer),
            client_id=connection.client_id,
            mechanism=refusal.mechanism,
            user=refusal.name,
            cause=refusal.cause.name.lower(),
            detail=refusal.why,
            left_out=others or None,
        )
        log.warning("login-refused", extra=values)


_LEAST_SESSION: Final = 1.0  # of a token that expires while it is checked


def _warn_of_plaintext(sasl: ListenerSasl, listener: ListenerSettings) -> None:
    readable = [_READABLE[mechanism] for mechanism in sasl.mechanisms if mechanism in _READABLE]
    if readable and listener.tls is None and listener.host not in _LOOPBACK:
        text = (
            f"listener {listener.name!r}: without [listener.tls], {' and '.join(readable)} can be read on the network"
        )
        log.warning("login-unencrypted", extra=event(text, listener=listener.name))


def _name(key: int) -> str:
    return API[key].name if key in API else f"API key {key}"


class _Expired(dict[int, Route[Any]]):
    """The routes of a connection whose session has ended: only a new login may follow, or nothing."""

    def get(self, key: int, default: object = None) -> Route[Any]:
        return super().get(key, _REFUSED)


def _refuse(connection: Connection, first: memoryview) -> Wait:
    assert len(first) >= REQUEST_PREFIX
    connection.note(CloseCause.SESSION_EXPIRED, f"{_name(read_request_prefix(first)[1])} after its end")
    return Wait(partial(_end, connection))


async def _end(connection: Connection) -> None:
    await _answer_earlier_requests(connection)
    raise RemoteProtocolError("the session has expired")


async def _answer_earlier_requests(connection: Connection) -> None:
    """As a broker, which reads no request before it has sent the answer to the one before."""
    with trio.move_on_after(connection.limits.drain_seconds):
        await connection.requests.until_quiet()


_REFUSED: Route[Connection] = Route(since=ANY_VERSION, decide=_refuse)
_NOTHING: RouteTable[Connection] = _Expired()
