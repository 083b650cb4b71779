"""Settings that work, but perhaps not as meant: warnings of `shoal check` and of a start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.config.parse import is_loopback
from shoal.proxy.config.security import ClientAuth
from shoal.proxy.config.shares import is_pinned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal.proxy.config.settings import ListenerSettings, Settings

__all__ = ["doubts"]


def doubts(settings: Settings) -> Iterator[str]:
    if (admin := settings.admin.listen) is not None and not is_loopback(admin.host):
        yield (
            f"admin.listen: {admin} may be reached from other machines, and has no login: every client that reaches it "
            "reads the status and the configuration, without its secrets (docs/security.md)"
        )
    if settings.workers > 1 and all(map(is_pinned, settings.listeners)):
        yield (
            f"workers: {settings.workers} processes, but every listener is a mirror's, and one worker serves all of "
            "these: the others have nothing to do, and workers = 1 is enough"
        )
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
