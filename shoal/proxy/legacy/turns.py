"""What a legacy client's connection remembers of the partitions it reads: whose turn it is, and what need not be read again.

Turns: an answer of the broker is small (legacy-options.fetch), so it may hold one partition of many. Kafka fills answers in the order
of the request; so what gave something last time is asked for last.

Skips: where an answer has nothing for the client (transaction markers, aborted records), an old client does not know that it could read on,
and asks for the same offset again at once. What was found out is kept, so that this question becomes one for what follows,
which the broker answers when there is something.

Needs: batches of a partition that took more than usual to be opened were not the last, so as much is paid for with the next answer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shoal.protocol.legacy.fetch.fetch import Wanted

__all__ = ["PartitionRotation", "Place", "place_of"]

Place: TypeAlias = tuple[str, int]
_Known = TypeVar("_Known")
_LIMIT = 10_000  # partitions of one connection, of each kind of knowledge: ~200 bytes each


class _Skip(NamedTuple):
    asked: int
    follows: int


class _Recent(OrderedDict[Place, _Known]):
    """Forgets what was not told for the longest time."""

    def tell(self, place: Place, what: _Known) -> None:
        self[place] = what
        self.move_to_end(place)
        if len(self) > _LIMIT:
            self.popitem(last=False)


class PartitionRotation:
    def __init__(self) -> None:
        self._given: _Recent[int] = _Recent()
        self._skips: _Recent[_Skip] = _Recent()
        self._watermarks: _Recent[int] = _Recent()
        self._needs: _Recent[int] = _Recent()
        self._count = 0

    def in_turn(self, wanted: Iterable[Wanted]) -> tuple[Wanted, ...]:
        """Each place once, what was given last comes last; offsets as the broker is to be asked."""
        by_place = {place_of(one): self._ahead(one) for one in wanted}
        return tuple(sorted(by_place.values(), key=lambda one: self._given.get(place_of(one), 0)))

    def _ahead(self, wanted: Wanted) -> Wanted:
        skip = self._skips.get(place_of(wanted))
        return wanted._replace(offset=skip.follows) if skip and skip.asked == wanted.offset else wanted

    def gave(self, place: Place, needed: int = 0) -> None:
        """`needed`: bytes that this took beside the answer."""
        self._count += 1
        self._given.tell(place, self._count)
        self._needs.tell(place, needed)
        self._skips.pop(place, None)

    def nothing_between(self, place: Place, asked: int, follows: int) -> bool:
        """From the offset that the client asks for up to the one that follows; -> whether this is further than was known."""
        known = self._skips.get(place)
        before = known.follows if known and known.asked == asked else asked
        if follows > before:
            self._skips.tell(place, _Skip(asked, follows))
        return follows > before

    def refused(self, place: Place) -> bool:
        """The broker has an error for what was asked; -> whether that was more than the client had asked for."""
        return self._skips.pop(place, None) is not None

    def learn_need(self, place: Place, size: int) -> None:
        """Bytes beside the answer, without which it cannot be opened."""
        self._needs.tell(place, size)

    def need(self, places: Iterable[Place]) -> int:
        """Of one of them, since one is converted at a time."""
        return max((self._needs.get(place, 0) for place in places), default=0)

    def learn_watermark(self, place: Place, high_watermark: int) -> None:
        self._watermarks.tell(place, high_watermark)

    def watermark(self, place: Place) -> int:
        """-1: not known. (Old clients use it for figures, and to say that they are at the end.)"""
        return self._watermarks.get(place, -1)


def place_of(wanted: Wanted) -> Place:
    return wanted.topic, wanted.partition
