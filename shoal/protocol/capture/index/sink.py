"""The destination of the taps' rows: the interface, and an implementation in memory."""

from collections.abc import Callable
from typing import Final, Protocol

from shoal.protocol.capture.index.names import Names
from shoal.protocol.wire.types import Topic

__all__ = ["MemorySink", "Sink"]

_ALL: Final = 1 << 32
"""Numbers of names have 32 bits."""


class Sink(Protocol):
    """Destination of rows, and source of name numbers. A number is valid for the next `add`, or while `epoch` is the
    same."""

    @property
    def epoch(self) -> int: ...

    def number(self, name: str) -> int: ...

    def topic(self, cluster: str, topic: Topic) -> int: ...

    def knows(self, cluster: str, topic: Topic) -> bool:
        """Whether `topic` gives the same number in all of this epoch: the name of a topic id may become known later."""
        ...

    def add(self, rows: bytes) -> None: ...

    def drop(self, rows: int) -> None: ...


class MemorySink:
    """A Sink that keeps all rows and names until `take`."""

    def __init__(self, topic_name: Callable[[str, bytes], str | None] = lambda _cluster, _topic_id: None) -> None:
        self._numbers = Names(topic_name, most=_ALL, most_size=_ALL)
        self.number, self.topic, self.knows = self._numbers.number, self._numbers.topic, self._numbers.knows
        self._names: dict[int, str] = {}
        self.pieces: list[bytes] = []
        self.size = 0
        """Bytes of the kept rows."""
        self.dropped = 0

    @property
    def epoch(self) -> int:
        return self._numbers.epoch

    @property
    def names(self) -> dict[int, str]:
        """All names so far, by number."""
        self._names |= self._numbers.take_new()
        return self._names

    def add(self, rows: bytes) -> None:
        self.pieces.append(rows)
        self.size += len(rows)

    def drop(self, rows: int) -> None:
        self.dropped += rows

    def take(self) -> bytes:
        """The rows since the last call."""
        rows, self.pieces, self.size = b"".join(self.pieces), [], 0
        return rows
