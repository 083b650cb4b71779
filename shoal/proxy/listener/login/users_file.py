"""The users file of a listener, read again when it changes. A broken new file is one error, and the old one stays."""

from __future__ import annotations

import logging
import math
import stat
from typing import TYPE_CHECKING

import trio

from shoal.protocol.sasl.users import BadUsers, Users, read_users
from shoal.proxy.errors import OperatorError
from shoal.proxy.reread import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["UsersFile"]

log = logging.getLogger("shoal.login")

_CHECK_SECONDS = 1.0

_Mark = tuple[int, int, int]


class UsersFile:
    """Raises OperatorError if it cannot be read at the start. `clock`: seconds, monotonic."""

    def __init__(self, path: Path, listener: str, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._path = path
        self._listener = listener
        self._now = clock
        self._check_at = -math.inf
        self._mark: _Mark | None = None
        try:
            self._users = self._read()
        except _Unusable as error:
            raise OperatorError.of(f"listener {listener!r}: users", f"{path}: {error}") from None

    @property
    def users(self) -> Users:
        """As in the file now, or some second ago."""
        now = self._now()
        if now >= self._check_at:
            self._check_at = now + _CHECK_SECONDS
            self._reload()
        return self._users

    def _reload(self) -> None:
        before = self._mark
        try:
            if self._changed():
                self._users = self._read()
                log.info("listener %r: %s has changed: %d users", self._listener, self._path, len(self._users.hashes))
        except _Unusable as error:
            if self._mark != before:
                log.error("listener %r: %s: %s: the users from before stay", self._listener, self._path, error)

    def reread(self) -> Outcome:
        """Read it now, changed or not."""
        before = self._users
        try:
            self._users = self._read()
        except _Unusable as error:
            log.error("listener %r: %s: %s: the users from before stay", self._listener, self._path, error)
            return Outcome.REFUSED
        return Outcome.UNCHANGED if self._users == before else Outcome.LOADED

    def _changed(self) -> bool:
        try:
            return _mark_of(self._path) != self._mark
        except OSError as error:
            self._note((0, 0, error.errno or 0))
            raise _Unusable(f"cannot be read: {error.strerror}") from None

    def _read(self) -> Users:
        try:
            self._note(_mark_of(self._path))
            if stat.S_IMODE(self._path.stat().st_mode) & stat.S_IRWXO:
                raise _Unusable(f"others can read or change it: chmod 600 {self._path}")
            return read_users(self._path.read_text(encoding="utf-8"))
        except OSError as error:
            raise _Unusable(f"cannot be read: {error.strerror}; shoal users add makes it") from None
        except UnicodeDecodeError:
            raise _Unusable("cannot be read: it is not UTF-8 text") from None
        except BadUsers as error:
            raise _Unusable(str(error)) from None

    def _note(self, mark: _Mark) -> None:
        self._mark = mark


class _Unusable(Exception):
    """Why the file cannot be used."""


def _mark_of(path: Path) -> _Mark:
    """Another one for every new content; a link is followed."""
    found = path.stat()
    return found.st_ino, found.st_ctime_ns, found.st_size
