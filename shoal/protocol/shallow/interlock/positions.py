"""Who may have been given which records raw: every consumer's position in every partition.

A position counts as given: what lies below a flow's first fetch offset, or below one that it jumps to, it may have read
earlier or elsewhere. What it was handed in envelopes does not count, since it cannot come back as plain records.
"""

from collections import deque

from shoal.protocol.shallow.interlock.flow import Fetched, Flow, Place, TopicPartition

__all__ = ["GONE_SECONDS", "MAX_PLACES", "Positions"]

MAX_PLACES = 200_000  # flows x partitions; about 300 bytes each

# A mirror whose consumer has gone may still produce what it was given. producer.close() takes 30 s at most in Connect.
GONE_SECONDS = 60.0


class Positions:
    def __init__(self) -> None:
        self._places: dict[TopicPartition, list[Place]] = {}
        self._gone: deque[tuple[float, Flow]] = deque()
        self.count = 0

    def enter(self, flow: Flow, name: TopicPartition) -> Place | None:
        """The flow's place in that partition; None: there are MAX_PLACES already."""
        place = flow.places.get(name)
        if place is None and self.count < MAX_PLACES:
            place = flow.places[name] = Place(flow)
            self._places.setdefault(name, []).append(place)
            self.count += 1
        return place

    def others(self, flow: Flow, place: TopicPartition) -> int:
        """Records below this offset may have been given to another flow."""
        return max((other.raw for other in self._places.get(place, ()) if other.flow is not flow), default=0)

    def is_behind(self, flow: Flow, read: Fetched) -> bool:
        """Has a flow that is still there read on?"""
        return any(
            place.raw > read.fetch_offset and place.flow is not flow and place.flow.connections
            for place in self._places.get(read.place, ())
        )

    def leave(self, flow: Flow, now: float) -> None:
        """The flow's last connection has closed. Its places count on for GONE_SECONDS."""
        self._gone.append((now, flow))

    def forget_gone(self, now: float) -> None:
        while self._gone and now >= self._gone[0][0] + GONE_SECONDS:
            flow = self._gone.popleft()[1]
            for name, place in flow.places.items():
                self._places[name].remove(place)
                if not self._places[name]:
                    del self._places[name]
            self.count -= len(flow.places)
            flow.places.clear()
