"""Settings that work, but perhaps not as meant: warnings of `shoal check` and of a start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.config.security import ClientAuth

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.config.settings import ListenerSettings, Settings

__all__ = ["doubts"]


def doubts(settings: Settings) -> Iterator[str]:
    for listener in settings.listeners:
        for key, what in _of_principals(listener):
            yield f"listener {listener.name!r}: {key}: {what}"


def _of_principals(listener: ListenerSettings) -> Iterator[tuple[str, str]]:
    allowed = listener.access.principals
    if "*" in allowed:
        yield (
            "access.principals",
            'names are compared exactly, and "*" is no pattern: to let all in, remove the key',
        )
    is_optional = listener.tls is not None and listener.tls.client_auth is ClientAuth.OPTIONAL
    if is_optional and listener.sasl is None and "*" in listener.principals and not allowed:
        yield (
            "principals",
            f'with client-auth = "optional", clients without a certificate get the credentials of "*" '
            f'("{listener.principals["*"]}") as well: if they must not, set client-auth = "required"',
        )
