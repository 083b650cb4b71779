"""The log of appended batches (protocol/shallow/unwrap/appended_log.py) in a file, over restarts and kills.

    2048 bytes   "shoal deliveries 2", padded
    2048 bytes   each: a row of JSON, padded, with its CRC-32 at the end; the row of an item is written again with every
                 change of it

When Shoal ends, a part of a mirror's request may be appended: the broker refused the next batch, or did not answer, or
Shoal was killed. The mirror retries at the next Shoal, which must not append that part again. A row is written after
the broker has answered, so it is true whatever happens later; if later ones are missing, more is appended twice. A
write is within a page, which a kill does not divide; a crash of the machine may, and then the CRC is wrong. An
envelope's key identifies one copy, so no row applies to another one.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import zlib
from collections import OrderedDict
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias

from shoal.protocol.shallow.envelope import EnvelopeKey, decode_key, encode_key
from shoal.protocol.shallow.unwrap.appended_log import MAX_DELIVERIES, Appended, AppendedLog, Refusal
from shoal.protocol.wire.errors import RemoteProtocolError
from shoal.protocol.wire.types import TopicPartition
from shoal.proxy.events.logs import event
from shoal.proxy.shallow.files.kept_lines import KeptLines
from shoal.proxy.shallow.files.open_file import OpenFile

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

__all__ = ["DeliveriesLog", "decode_identity", "encode_identity"]

log = logging.getLogger("shoal.unwrap")

_FIRST = "shoal deliveries 2"
_FORMER = "shoal deliveries 1"  # written at an orderly stop only
_LOST = "an envelope that is appended in part may be appended twice after a restart"
_ROW = 2048  # two names of topics have up to 249 characters each, one of them in hexadecimal digits
_MAX_ROWS = 4096  # a mirror retries what it has in flight, which are some hundred envelopes for each of its tasks
_MAX_TEXT = 60  # characters of a refusal's text that are kept
_TAIL = 9  # bytes: the CRC-32 in hexadecimal digits, and a line feed
_HEADER = _FIRST.encode().ljust(_ROW - 1) + b"\n"

_Item: TypeAlias = "tuple[TopicPartition, Hashable]"
_Row: TypeAlias = "tuple[TopicPartition, Hashable, Appended]"


class DeliveriesLog(AppendedLog, OpenFile):
    """In memory only until `open`, and after an error, which is logged and reported to `failed`."""

    def __init__(self, limit: int = MAX_DELIVERIES, *, max_rows: int = _MAX_ROWS) -> None:
        super().__init__(limit)
        self._max_rows = max_rows
        self._failed: Callable[[], None] = lambda: None
        self._path: Path | None = None
        self._rows: OrderedDict[_Item, tuple[int, str]] = OrderedDict()  # the place of each, and its row's beginning
        self._free: list[int] = []  # places before the end that have no row
        self._end = 1
        self._ages = count()  # of rows, so that the oldest is known in the next process, too

    def open(self, path: Path, failed: Callable[[], None] = lambda: None) -> None:
        """Load the file, and write every change to it from now on."""
        self._path, self._failed = path, failed
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            former = self._take_former(path)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._load(self._fd)
            for row in former:
                self.record(*row)
        except (OSError, ValueError) as error:
            self._let_go()
            failed()
            text = f"cannot use {path} ({error}): {_LOST}"
            log.warning("state-file-not-read", extra=event(text, file=str(path), error=str(error)))

    def _take_former(self, path: Path) -> list[_Row]:
        with suppress(FileNotFoundError), path.open("rb") as file:
            is_former = file.read(len(_FORMER) + 1) == f"{_FORMER}\n".encode()
        if not path.exists() or not is_former:
            return []
        return KeptLines(path=path, first=_FORMER, lost=_LOST, failed=self._failed).take(_decode)

    def _load(self, fd: int) -> None:
        """Raises ValueError for a file that is not Shoal's, and OSError."""
        content = os.pread(fd, (1 + self._max_rows) * _ROW, 0)
        first = content[:_ROW]
        if not _HEADER.startswith(first) and first.strip(b"\0"):
            raise ValueError("it is not Shoal's: move it away, or choose another state-dir")
        if first != _HEADER:  # new, or the machine has crashed
            os.pwrite(fd, _HEADER, 0)
        self._end = max(len(content) // _ROW, 1)
        found = list[tuple[int, int, _Row]]()
        for place in range(1, self._end):
            row = content[place * _ROW : (place + 1) * _ROW]
            try:
                age, *said = _checked(row)
                found.append((int(age), place, _decode(said)))
            except (ValueError, TypeError, OverflowError, RemoteProtocolError, RecursionError):
                self._free.append(place)  # it is blank, or the machine has crashed
        for age, place, (target, identity, done) in sorted(found, key=lambda one: one[0]):
            if (target, identity) in self._rows:
                self._blank((target, identity))
            self._rows[target, identity] = place, _beginning(target, identity)
            self._ages = count(age + 1)
            super().record(target, identity, done)

    def record(self, partition: TopicPartition, identity: Hashable, delivered: Appended) -> None:
        super().record(partition, identity, delivered)
        if self._fd is not None:
            place, beginning = self._place((partition, identity))
            self._write(place, f"[{next(self._ages)}, {beginning}{json.dumps(_done(delivered))[1:]}")

    def _place(self, item: _Item) -> tuple[int, str]:
        known = self._rows.get(item)
        if known is not None:
            self._rows.move_to_end(item)
            return known
        if self._free:
            place = self._free.pop()
        elif self._end <= self._max_rows:
            place, self._end = self._end, self._end + 1
        else:
            place, _ = self._rows.popitem(last=False)[1]
        self._rows[item] = new = place, _beginning(*item)
        return new

    def _write(self, place: int, row: str) -> None:
        assert self._fd is not None
        try:
            if os.pwrite(self._fd, _padded(row), place * _ROW) < _ROW:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._let_go()
            self._failed()
            text = f"cannot write {self._path} ({error}): {_LOST}: make room, or choose another state-dir"
            log.warning("state-file-not-written", extra=event(text, file=str(self._path), error=str(error)))

    def forget(self, topic: str) -> None:
        super().forget(topic)
        for item in [item for item in self._rows if item[0].topic == topic]:
            self._blank(item)

    def for_another_cluster(self) -> DeliveriesLog:
        """An empty one with this file. What is under way goes on with this one, in memory, and says nothing of the new
        cluster.
        """
        for item in list(self._rows):
            self._blank(item)
        new = DeliveriesLog(self._limit, max_rows=self._max_rows)
        new._path, new._failed, new._free, new._end = self._path, self._failed, self._free, self._end
        new._ages = self._ages
        new._fd, self._fd = self._fd, None
        return new

    def _blank(self, item: _Item) -> None:
        place, _ = self._rows.pop(item)
        self._free.append(place)
        if self._fd is not None:
            self._write(place, "")


def _padded(row: str) -> bytes:
    """Too long a row is no row."""
    encoded = row.encode()
    padded = (encoded if len(encoded) <= _ROW - _TAIL else b"").ljust(_ROW - _TAIL)
    return b"%b%08x\n" % (padded, zlib.crc32(padded))


def _checked(row: bytes) -> Any:
    """Raises ValueError."""
    if row[-_TAIL:] != b"%08x\n" % zlib.crc32(row[:-_TAIL]):
        raise ValueError("it is damaged")
    return json.loads(row[:-_TAIL])


def _beginning(target: TopicPartition, identity: Hashable) -> str:
    """A row between its age and its numbers."""
    return f"{json.dumps([*target, *encode_identity(identity)])[1:-1]}, "


def _done(delivered: Appended) -> list[object]:
    refusal = delivered.refusal
    if refusal is None:
        return [*delivered]
    texts = [text[:_MAX_TEXT].encode("ascii", "replace").decode() for text in refusal.texts]  # an escape has 6 bytes
    return [*delivered[:4], [refusal.error_code, texts, refusal.batches]]


def _decode(row: Any) -> _Row:
    """Raises ValueError, TypeError, OverflowError, RemoteProtocolError."""
    topic, partition, kind, said, *numbers, refusal = row
    batches, records, first, last = map(int, numbers)
    identity = decode_identity(kind, said)
    most = identity.batches if isinstance(identity, EnvelopeKey) else batches
    if not 0 <= batches <= most or records < 0:
        raise ValueError("more than the item has")
    done = Appended(batches, records, first, last, _refusal(refusal))
    return TopicPartition(str(topic), int(partition)), identity, done


def _refusal(said: list[Any] | None) -> Refusal | None:
    if said is None:
        return None
    error_code, texts, batches = said
    return Refusal(int(error_code), tuple(map(str, texts)), int(batches))


def encode_identity(identity: Hashable) -> tuple[str, str]:
    """The identity of an item of a plan: an envelope's key, or the digest of plain records beside an envelope."""
    if isinstance(identity, EnvelopeKey):
        return "envelope", encode_key(identity).hex()
    assert isinstance(identity, bytes)
    return "plain", identity.hex()


def decode_identity(kind: str, said: str) -> Hashable:
    """Raises ValueError, TypeError, RemoteProtocolError."""
    identity = decode_key(bytes.fromhex(said)) if kind == "envelope" else bytes.fromhex(said)
    if identity is None:
        raise ValueError("a key that is damaged")
    return identity
