"""The users file, which `shoal users` writes and a listener reads. Only its owner and its group may read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.protocol.sasl.users import BadUsers, Users, read_users
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.secret import read_private_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_users_file"]

_MOST_BYTES: Final = 256 * 1024 * 1024  # a user has less than 1 KiB


def read_users_file(path: Path, where: str) -> Users:
    """`where`: the setting. Raises OperatorError."""
    if not path.exists():
        raise OperatorError.of(where, f"{path} cannot be read: there is no such file; shoal users add makes it")
    try:
        return read_users(read_private_file(path, where, _MOST_BYTES).decode())
    except UnicodeDecodeError:
        raise OperatorError.of(where, f"{path} cannot be read: it is not UTF-8 text") from None
    except BadUsers as error:
        raise OperatorError.of(where, f"{path}: {error}: repair or remove it") from None
