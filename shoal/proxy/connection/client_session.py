"""What a client is to Shoal after its login: a principal, and the credentials that Shoal uses for it at the broker."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shoal.proxy.statistics import CloseCause

if TYPE_CHECKING:
    from shoal.proxy.config.settings import ListenerSettings

__all__ = ["ANY", "ClientSession", "NotAllowed", "credentials_of"]

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
