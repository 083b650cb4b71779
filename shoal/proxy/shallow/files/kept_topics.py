"""The file of a wrap listener with the topics that it has begun to mirror with their offsets.

    NAME.same-offsets    a first line, then a topic per line as JSON; lines are only appended

Such a topic never becomes an ordinary one (`without-agent`): the mirror's own position may be ahead of the copy.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from shoal.proxy.cluster.state_files import NotOurs, sync_directory, unreadable
from shoal.proxy.config.problems import OperatorError
from shoal.proxy.events.logs import event

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["MOST_TOPICS", "KeptTopics"]

log = logging.getLogger("shoal.mirror")

MOST_TOPICS = 100_000
"""250 bytes each; above it topics are not kept."""
_FIRST = b"shoal same-offsets 1"


class KeptTopics:
    """`path` None: nothing is kept. Raises OperatorError unless the file is Shoal's and readable."""

    def __init__(self, listener: str, path: Path | None, failed: Callable[[], None]) -> None:
        self._listener = listener
        self._path = path
        self._failed = failed
        self._has_failed = False
        self._topics = set[str]()
        self.read()

    def read(self) -> None:
        """Also what others have added since: a process that is taken over from, or this one before a reload.

        Raises OperatorError.
        """
        if self._path is not None:
            try:
                self._load(self._path)
            except OSError as error:
                raise OperatorError.of(f"listener {self._listener!r}", unreadable(self._path, error)) from None

    def _load(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            first, *lines = path.read_bytes().split(b"\n")
            if not lines and _FIRST.startswith(first):
                return  # a crash, or a full disk: the first line was not written whole, and nothing follows it
            if first != _FIRST:
                what = str(NotOurs(path, "a file of topics that keep their offsets"))
                raise OperatorError.of(f"listener {self._listener!r}", what)
            for line in lines:
                with suppress(ValueError):  # not written whole: then nothing of the topic was given yet
                    self._topics.add(str(json.loads(line)))

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def add(self, topic: str, *, sync: bool = True) -> bool:
        """Before a mirror gets anything of it. `sync`: on the disk when it returns. False: it could not be kept."""
        if topic in self._topics:
            return True
        if self._path is None or len(self._topics) >= MOST_TOPICS:
            return False
        try:
            self._append(self._path, topic, sync=sync)
        except OSError as error:
            self._failed()
            if not self._has_failed:
                self._has_failed = True
                why = error.strerror or str(error)
                text = f"listener {self._listener!r}: cannot write {self._path} ({why}): make room, or choose another "
                text += 'state-dir; with without-agent = "ordinary" new topics wait'
                values = event(text, listener=self._listener, file=str(self._path), error=why)
                log.warning("same-offsets-not-kept", extra=values)
            return False
        self._topics.add(topic)
        return True

    @staticmethod
    def _append(path: Path, topic: str, *, sync: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(0)
            first = file.read(len(_FIRST))
            is_new = first != _FIRST and _FIRST.startswith(first)
            if is_new:
                file.truncate(0)
            file.write((_FIRST if is_new else b"") + b"\n" + json.dumps(topic).encode())
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if sync and is_new:
            sync_directory(path.parent)
