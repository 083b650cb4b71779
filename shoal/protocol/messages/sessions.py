"""Fetch sessions (KIP-227): which offset each partition of a Fetch request was asked at, in one connection.

    epoch  0   full request: the partitions are all there are; a session with a non-zero id is closed, a new one may be
               opened: its id stands in the answer (0 = the broker opened none)
    epoch -1   full request, no session (also all of v4-v6); a session with a non-zero id is closed
    epoch >0   incremental request in the session named: partitions are added or asked at a new offset, then the forgotten
               ones are removed (`FetchSession.update`); all others stay as they were asked before

A partition that we do not know is absent from the result, and then nothing may be concluded about it; that is why limits and
anything doubtful (a partition twice in a request, a session opened on another connection) lead to absence, never to a
guess. A session lives in the broker, not in a connection: a client whose connection was lost between two requests goes on with it over
the next one, for ever (`knows`). Results are never changed after they were handed out, because answers come later than the next request may.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Final, TypeAlias

from shoal.protocol.messages.fetch import FetchPartition, FetchRequest
from shoal.protocol.wire.types import Topic

__all__ = ["MAX_PARTITIONS", "MAX_SESSIONS", "Asked", "FetchSessions"]

Asked: TypeAlias = Mapping[tuple[Topic, int], int]
"""(topic, partition) -> fetch offset."""

MAX_PARTITIONS: Final = 10_000
"""Partitions remembered of one session, about 2 MB; one leader rarely has more than 4,000 (Kafka's own advice)."""
MAX_SESSIONS: Final = 4
"""Sessions remembered of one connection; a client has one per broker, and Shoal one connection per client connection."""

_NO_PARTITIONS: Final[Asked] = {}


class FetchSessions:
    """The sessions of one connection. Call `request` for each Fetch request in order, and `answered` with its result before
    the answer is forwarded."""

    def __init__(self) -> None:
        self._sessions: dict[int, Asked] = {}

    def knows(self, request: FetchRequest) -> bool:
        """False: it goes on with a session that this connection has not begun."""
        return request.session_epoch <= 0 or request.session_id in self._sessions

    def request(self, request: FetchRequest) -> Asked:
        """The offset at which each partition that the answer may contain was asked."""
        if request.session_epoch <= 0:
            self._sessions.pop(request.session_id, None)
            return _bounded(_asked(request.partitions))
        asked = self._sessions.get(request.session_id, _NO_PARTITIONS)
        if request.partitions or request.forgotten:
            asked = _updated(asked, request)
            if request.session_id in self._sessions:
                self._sessions[request.session_id] = asked
        return asked

    def answered(self, request: FetchRequest, asked: Asked, session_id: int) -> None:
        """The answer to `request`, for which `asked` was returned, carries `session_id`."""
        if request.session_epoch == 0 and session_id != 0:
            self._sessions.pop(session_id, None)
            while len(self._sessions) >= MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[session_id] = asked


def _asked(partitions: tuple[FetchPartition, ...]) -> dict[tuple[Topic, int], int]:
    asked = {(one.topic, one.partition): one.fetch_offset for one in partitions}
    if len(asked) != len(partitions):
        seen: set[tuple[Topic, int]] = set()
        for one in partitions:
            key = (one.topic, one.partition)
            if key in seen:
                asked.pop(key, None)
            seen.add(key)
    return asked


def _updated(before: Asked, request: FetchRequest) -> Asked:
    asked = dict(before)
    for one in request.partitions:
        asked.pop((one.topic, one.partition), None)
    asked.update(_asked(request.partitions))
    for key in request.forgotten:
        asked.pop(key, None)
    return _bounded(asked)


def _bounded(asked: dict[tuple[Topic, int], int]) -> Asked:
    if len(asked) > MAX_PARTITIONS:
        return dict(islice(asked.items(), MAX_PARTITIONS))
    return asked
