"""A file that is read again when it changes: the users and the keys of a listener.

It is looked at when its value is wanted, at most once a second. A wrong new file is one error in the log, and the value
from before stays. Certificates are another matter (`net/tls/reload.py`): several files that must fit each other.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.config.reread import Outcome, identity_of
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["WatchedFile"]

log = logging.getLogger("shoal.login")

_CHECK_SECONDS = 1.0


class Counted(Protocol):
    def __len__(self) -> int: ...


T = TypeVar("T", bound=Counted)


class WatchedFile(Generic[T]):
    """`where`: the setting; `what`: "users". `read` raises OperatorError, and so does the first time.

    `clock`: seconds, monotonic.
    """

    def __init__(
        self,
        path: Path,
        where: str,
        what: str,
        read: Callable[[Path, str], T],
        *,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self._path = path
        self._where = where
        self._what = what
        self._read = read
        self._now = clock
        self._check_at = -math.inf
        self._identity = identity_of(path)
        self._value = read(path, where)

    @property
    def value(self) -> T:
        """As in the file now, or a second ago."""
        now = self._now()
        if now >= self._check_at:
            self._check_at = now + _CHECK_SECONDS
            if identity_of(self._path) != self._identity and self.reread() is not Outcome.REFUSED:
                text = f"{self._where}: {self._path} has changed: {len(self._value)} {self._what}"
                values = event(text, setting=self._where, file=str(self._path), entries=len(self._value))
                log.info("file-reloaded", extra=values)
        return self._value

    def reread(self) -> Outcome:
        """Read it now, changed or not."""
        before, self._identity = self._value, identity_of(self._path)
        try:
            self._value = self._read(self._path, self._where)
        except OperatorError as error:
            text = f"{error}: the {self._what} from before stay"
            values = event(text, setting=self._where, file=str(self._path), error=str(error))
            log.error("file-refused", extra=values)
            return Outcome.REFUSED
        return Outcome.UNCHANGED if self._value == before else Outcome.LOADED
