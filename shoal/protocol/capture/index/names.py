"""Numbers for the names in rows. Each file has its own table, so it can be read without other files.

`take_new` returns the names added since the last call, which are written before the rows that refer to them; `renewed`
starts the next file's table. So the writer must take all rows and names of a file before it renews.
"""

from collections.abc import Callable
from typing import Final

from shoal.protocol.wire.types import Topic

__all__ = ["MAX_NAMES", "MAX_NAMES_SIZE", "Names"]

MAX_NAMES: Final = 100_000
"""Maximum per file: topics, client ids (some clients create a new one each time) and others. Then the next file is due;
until it starts, new names get the number 0."""
MAX_NAMES_SIZE: Final = 16 * 1024 * 1024
"""Characters of all names of a file: a client id may have 32,767, and each request another one."""

TopicName = Callable[[str, bytes], str | None]
"""Cluster and topic id -> name."""


class Names:
    def __init__(self, topic_name: TopicName, *, most: int = MAX_NAMES, most_size: int = MAX_NAMES_SIZE) -> None:
        self._topic_name = topic_name
        self._most = most
        self._most_size = most_size
        self._size = 0  # of the names with a number
        self.epoch = 0
        """Counts `renewed`: a number is valid within one epoch."""
        self._numbers: dict[str, int] = {"": 0}
        self._ids: dict[tuple[str, bytes], int] = {}
        self._fresh: dict[int, str] = {}

    def number(self, name: str) -> int:
        found = self._numbers.get(name)
        return self._add(name) if found is None else found

    def topic(self, cluster: str, topic: Topic) -> int:
        if isinstance(topic, str):
            return self.number(topic)
        found = self._ids.get((cluster, topic))
        if found is not None:
            return found
        name = self._topic_name(cluster, topic)
        if name is None:  # it may become known
            return self.number(topic.hex())
        number = self.number(name)
        if number:
            self._ids[cluster, topic] = number
        return number

    def knows(self, cluster: str, topic: Topic) -> bool:
        """Whether `topic` will give the same number until `renewed`."""
        return isinstance(topic, str) or (cluster, topic) in self._ids

    def _add(self, name: str) -> int:
        number = len(self._numbers)
        if self.is_full:
            return 0
        self._numbers[name] = number
        self._size += len(name)
        self._fresh[number] = name
        return number

    @property
    def is_full(self) -> bool:
        """True if the next file is due."""
        return len(self._numbers) > self._most or self._size >= self._most_size

    def take_new(self) -> dict[int, str]:
        fresh, self._fresh = self._fresh, {}
        return fresh

    def put_back(self, names: dict[int, str]) -> None:
        """The names could not be written."""
        self._fresh = {**names, **self._fresh}

    def repeated(self) -> None:
        """A file starts: it needs all known names."""
        self._fresh = {number: name for name, number in self._numbers.items() if number}

    def renewed(self) -> None:
        self._numbers, self._ids, self._fresh = {"": 0}, {}, {}
        self._size = 0
        self.epoch += 1
