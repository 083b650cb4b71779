"""The state directory belongs to one Shoal at a time.

    shoal.lock     locked (flock) while a Shoal runs: a crash leaves no lock. It has the process id, for people
    takeover.sock  where a Shoal that takes over asks for the ports; only for this user

At a takeover the descriptors of both are passed on: the lock is never free in between, and the socket keeps its path.
The path of a Unix socket has at most 107 bytes, and a directory may have a longer one: so it is opened through /proc.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from shoal.proxy.config.problems import OperatorError
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["InUse", "StateDirectory", "is_locked", "short_path"]

log = logging.getLogger("shoal.server")

_LOCK, _SOCKET = "shoal.lock", "takeover.sock"
_MODE = 0o644
_OWN_MODE = 0o600
_WAITING = 16  # Shoals that want to take over


class InUse(Exception):
    """Another Shoal has the directory. `pid`: its process id, if it could write it."""

    def __init__(self, pid: str) -> None:
        super().__init__(f"process {pid}" if pid else "another process")
        self.pid = pid


class StateDirectory:
    """This process's own until `give_up` or `close`."""

    def __init__(self, path: Path, lock: int | None, control: socket.socket | None) -> None:
        self.path = path
        self.lock = lock
        self.control = control
        self._is_ours = True

    @classmethod
    def take(cls, path: Path) -> StateDirectory:
        """Raises InUse and OperatorError. What the file system cannot do is logged, and is missing."""
        try:
            lock = _locked(path)
        except PermissionError as error:
            what = f"{path / _LOCK}: {error.strerror}: run Shoal as the user of this directory, or choose another one"
            raise OperatorError.of("state-dir", what) from None
        except BlockingIOError:
            raise InUse(_pid(path)) from None
        except OSError as error:
            text = f"state-dir: {path} cannot be locked ({error.strerror}): a second Shoal in it would not be noticed"
            log.warning("state-dir-not-locked", extra=event(text, directory=str(path), error=error.strerror))
            return cls(path, None, None)
        directory = cls(path, lock, _control(path))
        directory.note_pid()
        return directory

    @classmethod
    def inherited(cls, path: Path, lock: int, control: socket.socket) -> StateDirectory:
        """Still that of the Shoal before, until `note_pid`."""
        directory = cls(path, lock, control)
        directory._is_ours = False
        return directory

    @property
    def is_ours(self) -> bool:
        return self._is_ours

    def note_pid(self) -> None:
        """This process has it."""
        self._is_ours = True
        if self.lock is not None:
            with suppress(OSError):  # a full disk: only the message to a second Shoal lacks the number
                os.ftruncate(self.lock, 0)
                os.pwrite(self.lock, f"{os.getpid()}\n".encode(), 0)

    def give_up(self) -> None:
        """Another process has it now. This one keeps the lock as long as it has files here, even if the other ends."""
        self._is_ours = False
        self._close_control()

    def close(self) -> None:
        """The lock is released when all processes that have its descriptor have closed it."""
        self._close_control()
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def _close_control(self) -> None:
        if self.control is not None:
            if self._is_ours:
                with suppress(OSError):
                    (self.path / _SOCKET).unlink()
            self.control.close()
            self.control = None


def _locked(path: Path) -> int:
    """Raises OSError."""
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def is_locked(file: Path) -> bool:
    """By another process. False for one that cannot be opened."""
    try:
        with file.open("r+b") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _pid(path: Path) -> str:
    try:
        text = (path / _LOCK).read_text("ascii", "replace").strip()
    except OSError:
        return ""
    return text if text.isdecimal() else ""


def _control(path: Path) -> socket.socket | None:
    """The directory is locked: a socket in it is that of a Shoal which was killed."""
    name = path / _SOCKET
    try:
        if name.exists():
            if not stat.S_ISSOCK(name.lstat().st_mode):
                raise FileExistsError(17, "it is not Shoal's")
            name.unlink()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            os.fchmod(sock.fileno(), _OWN_MODE)
            sock.setblocking(False)
            with short_path(path) as address:
                sock.bind(address)
            sock.listen(_WAITING)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        text = f"cannot listen on {name} ({error.strerror}): no other Shoal can take over (--takeover)"
        log.warning("takeover-impossible", extra=event(text, file=str(name), error=error.strerror))
        return None
    return sock


@contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """An address for the socket of this directory, of any length. Raises OSError."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{_SOCKET}"
    finally:
        os.close(opened)
