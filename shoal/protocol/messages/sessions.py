"""Fetch sessions (KIP-227): the fetch offset of each partition that a Fetch request covers, per connection.

    epoch  0   full request: it lists all partitions; a session with a non-zero id is closed. The broker may open a new
               one, and the response has its id (0 = none)
    epoch -1   full request, no session (also all of v4-v6); a session with a non-zero id is closed
    epoch >0   incremental request in the given session: partitions are added or get a new offset, then the forgotten
               ones are removed (`FetchSession.update`); all others keep their offset

An unknown partition is absent from the result, and nothing may be concluded about it. So limits and anything
doubtful (a partition twice in a request, a session opened on another connection) lead to absence, never to a guess. A
session belongs to the broker, not to a connection: a client that lost its connection between two requests continues the
session on the next one, indefinitely (`knows`). Results are never changed after they are returned, because a response
may follow the next request.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final, TypeAlias

from shoal.protocol.messages.fetch import FetchPartition, FetchRequest
from shoal.protocol.wire.types import PartitionRef

__all__ = ["MAX_PARTITIONS", "MAX_SESSIONS", "FetchOffsets", "FetchSessions"]

FetchOffsets: TypeAlias = Mapping[PartitionRef, int]
"""Partition -> fetch offset."""

MAX_PARTITIONS: Final = 10_000
"""Partitions remembered per session, about 2 MB; a leader rarely has more than 4,000 (Kafka's own advice)."""
MAX_SESSIONS: Final = 4
"""Sessions remembered per connection; a client has one per broker, and Shoal one connection per client connection."""

_NO_PARTITIONS: Final[FetchOffsets] = {}


class FetchSessions:
    """The sessions of one connection.

    Call `request` for each Fetch request in order, and `answered` with its result before the response is forwarded.
    """

    def __init__(self) -> None:
        self._sessions: dict[int, FetchOffsets] = {}

    def knows(self, request: FetchRequest) -> bool:
        """False if the request continues a session that was not opened on this connection."""
        return request.session_epoch <= 0 or request.session_id in self._sessions

    def request(self, request: FetchRequest) -> FetchOffsets:
        """The fetch offset of each partition that the response may contain."""
        if request.session_epoch <= 0:
            self._sessions.pop(request.session_id, None)
            return _bounded(_asked(request.partitions))
        asked = self._sessions.get(request.session_id, _NO_PARTITIONS)
        if request.partitions or request.forgotten:
            asked = _updated(asked, request)
            if request.session_id in self._sessions:
                self._sessions[request.session_id] = asked
        return asked

    def answered(self, request: FetchRequest, asked: FetchOffsets, session_id: int) -> None:
        """The response to `request`, for which `asked` was returned, has `session_id`."""
        if request.session_epoch == 0 and session_id != 0:
            self._sessions.pop(session_id, None)
            while len(self._sessions) >= MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session_id] = asked


def _asked(partitions: tuple[FetchPartition, ...]) -> dict[PartitionRef, int]:
    asked = {PartitionRef(wanted.topic, wanted.partition): wanted.fetch_offset for wanted in partitions}
    if len(asked) != len(partitions):
        seen: set[PartitionRef] = set()
        for wanted in partitions:
            key = PartitionRef(wanted.topic, wanted.partition)
            if key in seen:
                asked.pop(key, None)
            seen.add(key)
    return asked


def _updated(before: FetchOffsets, request: FetchRequest) -> FetchOffsets:
    asked = dict(before)
    for wanted in request.partitions:
        asked.pop(PartitionRef(wanted.topic, wanted.partition), None)
    asked.update(_asked(request.partitions))
    for key in request.forgotten:
        asked.pop(key, None)
    return _bounded(asked)


def _bounded(asked: dict[PartitionRef, int]) -> FetchOffsets:
    if len(asked) > MAX_PARTITIONS:
        return dict(islice(asked.items(), MAX_PARTITIONS))
    return asked
