"""A mirror's fetch request that is under way, and who asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import trio

from shoal.protocol.messages.sessions import FetchSessions
from shoal.protocol.shallow.interlock.flow import Fetched
from shoal.proxy.connection.topic_names import topic_name

if TYPE_CHECKING:
    from shoal.protocol.messages.fetch import FetchRequest
    from shoal.protocol.messages.sessions import Asked
    from shoal.protocol.shallow.interlock.flow import Flow
    from shoal.protocol.wire.types import Topic
    from shoal.proxy.connection.connection import Connection
    from shoal.proxy.shallow.interlock import Interlock

__all__ = ["Consumer", "MirrorFetch", "Unseen"]

_MAX_UNSEEN = 10_000  # partitions of topics without a name, by flow
_PROVING_SECONDS = 30.0  # a mirror that cannot be proven goes on as fast as without Shoal
_TRIAL_SECONDS = 2.0  # so does one that is proven and reads nothing that could be wrapped


class Consumer:
    """A connection on which somebody fetches."""

    __slots__ = (
        "asked_names_at",
        "flow",
        "is_mirror",
        "number",
        "proven_since",
        "proving_since",
        "sent_back",
        "sessions",
    )

    def __init__(self, flow: Flow, number: int, *, is_mirror: bool) -> None:
        self.flow = flow
        self.number = number
        self.is_mirror = is_mirror
        self.sessions = FetchSessions()
        self.sent_back = False  # to begin a fetch session anew, by the last answer
        self.asked_names_at = float("-inf")
        self.proving_since: float | None = None
        self.proven_since: float | None = None

    def is_proving(self, now: float) -> bool:
        """Not one envelope has come through yet, and there is hope."""
        if self.flow.arrived:
            self.proving_since = self.proven_since = None
            return False
        if self.proving_since is None:
            self.proving_since = now
        if now - self.proving_since >= _PROVING_SECONDS:
            return False
        return not self._is_idle_proven(now)

    def _is_idle_proven(self, now: float) -> bool:
        """It could have been given an envelope for a while, and there was none to give."""
        if not self.flow.is_proven or self.flow.silent_since is not None:
            self.proven_since = None
            return False
        if self.proven_since is None:
            self.proven_since = now
        return now - self.proven_since >= _TRIAL_SECONDS


class MirrorFetch(NamedTuple):
    """A request, and at which offset each partition was asked."""

    consumer: Consumer
    request: FetchRequest
    asked: Asked

    def read(
        self, connection: Connection, place: tuple[Topic, int], next_offset: int, high_watermark: int
    ) -> Fetched | None:
        """What the answer gives of a partition; None where its name or its fetch offset is not known.

        `next_offset` is -1 for an unreadable record set: nobody knows what the mirror makes of it, at most all that there is.
        """
        topic, partition = place
        name, offset = topic_name(connection, topic), self.asked.get(place)
        if name is None or offset is None:
            return None
        following = max(next_offset if next_offset >= 0 else high_watermark, offset)
        return Fetched(self.consumer.number, name, partition, offset, following)


class Unseen:
    """What mirrors and others were given of topics of which only the id is known yet: up to which offset.

    It is no evidence for another flow, as soon as the name is known; before, nobody can be proven by that topic.
    """

    def __init__(self, interlock: Interlock) -> None:
        self._interlock = interlock
        self._next: dict[Topic, dict[tuple[int, int], tuple[Flow, int]]] = {}  # by topic, then partition and flow
        self._count = 0

    def note(self, connection: Connection, flow: Flow, place: tuple[Topic, int], raw_next: int) -> None:
        """Records of a partition below `raw_next` are given, and nobody knows from where on, or of which topic."""
        topic, partition = place
        name = topic_name(connection, topic)
        if name is not None:
            self._tell(flow, (name, partition), raw_next)
            return
        key = partition, flow.token
        known = self._next.get(topic, {})
        if key not in known:
            if self._count >= _MAX_UNSEEN:
                return
            self._count += 1
        self._next.setdefault(topic, known)[key] = flow, max(raw_next, known.get(key, (flow, 0))[1])

    def resolve(self, connection: Connection) -> None:
        """Tell the interlock of those whose names are known now."""
        named = [(topic, name) for topic in self._next if (name := topic_name(connection, topic)) is not None]
        for topic, name in named:
            noted = self._next.pop(topic)
            self._count -= len(noted)
            for (partition, _), (flow, raw_next) in noted.items():
                self._tell(flow, (name, partition), raw_next)

    def _tell(self, flow: Flow, place: tuple[str, int], raw_next: int) -> None:
        self._interlock.rules.gave_unseen(flow, place, raw_next, trio.current_time())
