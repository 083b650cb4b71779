"""The files of `[listener.sasl]`, checked without starting anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.proxy.listener.login.key_set import KeySet
from shoal.proxy.listener.login.users_file import read_users_file

if TYPE_CHECKING:
    from shoal.proxy.config.settings import Settings

__all__ = ["require_login_files"]


def require_login_files(settings: Settings) -> None:
    """Raises OperatorError for one that cannot be used."""
    for listener in settings.listeners:
        if listener.sasl is not None and listener.sasl.users is not None:
            read_users_file(listener.sasl.users, f"listener {listener.name!r}: users")
        if listener.sasl is not None and listener.sasl.jwks is not None:
            KeySet(listener.sasl, listener.name)
