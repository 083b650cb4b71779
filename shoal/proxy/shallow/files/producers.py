"""The file with the sequence map of an unwrap listener (protocol/shallow/unwrap/sequences/slots.py), over restarts.

    4096 bytes   lines: file type and version; cluster id; number of slots; boot id of the machine when it was written,
                 or that it was closed in order; the rest is zeros
    slots

The map is in memory; every change is also written here before anything is sent. The write goes to the page cache, so a
killed Shoal finds all of it again without waiting for the disk. If the machine crashes, some pages may be older than
others, and an old sequence could give a batch the number of another one. So a file that was neither closed in order nor
written since this boot is replaced by a new one.

The file is not mapped: a store to a page without disk space, or after the end of a truncated file, would kill the
process (SIGBUS). Its space is allocated when it is created. That is not enough everywhere (copy-on-write file systems
need space for every write), and disks fail: then the file is emptied, because it is out of date, and no longer used.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shoal.protocol.shallow.unwrap.mirror_producers import DEFAULT_SLOTS
from shoal.protocol.shallow.unwrap.sequences.slots import SLOT_SIZE
from shoal.proxy.cluster.state_files import NotOurs, set_aside
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable

    from shoal.protocol.wire.crc import Buffer

__all__ = ["ProducersFile"]

log = logging.getLogger("shoal.unwrap")

VERSION = 2
_READABLE = (1, VERSION)  # 1 had neither cluster nor slots
_HEAD = 4096
_PIECE = 64 * SLOT_SIZE
_MODE = 0o644
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MAGIC = b"shoal producers "
_CLOSED = "closed in order"
_SLOTS_OF_1 = 16_384
_FIRST = re.compile(rb"shoal producers (\d{1,9})\n")
# File systems that cannot allocate space in advance; zeros are written instead.
_CANNOT_ALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_LOST = "a restart of Shoal makes exactly-once mirrors abort their transactions"


class _Head(NamedTuple):
    written: str  # the boot id when it was written, or _CLOSED
    slots: int
    cluster: str | None = None

    def encode(self) -> bytes:
        cluster = [f"cluster {self.cluster}"] if self.cluster else []
        lines = [f"{_MAGIC.decode()}{VERSION}", *cluster, f"slots {self.slots}", self.written]
        return "".join(f"{line}\n" for line in lines).encode().ljust(_HEAD, b"\0")


class _Unusable(Exception):
    """A file of Shoal's that cannot be used; the message says why."""


class ProducersFile:
    """`slots` is the memory of the map; `write` stores each changed piece of it.

    Without a path, or if the file cannot be used, `slots` lasts as long as the process. A file with more slots than
    requested keeps them.
    """

    def __init__(
        self,
        listener: str,
        path: Path | None,
        *,
        slots: int = DEFAULT_SLOTS,
        gave_up: Callable[[], None] = lambda: None,
        boot: Path = _BOOT,
    ) -> None:
        self.slots = bytearray(slots * SLOT_SIZE)
        self._gave_up = gave_up
        self._listener = listener
        self._path = path
        self._fd: int | None = None  # with the lock
        self._is_ours = False  # the file's content is this map
        self._is_kept = False  # changes are written to the file
        self._head = _Head(_this_boot(boot), slots)
        if path is not None:
            self._begin(path)

    @property
    def cluster(self) -> str | None:
        """The id of the map's cluster; None: unknown."""
        return self._head.cluster

    def _begin(self, path: Path) -> None:
        """Raises OperatorError."""
        try:
            self._open(path)
        except BlockingIOError:
            self._let_go()
            what = f"{path} is in use by another process: has it ended? Or give each a state-dir of its own"
            raise OperatorError.of(f"listener {self._listener!r}", what) from None
        except NotOurs as error:
            self._let_go()
            raise OperatorError.of(f"listener {self._listener!r}", str(error)) from None
        except OSError as error:
            self._give_up(error)
        else:
            self._is_kept = True

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock(path)
        assert self._fd is not None
        if os.fstat(self._fd).st_size:
            try:
                self._load(self._fd)
            except _Unusable as error:
                self._put_away(path, str(error))
                self._lock(path)
            else:
                self._is_ours = True
                self._take_room()
                self._put_head()
                self._sync()
                text = f"listener {self._listener!r}: loaded {path}"
                log.info("producers-file-loaded", extra=event(text, listener=self._listener, file=str(path)))
                return
        self._is_ours = True
        self._put_head()
        self._sync()  # the head must be on disk even if the machine crashes before the rest is
        self._take_room()
        text = f"listener {self._listener!r}: new: {path}"
        log.info("producers-file-new", extra=event(text, listener=self._listener, file=str(path)))

    def _lock(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _load(self, fd: int) -> None:
        """Raises NotOurs, _Unusable."""
        found = _read_head(os.pread(fd, _HEAD, 0), self._path)
        if found.written not in (self._head.written, _CLOSED):
            raise _Unusable("the machine has stopped since, before it was closed: parts of it may be too old")
        if os.fstat(fd).st_size < _HEAD + found.slots * SLOT_SIZE:
            raise _Unusable(f"it has ended before its {found.slots} slots have")
        slots = bytearray(max(self._head.slots, found.slots) * SLOT_SIZE)
        for at in range(0, found.slots * SLOT_SIZE, _PIECE):
            piece = os.pread(fd, min(_PIECE, found.slots * SLOT_SIZE - at), _HEAD + at)
            if piece.strip(b"\0"):  # zeros need no memory, and most of a new file is zeros
                slots[at : at + len(piece)] = piece
        self.slots = slots
        self._head = _Head(self._head.written, len(slots) // SLOT_SIZE, found.cluster)

    def _put_head(self) -> None:
        assert self._fd is not None
        if os.pwrite(self._fd, self._head.encode(), 0) < _HEAD:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _sync(self) -> None:
        assert self._fd is not None
        os.fsync(self._fd)

    def _take_room(self) -> None:
        assert self._fd is not None
        size, wanted = os.fstat(self._fd).st_size, _HEAD + len(self.slots)
        if size >= wanted:
            return
        try:
            os.posix_fallocate(self._fd, size, wanted - size)
        except OSError as error:
            if error.errno not in _CANNOT_ALLOCATE:
                raise
            while size < wanted:
                size += os.pwrite(self._fd, bytes(min(_PIECE, wanted - size)), size)

    def write(self, at: int, piece: Buffer) -> None:
        """`slots` has `piece` at `at` now."""
        if self._fd is None or not self._is_kept:
            return
        try:
            if os.pwrite(self._fd, piece, _HEAD + at) < len(piece):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._give_up(error)

    def of(self, cluster: str) -> bool:
        """The listener's cluster is known now; -> whether the map was of another one.

        Then the file is set aside, and `slots` are empty. May raise OperatorError.
        """
        known = self._head.cluster
        if cluster == known:
            return False
        self._head = self._head._replace(cluster=cluster)
        if known is None:
            self._put_head_safely()
            return False
        self.slots = bytearray(len(self.slots))
        if self._is_kept and self._path is not None:
            self._begin_anew(self._path, f"of cluster {known}, and this is {cluster}")
        return True

    def _put_head_safely(self) -> None:
        if self._is_kept:
            try:
                self._put_head()
            except OSError as error:
                self._give_up(error)

    def _begin_anew(self, path: Path, why: str) -> None:
        self._is_kept = self._is_ours = False
        try:
            self._put_away(path, why)
            self._begin(path)
        except OperatorError:  # another process has just created one
            self._give_up(FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)))
        except OSError as error:
            self._give_up(error)

    def _put_away(self, path: Path, why: str) -> None:
        aside = set_aside(path)
        self._let_go()
        text = f"listener {self._listener!r}: discarded {path} ({why}), kept as {aside.name}: {_LOST}"
        values = event(text, listener=self._listener, file=str(path), kept_as=aside.name, error=why)
        log.warning("producers-file-discarded", extra=values)

    def _give_up(self, error: OSError) -> None:
        """Continue in memory only. The file is out of date from now on; its lock is kept."""
        self._is_kept = False
        self._gave_up()
        left = ""
        try:
            self._make_useless()
        except OSError:
            left = ". Remove the file before the next start: it is out of date, and cannot be emptied"
        why = error.strerror or str(error)
        text = (
            f"listener {self._listener!r}: cannot write {self._path} ({why}): Shoal goes on without it, and {_LOST}. "
            f"Make room, or choose another state-dir, and restart Shoal{left}"
        )
        values = event(text, listener=self._listener, file=str(self._path), error=why)
        log.error("producers-file-not-written", extra=values)

    def _make_useless(self) -> None:
        """Raises OSError."""
        assert self._path is not None
        if self._is_ours and self._fd is not None:
            os.ftruncate(self._fd, 0)
        elif self._path.exists():
            set_aside(self._path)

    def close(self) -> None:
        """Release the file for another process, on this or another machine. Later changes are only in memory."""
        if self._is_kept:
            with suppress(OSError):  # then the next start finds it not closed
                self._sync()
                self._head = self._head._replace(written=_CLOSED)
                self._put_head()
                self._sync()
        self._is_kept = False
        self._let_go()

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)  # releases the lock
            self._fd = None


def _read_head(head: bytes, path: Path | None) -> _Head:
    """Raises NotOurs, _Unusable."""
    assert path is not None
    first = _FIRST.match(head)
    if first is None:
        raise NotOurs(path, "a file of the sequence numbers of mirrors")
    if int(first[1]) not in _READABLE:
        raise _Unusable(f"it is of version {int(first[1])}, and this Shoal writes {VERSION}")
    lines = head[first.end() :].rstrip(b"\0").decode("ascii", "replace").splitlines()
    said = dict(line.split(" ", 1) for line in lines[:-1] if " " in line)
    slots = said.get("slots", str(_SLOTS_OF_1) if int(first[1]) == 1 else "")
    if not lines or not slots.isdecimal():
        raise _Unusable("its head is damaged")
    return _Head(lines[-1], int(slots), said.get("cluster"))


def _this_boot(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # not Linux
        return f"an unknown boot, of process {os.getpid()}"
