"""A client before its login, during it, and after it.

A client is a *stranger* until it has logged in. The frames and the time of a stranger are limited, and so are the
strangers of a listener and of an address (listener/admission.py). Where it logs in:

    at Shoal         with [listener.sasl] (listener/login), or by its certificate, before any byte goes to the broker
    at the broker    `LoginAtBroker` follows the exchange, which passes unchanged; it is done when the broker has
                     accepted the last token
    nowhere          the broker answers an ordinary request of a stranger, so this cluster demands no login

After a login at Shoal the client has a `ClientSession`: a principal, and the credentials that Shoal uses for it at the
broker. The principal of a client that logs in at the broker is known to the broker only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shoal.protocol.sasl.users import ScramHash
    from shoal.proxy.config.settings import Limits, ListenerSettings

__all__ = ["ANY", "ClientSession", "Guest", "LoginAtBroker", "NotAllowed", "credentials_of"]

ANY: Final = "*"


class NotAllowed(Exception):
    """The principal is known, and may not use this listener; the message is for the client as well."""

    def __init__(self, cause: CloseCause, why: str) -> None:
        super().__init__(why)
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSession:
    """`principal`: Kafka's without "User:"; None: the client has none, or only the broker knows it."""

    principal: str | None = None
    credentials: str | None = None  # their name; None: those of [cluster.sasl], or none
    ends_at: float = math.inf  # in trio's time
    hashes: Mapping[str, ScramHash] | None = field(default=None, repr=False)  # None: not a user of the users file


def credentials_of(principal: str | None, settings: ListenerSettings) -> str | None:
    """The name of the credentials for a client that may use the listener. Raises NotAllowed."""
    who = "a client without a principal" if principal is None else f"the principal {principal!r}"
    if settings.access.principals and principal not in settings.access.principals:
        raise NotAllowed(CloseCause.PRINCIPAL_REFUSED, f"{who} may not use this listener (access.principals)")
    table = settings.principals
    if not table:
        return None
    name = table.get(ANY) if principal is None else table.get(principal, table.get(ANY))
    if name is None:
        what = f"no credentials are mapped to {who} ([listener.principals])"
        raise NotAllowed(CloseCause.NO_CREDENTIALS, what)
    return name


class Guest(Protocol):
    """This connection in the listener's counts (listener/admission.py)."""

    @property
    def is_stranger(self) -> bool:
        """It has yet to log in."""

    @property
    def login_by(self) -> float:
        """When a stranger's time is over."""

    def logged_in(self) -> None: ...

    def ended(self, now: float, *, by_broker: bool = False) -> None: ...


class ClusterApi(Protocol):
    @property
    def demands_login(self) -> bool: ...

    def note_login(self, *, is_demanded: bool) -> None: ...


class LoginAtBroker:
    """A stranger's login at the broker. After it, nothing here has an effect.

    `follows`: the client does not log in at Shoal. `done` is called once, after the login.
    """

    def __init__(
        self, guest: Guest, cluster: ClusterApi, limits: Limits, *, follows: bool, done: Callable[[], None]
    ) -> None:
        self._guest = guest
        self._cluster = cluster
        self._limits = limits
        self._follows = follows
        self._done = done
        self.has_begun = False  # the broker takes logins, and the client sends its own
        self._rounds = 1  # SaslAuthenticate answers until the last one
        self._tokens = 0  # answers to tokens without a Kafka header

    def handshake_accepted(self, rounds: int) -> None:
        """The broker has accepted SaslHandshake. `rounds`: of SaslAuthenticate, if these follow."""
        self._cluster.note_login(is_demanded=True)
        self.has_begun = True
        self._rounds = rounds

    def authenticate_accepted(self) -> None:
        """The broker has accepted the token of one SaslAuthenticate request."""
        self._rounds -= 1
        if self._rounds <= 0:
            self._end()

    def token_answered(self, is_last: bool) -> None:
        """The broker has accepted a token that followed SaslHandshake v0."""
        self._tokens += 1
        if is_last:
            self._end()

    def served(self) -> None:
        """The broker has answered an ordinary request."""
        if self._guest.is_stranger:
            self._cluster.note_login(is_demanded=False)
            self._end()

    def check(self, unread_answers: int, now: float) -> tuple[CloseCause, str] | None:
        """Once a second: why the connection must end. `unread_answers`: those that have passed without a route."""
        if not self._guest.is_stranger:
            return None
        if unread_answers > self._tokens:
            self.served()
        elif self._follows and not self._cluster.demands_login:
            self._end()  # another client has shown that none is demanded
        elif now >= self._guest.login_by:
            return CloseCause.LOGIN_TIMEOUT, f"limits.login-timeout = {self._limits.login_timeout:g} s"
        return None

    def _end(self) -> None:
        if self._guest.is_stranger:
            self._guest.logged_in()
            self._done()
